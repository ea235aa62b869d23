/* What is asked of the daemon for a run: where, which command, whose. */
#include "cli/daemonrun_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/preset.h"

#define NO_ID "00000000-0000-4000-8000-000000000000"

const char *daemonrun_beyond(const struct runopts *o)
{
	static const char *const known[] = {"env",   "workspace", "timeout", "review",
					    "quiet", "json",	  "help",    "no-preset",
					    "agent", "strict",	  "exclude", "on-conflict",
					    "git",   "sync-out"};

	for (size_t i = 0; i < strv_len(o->given); i++) {
		bool is = false;

		for (size_t k = 0; k < ARRAY_LEN(known); k++)
			is |= strcmp(o->given[i], known[k]) == 0;
		if (!is)
			return o->given[i];
	}
	return NULL;
}

/*
 * The preset of the command, as without a daemon: --agent, else the one that its first word names. The daemon has it from files
 * of its own, and its key from the variables of the environment. NULL: none.
 */
static const char *preset_of(const struct runopts *o)
{
	_cleanup_preset_ struct preset p = {0};
	const char *word = o->agent ? o->agent : o->req.argv[0];

	if (o->no_preset || (!o->agent && (strpbrk(word, " /") || preset_load(word, &p, NULL) < 0)))
		return NULL;
	return word;
}

/* The words as a line for sh -c: the same program with the same arguments, in the same directory. */
static void command_line(struct buf *b, const struct request *q, bool preset)
{
	if (q->subdir[0]) {
		/* Not a word of its own: "-" and what CDPATH finds are other places. */
		(void)buf_puts(b, "cd ./");
		(void)buf_put_sh(b, q->subdir);
		(void)buf_puts(b, " || exit 125; ");
	}
	/* RT-01: one word is a script. */
	if (!q->argv[1]) {
		(void)buf_puts(b, q->argv[0]);
		return;
	}
	/* A preset's CLI is a function of the shell there. */
	if (!preset)
		(void)buf_puts(b, "exec ");
	for (size_t i = 0; q->argv[i]; i++) {
		if (i)
			(void)buf_putc(b, ' ');
		(void)buf_put_sh(b, q->argv[i]);
	}
}

const char *daemonrun_member(const json_t *j, const char *name)
{
	const char *v = json_string_value(json_object_get(j, name));

	return v ? v : "";
}

/* GET of an array; what is refused is an error. Owned. */
static int get(const struct daemon *d, const char *path, const char *what, json_t **ret,
	       struct err *e)
{
	int status = 0, r = daemon_ask(d, "GET", path, NULL, &status, ret, e);

	if (r == 0 && status != 200)
		r = daemon_refused(status, TAKE_PTR(*ret), what, e);
	if (r == 0 && !*ret)
		r = err_set(e, ERR_PROTOCOL, "the daemon's answer about %s is no JSON", what);
	return r;
}

int daemonrun_find_env(const struct daemon *d, const char *name, char id[UUID_LEN + 1],
		       struct err *e)
{
	json_t *all = NULL, *v;
	size_t i;
	int r = get(d, "/api/companies/" NO_ID "/environments?limit=10000", "its environments",
		    &all, e);

	id[0] = '\0';
	if (r == 0)
		json_array_foreach(all, i, v) if (strcmp(daemonrun_member(v, "name"), name) == 0)(
		    void) snprintf(id, UUID_LEN + 1, "%s", daemonrun_member(v, "id"));
	json_decref(all);
	return r < 0 ? r : id[0] != '\0';
}

/* The company of AIRLOCK_COMPANY, by id or name; "": the daemon knows the only one. */
static int find_company(const struct daemon *d, char id[UUID_LEN + 1], struct err *e)
{
	const char *word = getenv("AIRLOCK_COMPANY");
	json_t *all = NULL, *v;
	size_t i;
	int r;

	id[0] = '\0';
	if (!word || !word[0])
		return 0;
	r = get(d, "/api/companies", "its companies", &all, e);
	if (r == 0)
		json_array_foreach(all, i, v) if (strcmp(daemonrun_member(v, "name"), word) == 0 ||
						  strcmp(daemonrun_member(v, "id"), word) == 0)(
		    void) snprintf(id, UUID_LEN + 1, "%s", daemonrun_member(v, "id"));
	json_decref(all);
	if (r == 0 && !id[0])
		r = err_set(e, ERR_NOT_FOUND, "AIRLOCK_COMPANY: the daemon has no company %.80s",
			    word);
	return r;
}

/* The deepest root above the workspace: its name, and the path below it. */
static int find_root(const struct daemon *d, const struct request *q, const char *company,
		     json_t *body, struct err *e)
{
	const char *name = NULL, *path = "";
	json_t *all = NULL, *v;
	size_t i, best = 0;
	int r = get(d, "/api/workspace-roots", "its workspace roots", &all, e);

	if (r == 0)
		json_array_foreach(all, i, v)
		{
			_cleanup_free_ char *real = realpath(daemonrun_member(v, "path"), NULL);
			const char *whose = daemonrun_member(v, "companyId");

			if (!real || !path_is_within(q->workspace, real) || strlen(real) <= best ||
			    (whose[0] && company[0] && strcmp(whose, company) != 0))
				continue;
			best = strlen(real);
			name = daemonrun_member(v, "name");
			path = q->workspace + best + (q->workspace[best] == '/');
			if (whose[0] && !company[0])
				(void)json_object_set_new(body, "companyId", json_string(whose));
		}
	if (r == 0 && !name)
		r = err_set(
		    e, ERR_NOT_FOUND,
		    "workspace %s lies below no --workspace-root of the daemon at %s: start the daemon with "
		    "--workspace-root NAME=DIRECTORY, or run without it: AIRLOCK_DAEMON=none",
		    q->workspace, d->at.text);
	if (r == 0) {
		(void)json_object_set_new(body, "workspaceRoot", json_string(name));
		(void)json_object_set_new(body, "workspacePath", json_string(path));
	}
	json_decref(all);
	return r;
}

static bool given(const struct runopts *o, const char *name)
{
	for (size_t i = 0; i < strv_len(o->given); i++)
		if (strcmp(o->given[i], name) == 0)
			return true;
	return false;
}

/* How the workspace is copied; what was not asked for is the daemon's default, which is ours. */
static int put_wishes(const struct runopts *o, json_t *body, struct err *e)
{
	static const char *const gits[] = {
	    [GIT_NONE] = "none", [GIT_SHALLOW] = "shallow", [GIT_FULL] = "full"};
	const struct request *q = &o->req;
	json_t *out = json_array();

	for (size_t i = 0; i < strv_len(q->exclude); i++)
		if (json_array_append_new(out, json_string(q->exclude[i])) < 0) {
			json_decref(out);
			return err_set(e, ERR_INVALID,
				       "--exclude: the daemon takes patterns in UTF-8");
		}
	if (json_array_size(out))
		(void)json_object_set(body, "exclude", out);
	json_decref(out);
	if (q->strict)
		(void)json_object_set_new(body, "strict", json_true());
	if (given(o, "on-conflict"))
		(void)json_object_set_new(body, "onConflict",
					  json_string(q->on_conflict == CONFLICT_TAKE_SANDBOX
							  ? "take-sandbox"
							  : "keep-host"));
	if (given(o, "git"))
		(void)json_object_set_new(body, "git", json_string(gits[q->git]));
	if (given(o, "sync-out"))
		(void)json_object_set_new(body, "syncOut",
					  json_string(q->by_tar ? "tar" : "changes"));
	return 0;
}

int daemonrun_start(struct watch *w, const char *env, struct err *e)
{
	const struct request *q = &w->o->req;
	const char *preset = preset_of(w->o);
	_cleanup_buf_ struct buf line = BUF_INIT(DAEMONRUN_LINE_MAX);
	char company[UUID_LEN + 1], path[96];
	json_t *body = json_object(), *answer = NULL;
	int status = 0, r = find_company(w->d, company, e);

	command_line(&line, q, preset != NULL);
	if (preset)
		(void)json_object_set_new(body, "preset", json_string(preset));
	(void)json_object_set_new(body, "command", json_string(buf_text(&line)));
	(void)json_object_set_new(body, "review", json_boolean(q->review));
	if (r == 0)
		r = put_wishes(w->o, body, e);
	if (q->timeout.v)
		(void)json_object_set_new(
		    body, "timeoutSeconds",
		    json_integer((json_int_t)((q->timeout.v + NS_PER_S - 1) / NS_PER_S)));
	if (company[0])
		(void)json_object_set_new(body, "companyId", json_string(company));
	if (r == 0)
		r = find_root(w->d, q, company, body, e);
	(void)snprintf(path, sizeof(path), "/api/environments/%s/runs", env);
	if (r == 0)
		r = daemon_ask(w->d, "POST", path, body, &status, &answer, e);
	json_decref(body);
	if (r == 0 && status != 202)
		r = daemon_refused(status, TAKE_PTR(answer), "this run", e);
	if (r == 0)
		(void)snprintf(w->id, sizeof(w->id), "%s", daemonrun_member(answer, "id"));
	json_decref(answer);
	return r;
}
