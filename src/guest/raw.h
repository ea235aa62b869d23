/*
 * raw.h: system calls without the C library.
 *
 * For code that runs in pid 1's memory beside pid 1 (hold.h): the library keeps errno, its locks and its notion
 * of the calling thread in memory that both would write at once. Nothing here touches any of it.
 */
#ifndef AIRLOCK_GUEST_RAW_H
#define AIRLOCK_GUEST_RAW_H

#include <stdint.h>
#include <sys/syscall.h>

#define RAW(x) ((long)(x))
#define RAW_P(p) ((long)(intptr_t)(p))

/* What the kernel returns: a negative errno for a failure. */
static inline __attribute__((always_inline)) long raw5(long nr, long a, long b, long c, long d,
						       long e)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory", "cc");
	return x0;
#else
#error "no system calls for this processor"
#endif
}

static inline __attribute__((always_inline)) long raw3(long nr, long a, long b, long c)
{
	return raw5(nr, a, b, c, 0, 0);
}

static inline __attribute__((always_inline, noreturn)) void raw_exit(int code)
{
	for (;;)
		(void)raw3(SYS_exit_group, code, 0, 0);
}

#endif
