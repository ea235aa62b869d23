/*
 * What is done with a path that was decided: intents of the journal, or a line of the report. Part of door 1.
 *
 * Policy: whatever loses is saved below the run first; each intent says what it expects to find, as it was
 * when it was judged. Nothing in the host tree is written here.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/unpack_plan.h"

#define FRESH_MODE 0644 /* of a new file inside, where the umask is 022 */

static int intend_here(struct plan *p, struct intent *in, struct err *e)
{
	return plan_intend(p, in, p->c.path, p->c.path_len, e);
}

/* The staged file's owner: that of the file it replaces, else of the workspace. Needs privilege; else ours. */
static void give_owner(struct plan *p, const char *name, const struct stat *st,
		       const struct intent_old *old)
{
	uid_t uid = old->ino ? p->h.st.st_uid : p->u->root_st.st_uid;
	gid_t gid = old->ino ? p->h.st.st_gid : p->u->root_st.st_gid;

	/* Safe because: a file without set-id bits in the private staging directory, not followed. */
	if (st->st_uid != uid || st->st_gid != gid)
		give_to(p->u->st.content, name, uid, gid);
}

uint32_t plan_new_mode(const struct plan *p, uint32_t mode)
{
	return mode & ~p->u->s.umask;
}

/*
 * Programs that save by a new file and a rename leave the mode of a new file, which says nothing:
 * there, group and others keep what they may write and get nothing that they did not have.
 */
static uint32_t changed_mode(const struct plan *p, uint32_t mode)
{
	uint32_t h = p->h.side.mode;

	if (p->h.side.kind != MK_FILE || p->c.kind != MK_FILE || mode != FRESH_MODE)
		return mode;
	return (mode & (h | 0700)) | (h & 022);
}

static int put(struct plan *p, uint64_t id, uint32_t mode, bool over, enum unpack_action a,
	       struct err *e)
{
	struct intent in = {.op = IN_PUT, .action = (uint8_t)a, .mode = mode, .id = id};
	struct stat st;
	char name[20];

	p->host_mode = mode;
	stage_name(id, name);
	if (over)
		host_old(p->u, p->c.path, &p->h, &in.old);
	if (!p->preview) {
		if (fstatat(p->u->st.content, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(e, errno, "find the staged content of %s", p->c.path);
		give_owner(p, name, &st, &in.old);
		in.new_ino = st.st_ino;
		in.size = (uint64_t)st.st_size;
	}
	return intend_here(p, &in, e);
}

static int clear(struct plan *p, struct err *e)
{
	struct intent in = {.op = IN_CLEAR, .action = UA_ACTION_COUNT, .id = p->u->st.next_id++};

	host_old(p->u, p->c.path, &p->h, &in.old);
	if (p->h.side.kind == MK_DIR)
		memcpy(in.old.hash, p->dir_digest, sizeof(in.old.hash));
	return intend_here(p, &in, e);
}

bool plan_way_is_cleared(const struct plan *p, const char *path)
{
	for (size_t i = strv_len(p->cleared); i-- > 0;) {
		size_t n = strlen(p->cleared[i]);

		if (str_starts(path, p->cleared[i]) && path[n] == '/')
			return true;
	}
	return false;
}

static int make_dir(struct plan *p, uint32_t mode, enum unpack_action a, struct err *e)
{
	struct intent in = {.op = IN_MKDIR, .action = (uint8_t)a, .mode = mode | 0700};

	p->host_mode = in.mode;
	return intend_here(p, &in, e);
}

static int make_dir_over(struct plan *p, uint32_t mode, enum unpack_action a, struct err *e)
{
	if (strv_add(&p->cleared, p->c.path) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	return make_dir(p, mode, a, e);
}

int plan_keep_host(struct plan *p, const char *rule, struct err *e)
{
	bool failed = !strcmp(rule, "permission_denied");
	int r = 0;

	p->disputed = true;
	p->detail[0] = '\0';
	/* In an apply the sandbox's version stays where it is, and the path stays pending. */
	if (!p->preview && p->u->s.mode != UM_APPLY)
		r = save_staged(p->u, p->c.id, p->c.path, p->detail, sizeof(p->detail), e);
	return r < 0 ? r : plan_note(p, failed ? UA_FAIL : UA_CONFLICT, rule, p->detail, e);
}

static int take_sandbox(struct plan *p, struct merge_verdict v, struct err *e)
{
	int r = 0;

	p->detail[0] = '\0';
	if (!p->preview)
		r = save_host(p->u, p->c.path, p->detail, sizeof(p->detail), e);
	if (r == 0)
		r = plan_note(p, UA_CONFLICT, v.rule, p->detail, e);
	if (r < 0)
		return r;
	/* The conflict is reported already; what carries it out stays silent unless it fails. */
	if (p->c.kind != MK_DIR)
		return put(p, p->c.id, changed_mode(p, p->c.mode), true, UA_ACTION_COUNT, e);
	r = clear(p, e);
	return r < 0 ? r : make_dir_over(p, plan_new_mode(p, v.mode), UA_ACTION_COUNT, e);
}

static int create(struct plan *p, uint32_t mode, struct err *e)
{
	_cleanup_fd_ int from = -1;
	int r;

	/* Only its mode changed in the sandbox, and the host deleted it: the bytes are in the base. */
	if (!p->c.id && !p->preview) {
		from = p->c.kind == MK_FILE ? base_open(p->u, &p->b) : -1;
		if (from < 0)
			return plan_note(p, UA_FAIL, "base_missing", NULL, e);
		r = plan_copy(p, from, &p->c.id, e);
		if (r < 0)
			return r;
	}
	return put(p, p->c.id, plan_new_mode(p, mode), false, p->have_b ? UA_CHANGE : UA_ADD, e);
}

static int change_mode(struct plan *p, uint32_t mode, struct err *e)
{
	struct intent in = {.op = IN_MODE, .action = UA_MODE, .mode = mode};

	p->host_mode = mode;
	host_old(p->u, p->c.path, &p->h, &in.old);
	return intend_here(p, &in, e);
}

static int remove_path(struct plan *p, enum intent_op op, struct err *e)
{
	struct intent in = {.op = (uint8_t)op, .action = UA_DELETE, .id = p->u->st.next_id++};

	host_old(p->u, p->c.path, &p->h, &in.old);
	return intend_here(p, &in, e);
}

/* How the host's directory p->c is before it is judged: what changes from then on is seen when it goes. */
static int digest_host(struct plan *p)
{
	_cleanup_fd_ int dir = -1;
	const char *base;

	dir = beneath_parent(&p->u->root, p->c.path, &base);
	return dir < 0 ? dir : host_dir_digest(dir, base, p->dir_digest);
}

static int dir_to_file(struct plan *p, struct err *e)
{
	int r = digest_host(p);

	r = r < 0 ? 0 : host_dir_clean(p->u, p->c.path, e);
	if (r < 0)
		return r;
	if (r == 0)
		return plan_keep_host(p, "dir_has_changes", e);
	/* Otherwise told once they are gone, from where they lie then. */
	r = p->preview ? tell_gone(p->u, &p->u->root, p->c.path, p->c.path, e) : 0;
	if (r < 0)
		return r;
	r = clear(p, e);
	return r < 0 ? r : put(p, p->c.id, plan_new_mode(p, p->c.mode), false, UA_CHANGE, e);
}

int plan_act(struct plan *p, struct merge_verdict v, struct err *e)
{
	uint64_t id = 0;
	int r;

	switch (v.act) {
	case MA_NONE:
		return 0;
	case MA_CREATE:
		return create(p, v.mode, e);
	case MA_REPLACE:
		return put(p, p->c.id, changed_mode(p, v.mode), true, UA_CHANGE, e);
	case MA_MODE:
		return change_mode(p, v.mode, e);
	case MA_MKDIR:
		return make_dir(p, plan_new_mode(p, v.mode), UA_ADD, e);
	case MA_DELETE:
		return remove_path(p, IN_DELETE, e);
	case MA_RMDIR:
		return remove_path(p, IN_RMDIR, e);
	case MA_DIR_TO_FILE:
		return dir_to_file(p, e);
	case MA_FILE_TO_DIR:
		r = clear(p, e);
		return r < 0 ? r : make_dir_over(p, plan_new_mode(p, v.mode), UA_CHANGE, e);
	case MA_TEXT:
		r = plan_merge(p, &id, e);
		if (r < 0)
			return r;
		if (r > 0)
			return put(p, id, changed_mode(p, v.mode), true, UA_MERGE, e);
		return v.otherwise == MA_TAKE ? take_sandbox(p, v, e)
					      : plan_keep_host(p, v.rule, e);
	case MA_KEEP:
		return plan_keep_host(p, v.rule, e);
	case MA_TAKE:
		return take_sandbox(p, v, e);
	}
	return err_set(e, ERR_INTERNAL, "unknown act %d", v.act);
}
