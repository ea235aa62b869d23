/* Pure parts of the daemon: guards (AA 1.2), lease transitions (api.md 2.3), tokens, run JWTs, sealing, bodies, UUIDs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "api/credential.h"
#include "api/jobs.h"
#include "api/seal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "store/leasemove.h"
#include "scratch.h"

#define ID1 "11111111-1111-4111-8111-111111111111"
#define ID2 "22222222-2222-4222-8222-222222222222"

static void uuids(void **state)
{
	static const char *const bad[] = {"",
					  "11111111-1111-4111-8111-11111111111",
					  "11111111-1111-4111-8111-1111111111111",
					  "111111111-111-4111-8111-111111111111",
					  "g1111111-1111-4111-8111-111111111111",
					  "{1111111-1111-4111-8111-11111111111}"};
	char out[UUID_LEN + 1], fresh[UUID_LEN + 1];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(uuid_parse(bad[i], strlen(bad[i]), out));
	assert_true(uuid_parse("ABCDEF00-1111-4111-8111-111111111111", UUID_LEN, out));
	assert_string_equal(out, "abcdef00-1111-4111-8111-111111111111");
	assert_int_equal(uuid_new(fresh), 0);
	assert_true(uuid_parse(fresh, strlen(fresh), out));
	assert_string_equal(out, fresh);
}

/* Against the C library, over leap days, ends of centuries and the years that the API can meet. */
static void times(void **state)
{
	static const int64_t odd[] = {0,	  68169600,   951782400,  951868799,
				      4107542400, 4107542399, 1764451627, 9223372035};
	char want[32], got[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		clock_rfc3339(odd[i] * NS_PER_S, want, sizeof(want));
		clock_iso_ms(odd[i] * NS_PER_S + 5 * NS_PER_MS, got, sizeof(got));
		assert_memory_equal(got, want, 19);
		assert_string_equal(got + 19, ".005Z");
	}
	for (int64_t day = 0; day < 90000; day += 13) {
		clock_rfc3339(day * 86400 * NS_PER_S, want, sizeof(want));
		clock_iso_ms(day * 86400 * NS_PER_S, got, sizeof(got));
		assert_memory_equal(got, want, 19);
	}
	clock_iso_ms(-1, got, sizeof(got));
	assert_string_equal(got, "");
}

static void guards(void **state)
{
	static struct actor_company one[] = {{ID1, false}};
	static const struct {
		struct actor a;
		bool allowed[GUARD_COUNT]; /* open, read, admin, settings, board, known */
	} table[] = {
	    {{.type = ACTOR_NONE}, {true, false, false, false, false, false}},
	    {{.type = ACTOR_AGENT, .source = SOURCE_AGENT_JWT, .company_id = ID1},
	     {true, false, false, false, false, true}},
	    /* Whatever else is set: an agent never becomes a board actor. */
	    {{.type = ACTOR_AGENT, .admin = true, .companies_len = 1},
	     {true, false, false, false, false, true}},
	    {{.type = ACTOR_BOARD, .source = SOURCE_BOARD_KEY},
	     {true, false, false, false, true, true}},
	    {{.type = ACTOR_BOARD, .source = SOURCE_SESSION, .companies = one, .companies_len = 1},
	     {true, true, false, false, true, true}},
	    {{.type = ACTOR_BOARD, .source = SOURCE_BOARD_KEY, .admin = true},
	     {true, true, true, true, true, true}},
	    {{.type = ACTOR_BOARD, .source = SOURCE_LOCAL}, {true, true, true, true, true, true}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		for (int g = 0; g < GUARD_COUNT; g++)
			assert_int_equal(guard_denies((enum guard)g, &table[i].a) == NULL,
					 table[i].allowed[g]);
	assert_true(actor_in_company(&table[1].a, ID1));
	assert_false(actor_in_company(&table[1].a, ID2));
	assert_true(actor_in_company(&table[4].a, ID1));
	/* An administrator is no member by that alone; the implicit board is of every company. */
	assert_false(actor_in_company(&table[5].a, ID1));
	assert_true(actor_in_company(&table[6].a, ID2));
	assert_true(actor_needs_origin(&table[4].a, false));
	assert_false(actor_needs_origin(&table[5].a, true));
	/* The implicit board: programs name no origin, pages do. */
	assert_false(actor_needs_origin(&table[6].a, false));
	assert_true(actor_needs_origin(&table[6].a, true));
}

/* Every state to every state for every reason: only what api.md 2.3 lists. */
static void transitions(void **state)
{
	static const struct {
		enum lease_cause why;
		enum envlease_status from, to;
	} listed[] = {
	    {MOVED_ACQUIRED, EL_PENDING, EL_ACTIVE},
	    {MOVED_RESUMED, EL_ACTIVE, EL_ACTIVE},
	    {MOVED_RESUMED, EL_RELEASED, EL_ACTIVE},
	    {MOVED_RESUMED, EL_RETAINED, EL_ACTIVE},
	    {MOVED_RELEASED, EL_ACTIVE, EL_RELEASED},
	    {MOVED_RUN_FAILED, EL_ACTIVE, EL_FAILED},
	    {MOVED_RUN_CANCELLED, EL_ACTIVE, EL_EXPIRED},
	    {MOVED_KEEP_RUNNING, EL_ACTIVE, EL_RETAINED},
	    {MOVED_CLEANUP_FAILED, EL_ACTIVE, EL_PENDING},
	    {MOVED_CLEANUP_FAILED, EL_RELEASED, EL_PENDING},
	    {MOVED_CLEANUP_FAILED, EL_RETAINED, EL_PENDING},
	    {MOVED_CLEANUP_FAILED, EL_PENDING, EL_PENDING},
	    {MOVED_DELETE_CLAIMED, EL_ACTIVE, EL_PENDING},
	    {MOVED_DELETE_CLAIMED, EL_RELEASED, EL_PENDING},
	    {MOVED_DELETE_CLAIMED, EL_RETAINED, EL_PENDING},
	    {MOVED_SUPERSEDED, EL_RELEASED, EL_EXPIRED},
	    {MOVED_SUPERSEDED, EL_RETAINED, EL_EXPIRED},
	    {MOVED_SWEPT, EL_PENDING, EL_EXPIRED},
	};
	size_t n = 0;

	(void)state;
	for (int w = 0; w < MOVED_COUNT; w++)
		for (int from = 0; from < EL_STATUS_COUNT; from++)
			for (int to = 0; to < EL_STATUS_COUNT; to++) {
				bool want = false;

				for (size_t i = 0; i < ARRAY_LEN(listed); i++)
					want = want || ((int)listed[i].why == w &&
							(int)listed[i].from == from &&
							(int)listed[i].to == to);
				n += want;
				assert_int_equal(lease_may_move((enum envlease_status)from,
								(enum envlease_status)to,
								(enum lease_cause)w),
						 want);
			}
	assert_int_equal(n, ARRAY_LEN(listed));
	assert_false(lease_may_move(EL_STATUS_COUNT, EL_ACTIVE, MOVED_RESUMED));
}

static void tokens(void **state)
{
	struct token_row t = {0};
	char text[TOKEN_TEXT_MAX], id[ID_LEN + 1];
	enum token_kind kind;
	struct view v;

	(void)state;
	for (int k = 0; k < TOKEN_KIND_COUNT; k++) {
		assert_int_equal(credential_new((enum token_kind)k, &t, text, NULL), 0);
		v = (struct view){text, strlen(text)};
		assert_true(credential_parse(v, &kind, id));
		assert_int_equal(kind, k);
		assert_string_equal(id, t.id);
		assert_true(credential_matches(v, &t));
		assert_null(strstr(t.digest, text + 21));
		text[v.n - 1] = (char)(text[v.n - 1] == 'A' ? 'B' : 'A');
		assert_false(credential_matches(v, &t));
		v.n--;
		assert_false(credential_parse(v, &kind, id));
	}
}

static const struct jwt_keys keys = {"0123456789abcdef0123456789abcdef", "instance-1"};

static enum jwt_verdict judged(const struct jwt_keys *k, const char *text, int64_t now)
{
	struct jwt_claims c;

	return jwt_verify(k, (struct view){text, strlen(text)}, now, &c);
}

static void run_tokens(void **state)
{
	const struct jwt_keys other_instance = {keys.master, "instance-2"},
			      other_master = {"x123456789abcdef0123456789abcdef", "instance-1"};
	struct jwt_claims c = {.agent_id = ID1,
			       .company_id = ID2,
			       .run_id = "r",
			       .adapter = "process",
			       .issued_s = 100,
			       .expires_s = 200};
	char text[1024], *made = NULL;

	(void)state;
	assert_int_equal(jwt_sign(&keys, &c, &made, NULL), 0);
	(void)snprintf(text, sizeof(text), "%s", made);
	free(made);
	assert_int_equal(judged(&keys, text, 150), JWT_OK);
	assert_int_equal(judged(&keys, text, 200), JWT_OK);
	assert_int_equal(judged(&keys, text, 201), JWT_EXPIRED);
	assert_int_equal(judged(&other_instance, text, 150), JWT_BAD);
	assert_int_equal(judged(&other_master, text, 150), JWT_BAD);
	/* Each byte matters. */
	for (size_t i = 0; i < strlen(text); i++) {
		char was = text[i];

		text[i] = (char)(was == 'A' ? 'B' : 'A');
		/* The last character of a base64 group carries bits that are not part of it. */
		if (i + 1 != strlen(text))
			assert_int_equal(judged(&keys, text, 150), JWT_BAD);
		text[i] = was;
	}
	*strrchr(text, '.') = '\0';
	assert_int_equal(judged(&keys, text, 150), JWT_BAD);
	assert_int_equal(judged(&keys, "", 150), JWT_BAD);
	assert_int_equal(judged(&keys, "..", 150), JWT_BAD);
}

static bool every(void *arg, const char *key_id)
{
	(void)arg;
	return *key_id;
}

static void sealing(void **state)
{
	char dir[] = "/tmp/airlock-seal-XXXXXX", path[64], *sealed = NULL, *plain = NULL,
	     old[SECRET_KEY_ID_LEN + 1];
	struct seal s, again;
	struct stat st;

	(void)state;
	assert_non_null(scratch_dir(dir));
	(void)snprintf(path, sizeof(path), "%s/seal.key", dir);
	assert_int_equal(seal_open(&s, dir, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(seal_put(&s, ID1, 1, "hush", &sealed, NULL), 0);
	assert_null(strstr(sealed, "hush"));
	assert_int_equal(seal_get(&s, ID1, 1, sealed, &plain, NULL), 0);
	assert_string_equal(plain, "hush");
	seal_wipe(&plain);
	/* One row's value is no value of another row, nor of another version. */
	assert_true(seal_get(&s, ID2, 1, sealed, &plain, NULL) < 0);
	assert_true(seal_get(&s, ID1, 2, sealed, &plain, NULL) < 0);
	sealed[12] = (char)(sealed[12] == 'A' ? 'B' : 'A');
	assert_true(seal_get(&s, ID1, 1, sealed, &plain, NULL) < 0);
	sealed[12] = (char)(sealed[12] == 'A' ? 'B' : 'A');
	free(sealed);
	assert_int_equal(seal_put(&s, ID1, 1, "hush", &sealed, NULL), 0);
	/* A new key seals; the old one opens until it is dropped. */
	memcpy(old, s.v[0].id, sizeof(old));
	/* Not while somebody else has the keys, who would seal with one that goes. */
	assert_int_equal(seal_open(&again, dir, NULL), 0);
	assert_int_equal(seal_add_key(&s, dir, every, NULL, NULL), -EBUSY);
	assert_int_equal(seal_drop_old(&s, dir, NULL), -EBUSY);
	seal_done(&again);
	assert_int_equal(seal_add_key(&s, dir, every, NULL, NULL), 0);
	assert_string_not_equal(old, s.v[0].id);
	memcpy(old, s.v[0].id, sizeof(old));
	seal_done(&s);
	assert_int_equal(seal_open(&again, dir, NULL), 0);
	assert_string_equal(again.v[0].id, old);
	assert_int_equal(seal_get(&again, ID1, 1, sealed, &plain, NULL), 0);
	seal_wipe(&plain);
	assert_int_equal(seal_drop_old(&again, dir, NULL), 0);
	assert_true(seal_get(&again, ID1, 1, sealed, &plain, NULL) < 0);
	seal_done(&again);
	/* A key that others can read is no key. */
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(seal_open(&s, dir, NULL), -EACCES);
	free(sealed);
	assert_int_equal(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/seal.lock", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0); /* nothing else: no half-written key */
}

/* Two first starts at once have one key, the one that is on the disk. */
static void first_keys(void **state)
{
	char dir[] = "/tmp/airlock-seal-XXXXXX", path[64], *mine = NULL, *kept = NULL;

	(void)state;
	assert_non_null(scratch_dir(dir));
	for (int i = 0; i < 40; i++) {
		char theirs[65] = "";
		int p[2], status;
		pid_t pid;

		assert_int_equal(pipe(p), 0);
		pid = fork();
		if (pid == 0) {
			char *k = NULL;

			if (keyfile_read(dir, "none", "x.key", &k, NULL) < 0 ||
			    write(p[1], k, 64) != 64)
				_exit(1);
			_exit(0);
		}
		assert_int_equal(keyfile_read(dir, "none", "x.key", &mine, NULL), 0);
		assert_int_equal(read(p[0], theirs, 64), 64);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(keyfile_read(dir, "none", "x.key", &kept, NULL), 0);
		assert_string_equal(mine, kept);
		assert_string_equal(theirs, kept);
		seal_wipe(&mine);
		seal_wipe(&kept);
		(void)close(p[0]);
		(void)close(p[1]);
		(void)snprintf(path, sizeof(path), "%s/x.key", dir);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(dir), 0);
}

static void depth(void **state)
{
	static char many[4 * API_JSON_VALUES_MAX];
	char text[2 * API_JSON_DEPTH_MAX + 8];

	(void)state;
	memset(text, '[', API_JSON_DEPTH_MAX);
	assert_null(json_too_much(text, API_JSON_DEPTH_MAX));
	memset(text, '{', API_JSON_DEPTH_MAX + 1);
	assert_non_null(json_too_much(text, API_JSON_DEPTH_MAX + 1));
	/* Inside a text a brace is a letter; an escaped quote does not end it. */
	text[0] = '"';
	assert_null(json_too_much(text, API_JSON_DEPTH_MAX + 4));
	text[1] = '\\';
	text[2] = '"';
	assert_null(json_too_much(text, API_JSON_DEPTH_MAX + 4));
	/* Each value is counted before one of them has memory: of arrays by commas, of nests by brackets. */
	memset(many, ',', sizeof(many));
	assert_null(json_too_much(many, API_JSON_VALUES_MAX - 1));
	assert_non_null(json_too_much(many, API_JSON_VALUES_MAX));
	for (size_t i = 0; i + 1 < sizeof(many); i += 2)
		memcpy(many + i, "[]", 2);
	assert_null(json_too_much(many, 2 * API_JSON_VALUES_MAX - 2));
	assert_non_null(json_too_much(many, 2 * API_JSON_VALUES_MAX));
}

static void never(struct api *a, void *arg, json_t *answer)
{
	(void)a;
	(void)answer;
	*(bool *)arg = true;
}

/* What cannot be watched is not begun: its process is ended and waited for, and its place is free. */
static void unwatched_job(void **state)
{
	static const char text[] = "#!/bin/sh\nexec sleep 600\n";
	char path[] = "/tmp/airlock-job.XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);
	struct api a = {.loop.ep = -1};
	struct err e = ERR_INIT;
	bool told = false;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	assert_int_equal(fchmod(fd, 0700), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(jobs_new(&a, path, &e), 0);
	assert_true(jobs_start(&a, "", json_object(), never, &told, &e) < 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_int_equal(jobs_running(&a), 0);
	jobs_free(&a);
	assert_false(told);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(uuids),   cmocka_unit_test(times),
	    cmocka_unit_test(guards),  cmocka_unit_test(transitions),
	    cmocka_unit_test(tokens),  cmocka_unit_test(run_tokens),
	    cmocka_unit_test(sealing), cmocka_unit_test(first_keys),
	    cmocka_unit_test(depth),   cmocka_unit_test(unwatched_job),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
