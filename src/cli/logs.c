/* logs: what a run printed, byte for byte: stdout to stdout, stderr to stderr, Airlock's own notes to stderr. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cursor.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/runwords.h"
#include "wire/runlog.h"

enum { P_FOLLOW = 1, P_RAW };

const struct opt opts_logs[] = {
    {"follow", 'f', NULL, "go on until the run ends", P_FOLLOW},
    {"raw", 'r', NULL, "only what the command printed, without Airlock's own notes", P_RAW},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const t_logs[] = {opts_logs, opts_help, NULL};

static int print_record(const struct runlog_record *rec, bool raw)
{
	FILE *to = rec->stream == RUNLOG_OUT ? stdout : stderr;

	switch (rec->stream) {
	case RUNLOG_OUT:
	case RUNLOG_ERR:
		(void)fwrite(rec->p, 1, rec->n, to);
		break;
	case RUNLOG_NOTE: {
		struct buf b = BUF_INIT((size_t)8 << 20);

		if (raw)
			break;
		(void)str_printable(&b, (const char *)rec->p, rec->n);
		(void)fflush(stdout);
		cli_say("%s", buf_text(&b));
		buf_done(&b);
		break;
	}
	case RUNLOG_DROPPED: {
		struct cursor c;

		cursor_init(&c, rec->p, rec->n);
		(void)fflush(stdout);
		cli_say("%" PRIu64 " bytes of output are missing here", cursor_u64(&c));
		break;
	}
	case RUNLOG_END:
	default:
		break;
	}
	return ferror(stdout) ? -EPIPE : 0;
}

/* Prints what is there; 1 when the end record was seen. */
static int print_all(struct runlog_reader *rd, bool raw, struct err *e)
{
	struct runlog_record rec;
	int r;

	while ((r = runlog_next(rd, &rec, e)) > 0) {
		if (print_record(&rec, raw) < 0)
			return err_set(e, ERR_IO, "standard output cannot be written");
		if (rec.stream == RUNLOG_END)
			return 1;
	}
	(void)fflush(stdout);
	return r;
}

/* Waits for news of the file by inotify; looks after the run's owner once a second. */
static int follow(const char *path, struct runlog_reader *rd, bool raw, const struct run_row *run,
		  struct err *e)
{
	_cleanup_fd_ int ino = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	int r;

	if (ino < 0 || inotify_add_watch(ino, path, IN_MODIFY | IN_CLOSE_WRITE) < 0)
		return err_sys(e, errno, "watch %s", path);
	while ((r = print_all(rd, raw, e)) == 0) {
		struct pollfd p = {.fd = ino, .events = POLLIN};
		char b[4096];

		if (!proc_alive(&run->owner)) {
			r = print_all(rd, raw, e);
			return r < 0 ? r : 0;
		}
		if (poll(&p, 1, 1000) > 0)
			(void)!read(ino, b, sizeof(b));
	}
	return r < 0 ? r : 0;
}

int cmd_logs(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	_cleanup_free_ char *path = NULL;
	_cleanup_fd_ int fd = -1;
	_cleanup_runwords_ struct runwords f = {0};
	struct runlog_reader rd;
	struct run_row run = {0};
	struct err e = ERR_INIT;
	int status = 0, r;

	if (!runwords_parse(&f, t_logs, argc, argv, "run", &status))
		return status;
	r = runwords_find(&f, &st, &run, &e);
	if (r == 0) {
		path = state_path(&st, "runs", run.id, "log");
		fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd < 0)
			r = err_sys(&e, errno, "log of run %s", run.id);
	}
	if (r == 0) {
		bool raw = runwords_has(&f, P_RAW);

		runlog_reader_init(&rd, fd, 0);
		r = runwords_has(&f, P_FOLLOW) ? follow(path, &rd, raw, &run, &e)
					       : print_all(&rd, raw, &e);
		runlog_reader_done(&rd);
	}
	(void)fflush(stdout);
	run_row_done(&run);
	return r < 0 ? cli_fail(&e) : 0;
}
