/* How sandboxes end, what bounds them, and what is refused before they start. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "native_box.h"
#include "os/self.h"
#include "provider/native.h"
#include "provider/native/launch_fds.h"
#include "wire/guest.h"

#define W(s) ((char *)(uintptr_t)(s))
#define GONE_MS 2000 /* FR-B164: what a killed engine may leave alive */

static void expect(struct nbox *b, const char *script, int code, const char *out)
{
	int r = nbox_sh(b, script);

	if (r != code || (out && strcmp(buf_text(&b->out), out) != 0))
		fail_msg("`%s`: exit %d (want %d), output `%s` (want `%s`)", script, r, code,
			 buf_text(&b->out), out ? out : "any");
}

/* The host's pid of pid 1 of a sandbox: the only child of its monitor. 0: not yet. */
static pid_t child_of(pid_t monitor)
{
	char path[64], text[64];
	_cleanup_fd_ int fd = -1;
	uint64_t v = 0;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)monitor, (int)monitor);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, " ")] = '\0';
	return str_to_u64(text, INT32_MAX, &v) == 0 ? (pid_t)v : 0;
}

static pid_t guest_of(pid_t monitor)
{
	pid_t pid = child_of(monitor);

	assert_true(pid > 0);
	return pid;
}

static int pidfd(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void assert_gone(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	assert_true(fd >= 0);
	assert_int_equal(poll(&p, 1, ms), 1);
}

/* FR-B164: the monitor is killed: the sandbox goes with it, and the provider says so. */
static void test_monitor_killed(void **state)
{
	char *sleeper[] = {W("sleep"), W("1000"), NULL};
	_cleanup_fd_ int guest = -1;
	struct sandbox_event ev;
	struct nbox b;

	(void)state;
	nbox_init(&b);
	nbox_start(&b);
	(void)nbox_spawn(&b, sleeper);
	assert_int_equal(nbox_event(&b, GONE_MS).type, SE_STARTED);
	guest = pidfd(guest_of(b.sb->monitor_pid));
	assert_int_equal(kill(b.sb->monitor_pid, SIGKILL), 0);
	assert_gone(guest, GONE_MS);
	ev = nbox_event(&b, GONE_MS);
	assert_int_equal(ev.type, SE_ENDED);
	nbox_done(&b);
}

static bool has_relro(pid_t pid)
{
	char path[64], line[4096];
	_cleanup_file_ FILE *f = NULL;
	bool found = false;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		assert_null(strstr(line, "rwx"));
		found |= strstr(line, " r--p ") && strstr(line, "/airlock-");
	}
	return found;
}

/* What only start-up writes is read-only in the static programs as well, where no loader sees to that. */
static void test_relro(void **state)
{
	struct nbox b;

	(void)state;
	/* They cannot be looked at by anybody else. */
	if (geteuid() != 0)
		skip();
	nbox_init(&b);
	nbox_start(&b);
	expect(&b, "true", 0, "");
	assert_true(has_relro(b.sb->monitor_pid));
	assert_true(has_relro(guest_of(b.sb->monitor_pid)));
	nbox_done(&b);
}

/*
 * A command ends the process that holds its tree before the guest has looked whether it runs: its events come in order
 * all the same, and the sandbox serves the next one.
 */
static void test_holder_killed_at_once(void **state)
{
	char *killer[] = {W("sh"), W("-c"), W("kill -9 $PPID; sleep 1000"), NULL};
	char *next[] = {W("true"), NULL};
	struct nbox b;

	(void)state;
	nbox_init(&b);
	nbox_start(&b);
	for (int i = 0; i < 5; i++) {
		struct sandbox_event ev;

		(void)nbox_spawn(&b, killer);
		assert_int_equal(nbox_event(&b, GONE_MS).type, SE_STARTED);
		ev = nbox_event(&b, GONE_MS);
		assert_int_equal(ev.type, SE_EXITED);
		assert_int_equal(ev.signo, SIGKILL);
		(void)nbox_spawn(&b, next);
		assert_int_equal(nbox_event(&b, GONE_MS).type, SE_STARTED);
		ev = nbox_event(&b, GONE_MS);
		assert_int_equal(ev.type, SE_EXITED);
		assert_int_equal(ev.code, 0);
	}
	nbox_done(&b);
}

/* FR-B164, FR-B171: the engine is killed, in another session than the sandbox. */
static void test_engine_killed(void **state)
{
	_cleanup_fd_ int guest = -1, monitor = -1;
	struct nbox b;
	pid_t pids[2] = {0}, engine;
	int p[2], status;

	(void)state;
	nbox_init(&b);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	engine = fork();
	if (engine == 0) {
		char *sleeper[] = {W("sh"), W("-c"), W("trap '' TERM HUP INT; sleep 1000"), NULL};

		nbox_start(&b);
		(void)nbox_spawn(&b, sleeper);
		pids[0] = b.sb->monitor_pid;
		pids[1] = guest_of(pids[0]);
		(void)!write(p[1], pids, sizeof(pids));
		pause();
		_exit(0);
	}
	assert_int_equal(read(p[0], pids, sizeof(pids)), sizeof(pids));
	monitor = pidfd(pids[0]);
	guest = pidfd(pids[1]);
	assert_int_equal(kill(engine, SIGKILL), 0);
	assert_int_equal(waitpid(engine, &status, 0), engine);
	assert_gone(guest, GONE_MS);
	assert_gone(monitor, GONE_MS);
	(void)close(p[0]);
	(void)close(p[1]);
	nbox_done(&b);
}

/* airlock-launch by hand, with a plan; *ret speaks to it. */
static pid_t launch_with_plan(struct nbox *b, struct chan *ret)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_buf_ struct buf plan = BUF_INIT(FRAME_MAX);
	struct err e = ERR_INIT;
	struct plan p = {0};
	int pair[2];
	pid_t pid;

	assert_int_equal(native_plan(&b->spec, &p, &e), 0);
	assert_int_equal(plan_put(&plan, &p), 0);
	plan_done(&p);
	assert_int_equal(self_helper("airlock-launch", &path, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char *argv[] = {W("airlock-launch"), NULL}, *env[] = {NULL};

		if (pair[1] == LAUNCH_FD_OWNER ? fcntl(pair[1], F_SETFD, 0) == 0
					       : dup2(pair[1], LAUNCH_FD_OWNER) >= 0)
			(void)execve(path, argv, env);
		_exit(127);
	}
	(void)close(pair[1]);
	chan_init(ret, pair[0], true);
	assert_int_equal(chan_send(ret, GM_PLAN, plan.data, plan.len, NULL, 0, INT64_MAX, &e), 0);
	return pid;
}

/* The storage is never said to be there: what was made until then ends, whoever ended it. */
static void test_no_storage(void **state)
{
	int64_t until = clock_mono_ns() + 60 * NS_PER_S;
	_cleanup_fd_ int inside = -1;
	struct nbox b;
	struct chan ch;
	pid_t launch, pid;
	int status;

	(void)state;
	nbox_init(&b);
	launch = launch_with_plan(&b, &ch);
	while ((pid = child_of(launch)) == 0 && clock_mono_ns() < until)
		(void)poll(NULL, 0, 1);
	inside = pidfd(pid);
	chan_done(&ch);
	assert_int_equal(waitpid(launch, &status, 0), launch);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	assert_gone(inside, GONE_MS);
	nbox_done(&b);
}

/* Anything else in place of that word ends the start with a reason. */
static void test_wrong_second_frame(void **state)
{
	int fds[FRAME_FDS_MAX], status;
	struct err e = ERR_INIT;
	struct frame f;
	struct nbox b;
	struct chan ch;
	pid_t launch;

	(void)state;
	nbox_init(&b);
	launch = launch_with_plan(&b, &ch);
	assert_int_equal(chan_send(&ch, GM_SHUTDOWN, NULL, 0, NULL, 0, INT64_MAX, &e), 0);
	assert_int_equal(chan_recv(&ch, clock_mono_ns() + 60 * NS_PER_S, &f, fds, &e), 1);
	assert_int_equal(f.type, GM_ERROR);
	assert_non_null(memmem(f.payload.p, f.payload.n, W("must follow the plan"), 20));
	assert_int_equal(waitpid(launch, &status, 0), launch);
	chan_done(&ch);
	nbox_done(&b);
}

/* A kept sandbox outlives its maker, is found again, and is ended through the second connection. */
static void test_kept(void **state)
{
	struct err e = ERR_INIT;
	struct sandbox *sb = NULL;
	pid_t monitor;
	struct nbox b;

	(void)state;
	nbox_init(&b);
	b.spec.keep = true;
	nbox_start(&b);
	expect(&b, "echo kept >f; echo ok", 0, "ok\n");
	monitor = b.sb->monitor_pid;
	provider_native.detach(b.sb);
	b.sb = NULL;
	assert_int_equal(provider_native.attach(&b.spec, &b.sb, &e), 0);
	assert_int_equal(b.sb->monitor_pid, monitor);
	assert_true(b.sb->monitor_start > 0);
	expect(&b, "cat f", 0, "kept\n");
	assert_int_equal(provider_native.release(b.sb, &e), 0);
	b.sb = NULL;
	assert_int_equal(waitpid(monitor, NULL, 0), monitor);
	assert_int_equal(provider_native.attach(&b.spec, &sb, &e), -ENOENT);
	/* The layer stays: the lease starts again over it. */
	nbox_start(&b);
	expect(&b, "cat f", 0, "kept\n");
	nbox_done(&b);
}

/* A fork bomb ends at the limit, and the sandbox goes on. */
static void test_fork_bomb(void **state)
{
	struct nbox b;

	(void)state;
	nbox_init(&b);
	b.spec.limits.pids = 60;
	nbox_start(&b);
	/* The shell gives up where it cannot fork. */
	assert_int_not_equal(
	    nbox_sh(&b, "i=0; while [ $i -lt 300 ]; do sleep 100 & i=$((i+1)); done"), 0);
	expect(&b, "echo alive", 0, "alive\n");
	assert_int_equal(nbox_sh(&b, "ls /proc | grep -c '^[0-9]'"), 0);
	nbox_done(&b);
}

/* Enforced with a status that says why, or refused by name; never silently without. */
static void test_memory_limit(void **state)
{
	struct err e = ERR_INIT;
	struct nbox b;
	int r;

	(void)state;
	nbox_init(&b);
	b.spec.limits.memory_bytes = UINT64_C(48) << 20;
	r = provider_native.acquire(&b.spec, &b.sb, &e);
	if (r < 0) {
		assert_int_equal(e.code, ERR_UNAVAILABLE);
		assert_non_null(strstr(e.text, "airlock doctor"));
		assert_non_null(strstr(e.text, "--without cgroup"));
		b.spec.without = WITHOUT_CGROUP;
		nbox_start(&b);
		expect(&b, "echo ok", 0, "ok\n");
	} else {
		assert_int_equal(nbox_sh(&b, "exec head -c 300m /dev/zero | tail"), 137);
		assert_true(b.last.oom_kills > 0);
		expect(&b, "echo alive", 0, "alive\n");
		assert_int_equal(b.last.oom_kills, 0);
	}
	nbox_done(&b);
}

static void test_binds(void **state)
{
	_cleanup_free_ char *tool = NULL, *file = NULL;
	struct err e = ERR_INIT;
	struct sandbox *sb = NULL;
	struct nbox b;
	int fd;

	(void)state;
	nbox_init(&b);
	tool = path_join(b.dir, "tool");
	assert_int_equal(mkdir(tool, 0755), 0);
	file = path_join(tool, "say");
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	assert_int_equal(write(fd, "#!/bin/sh\necho said\n", 20), 20);
	(void)close(fd);
	b.binds[0] = (struct bind_ro){tool, W("/opt/tool")};
	b.binds[1] = (struct bind_ro){file, W("/opt/one/say")};
	b.spec.binds_len = 2;
	nbox_start(&b);
	expect(&b, "/opt/tool/say; /opt/one/say", 0, "said\nsaid\n");
	expect(&b, "touch /opt/tool/x 2>/dev/null || echo ro", 0, "ro\n");
	expect(&b, "echo x >/opt/one/say", 2, NULL);
	assert_int_equal(provider_native.release(b.sb, &e), 0);
	b.sb = NULL;
	/* B-05: the workspace itself, and Airlock's state, by way of a link */
	b.binds[0].src = b.work;
	assert_true(provider_native.acquire(&b.spec, &sb, &e) < 0);
	assert_non_null(strstr(e.text, "must stay outside"));
	(void)unlink(file);
	assert_int_equal(symlink(b.lease, file), 0);
	b.binds[0].src = file;
	assert_true(provider_native.acquire(&b.spec, &sb, &e) < 0);
	assert_non_null(strstr(e.text, "Airlock's own state"));
	nbox_done(&b);
}

/* The packer sees the layer; a copy of the workspace instead of an overlay works as well. */
static void test_pack_and_copy(void **state)
{
	struct nbox b;

	(void)state;
	for (int copy = 0; copy < 2; copy++) {
		struct err e = ERR_INIT;
		struct sandbox_event ev;
		char drain[65536];
		uint64_t total = 0;
		uint32_t id;
		ssize_t n;
		int p[2];

		nbox_init(&b);
		b.spec.without = copy ? WITHOUT_OVERLAY : 0;
		nbox_start(&b);
		expect(&b,
		       "echo changed >hello.txt; rm sub/deep.txt; cat hello.txt; ls sub | wc -l", 0,
		       "changed\n0\n");
		assert_int_equal(pipe2(p, O_CLOEXEC), 0);
		assert_int_equal(provider_native.pack(b.sb, p[1], &id, &e), 0);
		(void)close(p[1]);
		while ((n = read(p[0], drain, sizeof(drain))) > 0)
			total += (uint64_t)n;
		(void)close(p[0]);
		ev = nbox_event(&b, 5000);
		assert_int_equal(ev.type, SE_PACKED);
		assert_int_equal(ev.id, id);
		assert_int_equal(ev.sys, 0);
		assert_true(ev.members >= 2);
		assert_true(total >= 2048);
		nbox_done(&b);
	}
}

/* What foreign code leaves in storage goes away: unreadable, deep, many. */
static void test_storage_removed(void **state)
{
	struct nbox b;

	(void)state;
	nbox_init(&b);
	nbox_start(&b);
	expect(&b,
	       "mkdir -p x/y && echo 1 >x/y/z && chmod 000 x/y x; mkdir ~/h && chmod 000 ~/h; "
	       "ln -s / ~/root; i=0; cd /tmp; while [ $i -lt 150 ]; do mkdir dddddddd && cd "
	       "dddddddd && i=$((i+1)); done; echo made",
	       0, "made\n");
	nbox_done(&b);
	assert_int_equal(access("/usr/bin", F_OK), 0);
}

static void map_self(void)
{
	char map[64];
	uid_t uid = getuid();
	gid_t gid = getgid();
	int fd;

	assert_int_equal(unshare(CLONE_NEWUSER), 0);
	fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(fd, "deny", 4), 4);
	(void)close(fd);
	(void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
	assert_true(write(fd, map, strlen(map)) > 0);
	(void)close(fd);
	(void)snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	fd = open("/proc/self/gid_map", O_WRONLY | O_CLOEXEC);
	assert_true(write(fd, map, strlen(map)) > 0);
	(void)close(fd);
}

static void become_user(void)
{
	if (getuid() != 0)
		return;
	assert_int_equal(setgroups(0, NULL), 0);
	assert_int_equal(setresgid(20001, 20001, 20001), 0);
	assert_int_equal(setresuid(20001, 20001, 20001), 0);
	/* Changed ids make /proc/self/uid_map root's until the next exec, or this. */
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
}

/* As root of a container that lacks the sandbox's id: told, not mapped to something else. */
static void test_root_of_namespace(void **state)
{
	struct nbox b;
	int status;
	pid_t pid;

	(void)state;
	if (getuid() != 0)
		return;
	nbox_init(&b);
	pid = fork();
	if (pid == 0) {
		struct err e = ERR_INIT;
		struct sandbox *sb = NULL;

		map_self();
		if (provider_native.acquire(&b.spec, &sb, &e) >= 0)
			_exit(1);
		_exit(e.code == ERR_UNAVAILABLE && strstr(e.text, "ordinary user") ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	nbox_done(&b);
	assert_int_equal(status, 0);
}

/* Gives back what test_no_user_namespaces expects as the exit status of its child: 0, or which step failed. */
static int refused_without_namespaces(void)
{
	struct err e = ERR_INIT;
	struct sandbox *sb = NULL;
	struct nbox b;
	int fd, r;

	/* Root of a namespace with one id is refused earlier: see test_root_of_namespace. */
	become_user();
	nbox_init(&b);
	map_self();
	fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	if (write(fd, "0", 1) != 1) {
		nbox_drop(&b);
		return 3;
	}
	(void)close(fd);
	r = provider_native.acquire(&b.spec, &sb, &e);
	nbox_drop(&b);
	(void)fprintf(stderr, "%s\n", e.text);
	if (r >= 0 || e.code != ERR_UNAVAILABLE)
		return 1;
	return strstr(e.text, "max_user_namespaces") && strstr(e.text, "doctor") ? 0 : 2;
}

/* L3, FR-B010, FR-B024: no user namespaces: refused before anything runs, with the remedy. */
static void test_no_user_namespaces(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0)
		_exit(refused_without_namespaces());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_monitor_killed),
	    cmocka_unit_test(test_relro),
	    cmocka_unit_test(test_holder_killed_at_once),
	    cmocka_unit_test(test_engine_killed),
	    cmocka_unit_test(test_no_storage),
	    cmocka_unit_test(test_wrong_second_frame),
	    cmocka_unit_test(test_kept),
	    cmocka_unit_test(test_fork_bomb),
	    cmocka_unit_test(test_memory_limit),
	    cmocka_unit_test(test_binds),
	    cmocka_unit_test(test_pack_and_copy),
	    cmocka_unit_test(test_storage_removed),
	    cmocka_unit_test(test_no_user_namespaces),
	    cmocka_unit_test(test_root_of_namespace),
	};

	return cmocka_run_group_tests_name("native_life", tests, NULL, NULL);
}
