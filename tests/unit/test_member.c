/* Unit tests of src/policy/member*.c: cases A26, A27, B1-B16, C1, C2, D8, F1; S1-04. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "hostile/cases.h"
#include "hostile/mk.h"
#include "policy/member.h"

static long host_readlink(void *arg, const char *path, char *out, size_t max)
{
	(void)arg;
	if (strcmp(path, "unreadable") == 0)
		return -EACCES;
	if (strcmp(path, "nomemory") == 0)
		return -ENOMEM;
	for (size_t i = 0; i < hostile_host_len; i++)
		if (strcmp(hostile_host[i].path, path) == 0) {
			size_t n = strlen(hostile_host[i].target);

			assert_true(n <= max);
			memcpy(out, hostile_host[i].target, n);
			return (long)n;
		}
	return 0;
}

static int in_baseline(void *arg, struct view path, struct view target)
{
	(void)arg;
	for (size_t i = 0; i < hostile_host_len; i++)
		if (hostile_host[i].in_baseline && strlen(hostile_host[i].path) == path.n &&
		    memcmp(hostile_host[i].path, path.p, path.n) == 0 &&
		    strlen(hostile_host[i].target) == target.n &&
		    memcmp(hostile_host[i].target, target.p, target.n) == 0)
			return 1;
	return 0;
}

static struct members *new_members(bool strict, bool fold)
{
	struct member_opts o = {.strict = strict,
				.fold_case = fold,
				.key = "0123456789abcdef",
				.readlink_at = host_readlink,
				.unchanged_link = in_baseline};
	struct members *m;

	assert_int_equal(members_new(&o, &m), 0);
	return m;
}

struct verdict {
	size_t refused, accepted;
	const char *hostile;
	char refusals[256]; /* their rules, each between spaces */
};

static void refused(struct verdict *v, const char *rule)
{
	size_t n = strlen(v->refusals);

	v->refused++;
	(void)snprintf(v->refusals + n, sizeof(v->refusals) - n, " %s ", rule);
}

static bool was_refused(const struct verdict *v, const char *rule)
{
	char word[64];

	(void)snprintf(word, sizeof(word), " %s ", rule);
	return strstr(v->refusals, word) != NULL;
}

static int note_refusal(void *arg, struct view path, const char *rule)
{
	struct verdict *v = arg;

	assert_true(path.n > 0);
	v->accepted--;
	refused(v, rule);
	return 0;
}

static void judge_stream(struct members *m, const struct buf *b, struct verdict *v)
{
	const uint8_t *p = (const uint8_t *)b->data;
	size_t n = b->len;
	struct tar_reader *r;
	struct tar_out out;
	struct err e = ERR_INIT;
	int ev;

	*v = (struct verdict){0};
	assert_int_equal(tar_reader_new(NULL, &r), 0);
	while (!v->hostile && (ev = tar_reader_next(r, &p, &n, &out, &e)) != TAR_END) {
		const char *rule;

		if (ev <= 0)
			fail_msg("reader: %d %s", ev, e.text);
		if (ev != TAR_MEMBER)
			continue;
		switch (members_judge(m, &out.member, &rule)) {
		case MEMBER_ACCEPT:
			assert_null(rule);
			v->accepted++;
			break;
		case MEMBER_REFUSE:
			refused(v, rule);
			break;
		case MEMBER_HOSTILE:
			v->hostile = rule;
			assert_int_equal(members_judge(m, &out.member, &rule), MEMBER_HOSTILE);
			assert_string_equal(rule, v->hostile);
			break;
		default:
			fail_msg("out of memory");
		}
	}
	if (!v->hostile && members_finish(m, note_refusal, v) == MEMBER_HOSTILE)
		v->hostile = "at the end";
	tar_reader_free(r);
}

static bool same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* S1-04, A26..F1: each attack stream gets its verdict, and with --strict a refusal ends the stream. */
static void streams_get_their_verdict(void **state)
{
	(void)state;
	for (size_t i = 0; i < hostile_member_cases_len; i++) {
		const struct hostile_case *c = &hostile_member_cases[i];

		for (int strict = 0; strict < 2; strict++) {
			_cleanup_buf_ struct buf b = BUF_INIT(HOSTILE_CASE_MAX);
			struct members *m = new_members(strict, false);
			bool hostile =
			    c->verdict == HV_HOSTILE || (strict && c->verdict == HV_REFUSED);
			struct verdict v;

			c->build(&b);
			judge_stream(m, &b, &v);
			if (strict && hostile)
				assert_non_null(
				    v.hostile); /* an earlier refusal may have come first */
			else if (!same(v.hostile, hostile ? c->rule : NULL) ||
				 (!hostile && (v.refused > 0) != (c->verdict == HV_REFUSED)) ||
				 (!hostile && v.refused && !was_refused(&v, c->rule)))
				fail_msg("%s%s: hostile %s, refused%s", c->name,
					 strict ? " (strict)" : "", v.hostile ? v.hostile : "-",
					 v.refusals);
			members_free(m);
		}
	}
}

/* How many members of a refused stream still come through. */
static void the_rest_goes_on(void **state)
{
	static const struct {
		const char *name;
		size_t accepted, refused;
	} t[] = {{"B5-escape", 1, 1},
		 {"B3-chain", 2, 1},
		 {"B3-late", 2, 1},
		 {"C1-fifo", 1, 1},
		 {"B8-refused-link", 0, 2}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		for (size_t k = 0; k < hostile_member_cases_len; k++) {
			_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
			struct members *m;
			struct verdict v;

			if (strcmp(hostile_member_cases[k].name, t[i].name) != 0)
				continue;
			m = new_members(false, false);
			hostile_member_cases[k].build(&b);
			judge_stream(m, &b, &v);
			assert_int_equal(v.accepted, t[i].accepted);
			assert_int_equal(v.refused, t[i].refused);
			members_free(m);
		}
}

/* A27: on a case-blind root the first spelling stays, the second is refused. */
static void a27_case_blind_root(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct members *m = new_members(false, true);
	struct verdict v;

	(void)state;
	mk_file(&b, "Readme", "1");
	mk_file(&b, "README", "2");
	mk_file(&b, "Readme", "3"); /* the same spelling again still wins */
	mk_end(&b);
	judge_stream(m, &b, &v);
	assert_null(v.hostile);
	assert_int_equal(v.accepted, 2);
	assert_int_equal(v.refused, 1);
	assert_true(was_refused(&v, "case_collision"));
	members_free(m);
}

/* A link over a host path that cannot be read might lead anywhere. */
static void an_unreadable_host_link_is_refused(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
	struct members *m = new_members(false, false);
	struct verdict v;

	(void)state;
	mk_link(&b, "x", "unreadable/y");
	mk_end(&b);
	judge_stream(m, &b, &v);
	assert_true(was_refused(&v, "link_escape"));
	members_free(m);
}

/* C2 */
static void c2_modes_lose_what_is_not_a_permission(void **state)
{
	static const struct {
		struct tar_member m;
		uint32_t want;
	} t[] = {
	    {{.type = TAR_FILE, .mode = 06755}, 0755},	   {{.type = TAR_FILE, .mode = 01000}, 0},
	    {{.type = TAR_HARDLINK, .mode = 04711}, 0711}, {{.type = TAR_DIR, .mode = 03055}, 0755},
	    {{.type = TAR_DIR, .mode = 0}, 0700},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_int_equal(member_mode(&t[i].m), t[i].want);
}

static int no_refusal(void *arg, struct view path, const char *rule)
{
	(void)arg;
	(void)path;
	fail_msg("refused: %s", rule);
	return 0;
}

/* S1-09: 100,000 files in 2,000 directories: under the 8 MiB that a helper may use. */
static void usual_streams_need_little_memory(void **state)
{
	struct members *m = new_members(false, false);
	char path[64];

	(void)state;
	for (int i = 0; i < 100000; i++) {
		struct tar_member t = {.type = TAR_FILE, .path = {path, 0}};
		const char *rule;

		t.path.n =
		    (size_t)snprintf(path, sizeof(path), "src/package%d/file%d.c", i / 50, i);
		assert_int_equal(members_judge(m, &t, &rule), MEMBER_ACCEPT);
	}
	assert_int_equal(members_finish(m, no_refusal, NULL), 0);
	assert_true(members_memory(m) <= 4 << 20);
	members_free(m);
}

/* A25: deep paths imply more directories than there are members; that has a limit of its own. */
static void a25_implied_paths_are_limited(void **state)
{
	struct members *m = new_members(false, false);
	const char *rule = NULL;
	char path[512];
	int r = 0, i;

	(void)state;
	for (i = 0; i < MEMBER_PATHS_MAX && r == MEMBER_ACCEPT; i++) {
		struct tar_member t = {.type = TAR_FILE, .path = {path, 0}};
		size_t n = (size_t)snprintf(path, sizeof(path), "%d", i);

		for (int k = 0; k < 120; k++) {
			path[n++] = '/';
			path[n++] = 'd';
		}
		t.path.n = n;
		r = members_judge(m, &t, &rule);
	}
	assert_int_equal(r, MEMBER_HOSTILE);
	assert_string_equal(rule, "limit");
	assert_true(i > 20000 && i < 30000);
	assert_true(members_memory(m) <= 40 << 20);
	members_free(m);
}

/* E13: the text of symlinks, and the time to judge them, are limited. */
static void link_text_and_link_time_are_limited(void **state)
{
	static char target[LINK_TARGET_MAX];

	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		struct members *m = new_members(false, false);
		const char *rule = NULL;
		char path[32];
		int r = 0, i;

		for (size_t k = 0; k < sizeof(target); k++)
			target[k] = slow && k % 2 ? '/' : 'x';
		for (i = 0; i < 1000000 && r != MEMBER_HOSTILE; i++) {
			struct tar_member t = {.type = TAR_SYMLINK,
					       .path = {path, 0},
					       .target = {target, sizeof(target)}};

			if (slow && i)
				t.target = (struct view){"l0", 2};
			t.path.n = (size_t)snprintf(path, sizeof(path), "l%d", i);
			r = members_judge(m, &t, &rule);
		}
		assert_int_equal(r, MEMBER_HOSTILE);
		assert_string_equal(rule, "limit");
		assert_true(slow ? i > 200 && i < 500 : i > 3000 && i < 5000);
		assert_true(members_memory(m) <= 24 << 20);
		members_free(m);
	}
}

/* E7: no memory, no descriptors: no verdict. A refusal would blame the sandbox and leave its link behind. */
static void a_lack_of_the_machine_is_no_verdict(void **state)
{
	const struct tar_member at_once = {
	    .type = TAR_SYMLINK, .path = {"l", 1}, .target = {"nomemory/x", 10}};
	const struct tar_member late = {
	    .type = TAR_SYMLINK, .path = {"a", 1}, .target = {"b/c", 3}};
	const struct tar_member bent = {
	    .type = TAR_SYMLINK, .path = {"b", 1}, .target = {"nomemory", 8}};
	struct members *m = new_members(false, false);
	const char *rule;

	(void)state;
	assert_int_equal(members_judge(m, &at_once, &rule), -ENOMEM);
	members_free(m);
	m = new_members(false, false);
	assert_int_equal(members_judge(m, &late, &rule), MEMBER_ACCEPT);
	(void)members_judge(m, &bent, &rule);
	assert_int_equal(members_finish(m, no_refusal, NULL), -ENOMEM);
	members_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(streams_get_their_verdict),
	    cmocka_unit_test(the_rest_goes_on),
	    cmocka_unit_test(a27_case_blind_root),
	    cmocka_unit_test(an_unreadable_host_link_is_refused),
	    cmocka_unit_test(c2_modes_lose_what_is_not_a_permission),
	    cmocka_unit_test(usual_streams_need_little_memory),
	    cmocka_unit_test(a25_implied_paths_are_limited),
	    cmocka_unit_test(link_text_and_link_time_are_limited),
	    cmocka_unit_test(a_lack_of_the_machine_is_no_verdict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
