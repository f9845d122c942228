/* Blocks of memory: see sim.h. */
#ifndef DTM_TESTS_GPUSIM_SIM_MEMORY_H
#define DTM_TESTS_GPUSIM_SIM_MEMORY_H

#include "gpusim/sim.h"

/* Device memory can be touched by this process only between these two: a host that follows a
 * device address ends with SIGSEGV, as it would. Operations that need it show it; sim_leave hides
 * it again. */
void sim_memory_show(void);
void sim_memory_hide(void);

/* Copies and fills, as operations to enqueue. */
typedef enum SimCopy { SIM_TO_DEVICE, SIM_TO_HOST, SIM_ON_DEVICE } SimCopy;
SimOp *sim_copy_new(SimCopy kind, void *to, const void *from, size_t bytes);
/* `n` bytes of value. */
SimOp *sim_fill_new(void *to, unsigned char value, size_t n);

#endif
