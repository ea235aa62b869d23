#include "sync/git.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "sync/git_find.h"
#include "sync/git_words.h"

/*
 * Command-scope settings win over every file. Each closes one way by which a repository's own
 * config would run a program, reach a network or write.
 */
static const char *const settings[][2] = {
    {"core.hooksPath", "/dev/null"},
    {"core.fsmonitor", "false"}, /* a program name otherwise */
    {"core.untrackedCache", "false"},
    {"core.splitIndex", "false"},
    {"core.sshCommand", "false"},
    {"core.askPass", "false"},
    {"core.pager", "cat"},
    {"core.editor", "false"},
    {"core.alternateRefsCommand", "true"},
    {"core.attributesFile", "/dev/null"},
    {"core.excludesFile", "/dev/null"}, /* ignore rules are ours: rules.h */
    {"core.preloadIndex", "false"},
    {"credential.helper", ""},
    {"diff.external", ""},
    {"diff.ignoreSubmodules", "all"},
    {"fetch.recurseSubmodules", "false"},
    {"submodule.recurse", "false"},
    {"gc.auto", "0"},
    {"maintenance.auto", "false"},
    {"protocol.allow", "never"},
    {"safe.bareRepository", "explicit"},
    {"log.showSignature", "false"},
};

static const char *const plain_env[] = {
    "LANG=C",
    "LC_ALL=C",
    "HOME=/nonexistent",
    "GIT_CONFIG_NOSYSTEM=1",
    "GIT_CONFIG_GLOBAL=/dev/null",
    "GIT_ATTR_NOSYSTEM=1",
    "GIT_TERMINAL_PROMPT=0",
    "GIT_OPTIONAL_LOCKS=0",
    "GIT_NO_LAZY_FETCH=1",
    "GIT_NO_REPLACE_OBJECTS=1",
    "GIT_ALLOW_PROTOCOL=none",
    "GIT_ASKPASS=false",
    "SSH_ASKPASS=false",
    "GIT_EDITOR=false",
    "GIT_PAGER=cat",
};

static int env_put(char ***v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int env_put(char ***v, const char *fmt, ...)
{
	char *word = NULL;
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vasprintf(&word, fmt, ap);
	va_end(ap);
	if (r < 0)
		return -ENOMEM;
	r = strv_add(v, word);
	free(word);
	return r;
}

static int make_env(struct git_repo *g)
{
	const char *path = getenv("PATH");
	size_t n = ARRAY_LEN(settings);
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(plain_env) && !r; i++)
		r = strv_add(&g->env, plain_env[i]);
	if (!r)
		r = env_put(&g->env, "PATH=%s", path ? path : "/usr/bin:/bin");
	if (!r)
		r = env_put(&g->env, "GIT_DIR=%s", g->git_dir);
	if (!r)
		r = env_put(&g->env, "GIT_WORK_TREE=%s", g->top);
	if (!r)
		r = env_put(&g->env, "GIT_CONFIG_COUNT=%zu", n + 1);
	for (size_t i = 0; i < n && !r; i++) {
		r = env_put(&g->env, "GIT_CONFIG_KEY_%zu=%s", i, settings[i][0]);
		if (!r)
			r = env_put(&g->env, "GIT_CONFIG_VALUE_%zu=%s", i, settings[i][1]);
	}
	/* FR-B052: trust for this one repository, in no file. */
	if (!r)
		r = env_put(&g->env, "GIT_CONFIG_KEY_%zu=safe.directory", n);
	if (!r)
		r = env_put(&g->env, "GIT_CONFIG_VALUE_%zu=%s", n, g->top);
	return r;
}

void git_free(struct git_repo *g)
{
	if (!g)
		return;
	free(g->program);
	free(g->git_dir);
	free(g->common_dir);
	free(g->top);
	free(g->prefix);
	free(g->branch);
	strv_free(g->env);
	free(g);
}

const char *git_empty_tree(const struct git_repo *g)
{
	return g->sha256 ? "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
			 : "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
}

static int merge_env(const struct git_repo *g, const char *const *extra, char ***ret)
{
	int r = 0;

	for (size_t i = 0; g->env && g->env[i] && !r; i++)
		r = strv_add(ret, g->env[i]);
	for (size_t i = 0; extra && extra[i] && !r; i++) {
		size_t key = strcspn(extra[i], "=");
		char **at = *ret, *own;

		/* An extra variable replaces ours of the same name. */
		while (at && *at && (strncmp(*at, extra[i], key) != 0 || (*at)[key] != '='))
			at++;
		if (!at || !*at) {
			r = strv_add(ret, extra[i]);
			continue;
		}
		own = strdup(extra[i]);
		if (!own)
			return -ENOMEM;
		free(*at);
		*at = own;
	}
	return r;
}

static void first_line(char *s)
{
	s[strcspn(s, "\n")] = '\0';
}

/* git's own last words, made safe for a terminal: they may quote names of the repository. */
int git_failed(const struct git_repo *g, const char *verb, int status, char *tail, struct err *e)
{
	_cleanup_buf_ struct buf safe = BUF_INIT(8 * PROCESS_TAIL_MAX);
	char *said = strstr(tail, "fatal: ");

	said = said ? said : tail;
	first_line(said);
	(void)str_printable(&safe, said, strlen(said));
	return err_set(e, ERR_IO, "git %s in %s failed (status %d): %s", verb, g->top, status,
		       safe.len ? buf_text(&safe) : "it gave no reason");
}

int git_words(const struct git_repo *g, const char *const *words,
	      const char *argv[GIT_WORDS_MAX + 1])
{
	size_t n = 0;

	argv[n++] = g->program;
	argv[n++] = "--no-optional-locks";
	for (size_t i = 0; words[i]; i++) {
		if (n == GIT_WORDS_MAX)
			return -E2BIG;
		argv[n++] = words[i];
	}
	argv[n] = NULL;
	return 0;
}

int git_try(const struct git_repo *g, const char *const *words, const char *const *extra_env,
	    const struct process_opts *io, int *ret_status, struct err *e)
{
	struct process_opts o = *io;
	const char *argv[GIT_WORDS_MAX + 1];
	char tail[PROCESS_TAIL_MAX + 1];
	_cleanup_strv_ char **env = NULL;
	int r, status = 0;

	r = git_words(g, words, argv);
	if (!r)
		r = merge_env(g, extra_env, &env);
	if (r < 0)
		return err_sys(e, -r, "git %s", words[0]);
	o.argv = argv;
	o.envp = (const char *const *)env;
	o.cancel = g->cancel;
	if (!o.timeout_ms)
		o.timeout_ms = GIT_TIMEOUT_MS;
	r = process_run(&o, &status, tail, e);
	if (r < 0)
		return err_wrap(e, r, "git %s in %s", words[0], g->top);
	if (ret_status)
		*ret_status = status;
	return status && !ret_status ? git_failed(g, words[0], status, tail, e) : 0;
}

int git_run(const struct git_repo *g, const char *const *words, const char *const *extra_env,
	    const struct process_opts *io, struct err *e)
{
	return git_try(g, words, extra_env, io, NULL, e);
}

int git_at(const struct git_repo *like, const char *git_dir, const char *top, struct git_repo **ret,
	   struct err *e)
{
	struct git_repo *g = calloc(1, sizeof(*g));
	int r = -ENOMEM;

	if (g) {
		g->program = strdup(like->program);
		g->git_dir = strdup(git_dir);
		g->common_dir = strdup(git_dir);
		g->top = strdup(top);
		g->prefix = strdup("");
		g->sha256 = like->sha256;
		g->cancel = like->cancel;
		if (g->program && g->git_dir && g->common_dir && g->top && g->prefix)
			r = make_env(g);
	}
	if (r < 0) {
		git_free(g);
		return err_sys(e, -r, "%s", git_dir);
	}
	*ret = g;
	return 0;
}

static bool is_hex_id(const char *s)
{
	size_t n = strspn(s, "0123456789abcdef");

	return !s[n] && (n == 40 || n == 64);
}

static int ask_line(const struct git_repo *g, const char *const *words, char *out, size_t max)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct process_opts io = PROCESS_OPTS_INIT;
	struct err e = ERR_INIT;
	int r;

	io.out = &b;
	r = git_run(g, words, NULL, &io, &e);
	if (r < 0)
		return r;
	(void)snprintf(out, max, "%.*s", (int)strcspn(buf_text(&b), "\n"), buf_text(&b));
	return 0;
}

/* A loose branch is one small file: no process is needed for what most repositories have. */
static bool head_from_loose(struct git_repo *g)
{
	_cleanup_free_ char *id = NULL;

	if (!path_is_member(g->branch, strlen(g->branch)))
		return false;
	id = git_find_slurp(g->common_dir, g->branch, 256);
	if (!id || !is_hex_id(id))
		return false;
	(void)snprintf(g->head, sizeof(g->head), "%s", id);
	return true;
}

static int read_head(struct git_repo *g, struct err *e)
{
	const char *const verify[] = {"rev-parse", "--verify", "-q", "HEAD^{commit}", NULL};
	const char *const symbolic[] = {"symbolic-ref", "-q", "HEAD", NULL};
	_cleanup_free_ char *text = git_find_slurp(g->git_dir, "HEAD", 4096);
	char line[4096];
	int r;

	if (!text)
		return err_set(e, ERR_IO, "%s/HEAD cannot be read", g->git_dir);
	if (str_starts(text, "ref: ")) {
		g->branch = strdup(text + 5 + strspn(text + 5, " "));
		if (!g->branch)
			return err_sys(e, ENOMEM, "%s", g->git_dir);
		/* The reftable backend keeps the true name elsewhere. */
		if (strcmp(g->branch, "refs/heads/.invalid") == 0 &&
		    ask_line(g, symbolic, line, sizeof(line)) == 0) {
			free(g->branch);
			g->branch = strdup(line);
		}
		if (g->branch && head_from_loose(g))
			return 0;
	}
	r = ask_line(g, verify, line, sizeof(line));
	if (r == -ETIMEDOUT || r == -ECANCELED)
		return err_set(e, r == -ETIMEDOUT ? ERR_TIMEOUT : ERR_CANCELLED,
			       "git rev-parse in %s did not finish", g->top);
	/* Failure here is an unborn HEAD (F19): a repository without a commit. */
	if (!r && is_hex_id(line))
		(void)snprintf(g->head, sizeof(g->head), "%.64s", line);
	return 0;
}

static int fill(struct git_repo *g, const char *top, const char *dir, struct err *e)
{
	int r;

	g->top = strdup(top);
	if (strcmp(top, dir) == 0)
		g->prefix = strdup("");
	else if (asprintf(&g->prefix, "%s/", dir + strlen(top) + (top[1] ? 1 : 0)) < 0)
		g->prefix = NULL;
	if (!g->top || !g->prefix)
		return err_sys(e, ENOMEM, "%s", dir);
	r = make_env(g);
	if (r < 0)
		return err_sys(e, -r, "%s", dir);
	r = read_head(g, e);
	g->sha256 = strlen(g->head) == 64;
	return r;
}

static bool in_git_folder(const char *prefix)
{
	return str_starts(prefix, ".git/") || strstr(prefix, "/.git/");
}

int git_open(const char *dir, bool climb, const volatile int *cancel, struct git_repo **ret,
	     enum git_found *ret_found, struct err *e)
{
	struct git_repo *g = calloc(1, sizeof(*g));
	_cleanup_free_ char *at = strdup(dir);
	int r = 0;

	*ret_found = GIT_FOUND_NONE;
	if (!g || !at) {
		free(g);
		return err_sys(e, ENOMEM, "%s", dir);
	}
	g->cancel = cancel;
	while (!(r = git_find_at(at, &g->git_dir, &g->common_dir)) && climb && at[1]) {
		char *slash = strrchr(at, '/');

		slash[slash == at ? 1 : 0] = '\0';
	}
	if (r == 1) {
		*ret_found = GIT_FOUND_REPO;
		g->program = git_find_program(dir);
		if (!g->program)
			*ret_found = GIT_FOUND_NO_GIT;
		r = g->program ? fill(g, at, dir, e) : 0;
		if (!r && g->prefix && in_git_folder(g->prefix))
			*ret_found = GIT_FOUND_NONE;
	} else if (r == -EPERM) {
		*ret_found = GIT_FOUND_FORGED;
		r = 0;
	}
	if (r < 0 || *ret_found != GIT_FOUND_REPO) {
		git_free(g);
		return r == -ENOMEM ? err_sys(e, ENOMEM, "%s", dir) : r;
	}
	*ret = g;
	return 0;
}
