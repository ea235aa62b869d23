/*
 * A directory that git takes for a repository by its layout, whatever its name. Part of door 1.
 *
 * Policy: git takes any directory with HEAD beside objects and refs (or beside commondir, which says
 * where those are) for a bare repository, and runs what its config and hooks say on a mere status
 * below it (CVE-2022-24765 and its kin). Nothing from a sandbox writes config, hooks or commondir
 * into such a directory, counting what the stream brings and what the host has; and no part of the
 * layout comes in where the host has config or hooks that the layout would bring to life.
 * The names of the stream count in every spelling that some file system takes for them; what the host has
 * is looked up as that file system answers. What the stream has in a directory is remembered while paths below it
 * are judged: a stream of a million names must not be walked through for each of them. Not done here: .git itself is refused by name (policy/member.h).
 */
#include <errno.h>
#include <string.h>

#include "policy/member.h"
#include "sync/unpack_server.h"

/* What makes a layout; the first is the bit of the lowest value in a mask. Folded. */
enum { HEAD, COMMONDIR, OBJECTS, REFS, PARTS, LOOKED = 1 << PARTS };
static const char *const parts[] = {"head", "commondir", "objects", "refs", NULL};
static const char *const on_disk[] = {"HEAD", "commondir", "objects", "refs"};

struct place { /* a directory and room for a name in it */
	struct unpack *u;
	struct change *scratch;
	char path[PATH_MEMBER_MAX + 32];
	size_t n;
	unsigned mask; /* parts that the stream has in it */
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
 * Which parts the stream has in some spelling in the directory p, themselves or by what lies below them. What lies below an entry is
 * stepped over as a whole.
 */
static int look_in_stream(struct place *p)
{
	struct change *c = p->scratch;
	uint64_t i, count = chlist_count(p->u->list);
	int r = chlist_seek(p->u->list, p->path, p->n, &i), which;

	while (r == 0 && i < count) {
		size_t n;

		r = chlist_get(p->u->list, i, c);
		if (r < 0 || c->path_len < p->n || memcmp(c->path, p->path, p->n) != 0)
			return r;
		n = strcspn(c->path + p->n, "/");
		which = c->kind != MK_ABSENT || c->path[p->n + n]
			    ? member_is_folded_of(c->path + p->n, n, parts)
			    : -1;
		if (which >= 0)
			p->mask |= 1u << which;
		if (!c->path[p->n + n]) {
			i++;
			continue;
		}
		c->path[p->n + n] = '/' + 1; /* comes after all that is below */
		r = chlist_seek(p->u->list, c->path, p->n + n + 1, &i);
	}
	return r;
}

/* The host or the stream has it. */
static bool on_either(struct place *p, int part)
{
	return p->mask >> part & 1 || on_host(p, on_disk[part]);
}

/* HEAD beside what makes its directory a repository. */
static bool is_layout(struct place *p)
{
	return on_either(p, HEAD) &&
	       (on_either(p, COMMONDIR) || (on_either(p, OBJECTS) && on_either(p, REFS)));
}

static bool host_is_layout(struct place *p)
{
	return on_host(p, "HEAD") &&
	       (on_host(p, "commondir") || (on_host(p, "objects") && on_host(p, "refs")));
}

/* The stream's part of the answer for the directory p, of so many segments: each directory is walked through once. */
static int recall(struct place *p, struct gitdir_seen *seen, size_t depth)
{
	int r = 0;

	p->mask = seen->mask[depth];
	if (!(p->mask & LOOKED))
		r = look_in_stream(p);
	if (r == 0)
		seen->mask[depth] = (uint8_t)(p->mask | LOOKED);
	return r;
}

/* Is the segment of `n` bytes at `s`, in the directory p, one that may not come in? 1, 0, errno. */
static int judge(struct place *p, struct gitdir_seen *seen, size_t depth, const char *s, size_t n)
{
	enum { ORDERS = 4 }; /* the first of them; folded all */
	static const char *const names[] = {"config", "config.worktree", "hooks", "commondir",
					    "head",   "objects",	 "refs",  NULL};
	int which = member_is_folded_of(s, n, names), r;
	bool order = which < ORDERS;

	if (which < 0)
		return 0;
	r = recall(p, seen, depth);
	if (r == 0)
		r = is_layout(p);
	if (r <= 0 || order)
		return r;
	return !host_is_layout(p) && (on_host(p, "config") || on_host(p, "config.worktree") ||
				      on_host(p, "hooks") || on_host(p, "commondir"));
}

/* Forgets all but the directories that both paths are in. */
static void move_to(struct gitdir_seen *seen, const char *path, size_t n)
{
	size_t depth = 0, at = 0;

	for (; at < n && at < seen->len && path[at] == seen->path[at]; at++)
		depth += path[at] == '/';
	memset(seen->mask + depth + 1, 0, sizeof(seen->mask) - depth - 1);
	memcpy(seen->path, path, n);
	seen->len = n;
}

int gitdir_refuses(struct unpack *u, struct gitdir_seen *seen, const char *path, size_t n,
		   struct change *scratch)
{
	struct place p = {.u = u, .scratch = scratch};
	size_t depth = 0;
	int r = 0;

	move_to(seen, path, n);
	for (size_t i = 0, start = 0; i <= n && r == 0; i++) {
		if (i < n && path[i] != '/')
			continue;
		if (depth == sizeof(seen->mask))
			return -ENAMETOOLONG;
		memcpy(p.path, path, start);
		p.n = start;
		r = judge(&p, seen, depth++, path + start, i - start);
		start = i + 1;
	}
	return r;
}
