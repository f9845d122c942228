/* The same program on every mesh gives the losses of mesh 1. */
#include "e2e/meshes.h"

#include <stddef.h>

int main(void) {
  return meshes_run("meshes", NULL);
}
