#include "base/clock.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

#ifdef __GLIBC__
	(void)clock_gettime(id, &ts);
#else
	/* The small static programs ask a few times in their life: the vDSO costs them three page faults first. */
	(void)syscall(SYS_clock_gettime, id, &ts);
#endif
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_mono_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_real_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

struct timespec clock_timespec(int64_t ns)
{
	int64_t s = ns / NS_PER_S, rest = ns % NS_PER_S;

	if (rest < 0) {
		rest += NS_PER_S;
		s--;
	}
	return (struct timespec){.tv_sec = s, .tv_nsec = rest};
}

int clock_poll_ms(int64_t deadline_ns, int64_t now_ns)
{
	int64_t ms;

	if (deadline_ns == INT64_MAX)
		return -1;
	if (deadline_ns <= now_ns)
		return 0;
	ms = (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

void clock_rfc3339(int64_t real_ns, char *out, size_t n)
{
	time_t t = (time_t)(real_ns / NS_PER_S);
	struct tm tm;

	if (n)
		out[0] = '\0';
	if (gmtime_r(&t, &tm))
		(void)strftime(out, n, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static char *digits(char *out, unsigned v, unsigned n)
{
	for (unsigned i = n; i > 0; i--, v /= 10)
		out[i - 1] = (char)('0' + v % 10);
	return out + n;
}

/*
 * By arithmetic, not strftime: a list of the API holds thousands of times, and strftime asks for the time zone
 * each time. Years are counted from March, so that the leap day is the last one, in eras of 400 years.
 */
void clock_iso_ms(int64_t real_ns, char *out, size_t n)
{
	int64_t ms = real_ns / NS_PER_MS, days = ms / 86400000 + 719468;
	unsigned in_day = (unsigned)(ms % 86400000), era = (unsigned)(days / 146097),
		 doe = (unsigned)(days % 146097),
		 yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365,
		 doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153,
		 month = mp < 10 ? mp + 3 : mp - 9, year = era * 400 + yoe + (month <= 2);
	char text[25], *p = text;

	if (real_ns < 0 || year > 9999 || n < sizeof(text)) {
		if (n)
			out[0] = '\0';
		return;
	}
	p = digits(p, year, 4);
	*p++ = '-';
	p = digits(p, month, 2);
	*p++ = '-';
	p = digits(p, doy - (153 * mp + 2) / 5 + 1, 2);
	*p++ = 'T';
	p = digits(p, in_day / 3600000, 2);
	*p++ = ':';
	p = digits(p, in_day / 60000 % 60, 2);
	*p++ = ':';
	p = digits(p, in_day / 1000 % 60, 2);
	*p++ = '.';
	p = digits(p, in_day % 1000, 3);
	*p++ = 'Z';
	*p = '\0';
	memcpy(out, text, sizeof(text));
}

void clock_human(int64_t dur_ns, char *out, size_t n)
{
	int64_t s = dur_ns / NS_PER_S;

	if (dur_ns < 10 * NS_PER_MS)
		(void)snprintf(out, n, "%.1f ms", (double)dur_ns / 1e6);
	else if (dur_ns < NS_PER_S)
		(void)snprintf(out, n, "%lld ms", (long long)(dur_ns / NS_PER_MS));
	else if (s < 60)
		(void)snprintf(out, n, "%.2f s", (double)dur_ns / 1e9);
	else
		(void)snprintf(out, n, "%lld min %02lld s", (long long)(s / 60),
			       (long long)(s % 60));
}
