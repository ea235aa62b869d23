/*
 * door2.h: what stands around a transport of door 2 in its fuzz target: a guard with the built-in policy, and an upstream in this process
 * that looks at each request as the real one would: our credential and no other, nothing that the guard does not let through.
 */
#ifndef TESTS_FUZZ_DOOR2_H
#define TESTS_FUZZ_DOOR2_H

#include <stdbool.h>
#include <stdint.h>

#include "bridge/exchange.h"

#define DOOR2_TOKEN "0123456789abcdef0123456789abcdef"
#define DOOR2_SECRET "the-credential-of-the-host"

extern uint64_t door2_started; /* requests that reached the upstream */

struct guard *door2_guard(void);
/* Answers go on: by the target's last byte well (b: 300,000 bytes, n: 204), unreachable (u), lost (l), never (z). */
void door2_turn(void);
bool door2_idle(void);

#endif
