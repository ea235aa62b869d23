/* Unit tests of src/bridge/audit.c: one line a decision, a bounded file, and nothing unaudited. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "bridge/audit.h"

static const struct audit_entry one = {.real_ns = INT64_C(1796051261123456789),
				       .run = "run1",
				       .upstream = "api",
				       .transport = "queue",
				       .route_id = "GET /a/{b}",
				       .method = "GET",
				       .rule = "allow",
				       .status = 200,
				       .bytes_in = 3,
				       .bytes_out = UINT64_C(1) << 40,
				       .duration_ns = 1234567};

/* An audit file without a name, and the same file for reading. */
static int made_file(int *ret_rd)
{
	char path[] = "/tmp/airlock-audit-XXXXXX";
	int fd = mkostemp(path, O_APPEND | O_CLOEXEC);

	assert_true(fd >= 0);
	*ret_rd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(*ret_rd >= 0);
	assert_int_equal(unlink(path), 0);
	return fd;
}

static int64_t size_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_size;
}

struct found {
	uint64_t lines, requests, several; /* several: requests in lines of more than one */
};

/* Every line but one that a full disk cut is JSON. rule NULL: all. */
static struct found look(int fd, const char *rule)
{
	_cleanup_file_ FILE *f = fdopen(dup(fd), "r");
	_cleanup_free_ char *line = NULL;
	struct found t = {0};
	size_t cap = 0;
	ssize_t n;

	assert_non_null(f);
	rewind(f);
	while ((n = getline(&line, &cap, f)) > 0) {
		json_t *j = json_loadb(line, (size_t)n, 0, NULL);
		const char *r = json_string_value(json_object_get(j, "rule"));

		if (r && (!rule || strcmp(r, rule) == 0)) {
			uint64_t k = (uint64_t)json_integer_value(json_object_get(j, "count"));

			t.lines++;
			t.requests += k > 1 ? k : 1;
			t.several += k > 1 ? k : 0;
		}
		json_decref(j);
	}
	return t;
}

static void a_line_is_json(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(AUDIT_LINE_MAX);
	struct audit_entry e = one;
	json_t *j;

	(void)state;
	assert_int_equal(audit_format(&b, &e), 0);
	assert_string_equal(
	    buf_text(&b),
	    "{\"time\":\"2026-11-30T15:07:41.123Z\",\"run\":\"run1\",\"upstream\":\"api\","
	    "\"transport\":\"queue\",\"route\":\"GET /a/{b}\",\"method\":\"GET\",\"status\":200,"
	    "\"rule\":\"allow\",\"bytes_in\":3,\"bytes_out\":1099511627776,\"ms\":1.234}\n");
	/* F07: whatever stands in a text, a line is one line. */
	buf_reset(&b);
	e.run = "a\"\r\n\x1b\\";
	e.route_id = e.method = NULL;
	assert_int_equal(audit_format(&b, &e), 0);
	assert_ptr_equal(strchr(buf_text(&b), '\n'), b.data + b.len - 1);
	assert_null(strchr(buf_text(&b), '\x1b'));
	j = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(j);
	assert_string_equal(json_string_value(json_object_get(j, "run")), e.run);
	assert_true(json_is_null(json_object_get(j, "route")));
	json_decref(j);
}

/* A million refusals leave room for what is forwarded, and not one of either is forgotten. */
static void refusals_do_not_crowd_out_what_is_forwarded(void **state)
{
	struct audit_entry no = one, yes = one;
	struct audit a;
	struct found t;
	int rd, fd = made_file(&rd);

	(void)state;
	no.rule = "route.path";
	no.route_id = NULL;
	no.status = 403;
	yes.forwarded = true;
	assert_int_equal(audit_open(&a, fd, NULL), 0);
	for (int i = 0; i < 1000000; i++) {
		audit_add(&a, &no);
		if (i % 100000 == 0) {
			assert_true(audit_ready(&a));
			audit_add(&a, &yes);
			(void)audit_flush(&a);
		}
	}
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	t = look(rd, "route.path");
	assert_int_equal(t.requests, 1000000);
	assert_in_range(t.lines, AUDIT_BURST, 100000);
	t = look(rd, "allow");
	assert_int_equal(t.lines, 10);
	assert_in_range(size_of(rd), 1, 2 * AUDIT_REFUSED_MAX);
	(void)close(rd);
}

/* The room of refusals is used up: they are counted, whatever their rate, and told at the end. */
static void refusals_keep_to_their_room(void **state)
{
	struct audit_entry no = one;
	struct audit a;
	int rd, fd = made_file(&rd);

	(void)state;
	no.rule = "route.path";
	assert_int_equal(audit_open(&a, fd, NULL), 0);
	a.m->refused = AUDIT_REFUSED_MAX - 10;
	for (int i = 0; i < 500; i++)
		audit_add(&a, &no);
	(void)audit_flush(&a);
	assert_int_equal(size_of(rd), 0);
	assert_true(audit_ready(&a));
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	assert_int_equal(look(rd, "route.path").several, 500);
	(void)close(rd);
}

/* More kinds than places: the rest share one, and the sum is right. */
static void many_kinds_share(void **state)
{
	struct audit_entry e = one;
	struct audit a;
	int rd, fd = made_file(&rd);

	(void)state;
	assert_int_equal(audit_open(&a, fd, NULL), 0);
	a.tokens[0] = a.tokens[1] = -1e9;
	for (int i = 0; i < 3000; i++) {
		char route[600];

		memset(route, 'r', sizeof(route));
		(void)snprintf(route + (i & 1 ? 0 : 300), 20, "%d", i % 300);
		e.route_id = i % 7 ? route : NULL;
		e.status = 200 + i % 300;
		e.forwarded = i & 1;
		audit_add(&a, &e);
	}
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	assert_int_equal(look(rd, NULL).requests, 3000);
	assert_in_range(look(rd, NULL).lines, 2, AUDIT_SUMS);
	(void)close(rd);
}

/* When it is full nothing more is forwarded; the counts of what ends then still find room. */
/* Lines of the network proxy that share one say where to; made-up places do not crowd out the rest. */
static void shared_lines_keep_their_target(void **state)
{
	struct audit_entry e = one;
	struct audit a;
	char name[64];
	int rd, fd = made_file(&rd);
	_cleanup_file_ FILE *f = NULL;
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;
	uint64_t of_one = 0, of_late = 0, without = 0;

	(void)state;
	assert_int_equal(audit_open(&a, fd, NULL), 0);
	e.rule = "net.host";
	e.status = 403;
	a.tokens[0] = a.tokens[1] = -1e9;
	e.target = name;
	for (int i = 0; i < 3 * AUDIT_TARGETS; i++) {
		(void)snprintf(name, sizeof(name), "n%d.test", i);
		audit_add(&a, &e);
		audit_add(&a, &e);
	}
	e.rule = "other";
	audit_add(&a, &e);
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	f = fdopen(rd, "r");
	assert_non_null(f);
	while (getline(&line, &cap, f) > 0) {
		json_t *j = json_loads(line, 0, NULL);
		const char *to = json_string_value(json_object_get(j, "target"));
		uint64_t n = (uint64_t)json_integer_value(json_object_get(j, "count"));

		of_one += to && strcmp(to, "n7.test") == 0 ? n : 0;
		without += !to ? n : 0;
		of_late += strcmp(json_string_value(json_object_get(j, "rule")), "other") == 0;
		json_decref(j);
	}
	assert_int_equal(of_one, 2);
	assert_int_equal(without, 2 * 2 * AUDIT_TARGETS);
	assert_int_equal(of_late, 1);
}

static void a_full_file_is_said(void **state)
{
	struct audit_entry e = one;
	struct audit a;
	int rd, fd = made_file(&rd);

	(void)state;
	e.forwarded = true;
	assert_int_equal(ftruncate(rd, AUDIT_FILE_MAX - AUDIT_CLOSE_ROOM - 1), 0);
	assert_int_equal(audit_open(&a, fd, NULL), 0);
	assert_true(audit_ready(&a));
	audit_add(&a, &e);
	(void)audit_flush(&a);
	assert_true(audit_ready(&a));
	assert_int_equal(ftruncate(rd, AUDIT_FILE_MAX - AUDIT_CLOSE_ROOM), 0);
	a.size++;
	assert_false(audit_ready(&a));
	for (int i = 0; i < 1000; i++)
		audit_add(&a, &e);
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	assert_in_range(size_of(rd), AUDIT_FILE_MAX - AUDIT_CLOSE_ROOM, AUDIT_FILE_MAX);
	(void)close(rd);
	/* Nothing to write to: nothing kept, nothing lost, and nothing stopped. */
	assert_int_equal(audit_open(&a, -1, NULL), 0);
	assert_true(audit_ready(&a));
	audit_add(&a, &one);
	audit_close(&a);
	assert_int_equal(a.lost, 0);
}

/*
 * A write that a limit cuts short: nothing more is forwarded until it can be written; the line that was cut is written again, whole, on
 * a line of its own; what never can is counted.
 */
static void a_torn_line_is_written_again(void **state)
{
	struct rlimit was, small = {.rlim_cur = 300};
	struct audit_entry e = one;
	struct audit a;
	int rd, fd = made_file(&rd);

	(void)state;
	e.forwarded = true;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small.rlim_max = was.rlim_max;
	(void)signal(SIGXFSZ, SIG_IGN);
	for (int later = 0; later < 2; later++) {
		assert_int_equal(ftruncate(rd, 0), 0);
		assert_int_equal(audit_open(&a, later ? fd : dup(fd), NULL), 0);
		for (int i = 0; i < 3; i++)
			audit_add(&a, &e);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		assert_true(audit_flush(&a));
		assert_false(audit_ready(&a));
		assert_int_equal(size_of(rd), 300);
		audit_add(&a, &e);
		audit_add(&a, &e);
		if (later) {
			audit_close(&a);
			assert_int_equal(a.lost, 4);
			assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
			continue;
		}
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
		(void)audit_flush(&a);
		assert_true(audit_ready(&a));
		audit_close(&a);
		assert_int_equal(a.lost, 0);
		assert_int_equal(look(rd, NULL).requests, 5);
	}
	(void)close(rd);
}

static struct audit_memory *shared_memory(void)
{
	struct audit_memory *m =
	    mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(m != MAP_FAILED);
	return m;
}

/* Three lines, 200 of a kind that are counted, two requests on their way: and kill -9 before a byte is written. */
static void be_killed(struct audit_memory *m, int fd)
{
	struct audit_entry e = one;
	struct audit a;
	unsigned ended;

	e.forwarded = true;
	if (audit_open_in(&a, fd, m, NULL) < 0)
		_exit(1);
	for (int i = 0; i < 3; i++)
		audit_add(&a, &e);
	a.tokens[0] = a.tokens[1] = -1e9;
	for (int i = 0; i < 200; i++)
		audit_add(&a, &e);
	if (!audit_begin(&a, &e, &ended) || !audit_begin(&a, &e, &e.flight))
		_exit(1);
	e.flight = ended;
	e.rule = "upstream.lost";
	audit_add(&a, &e);
	e.flight = 0;
	e.route_id = "PUT /b";
	e.method = "PUT";
	if (!audit_begin(&a, &e, &e.flight))
		_exit(1);
	(void)raise(SIGKILL);
}

/* B-10: a helper that is killed takes no decision with it, whether the next one or airlock finds it. */
static void what_a_killed_process_knew_is_written(void **state)
{
	struct audit_memory *m = shared_memory();
	int rd, status, fd = made_file(&rd);
	struct audit a;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		be_killed(m, fd);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(size_of(rd), 0);
	assert_int_equal(audit_open_in(&a, fd, m, NULL), 0);
	assert_int_equal(m->told, 206);
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	assert_int_equal(look(rd, "allow").lines, 4);
	assert_int_equal(look(rd, "allow").requests, 203);
	assert_int_equal(look(rd, "upstream.lost").requests, 1);
	assert_int_equal(look(rd, AUDIT_KILLED).lines, 2);
	/* Once: nothing is left for the one after. */
	assert_int_equal(audit_open_in(&a, open("/dev/null", O_WRONLY | O_CLOEXEC), m, NULL), 0);
	assert_int_equal(m->told, 206);
	audit_close(&a);
	assert_int_equal(munmap(m, sizeof(*m)), 0);
	(void)close(rd);
}

/* A helper that was taken over leaves what it likes: it costs lines, and no more. */
static void nothing_that_is_left_is_believed(void **state)
{
	static const int bytes[] = {0xff, 0x7f, '\n', 0x80, 1};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
		struct audit_memory *m = shared_memory();
		int rd, fd = made_file(&rd);
		struct audit a;

		memset(m, bytes[i], sizeof(*m));
		assert_int_equal(audit_open_in(&a, fd, m, NULL), 0);
		audit_add(&a, &one);
		audit_close(&a);
		assert_in_range(size_of(rd), 1, 8 << 20);
		assert_int_equal(munmap(m, sizeof(*m)), 0);
		(void)close(rd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_is_json),
	    cmocka_unit_test(refusals_do_not_crowd_out_what_is_forwarded),
	    cmocka_unit_test(refusals_keep_to_their_room),
	    cmocka_unit_test(many_kinds_share),
	    cmocka_unit_test(shared_lines_keep_their_target),
	    cmocka_unit_test(a_full_file_is_said),
	    cmocka_unit_test(a_torn_line_is_written_again),
	    cmocka_unit_test(what_a_killed_process_knew_is_written),
	    cmocka_unit_test(nothing_that_is_left_is_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
