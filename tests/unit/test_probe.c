/*
 * Unit tests of src/os/probe_*.c: each trial on a healthy host, and in surroundings that force a cause: nested
 * user namespaces with limits, filters as a container engine sets them, a chroot, a covered /proc, file
 * systems that cannot carry an overlay, broken programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/probe.h"
#include "scratch.h"

#define ORDINARY 65534 /* nobody */

static char base_dir[] = "/tmp/airlock-probe-XXXXXX";

static struct probe_env env_of(const char *state_dir)
{
	return (struct probe_env){.state_dir = state_dir,
				  .version = "0.0.0",
				  .id_inside = 1000,
				  .id_host = 1879050001,
				  .own_programs = "/opt/airlock"};
}

/* ---- surroundings; each runs in a child and returns 0 or an errno ---- */

static int put(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? errno : 0;
}

/* Root of a namespace of its own with one id. */
static int nest(int more)
{
	char uid[32], gid[32];
	int r;

	(void)snprintf(uid, sizeof(uid), "0 %u 1", geteuid());
	(void)snprintf(gid, sizeof(gid), "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER | more) < 0)
		return errno;
	r = put("/proc/self/setgroups", "deny");
	if (!r)
		r = put("/proc/self/uid_map", uid);
	if (!r)
		r = put("/proc/self/gid_map", gid);
	if (!r && more & CLONE_NEWNS && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		r = errno;
	return r;
}

static int plain(void)
{
	return 0;
}

static int one_id(void)
{
	return nest(0);
}

static int namespaces_off(void)
{
	int r = nest(0);

	return r ? r : put("/proc/sys/user/max_user_namespaces", "0");
}

/* The limit of the namespace around is used up; the own one looks generous. */
static int outer_limit(void)
{
	int r = nest(0);

	if (!r)
		r = put("/proc/sys/user/max_user_namespaces", "1");
	return r ? r : nest(0);
}

static int net_off(void)
{
	int r = nest(0);

	return r ? r : put("/proc/sys/user/max_net_namespaces", "0");
}

static int filter(unsigned call, unsigned action)
{
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, action),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = ARRAY_LEN(code), .filter = code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return errno;
	return 0;
}

/* A place to ask in: made by a function, or a filter on one call. */
struct place {
	int (*make)(void);
	unsigned call, action;
};
#define IN(f)               \
	{                   \
		.make = (f) \
	}
#define NO(name, err)                                                   \
	{                                                               \
		.call = SYS_##name, .action = SECCOMP_RET_ERRNO | (err) \
	}
#define SYS_landlock 444 /* landlock_create_ruleset */

static int masked_proc(void)
{
	int r = nest(CLONE_NEWNS);

	if (!r && mount("/dev/null", "/proc/meminfo", NULL, MS_BIND, NULL) < 0)
		r = errno;
	return r;
}

static int in_chroot(void)
{
	int r = nest(0);

	return r ? r : chroot(base_dir) < 0 || chdir("/") < 0 ? errno : 0;
}

/* Its own root is the root of a mount: nothing visible gives the chroot away. */
static int in_chroot_at_mount(void)
{
	int r = nest(CLONE_NEWNS);

	if (!r && mount(base_dir, base_dir, NULL, MS_BIND, NULL) < 0)
		r = errno;
	return r ? r : chroot(base_dir) < 0 || chdir("/") < 0 ? errno : 0;
}

static int mounted(const char *type, unsigned long flags, const char *options)
{
	int r = nest(CLONE_NEWNS);
	char state[64];

	(void)snprintf(state, sizeof(state), "%s/state", base_dir);
	if (!r && mount(type, state, type, flags, options) < 0)
		r = errno;
	return r;
}

static int state_small(void)
{
	return mounted("tmpfs", 0, "size=1m");
}
static int state_few_files(void)
{
	return mounted("tmpfs", 0, "nr_inodes=100");
}
static int state_noexec(void)
{
	return mounted("tmpfs", MS_NOEXEC, "size=4g");
}
static int state_nosymfollow(void)
{
	return mounted("tmpfs", 256 /* MS_NOSYMFOLLOW */, "size=4g");
}
static int state_read_only(void)
{
	return mounted("tmpfs", MS_RDONLY, "size=4g");
}
static int state_on_overlay(void)
{
	char options[512];

	(void)snprintf(options, sizeof(options),
		       "lowerdir=%s/l,upperdir=%s/u,workdir=%s/w,userxattr", base_dir, base_dir,
		       base_dir);
	return mounted("overlay", 0, options);
}

static int few_files(void)
{
	struct rlimit {
		unsigned long cur, max;
	} l = {512, 512};

	return syscall(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, &l, NULL) < 0 ? errno : 0;
}

/* ---- running a trial in surroundings ---- */

struct answer {
	int setup; /* errno of the surroundings */
	struct probe_result r;
};

/*
 * In a child; as nobody if ordinary and the test is root. only_id: root of a nested namespace cannot have the sandbox's
 * id there, so it gets the only one that exists.
 */
static struct answer ask(struct place place, enum layer l, bool ordinary, bool only_id)
{
	struct answer a = {.setup = EIO};
	int p[2], status;
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char state[64];
		struct probe_env env = env_of(state);

		(void)snprintf(state, sizeof(state), "%s/state", base_dir);
		if (ordinary && geteuid() == 0 &&
		    (setresgid(ORDINARY, ORDINARY, ORDINARY) < 0 ||
		     setresuid(ORDINARY, ORDINARY, ORDINARY) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0))
			_exit(1);
		if (only_id)
			env.id_inside = env.id_host = 0;
		a.setup = place.make ? place.make() : filter(place.call, place.action);
		if (!a.setup)
			probe_layer(&env, l, &a.r);
		_exit(write(p[1], &a, sizeof(a)) == (ssize_t)sizeof(a) ? 0 : 1);
	}
	(void)close(p[1]);
	assert_int_equal(read(p[0], &a, sizeof(a)), sizeof(a));
	(void)close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return a;
}

static bool have_userns(void)
{
	struct answer a = ask((struct place)IN(plain), LAYER_USERNS, true, false);

	if (a.r.state == PROBE_IN_FORCE)
		return true;
	print_message("no user namespace here (%s): %s\n", cause_info(a.r.cause)->id, a.r.object);
	return false;
}

/* B-05, FR-B010: on a host where it works, as root and as an ordinary user. */
static void a_healthy_host_has_every_layer(void **state)
{
	static const enum layer layers[] = {
	    LAYER_KERNEL, LAYER_USERNS,	 LAYER_IDMAP,	 LAYER_MNTNS, LAYER_PIDNS,   LAYER_IPCNS,
	    LAYER_UTSNS,  LAYER_NETNS,	 LAYER_PROC,	 LAYER_TMPFS, LAYER_DEVPTS,  LAYER_ROBIND,
	    LAYER_PIVOT,  LAYER_OVERLAY, LAYER_WHITEOUT, LAYER_NNP,   LAYER_SECCOMP,
	};

	(void)state;
	if (!have_userns())
		skip();
	for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
		for (int ordinary = 0; ordinary < 2; ordinary++) {
			struct answer a = ask((struct place)IN(plain), layers[i], ordinary, false);

			if (a.r.state != PROBE_IN_FORCE)
				fail_msg("%s, %s: %s (%s)", layer_info(layers[i])->id,
					 ordinary ? "ordinary" : "as started",
					 cause_info(a.r.cause)->id, a.r.object);
		}
	}
}

static void check_cause(const char *what, const struct answer *a, enum cause expect,
			const char *object)
{
	if (a->setup)
		fail_msg("%s: surroundings: %s", what, strerror(a->setup));
	if (a->r.cause != expect)
		fail_msg("%s: %s (%s: %s) instead of %s", what, cause_info(a->r.cause)->id,
			 a->r.step, a->r.object, cause_info(expect)->id);
	if (object && !strstr(a->r.object, object))
		fail_msg("%s: object is '%s', without '%s'", what, a->r.object, object);
}

/* FR-B010, FR-B071, FR-B024: the cause that is in force is the one that is named. */
static void forced_causes_are_named(void **state)
{
	static const struct {
		struct place place;
		enum layer layer;
		enum cause expect;
		const char *object;
	} t[] = {
	    {IN(namespaces_off), LAYER_USERNS, CAUSE_USERNS_MAX_ZERO, NULL},
	    {IN(outer_limit), LAYER_USERNS, CAUSE_USERNS_LIMIT, NULL},
	    {NO(unshare, EPERM), LAYER_USERNS, CAUSE_SECCOMP_OUTER, "CLONE_NEWUSER"},
	    {{NULL, SYS_unshare, SECCOMP_RET_KILL_PROCESS},
	     LAYER_USERNS,
	     CAUSE_PROBE_DIED,
	     "signal 31"},
	    {IN(in_chroot), LAYER_USERNS, CAUSE_USERNS_CHROOT, NULL},
	    {IN(in_chroot_at_mount), LAYER_USERNS, CAUSE_USERNS_REFUSED, NULL},
	    {IN(one_id), LAYER_USERNS, CAUSE_NONE, NULL},
	    {IN(one_id), LAYER_IDMAP, CAUSE_IDMAP_RANGE, "1879050001"},
	    {IN(masked_proc), LAYER_USERNS, CAUSE_NONE, NULL},
	    {NO(mount, EPERM), LAYER_TMPFS, CAUSE_SECCOMP_OUTER, "mount"},
	    {NO(mount, EPERM), LAYER_PROC, CAUSE_SECCOMP_OUTER, "mount"},
	    {NO(mount, EPERM), LAYER_OVERLAY, CAUSE_SECCOMP_OUTER, "mount"},
	    {NO(pivot_root, EPERM), LAYER_PIVOT, CAUSE_SECCOMP_OUTER, "pivot_root"},
	    {NO(open_tree, EPERM), LAYER_ROBIND, CAUSE_SECCOMP_OUTER, "open_tree"},
	    {NO(mount_setattr, ENOSYS), LAYER_ROBIND, CAUSE_SECCOMP_OUTER, "mount_setattr"},
	    {NO(mount_setattr, ENOSYS), LAYER_KERNEL, CAUSE_SECCOMP_OUTER, "mount_setattr"},
	    {NO(openat2, EPERM), LAYER_KERNEL, CAUSE_SECCOMP_OUTER, "openat2"},
	    {NO(seccomp, EPERM), LAYER_SECCOMP, CAUSE_SECCOMP_OUTER, "seccomp"},
	    {NO(seccomp, EINVAL), LAYER_SECCOMP, CAUSE_SECCOMP_KERNEL, NULL},
	    {NO(landlock, ENOSYS), LAYER_LANDLOCK, CAUSE_LANDLOCK_KERNEL, NULL},
	    {NO(landlock, EOPNOTSUPP), LAYER_LANDLOCK, CAUSE_LANDLOCK_BOOT, NULL},
	    {IN(few_files), LAYER_RLIMITS, CAUSE_RLIMIT_LOW, "512 open files"},
	    {IN(state_small), LAYER_STATE, CAUSE_STATE_FULL, "free"},
	    {IN(state_few_files), LAYER_STATE, CAUSE_STATE_FULL, "files"},
	    {IN(state_noexec), LAYER_STATE, CAUSE_STATE_NOEXEC, NULL},
	    {IN(state_nosymfollow), LAYER_STATE, CAUSE_STATE_NOSYMFOLLOW, NULL},
	    {IN(state_read_only), LAYER_STATE, CAUSE_STATE_UNUSABLE, "Read-only"},
	};

	(void)state;
	if (!have_userns())
		skip();
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct answer a = ask(t[i].place, t[i].layer, true, false);
		char what[64];

		(void)snprintf(what, sizeof(what), "row %zu (%s)", i, layer_info(t[i].layer)->id);
		check_cause(what, &a, t[i].expect, t[i].object);
	}
}

static void forced_causes_inside_a_namespace_are_named(void **state)
{
	static const struct {
		struct place place;
		enum layer layer;
		enum cause expect;
		const char *object;
	} t[] = {
	    {IN(masked_proc), LAYER_PROC, CAUSE_PROC_MASKED, "/proc/meminfo"}, /* FR-B071 */
	    {IN(one_id), LAYER_PROC, CAUSE_NONE, NULL},
	    {IN(net_off), LAYER_NETNS, CAUSE_NS_LIMIT, "user.max_net_namespaces"},
	    {IN(state_on_overlay), LAYER_OVERLAY, CAUSE_OVERLAY_FS, "overlay"},
	    {IN(state_read_only), LAYER_OVERLAY, CAUSE_STATE_UNUSABLE, NULL},
	};

	(void)state;
	if (!have_userns())
		skip();
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct answer a = ask(t[i].place, t[i].layer, false, true);
		char what[64];

		(void)snprintf(what, sizeof(what), "row %zu (%s)", i, layer_info(t[i].layer)->id);
		check_cause(what, &a, t[i].expect, t[i].object);
	}
}

static void hang(const struct probe_env *env, struct probe_result *r)
{
	(void)env;
	(void)r;
	for (;;)
		(void)pause();
}

/* FR-B038: the limit is what the result says first. */
static void a_trial_that_hangs_is_ended_and_said(void **state)
{
	struct probe_env env = env_of("/nowhere");
	struct probe_result r = {.layer = LAYER_TMPFS};
	int64_t start = clock_mono_ns();

	(void)state;
	env.timeout_ms = 50;
	probe_in_child(&env, hang, &r);
	assert_int_equal(r.state, PROBE_MISSING);
	assert_int_equal(r.cause, CAUSE_PROBE_TIMEOUT);
	assert_string_equal(r.object, "50 ms");
	assert_true(clock_mono_ns() - start < 5 * NS_PER_S);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing left */
}

static void script(char *path, size_t n, const char *name, const char *text)
{
	FILE *f;

	(void)snprintf(path, n, "%s/%s", base_dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	(void)fprintf(f, "#!/bin/sh\n%s\n", text);
	assert_int_equal(fchmod(fileno(f), 0755), 0);
	assert_int_equal(fclose(f), 0);
}

/* FR-B048, FR-B005: absent, broken, old, odd and slow programs. */
static void programs_are_judged_by_running_them(void **state)
{
	static const struct {
		const char *text;
		enum probe_state expect;
		enum cause cause;
		const char *object;
	} t[] = {
	    {"echo git version 2.39.5", PROBE_IN_FORCE, CAUSE_NONE, NULL},
	    {"echo git version 2.20.1", PROBE_LIMITED, CAUSE_PROGRAM_OLD, "2.20.1"},
	    {"echo something else", PROBE_IN_FORCE, CAUSE_NONE, NULL},
	    {"echo broken library; exit 3", PROBE_MISSING, CAUSE_PROGRAM_BROKEN,
	     "exit status 3, broken"},
	    {"printf 'a\\033[31mb'; exit 1", PROBE_MISSING, CAUSE_PROGRAM_BROKEN, "a\\x1b[31mb"},
	    {"exec sleep 60", PROBE_MISSING, CAUSE_PROGRAM_BROKEN, "no answer in time"},
	    {"exec yes", PROBE_MISSING, CAUSE_PROGRAM_BROKEN, NULL},
	};
	struct probe_env env = env_of("/nowhere");
	struct probe_result r;
	char path[96];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		script(path, sizeof(path), "git", t[i].text);
		env.programs[0] = path;
		env.timeout_ms = 1000;
		probe_layer(&env, LAYER_GIT, &r);
		if (r.state != t[i].expect || r.cause != t[i].cause ||
		    (t[i].object && !strstr(r.object, t[i].object)))
			fail_msg("'%s': %s, %s", t[i].text, cause_info(r.cause)->id, r.object);
	}
	(void)unlink(path);
	probe_layer(&env, LAYER_GIT, &r);
	assert_int_equal(r.cause, CAUSE_PROGRAM_ABSENT);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static size_t count_lines(const char *path)
{
	_cleanup_file_ FILE *f = fopen(path, "re");
	size_t n = 0;

	for (int c; f && (c = fgetc(f)) != EOF;)
		n += c == '\n';
	return n;
}

/* Also when the state directory does not exist yet: it is made for the trial and goes again. */
static void nothing_is_left_behind(void **state)
{
	struct probe_result r[LAYER_COUNT];
	char dir[96] = "", parent[96];
	struct probe_env env = env_of(dir);
	size_t mounts = count_lines("/proc/self/mountinfo");

	(void)state;
	(void)snprintf(parent, sizeof(parent), "%s/new", base_dir);
	(void)snprintf(dir, sizeof(dir), "%s/new/state/airlock", base_dir);
	probe_all(&env, r);
	assert_int_equal(r[LAYER_STATE].state, PROBE_IN_FORCE);
	assert_int_equal(access(parent, F_OK), -1);
	assert_int_equal(count_lines("/proc/self/mountinfo"), mounts);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	/* A directory that was there stays, empty. */
	assert_int_equal(mkdir(parent, 0700), 0);
	(void)snprintf(dir, sizeof(dir), "%s", parent);
	probe_layer(&env, LAYER_WHITEOUT, &r[0]);
	assert_int_equal(rmdir(parent), 0);
}

/* FR-B146: quick writes nothing and starts no program, and says what it left out. */
static void quick_mode_says_what_it_left_out(void **state)
{
	struct probe_result r[LAYER_COUNT];
	struct probe_env env = env_of("/nowhere/at/all");

	(void)state;
	env.quick = true;
	probe_all(&env, r);
	assert_int_equal(r[LAYER_OVERLAY].cause, CAUSE_NOT_TRIED);
	assert_int_equal(r[LAYER_CGROUP].cause, CAUSE_NOT_TRIED);
	assert_int_equal(r[LAYER_GIT].cause, CAUSE_NOT_TRIED);
	assert_int_equal(r[LAYER_NNP].state, PROBE_IN_FORCE);
}

/* What depends on a user namespace is not blamed with a cause of its own. */
static void dependents_follow_the_user_namespace(void **state)
{
	struct probe_env env = env_of("/nowhere");
	struct probe_result r;

	(void)state;
	env.userns_missing = true;
	probe_layer(&env, LAYER_PIVOT, &r);
	assert_int_equal(r.cause, CAUSE_NEEDS_USERNS);
	assert_int_equal(r.state, PROBE_MISSING);
	probe_layer(&env, LAYER_NNP, &r);
	assert_int_equal(r.state, PROBE_IN_FORCE);
}

static int make_base(void **state)
{
	static const char *const dirs[] = {"state", "l", "u", "w"};

	(void)state;
	if (!scratch_dir(base_dir) || chmod(base_dir, 0755) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "%s/%s", base_dir, dirs[i]);
		if (mkdir(path, 0777) < 0 || chmod(path, 0777) < 0)
			return -1;
	}
	return 0;
}

static int remove_base(void **state)
{
	static const char *const dirs[] = {"state", "l", "u", "w/work", "w", ""};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "%s/%s", base_dir, dirs[i]);
		if (rmdir(path) < 0 && errno != ENOENT)
			return -1;
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_healthy_host_has_every_layer),
	    cmocka_unit_test(forced_causes_are_named),
	    cmocka_unit_test(forced_causes_inside_a_namespace_are_named),
	    cmocka_unit_test(a_trial_that_hangs_is_ended_and_said),
	    cmocka_unit_test(programs_are_judged_by_running_them),
	    cmocka_unit_test(nothing_is_left_behind),
	    cmocka_unit_test(quick_mode_says_what_it_left_out),
	    cmocka_unit_test(dependents_follow_the_user_namespace),
	};

	return cmocka_run_group_tests(tests, make_base, remove_base);
}
