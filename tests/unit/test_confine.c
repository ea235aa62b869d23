/* S1-05: what a confined helper can still do, and what it cannot. Each attempt in a child of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/beneath.h"
#include "os/confine.h"
#include "scratch.h"

static char top[] = "/tmp/test-confine-XXXXXX";
static int rw = -1, ro = -1, top_fd = -1;

static int mk(int dir, const char *name)
{
	return openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
}

static int write_rw(void)
{
	int fd = mk(rw, "new");

	return fd >= 0 && write(fd, "x", 1) == 1 && mkdirat(rw, "d", 0700) == 0 &&
		       renameat2(rw, "new", rw, "d/moved", 0) == 0 &&
		       unlinkat(rw, "d/moved", 0) == 0 && symlinkat("/etc", rw, "link") == 0 &&
		       fsync(fd) == 0
		   ? 0
		   : -errno;
}

static int read_ro(void)
{
	char b[8];
	int fd = openat(ro, "file", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && read(fd, b, sizeof(b)) >= 0 ? 0 : -errno;
}

static int write_ro(void)
{
	return mk(ro, "new") < 0 ? -errno : 0;
}

static int truncate_ro(void)
{
	return openat(ro, "file", O_RDWR | O_TRUNC | O_CLOEXEC) < 0 ? -errno : 0;
}

static int write_beside(void)
{
	return mk(top_fd, "beside") < 0 ? -errno : 0;
}

static int read_etc(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? -errno : 0;
}

static int through_dotdot(void)
{
	return openat(rw, "../secret", O_RDONLY | O_CLOEXEC) < 0 ? -errno : 0;
}

static int through_link(void)
{
	return openat(rw, "etc/passwd", O_RDONLY | O_CLOEXEC) < 0 ? -errno : 0;
}

static int move_out(void)
{
	return renameat2(rw, "keep", ro, "keep", 0) < 0 ? -errno : 0;
}

static int make_fifo(void)
{
	return mknodat(rw, "fifo", S_IFIFO | 0600, 0) < 0 ? -errno : 0;
}

static int make_device(void)
{
	return mknodat(rw, "null", S_IFCHR | 0600, 0x103) < 0 ? -errno : 0;
}

static int open_socket(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 ? -errno : 0;
}

static int do_connect(void)
{
	return connect(0, NULL, 0) < 0 ? -errno : 0;
}

static int run_program(void)
{
	char *const argv[] = {(char *)(uintptr_t) "true", NULL};

	return execv("/bin/true", argv) < 0 ? -errno : 0;
}

static int do_fork(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -errno : 0;
}

static void *nothing(void *arg)
{
	return arg;
}

static int start_thread(void)
{
	pthread_t t;

	return -pthread_create(&t, NULL, nothing, NULL);
}

static int do_ptrace(void)
{
	return ptrace(PTRACE_ATTACH, getppid(), 0, 0) < 0 ? -errno : 0;
}

static int kill_parent(void)
{
	return kill(getppid(), 0) < 0 ? -errno : 0;
}

static int map_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		       MAP_FAILED
		   ? -errno
		   : 0;
}

static int make_code(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mprotect(p, 4096, PROT_READ | PROT_EXEC) < 0 ? -errno : 0;
}

static int eat_memory(void)
{
	/* Volatile itself: a compiler may take an unused allocation for one that succeeds. */
	char *volatile p = malloc((size_t)256 << 20);

	return p ? 0 : -errno;
}

static int become_root(void)
{
	return setuid(0) < 0 ? -errno : 0;
}

static int gain_caps(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2] = {
	    {.effective = 1u << CAP_SYS_ADMIN, .permitted = 1u << CAP_SYS_ADMIN}};

	return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

static int new_namespace(void)
{
	return (int)syscall(SYS_unshare, 0x10000000) < 0 ? -errno : 0;
}

static int do_abort(void)
{
	abort();
}

static const struct row {
	const char *name;
	int (*attempt)(void);
	int want;   /* 0 or -errno */
	int signal; /* or this */
} rows[] = {
    {"write in its tree", write_rw, 0, 0},
    {"read a read-only tree", read_ro, 0, 0},
    {"write a read-only tree", write_ro, -EACCES, 0},
    {"truncate in a read-only tree", truncate_ro, -EACCES, 0},
    {"write beside its tree, through a descriptor it holds", write_beside, -EACCES, 0},
    {"read /etc", read_etc, -EACCES, 0},
    {"leave by ..", through_dotdot, -EACCES, 0},
    {"leave by a link", through_link, -EACCES, 0},
    {"move to the read-only tree", move_out, -EACCES, 0},
    {"make a FIFO", make_fifo, -EPERM, 0},
    {"make a device", make_device, -EPERM, 0},
    {"make a socket", open_socket, -EPERM, 0},
    {"connect", do_connect, 0, SIGSYS},
    {"run a program", run_program, 0, SIGSYS},
    {"fork", do_fork, -EPERM, 0},
    {"start a thread", start_thread, -EPERM, 0},
    {"ptrace", do_ptrace, 0, SIGSYS},
    {"signal its parent", kill_parent, -EPERM, 0},
    {"map code", map_code, -EPERM, 0},
    {"make code", make_code, -EPERM, 0},
    {"take more memory than allowed", eat_memory, -ENOMEM, 0},
    {"setuid", become_root, -EPERM, 0},
    {"take capabilities back", gain_caps, -EPERM, 0},
    {"make a namespace", new_namespace, -EPERM, 0},
    {"abort, without a core", do_abort, 0, SIGABRT},
};

/* A thread of the confined process, started where confine_self lets one be started. */
struct other {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool runs, go;
	int (*attempt)(void);
};

static void *attempt_there(void *arg)
{
	struct other *o = arg;

	(void)pthread_mutex_lock(&o->lock);
	o->runs = true;
	(void)pthread_cond_broadcast(&o->cond);
	while (!o->go)
		(void)pthread_cond_wait(&o->cond, &o->lock);
	(void)pthread_mutex_unlock(&o->lock);
	_exit(-o->attempt());
}

static int start_other(void *arg, struct err *e)
{
	struct other *o = arg;
	int r = pthread_create(&o->thread, NULL, attempt_there, o);

	if (r)
		return err_sys(e, r, "start a thread");
	(void)pthread_mutex_lock(&o->lock);
	while (!o->runs)
		(void)pthread_cond_wait(&o->cond, &o->lock);
	(void)pthread_mutex_unlock(&o->lock);
	return 0;
}

static int confine(unsigned without, struct other *other)
{
	struct confine_path p[] = {{rw, CONFINE_READ | CONFINE_WRITE}, {ro, CONFINE_READ}};
	struct confine_opts o = {.paths = p,
				 .paths_len = 2,
				 .data_max = (uint64_t)64 << 20,
				 .nofile_max = 64,
				 .without = without,
				 .keep_caps = UINT64_C(1) << CAP_DAC_OVERRIDE,
				 .threads = other ? start_other : NULL,
				 .threads_arg = other};
	struct err e = ERR_INIT;

	return confine_self(&o, &e);
}

static int in_child(int (*attempt)(void), bool in_thread)
{
	struct other o = {.lock = PTHREAD_MUTEX_INITIALIZER,
			  .cond = PTHREAD_COND_INITIALIZER,
			  .attempt = attempt};
	int st;
	pid_t pid = fork();

	if (pid == 0) {
		if (confine(0, in_thread ? &o : NULL) < 0)
			_exit(200);
		if (!in_thread)
			_exit(-attempt());
		(void)pthread_mutex_lock(&o.lock);
		o.go = true;
		(void)pthread_cond_broadcast(&o.cond);
		(void)pthread_mutex_unlock(&o.lock);
		(void)pthread_join(o.thread, NULL);
		_exit(201);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	return st;
}

static void attempt_all(bool in_thread)
{
	if (confine_landlock_abi() < 2) {
		print_message("skip: no Landlock in this kernel\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int st = in_child(rows[i].attempt, in_thread);
		bool ok = rows[i].signal
			      ? WIFSIGNALED(st) && WTERMSIG(st) == rows[i].signal && !WCOREDUMP(st)
			      : WIFEXITED(st) && WEXITSTATUS(st) == -rows[i].want;

		if (!ok)
			fail_msg("%s: status 0x%x", rows[i].name, st);
	}
	(void)unlinkat(rw, "link", 0);
	(void)unlinkat(rw, "d", AT_REMOVEDIR);
}

static void test_attempts(void **state)
{
	(void)state;
	attempt_all(false);
}

/* Door 1 has threads: what the process may not, none of them may, and none can start another. */
static void test_S1_05_attempts_of_a_thread(void **state)
{
	(void)state;
	attempt_all(true);
}

/* The attempts must be possible without confinement, or the rows show nothing. */
static void test_attempts_are_real(void **state)
{
	static int (*const possible[])(void) = {
	    write_rw, write_ro,	 write_beside, read_etc, through_dotdot, through_link, open_socket,
	    map_code, make_code, eat_memory,   do_fork,	 kill_parent,	 start_thread};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(possible); i++) {
		int st;
		pid_t pid = fork();

		if (pid == 0)
			_exit(-possible[i]());
		assert_int_equal(waitpid(pid, &st, 0), pid);
		if (st != 0)
			fail_msg("attempt %zu: 0x%x", i, st);
		(void)unlinkat(rw, "link", 0);
		(void)unlinkat(rw, "d", AT_REMOVEDIR);
		(void)unlinkat(ro, "new", 0);
	}
}

static int set_up(void **state)
{
	(void)state;
	if (!scratch_dir(top) || (top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
	    mkdirat(top_fd, "rw", 0700) || mkdirat(top_fd, "ro", 0700) ||
	    symlinkat("/etc", top_fd, "rw/etc"))
		return -1;
	rw = openat(top_fd, "rw", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ro = openat(top_fd, "ro", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return mk(ro, "file") < 0 || mk(rw, "keep") < 0 || mk(top_fd, "secret") < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	struct beneath b = {.root = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};

	(void)state;
	return beneath_remove_tree(&b, top + 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_attempts_are_real),
	    cmocka_unit_test(test_attempts),
	    cmocka_unit_test(test_S1_05_attempts_of_a_thread),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
