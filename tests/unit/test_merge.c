/* S1-04, DESIGN section 3: the decision for every combination of baseline, sandbox and host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "sync/merge.h"

#define A                       \
	{                       \
		MK_ABSENT, 0, 0 \
	}
#define F(c)                     \
	{                        \
		MK_FILE, c, 0644 \
	}
#define X(c)                     \
	{                        \
		MK_FILE, c, 0755 \
	}
#define L(c)                  \
	{                     \
		MK_LINK, c, 0 \
	}
#define D                       \
	{                       \
		MK_DIR, 0, 0755 \
	}
#define D7                      \
	{                       \
		MK_DIR, 0, 0700 \
	}
#define O                      \
	{                      \
		MK_OTHER, 0, 0 \
	}
#define U                        \
	{                        \
		MK_UNKNOWN, 0, 0 \
	}

static const struct row {
	const char *name;
	struct merge_side b, s, h;
	enum merge_act keep, take; /* without and with take_sandbox */
	uint32_t mode;
	const char *rule;
} rows[] = {
    {"unchanged, host edited (FR-B009, FR-B098)", F(1), F(1), F(3), MA_NONE, MA_NONE, 0644, ""},
    {"unchanged, host deleted", F(1), F(1), A, MA_NONE, MA_NONE, 0, ""},
    {"changed, host as sent", F(1), F(2), F(1), MA_REPLACE, MA_REPLACE, 0644, ""},
    {"G1: same change on both sides", F(1), F(2), F(2), MA_NONE, MA_NONE, 0644, ""},
    {"G3: both changed", F(1), F(2), F(3), MA_TEXT, MA_TEXT, 0644, "both_changed"},
    {"G4: deleted, host edited (FR-B088)", F(1), A, F(3), MA_KEEP, MA_KEEP, 0644,
     "deleted_in_sandbox"},
    {"deleted, host as sent (FR-B088)", F(1), A, F(1), MA_DELETE, MA_DELETE, 0, ""},
    {"deleted, host made it executable", F(1), A, X(1), MA_KEEP, MA_KEEP, 0755,
     "deleted_in_sandbox"},
    {"G5: host deleted, edited in the sandbox", F(1), F(2), A, MA_CREATE, MA_CREATE, 0644, ""},
    {"new", A, F(2), A, MA_CREATE, MA_CREATE, 0644, ""},
    {"both added, different", A, F(2), F(3), MA_KEEP, MA_TAKE, 0644, "both_added"},
    {"both added, same bytes, other mode", A, X(2), F(2), MA_NONE, MA_NONE, 0644, ""},
    {"C6: only the x bit", F(1), X(1), F(1), MA_MODE, MA_MODE, 0755, ""},
    {"x bit in the sandbox, edit on the host", F(1), X(1), F(3), MA_MODE, MA_MODE, 0755, ""},
    {"edit in the sandbox, x bit on the host", F(1), F(2), X(1), MA_REPLACE, MA_REPLACE, 0755, ""},
    {"G7: dir became file", D, F(2), D, MA_DIR_TO_FILE, MA_DIR_TO_FILE, 0644, ""},
    {"G8: file became dir, host edited", F(1), D, F(3), MA_KEEP, MA_TAKE, 0644, "type_changed"},
    {"file became dir", F(1), D, F(1), MA_FILE_TO_DIR, MA_FILE_TO_DIR, 0755, ""},
    {"G9: file became link", F(1), L(2), F(1), MA_REPLACE, MA_REPLACE, 0, ""},
    {"G9: link became file", L(1), F(2), L(1), MA_REPLACE, MA_REPLACE, 0644, ""},
    {"G9: link became dir", L(1), D, L(1), MA_FILE_TO_DIR, MA_FILE_TO_DIR, 0755, ""},
    {"B14: host put a link in place of a file", F(1), F(2), L(3), MA_KEEP, MA_TAKE, 0,
     "type_changed"},
    {"link retargeted on both sides", L(1), L(2), L(3), MA_KEEP, MA_TAKE, 0, "both_changed"},
    {"host made a directory of it", F(1), F(2), D, MA_KEEP, MA_KEEP, 0755, "type_changed"},
    {"host special file", F(1), F(2), O, MA_KEEP, MA_KEEP, 0, "host_special"},
    {"unreadable in the sandbox is not deleted", F(1), U, F(1), MA_NONE, MA_NONE, 0644, ""},
    {"dir deleted", D, A, D, MA_RMDIR, MA_RMDIR, 0, ""},
    {"dir deleted, a file on the host now", D, A, F(3), MA_KEEP, MA_KEEP, 0644,
     "deleted_in_sandbox"},
    {"dir mode", D, D7, D, MA_MODE, MA_MODE, 0700, ""},
    {"dir mode, dir gone on the host", D, D7, A, MA_NONE, MA_NONE, 0, ""},
    {"G13: both made the dir", A, D7, D, MA_NONE, MA_NONE, 0755, ""},
    {"new dir", A, D7, A, MA_MKDIR, MA_MKDIR, 0700, ""},
};

static void test_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *w = &rows[i];

		for (int take = 0; take < 2; take++) {
			struct merge_verdict v = merge_decide(w->b, w->s, w->h, take);
			enum merge_act want = take ? w->take : w->keep;

			if (v.act != want ||
			    (v.act != MA_TAKE && v.act != MA_NONE && v.mode != w->mode))
				fail_msg("%s: %s 0%o", w->name, merge_act_name(v.act), v.mode);
			assert_string_equal(v.rule, w->rule);
			if (v.act == MA_TEXT)
				assert_int_equal(v.otherwise, take ? MA_TAKE : MA_KEEP);
		}
	}
}

static const struct merge_side states[] = {A,	 F(1), X(1), F(2), X(2), F(3), X(3),
					   L(1), L(2), L(3), D,	   D7,	 O,    U};

static bool equal(struct merge_side a, struct merge_side b)
{
	return a.kind == b.kind && a.content == b.content && a.mode == b.mode;
}

static bool leaf(struct merge_side a)
{
	return a.kind == MK_FILE || a.kind == MK_LINK;
}

/* What the host has afterwards, if every act succeeds. */
static struct merge_side after(struct merge_side s, struct merge_side h, struct merge_verdict v)
{
	switch (v.act) {
	case MA_CREATE:
	case MA_REPLACE:
	case MA_DIR_TO_FILE:
	case MA_FILE_TO_DIR:
	case MA_MKDIR:
	case MA_TAKE:
		s.mode = s.kind == MK_LINK ? 0 : v.mode;
		return s;
	case MA_MODE:
		h.mode = v.mode;
		return h;
	case MA_DELETE:
	case MA_RMDIR:
		return (struct merge_side)A;
	default:
		return h;
	}
}

static void check(struct merge_side b, struct merge_side s, struct merge_side h, bool take)
{
	struct merge_verdict v = merge_decide(b, s, h, take);
	struct merge_side r = after(s, h, v);
	bool conflict = v.act == MA_KEEP || v.act == MA_TAKE || v.act == MA_TEXT;

	if (equal(b, s) || equal(s, h) || s.kind == MK_UNKNOWN || s.kind == MK_OTHER)
		assert_int_equal(v.act, MA_NONE);
	else if (equal(b, h))
		assert_true(equal(r, s)); /* the host did nothing: it gets the sandbox's state */
	/* Whatever the host changed is still there, or is saved, or is being merged. */
	if (leaf(h) && !(h.kind == b.kind && h.content == b.content) && v.act != MA_TAKE)
		assert_true(r.kind == h.kind && r.content == h.content);
	/* Whatever the sandbox wrote is on the host, or is saved, or is being merged. */
	if (leaf(s) && !(s.kind == b.kind && s.content == b.content) && !conflict)
		assert_true(r.kind == s.kind && r.content == s.content);
	if (h.kind == MK_OTHER)
		assert_true(v.act == MA_NONE || v.act == MA_KEEP);
	if (h.kind == MK_DIR && leaf(r))
		assert_true(b.kind == MK_DIR && v.act == MA_DIR_TO_FILE);
	if (!take)
		assert_true(v.act != MA_TAKE && v.otherwise != MA_TAKE);
	assert_int_equal(conflict, v.rule[0] != '\0');
}

static void test_every_combination(void **state)
{
	size_t n = ARRAY_LEN(states), seen = 0;

	(void)state;
	for (size_t b = 0; b < n; b++) {
		if (states[b].kind == MK_OTHER || states[b].kind == MK_UNKNOWN)
			continue;
		for (size_t s = 0; s < n; s++)
			for (size_t h = 0; h < n; h++)
				for (int take = 0; take < 2; take++, seen++)
					if (states[h].kind != MK_UNKNOWN)
						check(states[b], states[s], states[h], take);
	}
	assert_int_equal(seen, 12 * 14 * 14 * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_rows),
	    cmocka_unit_test(test_every_combination),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
