/* Variables in files: see state.h. */
#include "state/state.h"

#include "comm/errors.h"

static int absent(RtComm *comm, const char *path) {
  return dtm_rt_fail(comm, RT_BAD_DATA, "%s: checkpoints are not there yet", path);
}

int dtm_rt_state_load(RtComm *comm, const Image *image, const char *path) {
  (void)image;
  return absent(comm, path);
}
int dtm_rt_state_save(RtComm *comm, const Image *image, const char *path) {
  (void)image;
  return absent(comm, path);
}
int dtm_rt_checkpoint_save(RtComm *comm, const Image *image, const char *path,
                           const RtProgress *progress) {
  (void)image, (void)progress;
  return absent(comm, path);
}
int dtm_rt_checkpoint_load(RtComm *comm, const Image *image, const char *path,
                           RtProgress *progress) {
  (void)image, (void)progress;
  return absent(comm, path);
}
