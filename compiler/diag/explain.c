/* Texts of `dtmc explain`, from diag_codes.def. */
#include "diag/render.h"

void diag_explain(DiagCode code, StrBuf *out) {
  const DiagInfo *info = diag_info(code);
  if (!info) return;
  strbuf_printf(out, "%s[%s]: %s\n\n%s", diag_severity_name(info->severity), info->code,
                info->title, info->explanation);
}

void diag_list(StrBuf *out) {
  for (DiagCode c = DIAG_NONE + 1; c < DIAG_COUNT; c++) {
    const DiagInfo *info = diag_info(c);
    strbuf_printf(out, "%s  %-7s  %s\n", info->code, diag_severity_name(info->severity),
                  info->title);
  }
}
