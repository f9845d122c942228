/* The renderers behind diag_render; each appends to a string buffer whose arena is scratch. */
#ifndef DTM_DIAG_RENDER_H
#define DTM_DIAG_RENDER_H

#include "diag/diag.h"

/* All diagnostics by file, then offset, then order of arrival; those without a place first. */
const Diag **diag_in_source_order(const DiagSink *sink, Arena *scratch);
const char *diag_severity_name(Severity severity);

void diag_render_text(const DiagSink *sink, StrBuf *out, bool color);
/* {"diagnostics":[...],"errors":n,"warnings":n}: one object, documented in README.md. */
void diag_render_json(const DiagSink *sink, StrBuf *out);
/* SARIF 2.1.0, what GitHub code scanning reads. */
void diag_render_sarif(const DiagSink *sink, StrBuf *out);
/* GitHub Actions workflow commands, `::error file=...::text`. */
void diag_render_github(const DiagSink *sink, StrBuf *out);

#endif
