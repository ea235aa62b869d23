#include "guest/front_place.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "guest/land.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define RUNTIME ".airlock-runtime"
#define RUNS "runs"
#define LOOK_MS 20

_Static_assert(sizeof(REMOTE_RUNS) == sizeof(RUNTIME "/" RUNS), "one name for one place");

void front_place_init(struct front_place *p)
{
	*p = (struct front_place){.run = -1, .lock = -1, .pack = {.tree = -1, .index = -1}};
}

static int failed(char *what, int error, const char *step, const char *name)
{
	(void)snprintf(what, RM_WHAT_MAX + 1, "%s %.300s", step, name);
	return -error;
}

/* A directory of ours alone: nobody else may put things where commands work. */
static int own_dir(int at, const char *name, bool make, bool *ret_made)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	*ret_made = make && mkdirat(at, name, 0700) == 0;
	if (make && !*ret_made && errno != EEXIST)
		return -errno;
	fd = openat(at, name, DIR_FLAGS);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 0022))
		return -EPERM;
	return TAKE_FD(fd);
}

/* So that a checkout there does not show it. */
static void hide(int runtime)
{
	_cleanup_fd_ int fd = openat(runtime, ".gitignore",
				     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		(void)!write(fd, "*\n", 2);
}

/* The directory of all runs. Another run's end may take the empty one away meanwhile. */
static int runs_dir(int root, bool make, int *ret_runtime)
{
	int r = -ENOENT;

	for (int i = 0; i < 20 && r == -ENOENT; i++) {
		bool made;
		int fd = own_dir(root, RUNTIME, make, &made);

		if (fd < 0)
			return fd;
		if (made)
			hide(fd);
		r = own_dir(fd, RUNS, make, &made);
		if (r >= 0)
			*ret_runtime = fd;
		else
			(void)close(fd);
		if (!make)
			break;
	}
	return r;
}

/* Who holds the lock, if it wrote its number. */
static pid_t holder(int lock)
{
	char text[24] = "";
	uint64_t v = 0;
	ssize_t n = pread(lock, text, sizeof(text) - 1, 0);

	if (n <= 0 || str_to_u64(text, INT32_MAX, &v) < 0)
		return 0;
	return (pid_t)v;
}

/* The lock is the proof that the number is its holder's and no other process's. */
static int take_lock(int lock)
{
	const struct timespec nap = {.tv_nsec = LOOK_MS * NS_PER_MS};
	int64_t now = clock_mono_ns(), kill_at = now + REMOTE_TAKE_MS / 2 * NS_PER_MS;
	int64_t until = now + REMOTE_TAKE_MS * NS_PER_MS;
	bool asked = false;
	char text[24];

	while (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		pid_t pid = holder(lock);

		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		now = clock_mono_ns();
		if (now > until)
			return -EBUSY;
		if (pid > 1 && (!asked || now > kill_at))
			(void)kill(pid, asked ? SIGKILL : SIGTERM);
		asked = true;
		(void)nanosleep(&nap, NULL);
	}
	(void)snprintf(text, sizeof(text), "%d", (int)getpid());
	if (ftruncate(lock, 0) < 0 || pwrite(lock, text, strlen(text), 0) < 0)
		return -errno;
	return 0;
}

static int open_run(struct front_place *p, int runs, const char *lease, bool make, char *what)
{
	bool made;
	int r;

	p->run = own_dir(runs, lease, make, &made);
	if (p->run < 0)
		return failed(what, -p->run, "make the directory of run", lease);
	p->lock = openat(p->run, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (p->lock < 0)
		return failed(what, errno, "lock the directory of run", lease);
	r = take_lock(p->lock);
	return r < 0 ? failed(what, -r, "lock the directory of run", lease) : 0;
}

/* The last one takes the directories along. */
static void tidy(int root, int runtime)
{
	if (unlinkat(runtime, RUNS, AT_REMOVEDIR) < 0)
		return;
	(void)unlinkat(runtime, ".gitignore", 0);
	(void)unlinkat(root, RUNTIME, AT_REMOVEDIR);
}

static int remove_run(struct front_place *p, int root, const struct rm_open *m, char *what)
{
	_cleanup_fd_ int runtime = -1, runs = runs_dir(root, false, &runtime);
	int r;

	if (runs == -ENOENT)
		return 0;
	if (runs < 0)
		return failed(what, -runs, "open", REMOTE_RUNS);
	r = open_run(p, runs, m->lease, false, what);
	if (r == -ENOENT)
		return 0;
	if (r == 0) {
		r = land_remove(runs, m->lease);
		if (r < 0)
			(void)failed(what, -r, "remove the directory of run", m->lease);
	}
	if (r == 0)
		tidy(root, runtime);
	return r;
}

int front_place_landed(struct front_place *p)
{
	int index = openat(p->run, "index", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (index < 0)
		return -errno;
	p->pack.tree = openat(p->run, "workspace", DIR_FLAGS);
	if (p->pack.tree < 0) {
		int r = -errno;

		(void)close(index);
		return r;
	}
	p->pack.index = index;
	return 0;
}

int front_place_open(struct front_place *p, const struct rm_open *m, char *what)
{
	_cleanup_fd_ int root = open(m->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int runtime = -1, runs = -1;
	int r;

	if (root < 0 && errno == ENOENT && (m->flags & RO_REMOVE))
		return 0;
	if (root < 0)
		return failed(what, errno, "open the directory", m->root);
	if (m->flags & RO_REMOVE)
		return remove_run(p, root, m, what);
	runs = runs_dir(root, true, &runtime);
	if (runs < 0)
		return failed(what, -runs, "make " REMOTE_RUNS " in", m->root);
	r = open_run(p, runs, m->lease, true, what);
	if (r == 0) {
		r = front_place_landed(p);
		r = r == -ENOENT ? 0 : r;
		if (r < 0)
			(void)failed(what, -r, "open the workspace of run", m->lease);
	}
	return r;
}
