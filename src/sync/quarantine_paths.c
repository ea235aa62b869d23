/* The rules for paths of a sandbox's commits; the policy is in quarantine_paths.h. */
#include "sync/quarantine_paths.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/beneath.h"
#include "policy/gitlayout.h"
#include "policy/hostexec.h"
#include "policy/member.h"

#define FLAGGED_MAX 4096 /* distinct ones that are remembered */
#define FLAGGED_SHOWN 8
#define FLAGGED_TEXT 480		      /* bytes of them */
#define NODE_COST (sizeof(struct known) + 64) /* with the tree's own node */

struct known { /* a directory with such names, or a flagged path */
	size_t n;
	unsigned brought;    /* bits of policy/gitlayout.h: by the commits */
	unsigned base, host; /* in the commit that was sent; in the work tree */
	unsigned came;	     /* in any of the host's older commits that the commits build on */
	unsigned old;	     /* of it: in the one that is numbered next to it */
	size_t old_nr;
	bool alive; /* one of them has a whole repository here: the host's own */
	bool asked; /* the work tree was looked at */
	char path[];
};

struct commit_paths {
	struct beneath host;
	void *dirs, *flagged; /* trees of struct known */
	uint64_t dirs_bytes, flagged_n, steps;
	size_t shown;
	struct buf names;
	char path[PATH_MEMBER_MAX + 32];
};

static int compare(const void *a, const void *b)
{
	const struct known *x = a, *y = b;
	int r = memcmp(x->path, y->path, x->n < y->n ? x->n : y->n);

	return r ? r : (x->n > y->n) - (x->n < y->n);
}

/* Finds it, or puts it in; *ret_new says which. NULL: out of memory. */
static struct known *know(void **tree, const char *path, size_t n, bool *ret_new)
{
	struct known *k = calloc(1, sizeof(*k) + n + 1), **at;

	if (!k)
		return NULL;
	k->n = n;
	memcpy(k->path, path, n);
	at = (struct known **)tsearch(k, tree, compare);
	*ret_new = at && *at == k;
	if (!*ret_new)
		free(k);
	return at ? *at : NULL;
}

int commit_paths_new(int host_fd, struct commit_paths **ret)
{
	struct commit_paths *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->host.root = host_fd;
	p->names = (struct buf)BUF_INIT(1024);
	*ret = p;
	return 0;
}

void commit_paths_free(struct commit_paths *p)
{
	if (!p)
		return;
	tdestroy(p->dirs, free);
	tdestroy(p->flagged, free);
	buf_done(&p->names);
	free(p);
}

/* A path that no member could have either: it could not be judged with the rest. */
static bool too_long(const char *path)
{
	size_t depth = 0;

	if (strlen(path) > PATH_MEMBER_MAX)
		return true;
	for (const char *s = path;; s++) {
		size_t n = strcspn(s, "/");

		if (n > PATH_SEGMENT_MAX || ++depth > PATH_DEPTH_MAX)
			return true;
		s += n;
		if (!*s)
			return false;
	}
}

/* On a system for which '\' parts names the same commit would be another path. */
static const char *name_rule(struct commit_paths *p, const char *path)
{
	size_t n = strlen(path);
	const char *rule = member_name_rule(path, n);

	/* As a file or a link it would end the stream. */
	if (!rule && !memchr(path, '/', n) && member_is_folded(path, n, ".paperclip-repositories"))
		return "reserved_kind";
	if (rule || !memchr(path, '\\', n))
		return rule;
	for (size_t i = 0; i <= n; i++)
		p->path[i] = path[i] == '\\' ? '/' : path[i];
	return member_name_rule(p->path, n);
}

int commit_paths_flag(struct commit_paths *p, const char *path)
{
	size_t n = strlen(path);
	bool is_new = false;

	if (too_long(path) || !hostexec_flags(path, n) || p->flagged_n >= FLAGGED_MAX)
		return 0;
	if (!know(&p->flagged, path, n, &is_new))
		return -ENOMEM;
	p->flagged_n += is_new;
	if (is_new && p->shown < FLAGGED_SHOWN &&
	    p->names.len + 4 * (n < 80 ? n : 80) + 2 < FLAGGED_TEXT) {
		if (p->shown++)
			(void)buf_puts(&p->names, ", ");
		(void)str_printable(&p->names, path, n < 80 ? n : 80);
	}
	return 0;
}

static bool alive(unsigned bits)
{
	return gitlayout_is(bits) && bits & GITLAYOUT_ORDERS;
}

static void bring(struct known *k, unsigned bit, size_t old_nr)
{
	if (!old_nr) {
		k->brought |= bit;
		return;
	}
	if (k->old_nr != old_nr)
		k->old = 0;
	k->old_nr = old_nr;
	k->old |= bit;
	k->came |= bit;
	k->alive |= alive(k->old);
}

/* old_nr 0: by the new commits. */
static int collect(struct commit_paths *p, const char *path, size_t old_nr)
{
	for (const char *s = path;; s++) {
		size_t n = strcspn(s, "/");
		int which = gitlayout_which(s, n);

		if (which >= 0) {
			bool is_new = false;
			struct known *k = know(&p->dirs, path, (size_t)(s - path), &is_new);

			if (!k)
				return -ENOMEM;
			bring(k, GITLAYOUT_BIT(which), old_nr);
			p->dirs_bytes += is_new ? NODE_COST + k->n : 0;
			if (p->dirs_bytes > COMMIT_DIRS_BYTES_MAX)
				return -E2BIG;
		}
		s += n;
		if (!*s)
			return 0;
	}
}

int commit_paths_name(struct commit_paths *p, const char *path, const char **ret_rule)
{
	int r;

	*ret_rule = too_long(path) ? "path_limit" : name_rule(p, path);
	if (*ret_rule)
		return 0;
	r = commit_paths_flag(p, path);
	return r ? r : collect(p, path, 0);
}

static long host_link(void *arg, const char *path, char *out, size_t max)
{
	return beneath_readlink(arg, path, out, max);
}

int commit_paths_link(struct commit_paths *p, const char *path, const char *target, size_t n,
		      const char **ret_rule)
{
	struct member_opts o = {.readlink_at = host_link, .arg = &p->host};
	struct tar_member t = {
	    .type = TAR_SYMLINK, .path = {path, strlen(path)}, .target = {target, n}};
	struct members *m = NULL;
	int r;

	*ret_rule = NULL;
	/* git knows no limit of a whole path, and the rules of members hold one of PATH_MEMBER_MAX at most. */
	if (too_long(path)) {
		*ret_rule = "path_limit";
		return 0;
	}
	/* Each segment is a look at the work tree; a tree may name one such link a million times. */
	for (size_t i = 0; i < n; i++)
		p->steps += target[i] == '/';
	p->steps += 8;
	if (p->steps > COMMIT_LINK_STEPS_MAX)
		return -E2BIG;
	if (n == 0 || n > LINK_TARGET_MAX || memchr(target, '\0', n)) {
		*ret_rule = "link_escape";
		return 0;
	}
	r = members_new(&o, &m);
	if (!r)
		r = members_judge(m, &t, ret_rule);
	members_free(m);
	return r < 0 ? r : 0;
}

int commit_paths_ask(const struct commit_paths *p)
{
	return p->dirs != NULL;
}

static struct known *find(const struct commit_paths *p, const char *path, size_t n)
{
	union {
		struct known k;
		char room[sizeof(struct known) + PATH_MEMBER_MAX + 1];
	} key;
	struct known **at;

	if (n > PATH_MEMBER_MAX)
		return NULL;
	key.k.n = n;
	memcpy(key.room + offsetof(struct known, path), path, n);
	at = (struct known **)tfind(&key.k, &p->dirs, compare);
	return at ? *at : NULL;
}

void commit_paths_had(struct commit_paths *p, const char *path)
{
	for (const char *s = path;; s++) {
		size_t n = strcspn(s, "/");
		int which = gitlayout_which(s, n);
		struct known *k = which < 0 ? NULL : find(p, path, (size_t)(s - path));

		if (k)
			k->base |= GITLAYOUT_BIT(which);
		s += n;
		if (!*s)
			return;
	}
}

int commit_paths_came(struct commit_paths *p, const char *path, size_t nr)
{
	return too_long(path) ? 0 : collect(p, path, nr);
}

/* As the file system of the work tree answers. */
static void look(struct commit_paths *p, struct known *k)
{
	struct stat st;

	if (k->asked)
		return;
	k->asked = true;
	memcpy(p->path, k->path, k->n);
	for (int i = 0; i < GITLAYOUT_COUNT; i++) {
		const char *name = gitlayout_on_disk((enum gitlayout_name)i);

		memcpy(p->path + k->n, name, strlen(name) + 1);
		if (beneath_stat(&p->host, p->path, &st) == 0)
			k->host |= GITLAYOUT_BIT(i);
	}
}

/* Does what they bring give life to orders that the host has in one place or another, but in no place beside a layout? */
static bool unites(const struct known *k)
{
	unsigned had = k->base | k->host | k->came;

	return gitlayout_is(k->brought | had) && had & GITLAYOUT_ORDERS && !alive(k->base) &&
	       !alive(k->host) && !k->alive;
}

void commit_paths_layout(struct commit_paths *p, const char *path, const char **ret_rule,
			 size_t *ret_dir)
{
	*ret_rule = NULL;
	for (const char *s = path;; s++) {
		size_t n = strcspn(s, "/");
		int which = gitlayout_which(s, n);
		struct known *k = which < 0 ? NULL : find(p, path, (size_t)(s - path));

		if (k)
			look(p, k);
		if (k && (unites(k) || (GITLAYOUT_BIT(which) & GITLAYOUT_ORDERS &&
					gitlayout_is(k->brought | k->base | k->host | k->came)))) {
			*ret_rule = "git_layout";
			*ret_dir = k->n ? k->n - 1 : 0;
			return;
		}
		s += n;
		if (!*s)
			return;
	}
}

struct search {
	struct commit_paths *p;
	const struct known *found;
};

static void on_known(const void *node, VISIT visit, void *arg)
{
	struct search *s = arg;
	struct known *k = *(struct known *const *)node;

	if ((visit != postorder && visit != leaf) || s->found || !(k->came & ~k->base))
		return;
	look(s->p, k);
	if (unites(k))
		s->found = k;
}

const char *commit_paths_united(struct commit_paths *p, size_t *ret_n)
{
	struct search s = {.p = p};

	twalk_r(p->dirs, on_known, &s);
	if (!s.found)
		return NULL;
	*ret_n = s.found->n ? s.found->n - 1 : 0;
	return s.found->path;
}

uint64_t commit_paths_flagged(const struct commit_paths *p, const char **ret_names)
{
	*ret_names = buf_text(&p->names);
	return p->flagged_n;
}

uint64_t commit_paths_shown(const struct commit_paths *p)
{
	return p->shown;
}
