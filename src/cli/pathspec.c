#include "cli/pathspec.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"

/* The part that a normalised path lies in; -1: none. */
static ssize_t part_of(const struct changeset *set, const char *path, struct changeset_part *ret)
{
	for (size_t i = 0; i < changeset_parts(set); i++) {
		changeset_part(set, i, ret);
		if (path_is_within(path, ret->src))
			return (ssize_t)i;
	}
	return -1;
}

static int add(struct pathspec *p, const char *word, const struct changeset *set, const char *cwd,
	       struct err *e)
{
	_cleanup_free_ struct changeset_part *at = malloc(sizeof(*at));
	_cleanup_free_ char *full = NULL, *normal = NULL;
	const char *rest;
	ssize_t part;
	int r;

	if (!*word)
		return err_set(e, ERR_USAGE, "an empty word is no path");
	if (str_starts(word, ":/"))
		r = asprintf(&full, "%s/%s", set->run.workspace, word + 2);
	else if (word[0] == '/')
		r = asprintf(&full, "%s", word);
	else
		r = asprintf(&full, "%s/%s", cwd, word);
	normal = r < 0 ? NULL : path_normalize(full);
	if (!normal || !at)
		return err_set(e, ERR_NOMEM, "out of memory");
	part = part_of(set, normal, at);
	if (part < 0)
		return err_set(e, ERR_USAGE, "%.200s is not in the workspace %s%s", word,
			       set->run.workspace,
			       changeset_parts(set) > 1 ? ", nor in a mapping of the run" : "");
	rest = normal + (at->root[1] ? strlen(at->root) : 0);
	p->part[strv_len(p->v)] = (size_t)part;
	return strv_add(&p->v, *rest == '/' ? rest + 1 : rest) < 0
		   ? err_set(e, ERR_NOMEM, "out of memory")
		   : 0;
}

int pathspec_init(struct pathspec *p, char *const *words, const struct changeset *set,
		  struct err *e)
{
	_cleanup_free_ struct changeset_part *at = malloc(sizeof(*at));
	_cleanup_free_ char *cwd = realpath(".", NULL);
	int r = 0;

	*p = (struct pathspec){.words = words};
	if (at && (!cwd || part_of(set, cwd, at) < 0)) {
		free(cwd);
		cwd = strdup(set->run.workspace);
	}
	p->hit = calloc(strv_len(words) + 1, sizeof(*p->hit));
	p->part = calloc(strv_len(words) + 1, sizeof(*p->part));
	if (!p->hit || !p->part || !cwd || !at)
		return err_set(e, ERR_NOMEM, "out of memory");
	for (size_t i = 0; r == 0 && words && words[i]; i++)
		r = add(p, words[i], set, cwd, e);
	return r;
}

void pathspec_done(struct pathspec *p)
{
	strv_free(p->v);
	free(p->hit);
	free(p->part);
	*p = (struct pathspec){0};
}

bool pathspec_all(const struct pathspec *p)
{
	return !p->v;
}

static bool one(const char *spec, const char *path)
{
	size_t n = strlen(spec);
	_cleanup_free_ char *part = NULL;

	if (!n || (strncmp(path, spec, n) == 0 && (!path[n] || path[n] == '/')))
		return true;
	if (!strpbrk(spec, "*?["))
		return false;
	if (fnmatch(spec, path, 0) == 0)
		return true;
	part = strdup(path);
	for (char *slash; part && (slash = strrchr(part, '/'));) {
		*slash = '\0';
		if (fnmatch(spec, part, 0) == 0)
			return true;
	}
	return false;
}

bool pathspec_match(void *arg, size_t part, const char *path)
{
	struct pathspec *p = arg;
	bool any = !p->v;

	for (size_t i = 0; p->v && p->v[i]; i++)
		if (p->part[i] == part && one(p->v[i], path))
			any = p->hit[i] = true;
	return any;
}

bool pathspec_touches(void *arg, size_t part)
{
	const struct pathspec *p = arg;
	bool any = !p->v;

	for (size_t i = 0; p->v && p->v[i]; i++)
		any = any || p->part[i] == part;
	return any;
}

int pathspec_check(void *arg, struct err *e)
{
	const struct pathspec *p = arg;

	for (size_t i = 0; p->v && p->v[i]; i++)
		if (!p->hit[i])
			return err_set(e, ERR_USAGE, "%.200s matches nothing in the set",
				       p->words[i]);
	return 0;
}
