/* What this machine's processor can do. */
#ifndef DTM_RT_CPU_H
#define DTM_RT_CPU_H

/* The first feature of a list "+avx2,+fma" (names as LLVM spells them) that this processor lacks,
 * or NULL. The answer points to static memory. */
const char *dtm_rt_cpu_lacks(const char *features);

#endif
