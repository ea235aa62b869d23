/*
 * tar_trace.h: what must hold of any run of the tar reader, for the targets that feed it.
 *
 * Whatever the bytes: no crash, no verdict that depends on how the bytes arrive, no event that breaks what
 * wire/tar.h promises, memory by limits and not by claims.
 */
#ifndef TESTS_FUZZ_TAR_TRACE_H
#define TESTS_FUZZ_TAR_TRACE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/path.h"
#include "fuzz.h"
#include "wire/tar.h"

struct trace {
	uint64_t hash; /* of all events, data byte by byte */
	uint64_t members, at;
	int end;
	const char *rule;
	uint64_t offset;
	bool open;
	struct tar_member m;
};

static void mix(struct trace *t, const void *p, size_t n)
{
	const unsigned char *s = p;

	for (size_t i = 0; i < n; i++)
		t->hash = (t->hash ^ s[i]) * UINT64_C(1099511628211);
}

static void check_member(const struct tar_member *m)
{
	MUST(m->path.n == 0 ? m->type == TAR_DIR : path_is_member(m->path.p, m->path.n));
	MUST(m->size <= MEMBER_SIZE_MAX && m->mode <= 07777);
	/* No sum with a year of nanoseconds overflows, on either side of 1970. */
	MUST(m->mtime_ns < INT64_C(9214646400000000000) &&
	     m->mtime_ns > -INT64_C(9214646400000000000));
	MUST(m->type == TAR_FILE || m->size == 0);
	if (m->type == TAR_HARDLINK)
		MUST(path_is_member(m->target.p, m->target.n));
	else if (m->type == TAR_SYMLINK)
		MUST(m->target.n > 0 && m->target.n <= LINK_TARGET_MAX &&
		     !memchr(m->target.p, 0, m->target.n));
	else
		MUST(m->target.n == 0);
	MUST(m->op != TAR_OP_DELETE || (m->size == 0 && m->path.n > 0));
}

static void event(struct trace *t, int ev, const struct tar_out *o)
{
	switch (ev) {
	case TAR_MEMBER:
		MUST(!t->open);
		t->open = true;
		t->at = 0;
		t->members++;
		t->m = o->member;
		check_member(&o->member);
		mix(t, o->member.path.p, o->member.path.n);
		mix(t, o->member.target.p, o->member.target.n);
		mix(t, &o->member.size, sizeof(o->member.size));
		mix(t, &o->member.mtime_ns, sizeof(o->member.mtime_ns));
		break;
	case TAR_DATA:
		MUST(t->open && t->m.type == TAR_FILE && o->data.n > 0);
		MUST(o->data_offset >= t->at); /* never back to bytes already judged */
		MUST(o->data.n <= t->m.size && o->data_offset <= t->m.size - o->data.n);
		MUST(t->m.sparse || o->data_offset == t->at);
		for (size_t i = 0; i < o->data.n; i++) {
			uint64_t at = o->data_offset + i;

			mix(t, &at, sizeof(at));
			mix(t, o->data.p + i, 1);
		}
		t->at = o->data_offset + o->data.n;
		break;
	case TAR_MEMBER_END:
		MUST(t->open && (t->m.sparse || t->at == t->m.size));
		t->open = false;
		break;
	default:
		MUST(ev == TAR_END && !t->open);
	}
}

/* piece 0: pieces of changing size. */
static void trace_run(const uint8_t *p, size_t left, size_t piece, struct trace *t)
{
	static const struct tar_limits limits = {.members = 4096, .total_size = UINT64_C(1) << 40};
	struct tar_out o = {0};
	struct tar_reader *r;
	uint32_t seed = 1;
	size_t n = 0;
	int ev;

	*t = (struct trace){.hash = 1};
	MUST(tar_reader_new(&limits, &r) == 0);
	for (;;) {
		ev = tar_reader_next(r, &p, &n, &o, NULL);
		if (ev > 0)
			event(t, ev, &o);
		if (ev < 0 || ev == TAR_END)
			break;
		if (ev != TAR_NEED)
			continue;
		MUST(n == 0);
		if (!left) {
			ev = tar_reader_finish(r, &o, NULL);
			MUST(ev == -EBADMSG);
			break;
		}
		n = piece ? piece : 1 + fuzz_random(&seed) % 700;
		n = n < left ? n : left;
		left -= n;
	}
	t->end = ev;
	if (ev < 0) {
		MUST(ev == -EBADMSG && o.rule);
		t->rule = o.rule;
		t->offset = o.offset;
	}
	tar_reader_free(r);
}

/* Whole, and in pieces: the same end, the same events, the same rule at the same place. */
static void trace_both(const uint8_t *p, size_t n)
{
	struct trace whole, pieces;

	trace_run(p, n, SIZE_MAX, &whole);
	trace_run(p, n, 0, &pieces);
	MUST(whole.end == pieces.end && whole.hash == pieces.hash &&
	     whole.members == pieces.members);
	/* Data of a member that a truncated stream cuts, and the place of a failure in a sparse map, too. */
	MUST(whole.rule == pieces.rule && whole.offset == pieces.offset);
}

#endif
