#include "os/seccomp/program.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define EDGES_MAX 8192
/* About as many numbers as there are: what a run is worth that has no end. */
#define NUMBERS 470

void emit(struct prog *p, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (p->n == PROG_MAX)
		abort();
	p->f[p->n++] = (struct sock_filter){.code = code, .k = k, .jt = jt, .jf = jf};
}

/* The jump at `at`, if it is taken or if it is not, ends with verdict. */
static void end_with(struct prog *p, unsigned at, bool yes, uint32_t verdict)
{
	if (p->nends == PROG_MAX)
		abort();
	p->ends[p->nends].at = at;
	p->ends[p->nends].yes = yes;
	p->ends[p->nends++].verdict = verdict;
}

void when(struct prog *p, uint16_t op, uint32_t k, uint32_t verdict)
{
	emit(p, (uint16_t)(BPF_JMP | op | BPF_K), k, 0, 0);
	end_with(p, p->n - 1, true, verdict);
}

/* A jump's way to instruction `to`. */
static void lead(struct prog *p, unsigned at, bool yes, unsigned to)
{
	if (to - at - 1 > UINT8_MAX)
		abort();
	*(yes ? &p->f[at].jt : &p->f[at].jf) = (uint8_t)(to - at - 1);
}

void finish(struct prog *p)
{
	unsigned first = p->n;

	for (unsigned i = 0; i < p->nends; i++) {
		unsigned to = first;

		while (to < p->n && p->f[to].k != p->ends[i].verdict)
			to++;
		if (to == p->n)
			emit(p, BPF_RET | BPF_K, p->ends[i].verdict, 0, 0);
		lead(p, p->ends[i].at, p->ends[i].yes, to);
	}
	p->nends = 0;
}

struct prog *rule_any(struct rules *rs, uint32_t nr)
{
	if (rs->n == RULES_MAX)
		abort();
	rs->of[rs->n].nr = nr;
	rs->of[rs->n].from = rs->p.n;
	rs->of[rs->n].ends_from = rs->p.nends;
	return &rs->p;
}

struct prog *rule(struct rules *rs, uint32_t nr, unsigned arg)
{
	struct prog *p = rule_any(rs, nr);

	emit(p, BPF_LD | BPF_W | BPF_ABS, ARG(arg), 0, 0);
	return p;
}

void rule_end(struct rules *rs, uint32_t verdict)
{
	emit(&rs->p, BPF_RET | BPF_K, verdict, 0, 0);
	rs->of[rs->n].ends_to = rs->p.nends;
	rs->of[rs->n++].to = rs->p.n;
}

/* Its place in the table, or rs->n. */
static unsigned rule_of(const struct rules *rs, uint32_t nr)
{
	unsigned i = 0;

	while (i < rs->n && rs->of[i].nr != nr)
		i++;
	return i;
}

void print(const char *name, const struct prog *p)
{
	(void)printf("static const struct sock_filter %s[] = {\n", name);
	for (unsigned i = 0; i < p->n; i++)
		(void)printf("\t{0x%02x, %u, %u, 0x%08x},\n", p->f[i].code, p->f[i].jt, p->f[i].jf,
			     p->f[i].k);
	(void)printf("};\n\n");
}

/* Runs a program that looks at nothing but number and architecture; anything else is a fault of this tool. */
static uint32_t judge(const struct sock_filter *f, size_t n, uint32_t arch, uint32_t nr)
{
	uint32_t a = 0;

	for (size_t pc = 0; pc < n; pc++) {
		bool yes = false;

		switch (f[pc].code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f[pc].k != DATA(nr) && f[pc].k != DATA(arch))
				abort();
			a = f[pc].k == DATA(nr) ? nr : arch;
			continue;
		case BPF_RET | BPF_K:
			return f[pc].k;
		case BPF_JMP | BPF_JA:
			pc += f[pc].k;
			continue;
		case BPF_JMP | BPF_JEQ | BPF_K:
			yes = a == f[pc].k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			yes = a >= f[pc].k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			yes = a > f[pc].k;
			break;
		default:
			abort();
		}
		pc += yes ? f[pc].jt : f[pc].jf;
	}
	abort();
}

/* Numbers from `from` to the next run's have one verdict, or the one number has a rule. */
struct run {
	uint32_t from, verdict;
	unsigned rule; /* one more than its place in the table; 0: none */
};

static int compare_u32(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return (a > b) - (a < b);
}

/* A verdict changes only where a jump compares, at its constant and behind it, or where a rule is. */
static size_t find_runs(const struct sock_filter *f, size_t n, const struct rules *rs,
			struct run *ret)
{
	static uint32_t edges[EDGES_MAX];
	size_t len = 0, runs = 0;

	if (2 * (n + rs->n) + 1 > EDGES_MAX)
		abort();
	edges[len++] = 0;
	for (size_t i = 0; i < n; i++) {
		if (BPF_CLASS(f[i].code) != BPF_JMP)
			continue;
		edges[len++] = f[i].k;
		if (f[i].k != UINT32_MAX)
			edges[len++] = f[i].k + 1;
	}
	for (unsigned i = 0; i < rs->n; i++) {
		edges[len++] = rs->of[i].nr;
		edges[len++] = rs->of[i].nr + 1;
	}
	qsort(edges, len, sizeof(edges[0]), compare_u32);
	for (size_t i = 0; i < len; i++) {
		struct run r = {.from = edges[i], .verdict = judge(f, n, ARCH, edges[i])};

		r.rule = (rule_of(rs, edges[i]) + 1) % (rs->n + 1);
		if (runs == 0 || ret[runs - 1].verdict != r.verdict || ret[runs - 1].rule != r.rule)
			ret[runs++] = r;
	}
	return runs;
}

/* How many numbers lie between the starts of two runs, or behind the last: all count, so none is 0. */
static uint32_t worth(const struct run *r, size_t i, size_t n)
{
	if (i + 1 < n)
		return r[i + 1].from - r[i].from;
	return r[i].from < NUMBERS ? NUMBERS - r[i].from : 1;
}

/* Where both sides are worth most nearly the same; neither is empty. */
static size_t middle(const struct run *r, size_t n, const struct run *all, size_t len)
{
	size_t at = (size_t)(r - all), mid = 1;
	uint32_t whole = 0, left = 0;

	for (size_t i = 0; i < n; i++)
		whole += worth(all, at + i, len);
	for (size_t i = 1; i < n; i++) {
		left += worth(all, at + i - 1, len);
		mid = i;
		if (2 * left + worth(all, at + i, len) >= whole)
			break;
	}
	return mid;
}

struct search {
	const struct run *all;
	size_t len;
	const struct rules *rules;
};

/* Its jumps are relative. */
static void put_rule(struct prog *p, const struct rules *rs, unsigned i)
{
	unsigned by = p->n - rs->of[i].from;

	for (unsigned k = rs->of[i].from; k < rs->of[i].to; k++)
		emit(p, rs->p.f[k].code, rs->p.f[k].k, rs->p.f[k].jt, rs->p.f[k].jf);
	for (unsigned k = rs->of[i].ends_from; k < rs->of[i].ends_to; k++)
		end_with(p, rs->p.ends[k].at + by, rs->p.ends[k].yes, rs->p.ends[k].verdict);
}

static void search(struct prog *p, const struct search *s, const struct run *r, size_t n);

/* One side of the jump at `at`: a verdict, or what comes next. */
static void search_side(struct prog *p, const struct search *s, unsigned at, bool yes,
			const struct run *r, size_t n)
{
	if (n == 1 && r->rule == 0) {
		end_with(p, at, yes, r->verdict);
		return;
	}
	lead(p, at, yes, p->n);
	search(p, s, r, n);
}

/* Which of the runs the accumulator lies in. */
static void search(struct prog *p, const struct search *s, const struct run *r, size_t n)
{
	size_t mid;
	unsigned at;

	if (n == 1) {
		if (r->rule)
			put_rule(p, s->rules, r->rule - 1);
		else
			emit(p, BPF_RET | BPF_K, r->verdict, 0, 0);
		return;
	}
	mid = middle(r, n, s->all, s->len);
	at = p->n;
	emit(p, BPF_JMP | BPF_JGE | BPF_K, r[mid].from, 0, 0);
	search_side(p, s, at, false, r, mid);
	search_side(p, s, at, true, r + mid, n - mid);
}

/* Numbers that a rule judges are not the list's: the tests of the programs judge those. */
static bool same_verdict(const struct prog *p, const struct sock_filter *f, size_t n,
			 const struct rules *rs, uint32_t arch, uint32_t nr)
{
	if (arch == ARCH && rule_of(rs, nr) < rs->n)
		return true;
	return judge(p->f, p->n, arch, nr) == judge(f, n, arch, nr);
}

/* The same verdict for every number, on either side of each edge, and for other architectures. */
static bool same(const struct prog *p, const struct sock_filter *f, size_t n,
		 const struct search *s)
{
	const uint32_t archs[] = {ARCH, AUDIT_ARCH_I386, AUDIT_ARCH_ARM, 0, UINT32_MAX};

	for (size_t a = 0; a < ARRAY_LEN(archs); a++) {
		for (uint32_t nr = 0; nr < 8192; nr++)
			if (!same_verdict(p, f, n, s->rules, archs[a], nr))
				return false;
		for (size_t i = 0; i < s->len; i++)
			for (uint32_t d = 0; d < 3; d++)
				if (!same_verdict(p, f, n, s->rules, archs[a],
						  s->all[i].from - 1 + d))
					return false;
		if (!same_verdict(p, f, n, s->rules, archs[a], UINT32_MAX))
			return false;
	}
	return true;
}

bool assemble(struct prog *p, const struct sock_filter *f, size_t n, const struct rules *rs)
{
	static struct run runs[EDGES_MAX];
	struct search s = {.all = runs, .len = find_runs(f, n, rs, runs), .rules = rs};

	emit(p, BPF_LD | BPF_W | BPF_ABS, DATA(arch), 0, 0);
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, 0);
	end_with(p, p->n - 1, false, judge(f, n, 0, 0));
	emit(p, BPF_LD | BPF_W | BPF_ABS, DATA(nr), 0, 0);
	search(p, &s, runs, s.len);
	finish(p);
	return same(p, f, n, &s);
}
