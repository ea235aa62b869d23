/* recover: brings back the work of a run that was cut short. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/summary.h"
#include "cli/ui.h"
#include "engine/images.h"
#include "engine/interrupt.h"
#include "engine/leasespec.h"
#include "engine/recover.h"
#include "engine/unpacks.h"
#include "store/lease.h"
#include "store/run.h"
#include "sync/indexlock.h"
#include "sync/unpack_place.h"

#define DAEMON_MS (16 * 60000) /* it has 15 minutes for it */

enum id {
	O_NO_STRICT = 1,
	O_EXCLUDE,
};

const struct opt opts_recover[] = {
    {"no-strict", 0, NULL,
     "refuse single members instead of all results, though the run said --strict", O_NO_STRICT},
    {"exclude", 0, "PATTERN", "leave out what is new or unreadable and matches; may be repeated",
     O_EXCLUDE},
    {NULL, 0, NULL, NULL, 0},
};

struct words {
	struct recover_opts o;
	bool help;
};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct words *w = arg;

	if (o->id == O_NO_STRICT)
		w->o.no_strict = true;
	else if (o->id == O_EXCLUDE)
		return strv_add(&w->o.exclude, value) < 0
			   ? err_set(e, ERR_NOMEM, "recover: out of memory")
			   : 0;
	else
		w->help = true;
	return 0;
}

/* How many staging places there are below the directory. */
static size_t staged(const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char **names = NULL;
	size_t n;

	if (fd >= 0)
		(void)unpack_places(fd, &names);
	n = strv_len(names);
	strv_free(names);
	return n;
}

/* A publish that was cut in a directory: no run needs to be known. */
static int repair(const char *dir, struct err *e)
{
	_cleanup_state_ struct state st = {0};
	struct unpacks_place place = {0};
	struct err left = ERR_INIT;
	size_t before = staged(dir);
	int r = state_open(&st, e), k;

	indexlock_sweep_at(dir);
	if (r == 0)
		r = unpacks_open(&st, &place, e);
	if (r == 0) {
		r = unpack_recover_into(dir, st.dir, place.dir, &left, e);
		k = unpacks_close(&st, &place, "{}\n", r < 0 ? NULL : e);
		r = r < 0 || k == 0 ? r : k;
	}
	if (r > 0)
		cli_say(
		    "a publish to %s that was cut is finished; what it replaced or deleted lies "
		    "%s%s",
		    dir, access(place.dir, F_OK) == 0 ? "in " : "with its run",
		    access(place.dir, F_OK) == 0 ? place.dir : "");
	if (r == 0 && left.code == ERR_NONE)
		cli_say(staged(dir) < before ? "nothing was half published in %s; what a killed "
					       "transfer had staged there is removed"
					     : "nothing was cut in %s",
			dir);
	if (r >= 0 && left.code != ERR_NONE) {
		*e = left;
		r = -EIO;
	}
	unpacks_done(&place);
	return r;
}

/* A word without a '/' is a run's; where a directory has that name it may be what was meant. */
static void say_directory(const char *word, struct err *e)
{
	size_t n = strlen(e->text);
	struct stat st;

	if (stat(word, &st) == 0 && S_ISDIR(st.st_mode))
		(void)snprintf(e->text + n, sizeof(e->text) - n,
			       "; for the directory say './%.200s'", word);
}

/* Whether the key of the machine where the work lies is the daemon's; ret_id: of the run. 1, 0, negative. */
static int key_is_the_daemons(struct state *st, const char *word, char ret_id[ID_LEN + 1],
			      struct err *e)
{
	_cleanup_leasespec_ struct lease_spec s = {0};
	struct run_row run = {0};
	struct lease_row l = {0};
	int r = run_find(st->store, word, &run, e);

	if (r == 0)
		r = lease_get(st->store, run.lease_id, &l, e);
	if (r == 0)
		r = leasespec_get(l.spec, &s, e);
	for (char *const *w = s.remote; r == 0 && w && *w; w++)
		r = str_starts(*w, "secret=");
	(void)snprintf(ret_id, ID_LEN + 1, "%s", run.id);
	lease_row_done(&l);
	run_row_done(&run);
	return r;
}

/* It does there what would be done here. */
static int by_daemon(struct state *st, const char *id, const struct recover_opts *o, struct err *e)
{
	_cleanup_daemon_ struct daemon d = {0};
	json_t *answer = NULL, *body = json_object(), *out;
	char path[64];
	int status = 0, r;

	r = body ? daemon_find(st->dir, &d, e) : err_set(e, ERR_NOMEM, "recover: out of memory");
	if (r == 0)
		r = err_set(
		    e, ERR_UNAVAILABLE,
		    "the work of run %s is on a machine whose key only airlockd can open: start "
		    "airlockd, and run this again",
		    id);
	d.wait_ms = DAEMON_MS;
	if (o->no_strict)
		(void)json_object_set_new(body, "noStrict", json_true());
	out = o->exclude ? json_array() : NULL;
	for (char **p = o->exclude; p && *p; p++)
		if (json_array_append_new(out, json_string(*p)) < 0)
			r = err_set(e, ERR_INVALID,
				    "--exclude: the daemon takes patterns in UTF-8");
	if (out)
		(void)json_object_set_new(body, "exclude", out);
	(void)snprintf(path, sizeof(path), "/api/runs/%s/recover", id);
	if (r > 0)
		r = daemon_ask(&d, "POST", path, body, &status, &answer, e);
	json_decref(body);
	if (r == 0 && status != 200)
		return daemon_refused(status, answer, "to recover it", e);
	json_decref(answer);
	return r;
}

int cmd_recover(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_recover, opts_help, NULL};
	_cleanup_state_ struct state st = {0};
	_cleanup_free_ char *run_dir = NULL;
	char id[ID_LEN + 1] = "";
	struct words w = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = "recover", .permute = true, .set = set, .arg = &w};
	struct transfer t = {0};
	struct err e = ERR_INIT;
	struct ui ui;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && w.help) {
		strv_free(p.words);
		strv_free(w.o.exclude);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0 && strv_len(p.words) != 1)
		r = err_set(&e, ERR_USAGE,
			    "recover needs one run or directory: airlock recover RUN");
	if (r == 0 && (strchr(p.words[0], '/') || p.words[0][0] == '.')) {
		r = repair(p.words[0], &e);
		strv_free(p.words);
		strv_free(w.o.exclude);
		return r < 0 ? cli_fail(&e) : 0;
	}
	ui_init(&ui, false, false);
	if (r == 0)
		r = interrupt_setup(&e);
	if (r == 0)
		r = state_open(&st, &e);
	/* Its space may be what the work needs; the work comes back without it too. */
	if (r == 0)
		(void)images_recover(&st, NULL);
	if (r == 0)
		r = key_is_the_daemons(&st, p.words[0], id, &e);
	if (r < 0 && e.code == ERR_NOT_FOUND)
		say_directory(p.words[0], &e);
	if (r == 1)
		r = by_daemon(&st, id, &w.o, &e);
	else if (r == 0)
		r = recover_run(&st, p.words[0], &w.o, &ui.run, &t, &run_dir, &e);
	ui_done(&ui);
	summary_results(&t, run_dir ? run_dir : "");
	transfer_done(&t);
	if (r >= 0)
		cli_say("the work of run %s is back", id);
	strv_free(p.words);
	strv_free(w.o.exclude);
	return r < 0 ? cli_fail(&e) : 0;
}
