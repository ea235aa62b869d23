/*
 * program.h: a seccomp program being put together, for gen.c. A tool's code: what cannot be is the end of the build.
 *
 * The list of numbers is judged by libseccomp: its program says of each run of neighbouring numbers what their verdict
 * is, and ours searches the runs. That is a quarter of libseccomp's instructions, which the kernel compiles anew at each
 * start, after it has walked through them once for each number that there is: long runs lie near the root of the
 * search. Where arguments count, rules are the verdict of one number.
 */
#ifndef AIRLOCK_OS_SECCOMP_PROGRAM_H
#define AIRLOCK_OS_SECCOMP_PROGRAM_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp profile for this processor"
#endif

#define PROG_MAX 512
#define RULES_MAX 16

#define DATA(f) ((uint32_t)offsetof(struct seccomp_data, f))
#define ARG(n) (DATA(args) + 8u * (n)) /* low half: little endian */

struct prog {
	struct sock_filter f[PROG_MAX];
	unsigned n;
	/* Jumps to a verdict: each verdict is one instruction, at the end, where all of them meet. */
	struct {
		unsigned at;
		bool yes;
		uint32_t verdict;
	} ends[PROG_MAX];
	unsigned nends;
};

void emit(struct prog *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf);
/* If the accumulator equals (or has a bit of) k, end with verdict. */
void when(struct prog *p, uint16_t op, uint32_t k, uint32_t verdict);
/* Adds the verdicts that jumps end with. */
void finish(struct prog *p);
/* As an array of C. */
void print(const char *name, const struct prog *p);

/* What the arguments of some calls decide. One program holds it all: each rule's part ends with a verdict. */
struct rules {
	struct {
		uint32_t nr;
		unsigned from, to;	     /* its instructions, */
		unsigned ends_from, ends_to; /* and those of its jumps that end with a verdict */
	} of[RULES_MAX];
	unsigned n;
	struct prog p;
};

/* Opens the rule for call number nr. */
struct prog *rule_any(struct rules *rs, uint32_t nr);
/* The same, with one of its arguments in the accumulator. */
struct prog *rule(struct rules *rs, uint32_t nr, unsigned arg);
void rule_end(struct rules *rs, uint32_t verdict);

/*
 * The whole program for the list f, which looks at nothing but number and architecture, and the rules. False unless the
 * same verdict comes for every number that has no rule, and for other architectures.
 */
bool assemble(struct prog *p, const struct sock_filter *f, size_t n, const struct rules *rs);

#endif
