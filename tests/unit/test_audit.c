/* Unit tests of src/bridge/audit.c: one line a decision, bounded files, and a full disk costs lines, never the run. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
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

static char *made_dir(char *template)
{
	assert_non_null(mkdtemp(template));
	return template;
}

static int64_t size_of(const char *dir, unsigned i)
{
	char name[32];
	_cleanup_free_ char *path = NULL;
	struct stat st;

	audit_file_name(i, name, sizeof(name));
	path = path_join(dir, name);
	return stat(path, &st) < 0 ? -1 : st.st_size;
}

static void clean(const char *dir)
{
	for (unsigned i = 0; i <= AUDIT_FILES_MAX; i++) {
		char name[32];
		_cleanup_free_ char *path = NULL;

		audit_file_name(i, name, sizeof(name));
		path = path_join(dir, name);
		(void)unlink(path);
	}
	assert_int_equal(rmdir(dir), 0);
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

/* The oldest goes when there are too many; no file is larger than its limit. */
static void files_rotate(void **state)
{
	char template[] = "/tmp/airlock-audit-XXXXXX";
	const char *dir = made_dir(template);
	_cleanup_buf_ struct buf line = BUF_INIT(AUDIT_LINE_MAX);
	struct audit a;

	(void)state;
	assert_int_equal(audit_format(&line, &one), 0);
	assert_int_equal(audit_open(&a, open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), -1, NULL),
			 0);
	audit_add(&a, &one);
	audit_flush(&a);
	assert_int_equal(size_of(dir, 0), line.len);
	for (uint64_t n = 0; n < (uint64_t)(AUDIT_FILES_MAX + 1) * AUDIT_FILE_MAX; n += line.len)
		audit_add(&a, &one);
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	for (unsigned i = 0; i < AUDIT_FILES_MAX; i++) {
		assert_in_range(size_of(dir, i), 1, AUDIT_FILE_MAX);
		assert_int_equal(size_of(dir, i) % (int64_t)line.len, 0);
	}
	assert_int_equal(size_of(dir, AUDIT_FILES_MAX), -1);
	clean(dir);
}

/* A confined helper: one descriptor, a bound, and a count of what did not fit. */
static void one_file_is_bounded(void **state)
{
	char template[] = "/tmp/airlock-audit-XXXXXX";
	const char *dir = made_dir(template);
	_cleanup_free_ char *path = path_join(dir, AUDIT_FILE);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	struct audit a;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)AUDIT_FILE_MAX * AUDIT_FILES_MAX - 10), 0);
	assert_int_equal(audit_open(&a, -1, fd, NULL), 0);
	for (int i = 0; i < 7; i++)
		audit_add(&a, &one);
	audit_close(&a);
	assert_int_equal(a.lost, 7);
	assert_int_equal(size_of(dir, 0), (int64_t)AUDIT_FILE_MAX * AUDIT_FILES_MAX - 10);
	/* Nothing to write to: nothing kept, nothing lost. */
	assert_int_equal(audit_open(&a, -1, -1, NULL), 0);
	audit_add(&a, &one);
	audit_close(&a);
	assert_int_equal(a.lost, 0);
	clean(dir);
}

/* A write that a limit cuts short: the next line begins on a line of its own. */
static void a_torn_line_is_ended(void **state)
{
	char template[] = "/tmp/airlock-audit-XXXXXX", text[2048];
	const char *dir = made_dir(template);
	_cleanup_free_ char *path = path_join(dir, AUDIT_FILE);
	int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600), rd = dup(fd);
	struct rlimit was, small = {.rlim_cur = 100};
	struct audit a;
	ssize_t n;

	(void)state;
	assert_true(fd >= 0 && rd >= 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	small.rlim_max = was.rlim_max;
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(audit_open(&a, -1, fd, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	audit_add(&a, &one);
	audit_flush(&a);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(a.lost, 1);
	audit_add(&a, &one);
	audit_close(&a);
	n = pread(rd, text, sizeof(text) - 1, 0);
	assert_true(n > 101);
	text[n] = '\0';
	assert_int_equal(text[100], '\n');
	assert_memory_equal(text + 101, "{\"time\":", 8);
	assert_int_equal(text[n - 1], '\n');
	(void)close(rd);
	clean(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_is_json),
	    cmocka_unit_test(files_rotate),
	    cmocka_unit_test(one_file_is_bounded),
	    cmocka_unit_test(a_torn_line_is_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
