/*
 * A directory that git takes for a repository by its layout, whatever its name. Part of door 1.
 *
 * Policy: git takes any directory with HEAD beside objects and refs (or beside commondir, which says
 * where those are) for a bare repository, and runs what its config and hooks say on a mere status
 * below it (CVE-2022-24765 and its kin). Nothing from a sandbox writes config, hooks or commondir
 * into such a directory, counting what the stream brings and what the host has; and no part of the
 * layout comes in where the host has config or hooks that the layout would bring to life.
 * The names of the stream count in every spelling that some file system takes for them; what the host has
 * is looked up as that file system answers. Not done here: .git itself is refused by name (policy/member.h).
 */
#include <string.h>

#include "policy/member.h"
#include "sync/unpack_server.h"

struct place { /* a directory and room for a name in it */
	struct unpack *u;
	struct change *scratch;
	char path[PATH_MEMBER_MAX + 32];
	size_t n;
};

static void name_in(struct place *p, const char *name)
{
	memcpy(p->path + p->n, name, strlen(name) + 1);
}

static bool on_host(struct place *p, const char *name)
{
	struct stat st;

	name_in(p, name);
	return beneath_stat(&p->u->root, p->path, &st) == 0;
}

/*
 * 1: the stream has `name` (small letters) in some spelling in the directory p, itself or by what lies below it; 0, errno.
 * What lies below an entry is stepped over as a whole.
 */
static int in_stream(struct place *p, const char *name)
{
	struct change *c = p->scratch;
	uint64_t i, count = chlist_count(p->u->list);
	int r = chlist_seek(p->u->list, p->path, p->n, &i);

	while (r == 0 && i < count) {
		size_t n;

		r = chlist_get(p->u->list, i, c);
		if (r < 0 || c->path_len < p->n || memcmp(c->path, p->path, p->n) != 0)
			return r;
		n = strcspn(c->path + p->n, "/");
		if ((c->kind != MK_ABSENT || c->path[p->n + n]) &&
		    member_is_folded(c->path + p->n, n, name))
			return 1;
		if (!c->path[p->n + n]) {
			i++;
			continue;
		}
		c->path[p->n + n] = '/' + 1; /* comes after all that is below */
		r = chlist_seek(p->u->list, c->path, p->n + n + 1, &i);
	}
	return r;
}

/* 1: the host or the stream has it, 0, errno. */
static int on_either(struct place *p, const char *name)
{
	return on_host(p, name) ? 1 : in_stream(p, strcmp(name, "HEAD") == 0 ? "head" : name);
}

/* 1: HEAD beside what makes its directory a repository. */
static int is_layout(struct place *p)
{
	int r = on_either(p, "HEAD");

	if (r <= 0)
		return r;
	r = on_either(p, "commondir");
	if (r != 0)
		return r;
	r = on_either(p, "objects");
	return r > 0 ? on_either(p, "refs") : r;
}

static bool host_is_layout(struct place *p)
{
	return on_host(p, "HEAD") &&
	       (on_host(p, "commondir") || (on_host(p, "objects") && on_host(p, "refs")));
}

/* Is the segment of `n` bytes at `s`, in the directory p, one that may not come in? 1, 0, errno. */
static int judge(struct place *p, const char *s, size_t n)
{
	enum { ORDERS = 4 }; /* the first of them; folded all */
	static const char *const names[] = {"config", "config.worktree", "hooks", "commondir",
					    "head",   "objects",	 "refs",  NULL};
	int which = member_is_folded_of(s, n, names), r;
	bool order = which < ORDERS;

	if (which < 0)
		return 0;
	r = is_layout(p);
	if (r <= 0 || order)
		return r;
	return !host_is_layout(p) && (on_host(p, "config") || on_host(p, "config.worktree") ||
				      on_host(p, "hooks") || on_host(p, "commondir"));
}

int gitdir_refuses(struct unpack *u, const char *path, size_t n, struct change *scratch)
{
	struct place p = {.u = u, .scratch = scratch};
	int r = 0;

	for (size_t i = 0, start = 0; i <= n && r == 0; i++) {
		if (i < n && path[i] != '/')
			continue;
		memcpy(p.path, path, start);
		p.n = start;
		r = judge(&p, path + start, i - start);
		start = i + 1;
	}
	return r;
}
