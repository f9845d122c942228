/* What a collective belongs to, kept per process for messages: see comm.h. */
#include "comm/comm.h"
