/* How an agent's program is found on this host, and what of it is shown inside. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "engine/preset_internal.h"

#define DIR_INSIDE "/opt/airlock-agent"

static char *program_at(const char *path)
{
	struct stat st;
	char *real = realpath(path, NULL);

	if (real && stat(real, &st) == 0 && S_ISREG(st.st_mode) && access(real, X_OK) == 0)
		return real;
	free(real);
	return NULL;
}

static char *on_path(const char *name)
{
	const char *path = getenv("PATH");
	_cleanup_free_ char *dirs = strdup(path ? path : "/usr/bin:/bin");
	char *at = dirs, *dir;

	while (dirs && (dir = strsep(&at, ":")) != NULL) {
		/* A relative entry would let the workspace choose. */
		_cleanup_free_ char *p = dir[0] == '/' ? path_join(dir, name) : NULL;
		char *found = p ? program_at(p) : NULL;

		if (found)
			return found;
	}
	return NULL;
}

char *preset_expand(const char *place)
{
	const char *home = getenv("HOME");

	if (place[0] != '~')
		return strdup(place);
	return home ? path_join(home, place[1] == '/' ? place + 2 : place + 1) : NULL;
}

char *preset_program(const struct preset *a)
{
	char *found = on_path(a->program);

	for (char *const *p = a->places; !found && p && *p; p++) {
		_cleanup_free_ char *place = preset_expand(*p);

		found = place ? program_at(place) : NULL;
	}
	return found;
}

int preset_grant(char ***grants, const char *fmt, const char *a, const char *b)
{
	_cleanup_buf_ struct buf line = BUF_INIT(8192);

	(void)buf_puts(&line, fmt);
	(void)str_printable(&line, a, strlen(a));
	if (b) {
		(void)buf_puts(&line, " (");
		(void)buf_puts(&line, b);
		(void)buf_puts(&line, ")");
	}
	return strv_add(grants, buf_text(&line));
}

static int bind(struct request *q, const char *src, const char *dst, char ***grants, struct err *e)
{
	struct bind_ro *b = &q->binds[q->binds_len];

	if (q->binds_len == ARRAY_LEN(q->binds))
		return err_set(e, ERR_LIMIT, "--bind-ro: more than %zu", ARRAY_LEN(q->binds));
	b->src = strdup(src);
	b->dst = strdup(dst);
	q->binds_len++;
	if (!b->src || !b->dst || preset_grant(grants, "read-only inside: ", src, NULL) < 0)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	return 0;
}

static bool system_path(const char *p)
{
	return path_is_within(p, "/usr") && !path_is_within(p, "/usr/local/share");
}

/* The interpreter that "#!/usr/bin/env NAME" wants, or NULL. */
static char *interpreter(const char *program)
{
	_cleanup_fd_ int fd = open(program, O_RDONLY | O_CLOEXEC);
	char text[256];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	static const char env[] = "#!/usr/bin/env ";
	char *name;

	if (n <= 0)
		return NULL;
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (!str_starts(text, env))
		return NULL;
	name = text + sizeof(env) - 1;
	if (str_starts(name, "-S "))
		name += 3;
	name[strcspn(name, " ")] = '\0';
	return *name && !strchr(name, '/') ? strdup(name) : NULL;
}

static int bind_runtime(struct request *q, const char *program, char ***grants, struct err *e)
{
	_cleanup_free_ char *name = interpreter(program), *real = name ? on_path(name) : NULL;
	_cleanup_free_ char *dir = NULL;

	if (!name || (real && system_path(real)))
		return 0;
	if (!real)
		return err_set(e, ERR_NOT_FOUND, "%s runs by %s, which is not on PATH here",
			       program, name);
	dir = strndup(real, (size_t)(path_base(real) - real - 1));
	/* The directory's name gets it on PATH inside. */
	return dir ? bind(q, dir, DIR_INSIDE "/runtime/bin", grants, e)
		   : err_set(e, ERR_NOMEM, "agent: out of memory");
}

/* What the program needs beside itself: the outermost node_modules, or nothing. *ret_inside: its path in the sandbox. */
int preset_bind(struct request *q, const char *real, char **ret_inside, char ***grants,
		struct err *e)
{
	const char *modules = strstr(real, "/node_modules/"), *store = strstr(real, "/.pnpm/"),
		   *cut;
	_cleanup_free_ char *top = NULL, *dst = NULL;
	int r;

	if (system_path(real)) {
		*ret_inside = strdup(real);
		return *ret_inside ? 0 : err_set(e, ERR_NOMEM, "agent: out of memory");
	}
	/* A store of links: they lead from package to package within it. */
	cut = store ? store : modules ? modules + strlen("/node_modules") : path_base(real) - 1;
	if (store || modules) {
		top = strndup(real, (size_t)(cut - real));
		dst = strdup(store ? DIR_INSIDE "/store" : DIR_INSIDE "/node_modules");
		if (asprintf(ret_inside, "%s%s", dst ? dst : "", cut) < 0)
			*ret_inside = NULL;
	} else {
		top = strdup(real);
		if (asprintf(&dst, DIR_INSIDE "/bin/%s", path_base(real)) < 0)
			dst = NULL;
		*ret_inside = dst ? strdup(dst) : NULL;
	}
	if (!top || !dst || !*ret_inside)
		return err_set(e, ERR_NOMEM, "agent: out of memory");
	r = bind(q, top, dst, grants, e);
	return r < 0 ? r : bind_runtime(q, real, grants, e);
}
