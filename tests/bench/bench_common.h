/* What the benches that start sandboxes share. */
#ifndef AIRLOCK_TESTS_BENCH_COMMON_H
#define AIRLOCK_TESTS_BENCH_COMMON_H

#include "base/err.h"
#include "provider/provider.h"

extern char *bench_true[]; /* sh -c true */

/* Says what failed (e may be NULL: errno), and exits with 1. */
_Noreturn void bench_die(const char *what, const struct err *e);
/* For qsort(3): int64_t, the smallest first. */
int bench_compare(const void *a, const void *b);
/* sh -c true in a running sandbox, to its last event; anything but success ends the bench. */
void bench_run_true(struct sandbox *sb, const char *cwd, char *const *env, int null);

#endif
