/*
 * id.h: names of runs and leases, and UUIDs.
 *
 * 16 characters of lower-case Crockford base32 (no i, l, o, u): 9 of time in
 * milliseconds, so ids sort by age, and 7 random (35 bits). Safe as a file name.
 */
#ifndef AIRLOCK_BASE_ID_H
#define AIRLOCK_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>

#define ID_LEN 16

/* Fills out (ID_LEN + 1 bytes). 0 or a negative errno of getrandom. */
int id_new(char out[ID_LEN + 1]);
/* True for 1..ID_LEN characters of the alphabet: an id or the prefix of one. */
bool id_is_prefix(const char *s);

/*
 * UUIDs: names of what the API knows (companies, environments, leases, ...). Random, lower case.
 */
#define UUID_LEN 36

/* Fills out (UUID_LEN + 1 bytes). 0 or a negative errno of getrandom. */
int uuid_new(char out[UUID_LEN + 1]);
/* True, with the lower-case form in out, for 8-4-4-4-12 hexadecimal digits and nothing else. */
bool uuid_parse(const char *s, size_t n, char out[UUID_LEN + 1]);

#endif
