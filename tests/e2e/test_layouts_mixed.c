/* Part of the table of layouts.h: losses and gradients of every row are those of one rank. */
#include "e2e/layouts.h"

int main(void) {
  return layouts_run("layouts_mixed", layouts_mixed);
}
