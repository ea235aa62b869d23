/* clock.h: the only place that reads clocks. Nanoseconds, int64_t. */
#ifndef AIRLOCK_BASE_CLOCK_H
#define AIRLOCK_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

int64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: durations, deadlines */
int64_t clock_real_ns(void); /* CLOCK_REALTIME: records */
/* Also of times before 1970, whose fraction counts forward. */
struct timespec clock_timespec(int64_t ns);
/* Milliseconds until deadline_ns for poll(): rounded up, 0 if past, -1 for INT64_MAX. */
int clock_poll_ms(int64_t deadline_ns, int64_t now_ns);
/* "2026-11-29T15:07:41Z" into out (at least 21 bytes). */
void clock_rfc3339(int64_t real_ns, char *out, size_t n);
/* "2026-11-29T15:07:41.005Z" into out (at least 25 bytes): what the API says. */
void clock_iso_ms(int64_t real_ns, char *out, size_t n);
/* "3 ms", "1.24 s", "2 min 05 s" into out (at least 24 bytes). */
void clock_human(int64_t dur_ns, char *out, size_t n);

#endif
