/* Turning fix candidates into verified, priced help lines. */
#ifndef DTM_DRIVER_FIXES_H
#define DTM_DRIVER_FIXES_H

#include "driver/session.h"

/* For every error of the session that has candidates: elaborates the program again with one
 * applied; one that cures the error and raises no other becomes a help line with the text to paste
 * and the collectives, forward and backward, that it costs. Cheapest first. Where there is none, the
 * candidate that gets furthest before the next error is shown, with the place of that error. */
void fixes_verify(Session *s, const SemaOptions *sema);

#endif
