/* B-05, B-06: bad plans are refused by name; the codec is exact. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "provider/native/step.h" /* before cmocka: both have a `fail` */

#include <cmocka.h>

#include "base/cleanup.h"
#include "provider/plan.h"

#define W(s) ((char *)(uintptr_t)(s))

static struct plan good(void)
{
	return (struct plan){
	    .guest = W("/opt/airlock/airlock-guest"),
	    .image = W("/home/u/.local/state/airlock/images/i/tree"),
	    .lease_dir = W("/home/u/.local/state/airlock/leases/1"),
	    .state_dir = W("/home/u/.local/state/airlock"),
	    .inside = W("/workspace"),
	    .hostname = W("airlock"),
	    .layers = {W("/home/u/.local/state/airlock/workspaces/k/layers/2"),
		       W("/home/u/.local/state/airlock/workspaces/k/layers/1")},
	    .layers_len = 2,
	    .binds = {{W("/home/u/.nvm/versions/node"), W("/opt/node")}},
	    .binds_len = 1,
	    .forbidden = {W("/home/u/proj"), W("/home/u/.ssh"), W("/var/lib/docker")},
	    .forbidden_len = 3,
	    .net = NET_NONE,
	    .uid_inside = 1000,
	    .gid_inside = 1000,
	    .uid_host = 1000,
	    .gid_host = 1000,
	};
}

/* One field of a good plan made bad. */
static void set(struct plan *p, const char *field, const char *v)
{
	if (strcmp(field, "src") == 0)
		p->binds[0].src = W(v);
	else if (strcmp(field, "dst") == 0)
		p->binds[0].dst = W(v);
	else if (strcmp(field, "lease") == 0)
		p->lease_dir = W(v);
	else if (strcmp(field, "state") == 0)
		p->state_dir = W(v);
	else if (strcmp(field, "inside") == 0)
		p->inside = W(v);
	else if (strcmp(field, "layer") == 0)
		p->layers[1] = W(v);
	else if (strcmp(field, "image") == 0)
		p->image = W(v);
	else if (strcmp(field, "guest") == 0)
		p->guest = W(v);
	else if (strcmp(field, "host") == 0)
		p->hostname = W(v);
	else if (strcmp(field, "forbidden") == 0)
		p->forbidden[0] = W(v);
	else
		fail_msg("field %s", field);
}

static const struct {
	const char *field, *value, *text; /* text: part of the message */
} bad[] = {
    /* B-05: nothing of the host's secrets, sockets and workspace comes in */
    {"src", "/home/u/.ssh", "must stay outside"},
    {"src", "/home/u/.ssh/id_ed25519", "must stay outside"},
    {"src", "/home/u", "must stay outside"},
    {"src", "/home", "must stay outside"},
    {"src", "/", "root directory"},
    {"src", "/home/u/proj", "must stay outside"},
    {"src", "/home/u/proj/node_modules", "must stay outside"},
    {"src", "/var/lib/docker/overlay2", "must stay outside"},
    {"src", "/run/docker.sock", "sockets"},
    {"src", "/run", "sockets"},
    {"src", "/var/run/docker.sock", "sockets"},
    {"src", "/var", "must stay outside"},
    {"src", "/proc/1/root", "kernel interfaces"},
    {"src", "/sys/fs/cgroup", "kernel interfaces"},
    {"src", "/dev/kvm", "kernel interfaces"},
    {"src", "/home/u/.local/state/airlock", "Airlock's own state"},
    {"src", "/home/u/.local/state/airlock/airlock.db", "Airlock's own state"},
    {"src", "/home/u/.local/state/airlock/leases/2/upper", "Airlock's own state"},
    {"src", "/home/u/.local/state", "Airlock's own state"},
    /* forms */
    {"src", "relative", "absolute"},
    {"src", "/a/../home/u/.ssh", "absolute"},
    {"src", "/a/./b", "absolute"},
    {"src", "/a//b", "absolute"},
    {"src", "/a/", "absolute"},
    {"src", "", "absolute"},
    /* B-06: nothing over what the launcher makes */
    {"dst", "/workspace", "workspace"},
    {"dst", "/workspace/x", "workspace"},
    {"dst", "/home/agent", "own image"},
    {"dst", "/home/agent/.claude", "own image"},
    {"dst", "/home", "own image"},
    {"dst", "/proc", "own image"},
    {"dst", "/proc/sys", "own image"},
    {"dst", "/dev/x", "own image"},
    {"dst", "/etc/passwd", "own image"},
    {"dst", "/run/x", "own image"},
    {"dst", "/tmp/x", "own image"},
    {"dst", "/var/tmp", "own image"},
    {"dst", "/usr/local/bin", "own image"},
    {"dst", "/bin", "own image"},
    {"dst", "/lib64/x", "own image"},
    {"dst", "/.airlock", "own image"},
    {"dst", "/.airlock/airlock-guest", "own image"},
    {"dst", "/nix/store/x", "own image"},
    {"dst", "/", "root directory"},
    {"dst", "/opt/../etc", "absolute"},
    {"inside", "/", "root directory"},
    {"inside", "/etc", "own image"},
    {"inside", "/home", "own image"},
    {"inside", "/home/agent/w", "own image"},
    {"inside", "/tmp/w", "own image"},
    {"inside", "/usr/w", "own image"},
    {"inside", "workspace", "absolute"},
    /* storage and layers */
    {"lease", "/home/u/proj/.airlock/leases/1", "must stay outside"},
    {"lease", "/home/u/.ssh", "must stay outside"},
    {"lease", "/srv/elsewhere", "not below the state directory"},
    {"lease", "/home/u/.local/state/airlock", "not below the state directory"},
    {"layer", "/home/u/proj", "must stay outside"},
    {"layer", "/home/u/proj/sub", "must stay outside"},
    {"layer", "/home/u", "must stay outside"},
    {"layer", "/home/u/.local/state/airlock/leases/1/upper", "overlaps the storage"},
    {"layer", "/home/u/.local/state/airlock/leases", "overlaps the storage"},
    {"image", "/", "root directory"},
    {"image", "images/i", "not an absolute path"},
    {"image", "/home/u/proj/system", "must stay outside"},
    {"image", "/home/u", "must stay outside"},
    {"image", "/home/u/.local/state/airlock/leases/1/upper", "overlaps the storage"},
    {"layer", "/home/u/.local/state/airlock/workspaces/k/layers/2", "overlap"},
    {"layer", "/home/u/.local/state/airlock/workspaces/k/layers/2/sub", "overlap"},
    {"layer", "x", "absolute"},
    {"guest", "airlock-guest", "absolute"},
    {"state", "/home/u/other", "not below the state directory"},
    {"forbidden", "proj", "absolute"},
    {"forbidden", "/", "root directory"},
    {"host", "", "host name"},
    {"host", "a b", "host name"},
    {"host", "-a", "host name"},
    {"host", "a-", "host name"},
    {"host", "a\nb", "host name"},
    {"host", "x23456789012345678901234567890123456789012345678901234567890123", NULL},
    {"host", "x234567890123456789012345678901234567890123456789012345678901234", "host name"},
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct plan p = good();
		struct err e = ERR_INIT;
		int r;

		set(&p, bad[i].field, bad[i].value);
		r = plan_check(&p, &e);
		if (!bad[i].text) {
			assert_int_equal(r, 0);
			continue;
		}
		if (r >= 0 || !strstr(e.text, bad[i].text))
			fail_msg("%s `%s`: %d `%s`, want `%s`", bad[i].field, bad[i].value, r,
				 e.text, bad[i].text);
	}
}

static void test_good(void **state)
{
	static const char *const fine[][2] = {
	    {"src", "/home/u/.nvm"},   {"src", "/home/u/.sshx"}, {"src", "/opt/tool"},
	    {"src", "/nix/store/x"},   {"dst", "/opt/a/b"},	 {"dst", "/home/u/.nvm"},
	    {"dst", "/workspaces"},    {"inside", "/srv/w"},	 {"host", "a-1"},
	    {"inside", "/workspace2"}, {"src", "/usr/local/go"},
	};
	struct plan p = good();

	(void)state;
	assert_int_equal(plan_check(&p, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(fine); i++) {
		struct err e = ERR_INIT;

		p = good();
		set(&p, fine[i][0], fine[i][1]);
		if (plan_check(&p, &e) < 0)
			fail_msg("%s: %s", fine[i][1], e.text);
	}
}

/* Ids, limits and counts. */
static void test_values(void **state)
{
	struct plan p;

	(void)state;
#define REFUSED(change)                                \
	do {                                           \
		p = good();                            \
		change;                                \
		assert_true(plan_check(&p, NULL) < 0); \
	} while (0)
	REFUSED(p.uid_inside = 0);
	REFUSED(p.gid_inside = 0);
	REFUSED(p.uid_host = 0);
	REFUSED(p.gid_host = 0);
	REFUSED(p.uid_host = UINT32_MAX);
	REFUSED(p.gid_inside = UINT32_MAX);
	REFUSED(p.net = 2);
	REFUSED(p.sockets = PLAN_SOCKETS_MAX + 1);
	REFUSED((p.sockets = 1, p.net = NET_HOST));
	REFUSED(p.without = 16);
	REFUSED(p.memory_bytes = PLAN_MEMORY_MIN - 1);
	REFUSED(p.memory_bytes = UINT64_MAX);
	REFUSED(p.pids = UINT64_C(1) << 40);
	REFUSED(p.cpu_milli = UINT64_C(1) << 40);
	REFUSED(p.layers_len = PLAN_LAYERS_MAX + 1);
	REFUSED(p.binds_len = PLAN_BINDS_MAX + 1);
	REFUSED(p.forbidden_len = PLAN_FORBIDDEN_MAX + 1);
	REFUSED(p.guest = NULL);
	REFUSED(p.lease_dir = NULL);
	REFUSED(p.state_dir = NULL);
	REFUSED(p.inside = NULL);
	REFUSED(p.hostname = NULL);
	REFUSED(p.layers[0] = NULL);
	REFUSED(p.binds[0].src = NULL);
	REFUSED(p.binds[0].dst = NULL);
	/* two binds in one another, either way */
	REFUSED((p.binds[1] = (struct bind_ro){W("/opt/b"), W("/opt/node/lib")}, p.binds_len = 2));
	REFUSED((p.binds[1] = (struct bind_ro){W("/opt/b"), W("/opt")}, p.binds_len = 2));
	REFUSED((p.binds[1] = (struct bind_ro){W("/opt/b"), W("/opt/node")}, p.binds_len = 2));
#undef REFUSED
	p = good();
	p.sockets = PLAN_SOCKETS_MAX;
	assert_int_equal(plan_check(&p, NULL), 0);
	p.sockets = 0;
	p.memory_bytes = PLAN_MEMORY_MIN;
	p.net = NET_HOST;
	p.without = WITHOUT_CGROUP | WITHOUT_LANDLOCK | WITHOUT_SECCOMP | WITHOUT_OVERLAY;
	assert_int_equal(plan_check(&p, NULL), 0);
}

/* What is written is read back; every shorter and every longer text is refused. */
static void test_codec(void **state)
{
	_cleanup_buf_ struct buf a = BUF_INIT(65536), b = BUF_INIT(65536);
	struct plan p = good(), q;

	(void)state;
	p.keep = true;
	p.memory_bytes = 1 << 30;
	p.without = WITHOUT_CGROUP;
	assert_int_equal(plan_put(&a, &p), 0);
	assert_int_equal(plan_get((struct view){a.data, a.len}, &q, NULL), 0);
	assert_int_equal(plan_check(&q, NULL), 0);
	assert_int_equal(plan_put(&b, &q), 0);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.data, b.data, a.len);
	plan_done(&q);
	for (size_t n = 0; n < a.len; n++) {
		assert_int_equal(plan_get((struct view){a.data, n}, &q, NULL), -EPROTO);
		plan_done(&q);
	}
	(void)buf_u8(&a, 0);
	assert_int_equal(plan_get((struct view){a.data, a.len}, &q, NULL), -EPROTO);
	plan_done(&q);
}

static void test_failure_codec(void **state)
{
	static const struct {
		uint32_t step, sys;
		const char *object;
		size_t extra;
		int r;
	} rows[] = {
	    {STEP_OVERLAY, EPERM, "/home/u/x", 0, 0},
	    {STEP_EXEC, ENOENT, "", 0, 0},
	    {STEP_NONE, EPERM, "x", 0, -EPROTO},
	    {STEP_COUNT, EPERM, "x", 0, -EPROTO},
	    {STEP_ROOT, 0, "x", 0, -EPROTO},
	    {STEP_ROOT, UINT32_MAX, "x", 0, -EPROTO},
	    {STEP_OVERLAY, EPERM, "trailing", 1, -EPROTO},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);
		struct failure f = {.step = rows[i].step, .sys = (int32_t)rows[i].sys}, got;

		(void)snprintf(f.object, sizeof(f.object), "%s", rows[i].object);
		assert_int_equal(failure_put(&b, &f), 0);
		assert_int_equal(buf_put(&b, "\0", rows[i].extra), 0);
		assert_int_equal(failure_get((struct view){b.data, b.len}, &got), rows[i].r);
		if (rows[i].r == 0)
			assert_memory_equal(&got, &f, sizeof(f));
		/* Cut anywhere, it is refused. */
		for (size_t n = 0; n < b.len - rows[i].extra; n++)
			assert_int_equal(failure_get((struct view){b.data, n}, &got), -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bad),		  cmocka_unit_test(test_good),
	    cmocka_unit_test(test_values),	  cmocka_unit_test(test_codec),
	    cmocka_unit_test(test_failure_codec),
	};

	return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
