/*
 * jobs_adopt.c: jobs that daemons before this one started and that still go on: they take places like ours, until they end.
 *
 * A run is found by its row. Any other job that outlives a daemon has a file STATE/jobs/PID-START-BOOT while it lives; what one that
 * was killed leaves goes with its end, or with the next daemon.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/jobs_internal.h"
#include "api/sweeper.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "store/envrun.h"

#define NOTES "jobs"

/* PID-START-BOOT */
static bool parse(const char *name, struct proc_id *ret)
{
	char text[80], *rest = text, *word;
	uint64_t pid = 0;

	*ret = (struct proc_id){0};
	if (strlen(name) >= sizeof(text))
		return false;
	(void)snprintf(text, sizeof(text), "%s", name);
	if (!(word = strsep(&rest, "-")) || str_to_u64(word, INT_MAX, &pid) < 0 ||
	    !(word = strsep(&rest, "-")) || str_to_u64(word, UINT64_MAX, &ret->start) < 0 ||
	    !rest || strlen(rest) != BOOT_ID_LEN)
		return false;
	ret->pid = (pid_t)pid;
	memcpy(ret->boot, rest, BOOT_ID_LEN + 1);
	return true;
}

void jobs_forget(struct api *a, pid_t pid)
{
	_cleanup_free_ char *path = api_path(a, NOTES);
	_cleanup_dir_ DIR *d = path ? opendir(path) : NULL;
	struct dirent *de;
	struct proc_id who;

	/* Not by the number alone: another may have it by now. */
	while (d && (de = readdir(d)))
		if (parse(de->d_name, &who) && who.pid == pid && !proc_alive(&who))
			(void)unlinkat(dirfd(d), de->d_name, 0);
}

/* It has written its row itself, or the sweep sees that it did not. */
static void adopted_ended(struct loop_watch *w, uint32_t events)
{
	struct job *j = (struct job *)w;
	struct api *a = j->api;

	(void)events;
	jobs_forget(a, j->pid);
	loop_del(&a->loop, &j->watch);
	(void)close(j->fd);
	j->fd = -1;
	if (jobs_is_run(a->jobs, j)) {
		a->jobs->runs--;
	} else {
		a->jobs->running--;
		a->jobs->adopted--;
	}
	sweeper_hurry(a);
	jobs_pump(a);
}

/* Takes a place for a process that goes on: whether it did. environment_id: a run's; NULL: it is none. */
static bool take_place(struct api *a, const struct proc_id *who, const char *user,
		       const char *environment_id)
{
	bool run = environment_id != NULL;
	struct job *j = jobs_free_place(a->jobs, run);
	_cleanup_fd_ int fd = -1;

	for (size_t i = 0; i < PLACES; i++)
		if (a->jobs->v[i].fd >= 0 && a->jobs->v[i].pid == who->pid)
			return false;
	if (!j || !who->pid)
		return false;
	fd = pidfd_open(who->pid, 0);
	/* Asked after it was opened: the number is that process's as long as this is true. */
	if (fd < 0 || !proc_alive(who))
		return false;
	*j = (struct job){
	    .api = a, .pid = who->pid, .fd = -1, .adopted = true, .deadline_ns = INT64_MAX};
	(void)snprintf(j->who, sizeof(j->who), "%s", user);
	if (run)
		jobs_room_of(a, environment_id, j->room);
	if (loop_add(&a->loop, &j->watch, fd, EPOLLIN, adopted_ended) < 0)
		return false;
	j->fd = TAKE_FD(fd);
	return true;
}

static int adopt(void *arg, const struct envrun_row *r)
{
	struct api *a = arg;

	if (r->status == ER_RUNNING && take_place(a, &r->owner, r->user_id, r->environment_id))
		a->jobs->runs++;
	return 0;
}

void jobs_adopt(struct api *a)
{
	const struct envrun_filter f = {.open = true, .limit = API_LIST_MAX};
	struct err e = ERR_INIT;

	if (envrun_each(a->db, &f, adopt, a, &e) < 0)
		(void)fprintf(stderr, "airlockd: runs: %s\n", e.text);
}

/* --- jobs that are no runs: each has a file while it lives -------------------------------- */

char *jobs_note(const struct state *st)
{
	_cleanup_free_ char *dir = path_join(st->dir, NOTES), *path = NULL;
	_cleanup_fd_ int fd = -1;

	if (!dir || (mkdir(dir, 0700) < 0 && errno != EEXIST) ||
	    asprintf(&path, "%s/%d-%" PRIu64 "-%s", dir, (int)st->self.pid, st->self.start,
		     st->self.boot) < 0)
		return NULL;
	fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? NULL : TAKE_PTR(path);
}

void jobs_adopt_others(struct api *a)
{
	_cleanup_free_ char *path = api_path(a, NOTES);
	_cleanup_dir_ DIR *d = path ? opendir(path) : NULL;
	struct dirent *de;
	struct proc_id who;

	while (d && (de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		if (!parse(de->d_name, &who) || !proc_alive(&who)) {
			(void)unlinkat(dirfd(d), de->d_name, 0); /* killed */
		} else if (take_place(a, &who, "", NULL)) {
			a->jobs->running++;
			a->jobs->adopted++;
		}
	}
}
