/* Door 1: verdicts on members. The policy, and what it does not do, is in member.h. */
#include "policy/member.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "policy/member_table.h"

int members_new(const struct member_opts *o, struct members **ret)
{
	struct members *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->o = *o;
	memcpy(m->paths.key, o->key, MEMBER_KEY);
	link_table_init(&m->links);
	*ret = m;
	return 0;
}

void members_free(struct members *m)
{
	if (!m)
		return;
	path_table_done(&m->paths);
	link_table_done(&m->links);
	free(m);
}

size_t members_memory(const struct members *m)
{
	return sizeof(*m) + m->paths.cap * sizeof(uint64_t) + m->links.text.cap +
	       m->links.cap * sizeof(uint32_t);
}

uint32_t member_mode(const struct tar_member *t)
{
	return t->type == TAR_DIR ? (t->mode & 0777) | 0700 : t->mode & 0777;
}

static bool is_dir(enum path_kind k)
{
	return k == PK_DIR || k == PK_DIR_DECLARED;
}

/* What a member is for those that come after it, once it is accepted (or not). */
static enum path_kind kind_of(const struct tar_member *t, bool accepted)
{
	if (t->op == TAR_OP_DELETE)
		return PK_DELETED;
	if (t->op == TAR_OP_UNREADABLE)
		return t->type == TAR_DIR ? PK_DIR : PK_UNREADABLE;
	switch (t->type) {
	case TAR_DIR:
		return accepted ? PK_DIR_DECLARED : PK_DIR;
	case TAR_FILE:
		return accepted ? PK_FILE : PK_FILE_REFUSED;
	case TAR_SYMLINK:
		return PK_SYMLINK;
	case TAR_HARDLINK:
		return accepted ? PK_HARDLINK : PK_FILE_REFUSED;
	default:
		return PK_SPECIAL;
	}
}

/*
 * Every ancestor becomes a known directory. A known one ends the walk: its own ancestors were made
 * known with it and cannot have changed since.
 */
static int know_ancestors(struct members *m, struct view path, const char **rule)
{
	size_t n = path.n;
	int r;

	for (;;) {
		enum path_kind k;
		uint64_t hash;

		while (n > 0 && path.p[n - 1] != '/')
			n--;
		if (n == 0)
			return 0;
		n--;
		hash = path_table_hash(&m->paths, path.p, n);
		k = path_table_get(&m->paths, hash);
		if (is_dir(k))
			return 0;
		if (k != PK_NONE) {
			*rule = "through_link";
			return 0;
		}
		r = path_table_set(&m->paths, hash, PK_DIR);
		if (r)
			return r;
	}
}

/* The same path again: hostile unless the last one can simply win. */
static const char *again_rule(enum path_kind old, const struct tar_member *t)
{
	if (old == PK_NONE)
		return NULL;
	if (t->op == TAR_OP_DELETE || old == PK_DELETED)
		return "duplicate";
	if (t->op == TAR_OP_UNREADABLE) { /* "what I sent of it is not to be trusted" */
		bool same =
		    t->type == TAR_DIR ? is_dir(old) : old == PK_FILE || old == PK_FILE_REFUSED;

		return same ? NULL : "duplicate";
	}
	if (is_dir(old) != (t->type == TAR_DIR))
		return "type_change";
	if (is_dir(old))
		return NULL;
	if (t->type == TAR_FILE)
		return old == PK_FILE || old == PK_FILE_REFUSED ? NULL : "type_change";
	return old == PK_SYMLINK && t->type == TAR_SYMLINK ? "duplicate" : "type_change";
}

static const char *hostile_rule(struct members *m, const struct tar_member *t, enum path_kind old)
{
	const char *rule = again_rule(old, t);
	enum path_kind k;

	if (rule)
		return rule;
	if ((t->type != TAR_DIR || t->op == TAR_OP_DELETE) && !memchr(t->path.p, '/', t->path.n) &&
	    member_is_folded(t->path.p, t->path.n, ".paperclip-repositories"))
		return "reserved_kind";
	if (t->type != TAR_HARDLINK)
		return NULL;
	k = path_table_get(&m->paths, path_table_hash(&m->paths, t->target.p, t->target.n));
	return k == PK_FILE || k == PK_FILE_REFUSED ? NULL : "hardlink_target";
}

/* Case-blind roots: the hash of the folded path (under another key) holds one spelling only. */
static int case_rule(struct members *m, struct view path, enum path_kind old, const char **rule)
{
	struct path_table other = m->paths; /* only its key is used */
	char folded[PATH_MEMBER_MAX];
	uint64_t hash;

	if (!m->o.fold_case || old != PK_NONE)
		return 0;
	for (size_t i = 0; i < path.n; i++)
		folded[i] =
		    (char)(path.p[i] >= 'A' && path.p[i] <= 'Z' ? path.p[i] | 0x20 : path.p[i]);
	other.key[0] ^= 0xff;
	hash = path_table_hash(&other, folded, path.n);
	if (path_table_get(&m->paths, hash) == PK_NONE)
		return path_table_set(&m->paths, hash, PK_FOLDED);
	*rule = "case_collision";
	return 0;
}

static bool unchanged(struct members *m, const struct tar_member *t)
{
	int r = m->o.unchanged_link ? m->o.unchanged_link(m->o.arg, t->path, t->target) : 0;

	if (r < 0)
		m->failed = r;
	return r > 0;
}

/* Adds a symlink to what is known and says where it leads. */
static int link_rule(struct members *m, const struct tar_member *t, uint64_t hash,
		     const char **rule)
{
	struct link l = {.path = t->path, .target = t->target, .refused = *rule != NULL};
	int r;

	l.unchanged = !l.refused && unchanged(m, t);
	r = path_table_set(&m->paths, hash, PK_SYMLINK);
	if (!r)
		r = link_table_add(&m->links, hash, &l, &m->paths);
	if (r || l.refused || l.unchanged)
		return r;
	*rule = member_link_rule(m, t->path, t->target);
	if (*rule)
		link_table_refuse(&m->links, hash, t->path);
	return m->failed;
}

static const char *refuse_rule(const struct members *m, const struct tar_member *t)
{
	const char *rule = member_name_rule(t->path.p, t->path.n);

	if (rule)
		return rule;
	if (t->type == TAR_SPECIAL)
		return "special_file";
	if (t->type == TAR_HARDLINK &&
	    path_table_get(&m->paths, path_table_hash(&m->paths, t->target.p, t->target.n)) !=
		PK_FILE)
		return "hardlink_refused";
	return NULL;
}

static int hostile(struct members *m, const char *rule, const char **ret_rule)
{
	m->hostile = *ret_rule = rule;
	return MEMBER_HOSTILE;
}

/* The very same symlink once more, as tar writes it when a path is given twice: it says nothing new. */
static bool link_again(const struct members *m, const struct tar_member *t, enum path_kind old,
		       uint64_t hash, struct link *ret)
{
	return old == PK_SYMLINK && t->type == TAR_SYMLINK && t->op == TAR_OP_NONE &&
	       link_table_find(&m->links, hash, t->path, ret) && ret->target.n == t->target.n &&
	       memcmp(ret->target.p, t->target.p, t->target.n) == 0;
}

int members_judge(struct members *m, const struct tar_member *t, const char **ret_rule)
{
	const char *rule = NULL;
	enum path_kind old;
	struct link l;
	uint64_t hash;
	int r;

	*ret_rule = m->hostile;
	if (m->hostile)
		return MEMBER_HOSTILE;
	/* Here too, not only in the reader of tar: what holds a path below has room for so much. */
	if (++m->count > MEMBERS_MAX || t->path.n > PATH_MEMBER_MAX ||
	    t->target.n > PATH_MEMBER_MAX)
		return hostile(m, "limit", ret_rule);
	if (t->path.n == 0)
		return MEMBER_ACCEPT;
	r = know_ancestors(m, t->path, &rule);
	if (r)
		goto failed;
	hash = path_table_hash(&m->paths, t->path.p, t->path.n);
	old = path_table_get(&m->paths, hash);
	if (!rule && link_again(m, t, old, hash, &l)) {
		rule = refuse_rule(m, t);
		*ret_rule = !l.refused ? NULL : rule ? rule : "link_escape";
		return l.refused ? MEMBER_REFUSE : MEMBER_ACCEPT;
	}
	if (!rule)
		rule = hostile_rule(m, t, old);
	if (rule)
		return hostile(m, rule, ret_rule);
	rule = refuse_rule(m, t);
	r = rule ? 0 : case_rule(m, t->path, old, &rule);
	if (!r)
		r = t->type == TAR_SYMLINK ? link_rule(m, t, hash, &rule)
					   : path_table_set(&m->paths, hash, kind_of(t, !rule));
	if (r)
		goto failed;
	if (rule && (m->o.strict || m->steps > MEMBER_LINK_STEPS_MAX))
		return hostile(m, rule, ret_rule);
	*ret_rule = rule;
	return rule ? MEMBER_REFUSE : MEMBER_ACCEPT;
failed:
	return r == -E2BIG ? hostile(m, "limit", ret_rule) : r;
}

int members_finish(struct members *m, int (*refuse)(void *arg, struct view path, const char *rule),
		   void *arg)
{
	size_t pos = 0;
	struct link l;

	while (link_table_next(&m->links, &pos, &l)) {
		const char *rule;
		int r;

		if (l.refused || l.unchanged)
			continue;
		rule = member_link_rule(m, l.path, l.target);
		if (m->failed)
			return m->failed;
		if (!rule)
			continue;
		if (m->steps > MEMBER_LINK_STEPS_MAX) {
			m->hostile = rule;
			return MEMBER_HOSTILE;
		}
		link_table_refuse(&m->links, path_table_hash(&m->paths, l.path.p, l.path.n),
				  l.path);
		r = refuse(arg, l.path, rule);
		if (r)
			return r;
		if (m->o.strict) {
			m->hostile = rule;
			return MEMBER_HOSTILE;
		}
	}
	return 0;
}
