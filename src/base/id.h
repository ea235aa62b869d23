/*
 * id.h: names of runs and leases.
 *
 * 16 characters of lower-case Crockford base32 (no i, l, o, u): 9 of time in
 * milliseconds, so ids sort by age, and 7 random (35 bits). Safe as a file name.
 */
#ifndef AIRLOCK_BASE_ID_H
#define AIRLOCK_BASE_ID_H

#include <stdbool.h>

#define ID_LEN 16

/* Fills out (ID_LEN + 1 bytes). 0 or a negative errno of getrandom. */
int id_new(char out[ID_LEN + 1]);
/* True for 1..ID_LEN characters of the alphabet: an id or the prefix of one. */
bool id_is_prefix(const char *s);

#endif
