/*
 * process.h: running a program of the host (git, ...) with explicit everything.
 *
 * argv is a vector, the environment is given whole, every descriptor but 0, 1, 2 is
 * close-on-exec. The child leads a process group of its own, which is killed whole at a time
 * limit, a cancel, or a consumer that has had enough. Start is posix_spawn (CLONE_VFORK): its
 * cost does not grow with our memory. Signals of the child are reset to default.
 */
#ifndef AIRLOCK_OS_PROCESS_H
#define AIRLOCK_OS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

#define PROCESS_TAIL_MAX 512 /* bytes kept of the end of stderr, for messages */

struct process_opts {
	const char *const
	    *argv; /* argv[0]: absolute path, or a name for PATH of *our* environment */
	const char *const *envp; /* whole environment of the child */
	int cwd_fd;		 /* -1: ours */
	const void *in;		 /* fed to stdin; NULL: in_fd, or /dev/null when that is -1 */
	size_t in_len;
	int in_fd;
	int out_fd; /* >= 0: stdout goes there; -1: to on_out, out, or /dev/null */
	/* Called with pieces of stdout as they come; negative: stop the child, return that. */
	int (*on_out)(void *arg, const char *p, size_t n);
	void *on_out_arg;
	struct buf *out;    /* stdout is appended; more than its maximum stops the child, -E2BIG */
	int64_t timeout_ms; /* 0: none */
	/* Bytes of address space, and of one file, that the child and its children may have; 0: ours */
	uint64_t mem_max, file_max;
	const volatile int
	    *cancel;  /* non-zero: stop with -ECANCELED; looked at some 10 times a second */
	bool session; /* a session of its own: neither it nor its children can ask on a terminal */
};
#define PROCESS_OPTS_INIT                               \
	{                                               \
		.cwd_fd = -1, .in_fd = -1, .out_fd = -1 \
	}

struct process {
	pid_t pid;
	int pidfd, in, out, err; /* owned, -1: none or closed */
	int64_t deadline_ns;
	size_t in_done;
	char tail[PROCESS_TAIL_MAX + 1];
	size_t tail_len;
};

/* Starts; the options and what they point to must live until process_wait. */
int process_start(struct process *p, const struct process_opts *o, struct err *e);
/*
 * Feeds, reads, waits. 0 and *ret_status: exit status 0..255, or 128 + signal. Negative: the
 * child did not end by itself (it is killed and reaped), e names program and limit.
 */
int process_wait(struct process *p, const struct process_opts *o, int *ret_status, struct err *e);
/* Kills the group and reaps; for one that was started and not waited for. */
void process_kill(struct process *p);
/* The same, for one whose group goes on without it. */
void process_kill_one(struct process *p);
/* start + wait. tail (PROCESS_TAIL_MAX + 1 bytes) may be NULL. */
int process_run(const struct process_opts *o, int *ret_status, char *tail, struct err *e);

/* Cuts a stream of NUL-ended records into calls; use as on_out with arg = the splitter. */
struct process_records {
	int (*on_record)(void *arg, const char *p, size_t n); /* p[n] is NUL */
	void *arg;
	struct buf rest; /* its max: longest record */
};
int process_split_nul(void *records, const char *p, size_t n);

#endif
