/*
 * Phase 2a of door 1, under the workspace lock: each listed path is decided by merge.h against the
 * manifest and what the host has now, and becomes intents of the journal or lines of the report.
 *
 * Policy: only paths of the manifest or new paths change; a deletion needs a manifest entry that the
 * host still has as it was sent. Whatever loses is saved below the run before anything is published.
 * Nothing in the host tree is written here.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "policy/member.h"
#include "sync/unpack_plan.h"

int plan_note(struct plan *p, enum unpack_action a, const char *rule, const char *detail,
	      struct err *e)
{
	p->failed |= a == UA_FAIL;
	return tell(p->u, a, p->c.path, rule, detail, e);
}

int plan_intend(struct plan *p, struct intent *in, const char *path, size_t n, struct err *e)
{
	const char *rule = in->op == IN_MKDIR || in->op == IN_RMDIR ? "dir" : "";
	int r;

	if (in->op == IN_DELETE)
		p->u->deletes++;
	if (p->preview)
		return in->action < UA_ACTION_COUNT ? tell(p->u, in->action, path, rule, NULL, e)
						    : 0;
	r = stage_ready(p->u, e);
	if (r < 0)
		return r;
	in->path_len = (uint32_t)n;
	memcpy(in->path, path, n + 1);
	r = journal_add(p->j, in);
	return r < 0 ? err_sys(e, -r, "write the journal in %s", p->u->st.path) : 0;
}

int plan_reject(struct plan *p, const char *rule, const char *text, struct err *e)
{
	struct unpack *u = p->u;

	u->rejected = true;
	u->rule = rule;
	memcpy(u->rule_path, p->c.path, p->c.path_len + 1);
	(void)snprintf(u->rule_text, sizeof(u->rule_text), "%s", text);
	return err_set(e, ERR_HOSTILE, "%s", text);
}

/* Something at path or above it could not be read in the sandbox: unknown, so nothing goes. 1, 0, errno. */
static int frozen(struct plan *p, const char *path, size_t n)
{
	int r = 0;

	if (p->u->partial)
		return 1;
	if (!p->u->unknown)
		return 0;
	for (size_t i = n; i > 0 && r == 0; i--) {
		if (i != n && path[i] != '/')
			continue;
		r = chlist_find(p->u->list, path, i, &p->other);
		if (r > 0)
			r = p->other.kind == MK_UNKNOWN;
	}
	if (r == 0) {
		r = chlist_find(p->u->list, "", 0, &p->other);
		if (r > 0)
			r = p->other.kind == MK_UNKNOWN;
	}
	return r;
}

/* Two different chmods of one file or directory: the host's stands, and that is said. */
static int say_modes(struct plan *p, struct err *e)
{
	struct merge_side b = p->side_b, s = p->side_s, h = p->h.side;

	if ((s.kind != MK_FILE && s.kind != MK_DIR) || b.kind != s.kind || h.kind != s.kind ||
	    b.mode == s.mode || b.mode == h.mode || s.mode == h.mode || p->h.blocked)
		return 0;
	(void)snprintf(p->detail, sizeof(p->detail), "%03o in the sandbox, %03o here", s.mode,
		       h.mode);
	return plan_note(p, UA_CONFLICT, "mode_both_changed", p->detail, e);
}

/* Acts, and what the sandbox has at p->c becomes the baseline of a kept sandbox if it is dealt with. */
static int settle(struct plan *p, struct merge_verdict v, struct err *e)
{
	bool news = !merge_same(p->side_b, p->side_s);
	int r;

	p->failed = p->disputed = false;
	p->host_mode = p->h.side.kind == p->side_s.kind ? p->h.side.mode : p->side_s.mode;
	if (p->h.blocked &&
	    p->c.kind != MK_ABSENT) /* nothing is written through what is in the way */
		r = v.act == MA_NONE ? 0 : plan_keep_host(p, p->h.blocked, e);
	else if (p->h.blocked && !strcmp(p->h.blocked, "permission_denied"))
		r = plan_note(p, UA_FAIL, p->h.blocked, NULL, e);
	else
		r = p->h.blocked ? 0 : plan_act(p, v, e);
	if (r == 0 && !p->failed && !p->disputed)
		r = say_modes(p, e);
	if (r < 0 || p->failed || !news || p->preview)
		return r;
	return baseline_note(p->u, &p->c, p->have_b ? &p->b : NULL, p->host_mode, !p->disputed, e);
}

/* p->c is a path that the sandbox no longer has; p->b its manifest entry. */
static int decide_gone(struct plan *p, struct err *e)
{
	struct merge_verdict v;
	int r = frozen(p, p->c.path, p->c.path_len);

	if (r != 0)
		return r < 0 ? err_sys(e, -r, "look up %s", p->c.path) : 0;
	/* A manifest never lists them; if one did, they would still not be a sandbox's to delete. */
	if (member_name_rule(p->c.path, p->c.path_len))
		return 0;
	r = host_classify(p->u, &p->b, &p->c, &p->side_b, &p->side_s, &p->h, e);
	if (r < 0)
		return r;
	v = merge_decide(p->side_b, p->side_s, p->h.side, p->u->s.take_sandbox);
	return settle(p, v, e);
}

/* True if the sandbox's state at a listed path decides about everything below it. */
static bool covers(const struct change *c)
{
	return c->kind == MK_ABSENT || c->kind == MK_FILE || c->kind == MK_LINK ||
	       c->flags & CH_OPAQUE;
}

/* Is `path` listed, or decided by a listed path between it and the first `above` bytes? 1, 0, errno. */
static int decided(struct plan *p, const char *path, size_t n, size_t above)
{
	int r = chlist_find(p->u->list, path, n, &p->other);

	for (size_t i = n; i-- > above + 1 && r == 0;) {
		if (path[i] != '/')
			continue;
		r = chlist_find(p->u->list, path, i, &p->other);
		if (r > 0)
			r = covers(&p->other);
	}
	return r;
}

/* p->b is a manifest entry that the sandbox no longer has. */
static int gone_entry(struct plan *p, struct err *e)
{
	p->c = (struct change){.kind = MK_ABSENT, .path_len = (uint32_t)p->b.path_len};
	memcpy(p->c.path, p->b.path, p->b.path_len + 1);
	p->have_b = true;
	return decide_gone(p, e);
}

/* Manifest paths below dir that the stream does not bring: the sandbox no longer has them. */
static int gone_below(struct plan *p, const char *dir, size_t n, struct err *e)
{
	char top[PATH_MEMBER_MAX + 1];
	size_t pos = 0;
	int r;

	memcpy(top, dir, n);
	top[n] = '\0';
	if (!p->u->m)
		return 0;
	manifest_seek_below(p->u->m, top, n, &pos);
	while ((r = manifest_next(p->u->m, &pos, &p->b)) > 0) {
		if (n &&
		    (p->b.path_len <= n || memcmp(p->b.path, top, n) != 0 || p->b.path[n] != '/'))
			break;
		r = decided(p, p->b.path, p->b.path_len, n);
		if (r < 0)
			return err_sys(e, -r, "look up %s", p->b.path);
		if (r > 0)
			continue;
		r = gone_entry(p, e);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the manifest of this run is damaged below %s", top)
		     : 0;
}

/*
 * What a kept sandbox made itself, and what was published, leaves no mark when it is deleted there:
 * no layer below had it. Neither listed nor covered by what is listed means gone.
 */
static int gone_unmarked(struct plan *p, struct err *e)
{
	size_t pos = 0;
	int r = chlist_find(p->u->list, "", 0, &p->other);

	if (r != 0) /* an opaque root: decided there */
		return r < 0 ? err_sys(e, -r, "look up the workspace") : 0;
	while ((r = manifest_next_sandbox(p->u->m, &pos, &p->b)) > 0) {
		r = decided(p, p->b.path, p->b.path_len, 0);
		if (r < 0)
			return err_sys(e, -r, "look up %s", p->b.path);
		if (r > 0)
			continue;
		r = gone_entry(p, e);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the baseline of this sandbox is damaged") : 0;
}

static int decide_here(struct plan *p, struct err *e)
{
	struct merge_verdict v;
	int r;

	if (p->c.kind == MK_ABSENT)
		return p->have_b ? decide_gone(p, e) : 0;
	if (p->c.flags & CH_HARDLINK) {
		r = plan_hardlink(p, e);
		if (r != 0)
			return r < 0 ? r : plan_note(p, UA_REFUSE, "hardlink_target", NULL, e);
	}
	r = host_classify(p->u, p->have_b ? &p->b : NULL, &p->c, &p->side_b, &p->side_s, &p->h, e);
	if (r < 0)
		return r;
	if (p->h.blocked && plan_way_is_cleared(p, p->c.path))
		p->h.blocked = NULL; /* and absent */
	v = merge_decide(p->side_b, p->side_s, p->h.side, p->u->s.take_sandbox);
	return settle(p, v, e);
}

static int decide(struct plan *p, uint64_t i, struct err *e)
{
	struct unpack *u = p->u;
	char path[PATH_MEMBER_MAX + 1];
	size_t n;
	bool below;
	int r = chlist_get(u->list, i, &p->c);

	if (r < 0)
		return err_sys(e, -r, "read the list of changes");
	if (p->c.kind == MK_UNKNOWN)
		return 0;
	if (p->c.flags & CH_TREE && (r = plan_meet_tree(p, change_skipped(u, i), e)) < 0)
		return r;
	if (change_skipped(u, i)) {
		r = plan_leave_tree(p, i, e);
		return r < 0 ? r : plan_note(p, UA_IGNORE, "ignored", NULL, e);
	}
	n = p->c.path_len;
	memcpy(path, p->c.path, n + 1);
	r = p->c.kind == MK_ABSENT ? 0 : gitdir_refuses(u, &p->seen, path, n, &p->other);
	if (r < 0)
		return err_sys(e, -r, "look around %s", path);
	if (r > 0 && u->s.strict)
		return plan_reject(p, "git_metadata",
				   "it writes into what git takes for a repository", e);
	if (r > 0) {
		r = plan_leave_tree(p, i, e);
		return r < 0 ? r : plan_note(p, UA_REFUSE, "git_metadata", NULL, e);
	}
	r = plan_with_tree(p, i, e);
	if (r != 0)
		return r < 0 ? r : 0;
	p->have_b = u->m && !(p->c.flags & CH_NEW);
	if (p->have_b) {
		r = manifest_find(u->m, path, n, &p->b);
		if (r < 0)
			return err_set(e, ERR_PROTOCOL,
				       "the manifest of this run is damaged near %s", path);
		p->have_b = r > 0;
	}
	below = p->c.flags & CH_OPAQUE || (p->c.kind == MK_ABSENT && p->have_b &&
					   p->b.kind == 'd' && !(p->c.flags & CH_ALONE));
	r = n ? decide_here(p, e) : 0;
	return r == 0 && below ? gone_below(p, path, n, e) : r;
}

int plan_paths(struct unpack *u, struct journal *j, struct err *e)
{
	struct plan *p = calloc(1, sizeof(*p));
	uint64_t count = u->m ? manifest_count(u->m) : 0;
	int r = 0;

	if (!p)
		return err_set(e, ERR_NOMEM, "out of memory");
	p->u = u;
	p->j = j;
	p->preview = u->s.dry_run || u->s.mode == UM_REVIEW;
	p->ids = u->st.next_id;
	u->st.next_id += chlist_count(u->list);
	if (u->s.full_tree) {
		r = chlist_find(u->list, "", 0, &p->other);
		if (r == 0) /* an opaque root in the stream says the same */
			r = gone_below(p, "", 0, e);
		else if (r > 0)
			r = 0;
	}
	for (uint64_t i = 0; i < chlist_count(u->list) && r == 0; i++)
		r = decide(p, i, e);
	if (r == 0)
		r = plan_drop_emptied(p, e);
	if (r == 0 && u->m && u->baseline.dir >= 0)
		r = gone_unmarked(p, e);
	strv_free(p->cleared);
	free(p);
	u->mass_delete = u->deletes >= MASS_DELETE_MIN && count &&
			 u->deletes * 100 >= count * MASS_DELETE_PERCENT;
	if (u->deletes && u->s.full_tree && chlist_count(u->list) == 0)
		u->mass_delete = true;
	return r;
}
