/* Which elements of two vectors of n elements, in turn, are zipped: of their first halves, of their
 * second halves. log2(n) rounds turn a square over: y[2 r] = low, y[2 r + 1] = high of x[r] and
 * x[r + n / 2]. */
#ifndef DTM_RT_ZIP_H
#define DTM_RT_ZIP_H

#define ZIP_LOW_2 0, 2
#define ZIP_HIGH_2 1, 3
#define ZIP_LOW_4 0, 4, 1, 5
#define ZIP_HIGH_4 2, 6, 3, 7
#define ZIP_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15
#define ZIP_LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define ZIP_JOIN(name, n) name##n
#define ZIP_LOW(n) ZIP_JOIN(ZIP_LOW_, n)
#define ZIP_HIGH(n) ZIP_JOIN(ZIP_HIGH_, n)

#endif
