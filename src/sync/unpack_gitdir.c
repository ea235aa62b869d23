/*
 * A directory that git takes for a repository by its layout (policy/gitlayout.h), in a stream. Part of door 1.
 *
 * Policy: nothing from a sandbox writes orders for git (config, hooks, commondir) into such a directory, counting what the
 * stream brings and what the host has; and no part of the layout comes in where the host has orders that the
 * layout would bring to life.
 * The names of the stream count in every spelling that some file system takes for them; what the host has
 * is looked up as that file system answers. What the stream has in a directory is remembered while paths below it
 * are judged: a stream of a million names must not be walked through for each of them. Not done here: .git itself is refused by name (policy/member.h).
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/gitlayout.h"
#include "sync/unpack_server.h"

#define LOOKED GITLAYOUT_BIT(GITLAYOUT_COUNT) /* in a mask: the stream was asked */

struct place { /* a directory and room for a name in it */
	struct unpack *u;
	struct change *scratch;
	char path[PATH_MEMBER_MAX + 32];
	size_t n;
	unsigned mask; /* names that the stream has in it */
};

static void name_in(struct place *p, const char *name)
{
	memcpy(p->path + p->n, name, strlen(name) + 1);
}

static bool on_host(struct place *p, enum gitlayout_name which)
{
	struct stat st;

	name_in(p, gitlayout_on_disk(which));
	return beneath_stat(&p->u->root, p->path, &st) == 0;
}

/*
 * Which names the stream has in some spelling in the directory p, themselves or by what lies below them. What lies below an entry is
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
			    ? gitlayout_which(c->path + p->n, n)
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

/* Is there a layout with these bits and what the host has? Most directories have no HEAD: one look. */
static bool is_layout(struct place *p, unsigned bits)
{
	static const enum gitlayout_name parts[] = {GITLAYOUT_COMMONDIR, GITLAYOUT_OBJECTS,
						    GITLAYOUT_REFS};

	if (!(bits & GITLAYOUT_BIT(GITLAYOUT_HEAD)) && !on_host(p, GITLAYOUT_HEAD))
		return false;
	bits |= GITLAYOUT_BIT(GITLAYOUT_HEAD);
	for (size_t i = 0; i < ARRAY_LEN(parts) && !gitlayout_is(bits); i++)
		if (!(bits & GITLAYOUT_BIT(parts[i])) && on_host(p, parts[i]))
			bits |= GITLAYOUT_BIT(parts[i]);
	return gitlayout_is(bits);
}

static bool host_has_orders(struct place *p)
{
	for (int i = 0; i < GITLAYOUT_COUNT; i++)
		if (GITLAYOUT_BIT(i) & GITLAYOUT_ORDERS && on_host(p, (enum gitlayout_name)i))
			return true;
	return false;
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
	int which = gitlayout_which(s, n), r;

	if (which < 0)
		return 0;
	r = recall(p, seen, depth);
	if (r == 0)
		r = is_layout(p, p->mask);
	if (r <= 0 || GITLAYOUT_BIT(which) & GITLAYOUT_ORDERS)
		return r;
	return !is_layout(p, 0) && host_has_orders(p);
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
