/* ps, logs, stop, rm: looking after runs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cursor.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/ui.h"
#include "engine/changeset.h"
#include "engine/keepsake.h"
#include "engine/leasespec.h"
#include "engine/state.h"
#include "engine/sweep.h"
#include "store/run.h"
#include "wire/runlog.h"

enum { P_ALL = 1, P_JSON, P_FOLLOW, P_FORCE, P_YES, P_HELP0 = 0 };

const struct opt opts_ps[] = {
    {"all", 'a', NULL, "also runs that are over", P_ALL},
    {"json", 0, NULL, "one JSON array", P_JSON},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_logs[] = {
    {"follow", 'f', NULL, "go on until the run ends", P_FOLLOW},
    {NULL, 0, NULL, NULL, 0},
};
const struct opt opts_rm[] = {
    {"all", 0, NULL, "every kept sandbox and every run that is over", P_ALL},
    {"force", 0, NULL, "also work that was not brought back", P_FORCE},
    {"yes", 0, NULL, "with --all: do not ask about copies that may be the only ones", P_YES},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const t_ps[] = {opts_ps, opts_help, NULL};
static const struct opt *const t_logs[] = {opts_logs, opts_help, NULL};
static const struct opt *const t_rm[] = {opts_rm, opts_help, NULL};
static const struct opt *const t_plain[] = {opts_help, NULL};

struct flags {
	unsigned on; /* bit per option id */
	char **words;
};

static int set_flag(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)value;
	(void)e;
	((struct flags *)arg)->on |= 1u << o->id;
	return 0;
}

/* Parses; >= 0: go on; prints help or the error otherwise and gives the status in *status. */
static bool parse(struct flags *f, const struct opt *const *tables, int argc, char **argv,
		  const char *want, int *status)
{
	struct opt_parse p = {
	    .tables = tables, .verb = argv[0], .permute = true, .set = set_flag, .arg = f};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);
	size_t n = strv_len(p.words);

	f->words = p.words;
	if (r == 0 && (f->on & (1u << P_HELP0))) {
		*status = cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
		return false;
	}
	if (r == 0 && want && n != 1)
		r = err_set(&e, ERR_USAGE, "%s needs one %s: 'airlock help %s'", argv[0], want,
			    argv[0]);
	if (r == 0 && !want && n)
		r = err_set(&e, ERR_USAGE, "%s takes no word %.80s", argv[0], p.words[0]);
	if (r < 0)
		*status = cli_fail(&e);
	return r == 0;
}

static const char *shown_state(struct state *st, const struct run_row *r, char lease[16])
{
	struct lease_row l;

	(void)snprintf(lease, 16, "-");
	if (lease_get(st->store, r->lease_id, &l, NULL) == 0)
		(void)snprintf(lease, 16, "%s", lease_state_name(l.state));
	lease_row_done(&l);
	if (r->state == RUN_RUNNING && !proc_alive(&r->owner))
		return "dead"; /* killed; the next run or recover deals with it */
	return run_state_name(r->state);
}

static int ps_json(struct state *st, const struct run_row *v, size_t n)
{
	json_t *a = json_array();
	char *text;

	for (size_t i = 0; i < n; i++) {
		char lease[16], from[32];
		const char *state = shown_state(st, &v[i], lease);
		json_t *argv = json_loads(v[i].command ? v[i].command : "[]", 0, NULL);
		struct buf b = BUF_INIT(65536);

		clock_rfc3339(v[i].started_ns, from, sizeof(from));
		(void)str_printable(&b, v[i].workspace, strlen(v[i].workspace));
		(void)json_array_append_new(
		    a,
		    json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:s}", "run", v[i].id, "state",
			      state, "lease_state", lease, "phase", v[i].phase, "started", from,
			      "workspace", buf_text(&b), "exit_status",
			      v[i].exit_status < 0 ? json_null() : json_integer(v[i].exit_status),
			      "argv", argv ? argv : json_array(), "lease", v[i].lease_id));
		buf_done(&b);
	}
	text = json_dumps(a, JSON_INDENT(1));
	json_decref(a);
	if (text)
		(void)puts(text);
	free(text);
	return 0;
}

/* `under`: a further command in the sandbox of the row above, which shows how that stands. */
static void ps_line(struct state *st, const struct run_row *r, bool under)
{
	char lease[16], age[32], status[16] = "-";
	const char *state = shown_state(st, r, lease);
	json_t *argv = json_loads(r->command ? r->command : "[]", 0, NULL), *w;
	size_t i = 0;

	clock_human((r->ended_ns ? r->ended_ns : clock_real_ns()) - r->started_ns, age,
		    sizeof(age));
	if (r->exit_status >= 0)
		(void)snprintf(status, sizeof(status), "%d", r->exit_status);
	(void)printf("%s%-*s  %-11s  %-11s  %-8s  %4s  %-12s  ", under ? "  " : "", under ? 16 : 18,
		     r->id, state, under ? "" : lease, r->phase, status, age);
	json_array_foreach(argv, i, w)
	{
		(void)printf("%s%.60s", i ? " " : "", json_string_value(w));
	}
	(void)puts(i ? "" : "(shell)");
	json_decref(argv);
}

/* A sandbox's first command, then what ran in it after; the newest sandbox first. */
static void ps_table(struct state *st, const struct run_row *v, size_t n)
{
	(void)printf("%-18s  %-11s  %-11s  %-8s  %4s  %-12s  %s\n", "RUN", "STATE", "SANDBOX",
		     "PHASE", "EXIT", "TIME", "COMMAND");
	for (size_t i = 0; i < n; i++) {
		size_t before = 0;
		bool under = false;

		while (before < i && strcmp(v[before].lease_id, v[i].lease_id) != 0)
			before++;
		if (before < i)
			continue;
		/* They come newest first. */
		for (size_t k = n; k-- > i;) {
			if (strcmp(v[k].lease_id, v[i].lease_id) != 0)
				continue;
			ps_line(st, &v[k], under);
			under = true;
		}
	}
}

int cmd_ps(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	struct flags f = {0};
	struct run_row *v = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int status = 0, r;

	if (!parse(&f, t_ps, argc, argv, NULL, &status)) {
		strv_free(f.words);
		return status;
	}
	r = state_open(&st, &e);
	if (r == 0)
		r = run_list(st.store, (f.on & (1u << P_ALL)) != 0, NULL, &v, &n, &e);
	if (r < 0)
		return cli_fail(&e);
	if (f.on & (1u << P_JSON)) {
		(void)ps_json(&st, v, n);
	} else {
		ps_table(&st, v, n);
	}
	run_list_free(v, n);
	return 0;
}

static int print_record(const struct runlog_record *rec)
{
	FILE *to = rec->stream == RUNLOG_OUT ? stdout : stderr;

	switch (rec->stream) {
	case RUNLOG_OUT:
	case RUNLOG_ERR:
		(void)fwrite(rec->p, 1, rec->n, to);
		break;
	case RUNLOG_NOTE: {
		struct buf b = BUF_INIT((size_t)8 << 20);

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
static int print_all(struct runlog_reader *rd, struct err *e)
{
	struct runlog_record rec;
	int r;

	while ((r = runlog_next(rd, &rec, e)) > 0) {
		if (print_record(&rec) < 0)
			return err_set(e, ERR_IO, "standard output cannot be written");
		if (rec.stream == RUNLOG_END)
			return 1;
	}
	(void)fflush(stdout);
	return r;
}

/* Waits for news of the file by inotify; looks after the run's owner once a second. */
static int follow(const char *path, struct runlog_reader *rd, const struct run_row *run,
		  struct err *e)
{
	_cleanup_fd_ int ino = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	int r;

	if (ino < 0 || inotify_add_watch(ino, path, IN_MODIFY | IN_CLOSE_WRITE) < 0)
		return err_sys(e, errno, "watch %s", path);
	while ((r = print_all(rd, e)) == 0) {
		struct pollfd p = {.fd = ino, .events = POLLIN};
		char b[4096];

		if (!proc_alive(&run->owner)) {
			r = print_all(rd, e);
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
	struct flags f = {0};
	struct runlog_reader rd;
	struct run_row run = {0};
	struct err e = ERR_INIT;
	int status = 0, r;

	if (!parse(&f, t_logs, argc, argv, "run", &status)) {
		strv_free(f.words);
		return status;
	}
	r = state_open(&st, &e);
	if (r == 0)
		r = run_find(st.store, f.words[0], &run, &e);
	strv_free(f.words);
	if (r == 0) {
		path = state_path(&st, "runs", run.id, "log");
		fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd < 0)
			r = err_sys(&e, errno, "log of run %s", run.id);
	}
	if (r == 0) {
		runlog_reader_init(&rd, fd, 0);
		r = (f.on & (1u << P_FOLLOW)) ? follow(path, &rd, &run, &e) : print_all(&rd, &e);
		runlog_reader_done(&rd);
	}
	(void)fflush(stdout);
	run_row_done(&run);
	return r < 0 ? cli_fail(&e) : 0;
}

/*
 * The owner of the run is asked first, so that results come back; then made to hurry; then
 * killed, and the sweep ends what it left. Success is said only with proof that it is gone.
 */
static int stop_owner(const struct run_row *run, struct err *e)
{
	static const struct {
		int signo;
		int64_t wait_ms;
	} steps[] = {{SIGTERM, 60000}, {SIGTERM, 15000}, {SIGKILL, 5000}};

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		int r = proc_signal(&run->owner, steps[i].signo);

		if (r == -ESRCH)
			return 0;
		if (r < 0)
			return err_sys(e, -r, "stop run %s (process %d)", run->id,
				       (int)run->owner.pid);
		r = proc_wait_gone(&run->owner, clock_mono_ns() + steps[i].wait_ms * NS_PER_MS);
		if (r != -ETIMEDOUT)
			return r < 0 ? err_sys(e, -r, "wait for run %s", run->id) : 0;
		cli_say("run %s has not ended after %" PRId64 " s; asking harder", run->id,
			steps[i].wait_ms / 1000);
	}
	return err_set(
	    e, ERR_TIMEOUT,
	    "run %s (process %d) does not end, not even by KILL: its state is not confirmed",
	    run->id, (int)run->owner.pid);
}

static int end_kept(struct state *st, struct lease_row *l, const struct run_row *run, struct err *e)
{
	int r = sweep_claim(st, l, LEASE_RECOVERING, e);

	if (r == 0)
		r = sweep_end_sandbox(l, run->id, e);
	if (r < 0)
		return r;
	l->state = LEASE_RECOVERABLE;
	l->owner = (struct proc_id){0};
	l->monitor = (struct proc_id){0};
	return lease_save(st->store, l, e);
}

int cmd_stop(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	struct flags f = {0};
	struct run_row run = {0};
	struct lease_row l = {0};
	struct err e = ERR_INIT;
	int status = 0, r;

	if (!parse(&f, t_plain, argc, argv, "run", &status)) {
		strv_free(f.words);
		return status;
	}
	r = state_open(&st, &e);
	if (r == 0)
		r = run_find(st.store, f.words[0], &run, &e);
	strv_free(f.words);
	if (r == 0)
		r = lease_get(st.store, run.lease_id, &l, &e);
	if (r == 0 && run.state == RUN_RUNNING) {
		r = run_request_stop(st.store, run.id, &e);
		if (r == 0)
			r = stop_owner(&run, &e);
		if (r == 0)
			r = sweep_run(&st, NULL, &e) < 0 ? -1 : 0;
		if (r == 0)
			cli_say("run %s is stopped: 'airlock logs %s' shows how it ended", run.id,
				run.id);
	} else if (r == 0 && l.state == LEASE_KEPT) {
		(void)sweep_run(&st, NULL, NULL);
		r = end_kept(&st, &l, &run, &e);
		if (r == 0)
			cli_say(
			    "the sandbox of run %s is stopped; 'airlock recover %s' brings back what it holds, 'airlock rm %s' "
			    "removes it",
			    run.id, run.id, run.id);
	} else if (r == 0) {
		cli_say("run %s is not going on (%s)", run.id, run_state_name(run.state));
	}
	lease_row_done(&l);
	run_row_done(&run);
	return r < 0 ? cli_fail(&e) : 0;
}

/* Runs of the lease whose results nobody has decided about. */
static int check_waiting(struct state *st, const struct lease_row *l, struct err *e)
{
	struct run_row *v = NULL;
	size_t n = 0;
	int r = run_list(st->store, true, l->id, &v, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_changeset_ struct changeset c = {0};

		r = changeset_of(st, &v[i], &c, e);
		if (r == 0 && c.files)
			r = err_set(
			    e, ERR_CONFLICT,
			    "results of it wait: 'airlock apply %s' or 'airlock discard %s' first, or "
			    "rm --force",
			    c.run.id, c.run.id);
	}
	run_list_free(v, n);
	return r;
}

static int remove_lease(struct state *st, struct lease_row *l, bool force, struct err *e)
{
	int r = l->state == LEASE_KEPT ? sweep_in_use(st, l, e) : 0;

	if (r < 0)
		return r;
	if ((l->state == LEASE_ACTIVE || l->state == LEASE_ACQUIRING ||
	     l->state == LEASE_RECOVERING) &&
	    proc_alive(&l->owner))
		return err_set(e, ERR_CONFLICT, "it is in use by process %d: airlock stop first",
			       (int)l->owner.pid);
	if ((l->state == LEASE_RECOVERABLE || l->state == LEASE_RECOVERING ||
	     l->state == LEASE_ACTIVE || (l->state == LEASE_KEPT && l->pending)) &&
	    !force && strcmp(l->provider, "local") != 0)
		return err_set(
		    e, ERR_CONFLICT,
		    "it holds work that was not brought back: 'airlock recover' first, or rm --force");
	if (!force && (r = check_waiting(st, l, e)) < 0)
		return r;
	if (l->state != LEASE_RELEASED) {
		r = sweep_claim(st, l, LEASE_CLEANUP, e);
		if (r == 0)
			r = sweep_end_sandbox(l, NULL, e);
		if (r == 0)
			r = sweep_remove_storage(st, l, e);
		if (r < 0)
			return r;
	}
	r = sweep_remove_runs(st, l->id, e);
	return r < 0 ? r : lease_remove(st->store, l->id, e);
}

/* What the runs keep that may be nowhere else: yes to drop it, asked once for all. */
static bool may_drop(struct state *st, const struct run_row *v, size_t n)
{
	struct keepsake all = {0};
	char size[16], answer[16] = "";

	for (size_t i = 0; i < n; i++)
		keepsake_add(st, v[i].id, &all);
	if (!all.files)
		return true;
	str_human_size(all.bytes, size, sizeof(size));
	cli_say(
	    "the runs keep %llu files (%s) that may be nowhere else: losing versions of conflicts, deleted "
	    "files, rejected or waiting results",
	    (unsigned long long)all.files, size);
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		cli_say("they stay; look at them in %s/runs, or say --yes to drop them", st->dir);
		return false;
	}
	(void)fputs("airlock: drop them? [y/N] ", stderr);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int remove_all(struct state *st, bool force, bool yes)
{
	struct run_row *v = NULL;
	struct err e = ERR_INIT;
	size_t n = 0, gone = 0;
	int status = 0, r = run_list(st->store, true, NULL, &v, &n, &e);

	if (r < 0)
		return cli_fail(&e);
	yes = yes || force || may_drop(st, v, n);
	for (size_t i = 0; i < n; i++) {
		struct keepsake kept = {0};
		struct lease_row l;

		/* Several runs may share a lease that is gone by now. */
		if (lease_get(st->store, v[i].lease_id, &l, NULL) < 0)
			continue;
		if (!yes)
			keepsake_of_lease(st, l.id, &kept);
		if (kept.files) {
			cli_say("run %s is not removed", v[i].id);
			status = 125;
		} else if (remove_lease(st, &l, force, &e) < 0) {
			cli_say("run %s is not removed: %s", v[i].id, e.text);
			status = 125;
		} else {
			gone++;
		}
		lease_row_done(&l);
	}
	run_list_free(v, n);
	cli_say("removed %zu", gone);
	return status;
}

int cmd_rm(int argc, char **argv)
{
	_cleanup_state_ struct state st = {0};
	struct flags f = {0};
	struct run_row run = {0};
	struct lease_row l = {0};
	struct err e = ERR_INIT;
	bool all = false;
	int status = 0, r;

	for (int i = 1; i < argc; i++)
		all |= strcmp(argv[i], "--all") == 0;
	if (!parse(&f, t_rm, argc, argv, all ? NULL : "run (or --all)", &status)) {
		strv_free(f.words);
		return status;
	}
	r = state_open(&st, &e);
	/* Rows of commands whose airlock is dead would keep their sandbox from being claimed. */
	if (r == 0)
		(void)sweep_run(&st, NULL, NULL);
	if (r == 0 && all) {
		strv_free(f.words);
		return remove_all(&st, (f.on & (1u << P_FORCE)) != 0, (f.on & (1u << P_YES)) != 0);
	}
	if (r == 0)
		r = run_find(st.store, f.words[0], &run, &e);
	strv_free(f.words);
	if (r == 0)
		r = lease_get(st.store, run.lease_id, &l, &e);
	if (r == 0)
		r = err_wrap(&e, remove_lease(&st, &l, (f.on & (1u << P_FORCE)) != 0, &e),
			     "run %s is not removed", run.id);
	lease_row_done(&l);
	run_row_done(&run);
	return r < 0 ? cli_fail(&e) : 0;
}
