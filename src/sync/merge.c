/* Policy: see merge.h. The default of every branch is to leave the host alone. */
#include "sync/merge.h"

#include "base/cleanup.h"

static bool same_content(struct merge_side a, struct merge_side b)
{
	if (a.kind != b.kind)
		return false;
	return (a.kind != MK_FILE && a.kind != MK_LINK) || a.content == b.content;
}

bool merge_same(struct merge_side a, struct merge_side b)
{
	return same_content(a, b) && (a.kind == MK_LINK || a.kind == MK_ABSENT || a.mode == b.mode);
}

static bool is_leaf(struct merge_side a)
{
	return a.kind == MK_FILE || a.kind == MK_LINK;
}

static struct merge_verdict verdict(enum merge_act act, uint32_t mode)
{
	return (struct merge_verdict){.act = act, .mode = mode, .rule = ""};
}

static struct merge_verdict conflict(enum merge_act act, const char *rule, uint32_t mode)
{
	return (struct merge_verdict){.act = act, .mode = mode, .rule = rule};
}

/* Permission bits merge on their own: one side's change wins, two different changes leave the host's. */
static uint32_t merged_mode(struct merge_side b, struct merge_side s, struct merge_side h)
{
	if (b.kind == h.kind && b.kind == s.kind && b.mode != h.mode)
		return h.mode;
	return s.mode;
}

static struct merge_verdict gone(struct merge_side b, struct merge_side h)
{
	if (h.kind == MK_ABSENT)
		return verdict(MA_NONE, 0);
	if (b.kind == MK_DIR && h.kind == MK_DIR)
		return verdict(MA_RMDIR, 0);
	if (b.kind != MK_DIR && merge_same(b, h))
		return verdict(MA_DELETE, 0);
	return conflict(MA_KEEP, "deleted_in_sandbox", h.mode);
}

static struct merge_verdict to_dir(struct merge_side b, struct merge_side s, struct merge_side h,
				   bool take)
{
	if (h.kind == MK_DIR) {
		/* Both made it: the host's permissions stand. */
		if (b.kind != MK_DIR || b.mode != h.mode || s.mode == h.mode)
			return verdict(MA_NONE, h.mode);
		return verdict(MA_MODE, s.mode);
	}
	if (h.kind == MK_ABSENT) /* a directory that only changed mode is no edit worth a revival */
		return verdict(b.kind == MK_DIR ? MA_NONE : MA_MKDIR, s.mode);
	if (is_leaf(h) && is_leaf(b) && merge_same(b, h))
		return verdict(MA_FILE_TO_DIR, s.mode);
	if (take && is_leaf(h))
		return conflict(MA_TAKE, "type_changed", s.mode);
	return conflict(MA_KEEP, "type_changed", h.mode);
}

static struct merge_verdict both_changed(struct merge_side b, struct merge_side s,
					 struct merge_side h, bool take)
{
	enum merge_act act = take ? MA_TAKE : MA_KEEP;
	const char *rule = b.kind == MK_ABSENT ? "both_added"
			   : s.kind != h.kind  ? "type_changed"
					       : "both_changed";
	struct merge_verdict v = conflict(act, rule, take ? s.mode : h.mode);

	if (b.kind == MK_FILE && s.kind == MK_FILE && h.kind == MK_FILE) {
		v.otherwise = act;
		v.act = MA_TEXT;
		v.mode = merged_mode(b, s, h);
	}
	return v;
}

static struct merge_verdict to_leaf(struct merge_side b, struct merge_side s, struct merge_side h,
				    bool take)
{
	uint32_t mode = merged_mode(b, s, h);

	switch (h.kind) {
	case MK_ABSENT: /* new, or deleted on the host and edited in the sandbox: the edit is kept */
		return verdict(MA_CREATE, s.mode);
	case MK_DIR:
		if (b.kind == MK_DIR)
			return verdict(MA_DIR_TO_FILE, s.mode);
		return conflict(MA_KEEP, b.kind == MK_ABSENT ? "both_added" : "type_changed",
				h.mode);
	case MK_FILE:
	case MK_LINK:
		if (same_content(s, h)) { /* bytes agree already; permissions may not */
			if (s.kind == MK_LINK || h.mode == mode)
				return verdict(MA_NONE, h.mode);
			/* Both added it: the host's permissions stand. */
			return b.kind == MK_FILE ? verdict(MA_MODE, mode)
						 : verdict(MA_NONE, h.mode);
		}
		if (same_content(b, h))
			return verdict(MA_REPLACE, mode);
		if (same_content(b,
				 s)) { /* the host edited; the sandbox only changed permissions */
			if (b.kind == MK_FILE && h.kind == MK_FILE && h.mode != mode)
				return verdict(MA_MODE, mode);
			return verdict(MA_NONE, h.mode);
		}
		return both_changed(b, s, h, take);
	case MK_OTHER:
	case MK_UNKNOWN:
		break;
	}
	return conflict(MA_KEEP, "host_special", 0);
}

struct merge_verdict merge_decide(struct merge_side b, struct merge_side s, struct merge_side h,
				  bool take_sandbox)
{
	if (s.kind == MK_UNKNOWN || s.kind == MK_OTHER || merge_same(b, s) || merge_same(s, h))
		return verdict(MA_NONE, h.mode);
	if (s.kind == MK_ABSENT)
		return gone(b, h);
	if (s.kind == MK_DIR)
		return to_dir(b, s, h, take_sandbox);
	return to_leaf(b, s, h, take_sandbox);
}

const char *merge_act_name(enum merge_act a)
{
	static const char *const names[] = {
	    "none",  "create",	    "replace",	   "mode", "mkdir", "delete",
	    "rmdir", "dir_to_file", "file_to_dir", "text", "keep",  "take",
	};

	return (unsigned)a < ARRAY_LEN(names) ? names[a] : "?";
}
