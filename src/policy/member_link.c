/*
 * Door 1: where a symlink leads.
 *
 * Policy: the target is followed as the kernel would follow it after publishing, step by step from
 * the member's directory: links that the stream brings first, then links that the host has. ".."
 * above the root, an absolute target anywhere on the way, a step over a link that was refused or
 * cannot be read, is an escape; a way through .git is refused. A prefix comparison of the text is not enough: `d/up` -> `..` is
 * inside, `x` -> `d/up/..` is not. What does not exist is taken for a directory, the worst case.
 *
 * What this stream brings may still stay out (ignored, a conflict, an apply of some paths), and a later
 * one may put something else at a place that a link passes. So a target climbs first and names
 * afterwards: with no ".." after a name, each link that is inside stays inside whatever becomes of
 * the others. Where the host has another link at a place of the stream, both ways must be inside.
 * Not done here: a link of the user's own that climbs after a name is not judged again when what
 * it names is changed.
 */
#include <errno.h>
#include <string.h>

#include "base/limits.h"
#include "policy/member_table.h"

#define FORKS_MAX 6 /* places on one way where the host has another link: 64 ways */

struct walk {
	struct members *m;
	unsigned hops;
	unsigned forks,
	    take_host; /* such places met so far; bit i: at fork i the host's link is followed */
	size_t cur_len, rest_at;       /* rest is filled from its end, so a step costs no move */
	char cur[PATH_MEMBER_MAX + 1]; /* resolved so far: no links, NUL-terminated */
	char rest[4 * LINK_TARGET_MAX];
};

/* Will publishing replace the host's link at w->cur? Only one that came from the baseline. */
static bool replaceable(const struct walk *w, const char *target, size_t n)
{
	const struct member_opts *o = &w->m->o;

	int r = o->unchanged_link ? o->unchanged_link(o->arg, (struct view){w->cur, w->cur_len},
						      (struct view){target, n})
				  : 0;

	if (r < 0)
		w->m->failed = r;
	return r > 0;
}

/* The host's link at w->cur may give way to the stream's entry or stay. 1 it stays on this way, 0, -1 too many. */
static int fork_takes_host(struct walk *w)
{
	if (w->forks == FORKS_MAX)
		return -1;
	return (int)(w->take_host >> w->forks++ & 1);
}

/* What says nothing about the link: a refusal because of it would blame the sandbox for the host's lack. */
static bool machine_lacks(long r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO || r == -EAGAIN;
}

/*
 * The link at w->cur, if there is one: 1 with its target, 0 none, -1 an escape. A host link that
 * the baseline does not have stays when the stream has something else there (a conflict that the
 * host wins), so the stream cannot cover it up.
 */
static int link_at(struct walk *w, char *out, size_t max, size_t *ret_len)
{
	const struct member_opts *o = &w->m->o;
	struct view path = {w->cur, w->cur_len};
	uint64_t hash = path_table_hash(&w->m->paths, path.p, path.n);
	enum path_kind kind = path_table_get(&w->m->paths, hash);
	long n = o->readlink_at ? o->readlink_at(o->arg, w->cur, out, max) : 0;
	struct link l;

	if (n < 0 && machine_lacks(n))
		w->m->failed = (int)n;
	if (n < 0 || (size_t)n > max)
		return -1;
	if (kind == PK_SYMLINK) {
		/* A refused link leaves in place whatever the host has there. */
		if (!link_table_find(&w->m->links, hash, path, &l) || l.refused || l.target.n > max)
			return -1;
		if (n > 0 &&
		    ((size_t)n != l.target.n || memcmp(out, l.target.p, l.target.n) != 0)) {
			int host = replaceable(w, out, (size_t)n) ? fork_takes_host(w) : -1;

			*ret_len = (size_t)n;
			if (host != 0)
				return host;
		}
		memcpy(out, l.target.p, l.target.n);
		*ret_len = l.target.n;
		return 1;
	}
	*ret_len = (size_t)n;
	if (n > 0 && (kind == PK_DIR_DECLARED || kind == PK_FILE || kind == PK_HARDLINK) &&
	    replaceable(w, out, (size_t)n))
		return fork_takes_host(w);
	return n > 0;
}

static bool push_rest(struct walk *w, const char *p, size_t n)
{
	bool slash = w->rest_at < sizeof(w->rest);

	if (n + slash > w->rest_at)
		return false;
	if (slash)
		w->rest[--w->rest_at] = '/';
	w->rest_at -= n;
	memcpy(w->rest + w->rest_at, p, n);
	return true;
}

static void pop(char *p, size_t *len)
{
	while (*len > 0 && p[*len - 1] != '/')
		--*len;
	if (*len > 0)
		--*len;
	p[*len] = '\0';
}

/* One named segment: descend, or go on with the target of the link that lies there. */
static const char *step(struct walk *w, const char *s, size_t n)
{
	char target[LINK_TARGET_MAX];
	size_t len = 0;

	/* Inside the root, but what is written through it later would be run by git. */
	if (member_is_dot_git(s, n))
		return "git_metadata";
	if (n > PATH_SEGMENT_MAX || w->cur_len + 1 + n > PATH_MEMBER_MAX)
		return "link_escape";
	if (w->cur_len)
		w->cur[w->cur_len++] = '/';
	memcpy(w->cur + w->cur_len, s, n);
	w->cur_len += n;
	w->cur[w->cur_len] = '\0';
	switch (link_at(w, target, sizeof(target), &len)) {
	case 0:
		return NULL;
	case 1:
		break;
	default:
		return "link_escape";
	}
	if (++w->hops > LINK_HOPS_MAX)
		return "link_hops";
	pop(w->cur, &w->cur_len);
	return target[0] != '/' && push_rest(w, target, len) ? NULL : "link_escape";
}

static const char *walk(struct walk *w)
{
	while (w->rest_at < sizeof(w->rest)) {
		const char *s = w->rest + w->rest_at,
			   *slash = memchr(s, '/', sizeof(w->rest) - w->rest_at), *rule;
		char segment[PATH_SEGMENT_MAX];
		size_t n = slash ? (size_t)(slash - s) : sizeof(w->rest) - w->rest_at;

		/* A million short links over one of a thousand segments: time is a resource too. */
		w->m->steps += 1 + w->cur_len / 64; /* hashing cur is the cost */
		if (w->m->steps > MEMBER_LINK_STEPS_MAX)
			return "limit";
		if (n > sizeof(segment))
			return "link_escape";
		memcpy(segment, s, n); /* the next target is written over it */
		w->rest_at += n + (slash != NULL);
		if (n == 0 || (n == 1 && segment[0] == '.'))
			continue;
		if (n == 2 && segment[0] == '.' && segment[1] == '.') {
			if (w->cur_len == 0)
				return "link_escape";
			pop(w->cur, &w->cur_len);
			continue;
		}
		rule = step(w, segment, n);
		if (rule)
			return rule;
	}
	return NULL;
}

/* True if the target has ".." after a name. */
static bool climbs_after_name(struct view target)
{
	bool named = false;

	for (size_t i = 0, start = 0; i <= target.n; i++) {
		size_t n = i - start;
		const char *s = target.p + start;

		if (i < target.n && target.p[i] != '/')
			continue;
		start = i + 1;
		if (n == 2 && s[0] == '.' && s[1] == '.') {
			if (named)
				return true;
		} else if (n > 1 || (n == 1 && s[0] != '.')) {
			named = true;
		}
	}
	return false;
}

const char *member_link_rule(struct members *m, struct view path, struct view target)
{
	struct walk w = {.m = m}; /* 20 KiB of stack */
	const char *rule = NULL;

	if (target.n == 0 || target.p[0] == '/')
		return "link_escape";
	for (unsigned way = 0, ways = 1; way < ways && !rule; way++) {
		w.hops = w.forks = 0;
		w.take_host = way;
		w.rest_at = sizeof(w.rest);
		memcpy(w.cur, path.p, path.n);
		w.cur_len = path.n;
		pop(w.cur, &w.cur_len);
		if (!push_rest(&w, target.p, target.n))
			return "link_escape";
		rule = walk(&w);
		if (1u << w.forks > ways)
			ways = 1u << w.forks;
	}
	return !rule && climbs_after_name(target) ? "link_escape" : rule;
}
