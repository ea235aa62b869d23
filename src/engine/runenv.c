#include "engine/runenv.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "policy/envvars.h"

#define PATH_MAX_LEN 65536

struct list {
	char **v;
	int r;
};

static void set(struct list *l, const char *name, const char *value)
{
	_cleanup_buf_ struct buf b = BUF_INIT(ENV_VALUE_MAX);

	if (l->r < 0 || !value)
		return;
	(void)buf_putf(&b, "%s=%s", name, value);
	/* A host value that no command could be given is left out, as if it were unset. */
	if (b.err == -E2BIG)
		return;
	l->r = b.err ? b.err : envvars_set(&l->v, buf_text(&b));
}

static void pass(struct list *l, const char *name)
{
	set(l, name, getenv(name));
}

static void pass_common(struct list *l)
{
	static const char *const names[] = {"LANG", "LANGUAGE",	 "TZ",
					    "TERM", "COLORTERM", "NO_COLOR"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		pass(l, names[i]);
	for (char **p = environ; *p; p++)
		if (str_starts(*p, "LC_") && l->r == 0 && strlen(*p) < ENV_VALUE_MAX)
			l->r = envvars_set(&l->v, *p);
	if (!getenv("TERM"))
		set(l, "TERM", "dumb");
}

static bool has_bin(const char *src)
{
	_cleanup_free_ char *p = path_join(src, "bin");
	struct stat st;

	return p && stat(p, &st) == 0 && S_ISDIR(st.st_mode);
}

static void sandbox_path(struct list *l, const struct request *q)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_MAX_LEN);

	(void)buf_puts(&b, INSIDE_HOME "/.local/bin:");
	for (size_t i = 0; i < q->binds_len; i++) {
		const char *base = path_base(q->binds[i].src);

		if (strcmp(base, "bin") == 0 || strcmp(base, "sbin") == 0)
			(void)buf_putf(&b, "%s:", q->binds[i].dst);
		else if (has_bin(q->binds[i].src))
			(void)buf_putf(&b, "%s/bin:", q->binds[i].dst);
	}
	(void)buf_puts(&b, PATH_SYSTEM);
	set(l, "PATH", buf_text(&b));
}

static void sandbox(struct list *l, const struct request *q)
{
	sandbox_path(l, q);
	set(l, "HOME", INSIDE_HOME);
	set(l, "USER", "agent");
	set(l, "LOGNAME", "agent");
	set(l, "SHELL", "/bin/sh");
	set(l, "TMPDIR", "/tmp");
	set(l, "XDG_CONFIG_HOME", INSIDE_HOME "/.config");
	set(l, "XDG_CACHE_HOME", INSIDE_HOME "/.cache");
	set(l, "XDG_DATA_HOME", INSIDE_HOME "/.local/share");
	set(l, "XDG_STATE_HOME", INSIDE_HOME "/.local/state");
}

static void local(struct list *l)
{
	static const char *const names[] = {"TMPDIR",	     "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
					    "XDG_DATA_HOME", "XDG_STATE_HOME",	"XDG_RUNTIME_DIR"};
	struct passwd *pw = getpwuid(geteuid());

	set(l, "PATH", getenv("PATH") ? getenv("PATH") : PATH_SYSTEM);
	set(l, "HOME", getenv("HOME") ? getenv("HOME") : (pw ? pw->pw_dir : "/"));
	set(l, "USER", pw ? pw->pw_name : getenv("USER"));
	set(l, "LOGNAME", pw ? pw->pw_name : getenv("USER"));
	set(l, "SHELL", "/bin/sh");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		pass(l, names[i]);
}

int runenv_build(const struct request *q, const char *run_id, char ***ret, struct err *e)
{
	struct list l = {0};

	pass_common(&l);
	if (q->provider->isolates)
		sandbox(&l, q);
	else if (!q->provider->elsewhere) /* there its guest knows them (guest/front.c) */
		local(&l);
	for (size_t i = 0; l.r == 0 && i < strv_len(q->vars); i++)
		l.r = envvars_set(&l.v, q->vars[i]);
	set(&l, "AIRLOCK_RUN_ID", run_id);
	set(&l, "AIRLOCK_ENV", q->env_name);
	set(&l, "PAPERCLIP_RUN_ID", run_id);
	if (l.r < 0) {
		strv_free(l.v);
		return err_set(e, ERR_NOMEM, "environment of the command: out of memory");
	}
	*ret = l.v;
	return 0;
}

const char *runenv_path(char *const *env)
{
	for (; *env; env++)
		if (str_starts(*env, "PATH="))
			return *env + 5;
	return "";
}
