#include "sync/unpack_proto.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"

#define TEXT_MAX (64 << 10)

int unpack_put_setup(struct buf *b, const struct unpack_setup *s)
{
	(void)buf_u8(b, s->mode);
	(void)buf_u8(b, s->strict);
	(void)buf_u8(b, s->dry_run);
	(void)buf_u8(b, s->take_sandbox);
	(void)buf_u8(b, s->full_tree);
	(void)buf_u8(b, s->without_landlock);
	(void)buf_u8(b, s->has_manifest);
	(void)buf_u8(b, s->keep_trash);
	(void)buf_u8(b, s->take_all);
	(void)buf_u64(b, s->total_max);
	(void)buf_u64(b, s->member_max);
	(void)buf_u64(b, s->members_max);
	(void)buf_u32(b, s->lock_wait_ms);
	(void)buf_u32(b, s->slow_ms);
	(void)buf_u32(b, s->umask);
	(void)buf_u8(b, s->one);
	(void)buf_str(b, s->only);
	(void)buf_str(b, s->place);
	(void)buf_str(b, s->root);
	(void)buf_bytes(b, s->key, sizeof(s->key));
	return buf_str(b, s->run);
}

int unpack_get_setup(struct view v, struct unpack_setup *ret)
{
	struct cursor c;
	struct view run, only, place, root, key;

	*ret = (struct unpack_setup){0};
	cursor_init(&c, v.p, v.n);
	ret->mode = cursor_u8(&c);
	ret->strict = cursor_u8(&c);
	ret->dry_run = cursor_u8(&c);
	ret->take_sandbox = cursor_u8(&c);
	ret->full_tree = cursor_u8(&c);
	ret->without_landlock = cursor_u8(&c);
	ret->has_manifest = cursor_u8(&c);
	ret->keep_trash = cursor_u8(&c);
	ret->take_all = cursor_u8(&c);
	ret->total_max = cursor_u64(&c);
	ret->member_max = cursor_u64(&c);
	ret->members_max = cursor_u64(&c);
	ret->lock_wait_ms = cursor_u32(&c);
	ret->slow_ms = cursor_u32(&c);
	ret->umask = cursor_u32(&c) & 077; /* what the owner may do is not at stake */
	ret->one = cursor_u8(&c);
	only = cursor_bytes(&c, PATH_SEGMENT_MAX);
	place = cursor_bytes(&c, PATH_MEMBER_MAX);
	root = cursor_bytes(&c, PATH_MEMBER_MAX);
	key = cursor_bytes(&c, JOURNAL_KEY);
	run = cursor_bytes(&c, ID_LEN);
	if (!cursor_end(&c) || ret->mode > UM_RECOVER || key.n != JOURNAL_KEY)
		return -EPROTO;
	if (only.n)
		memcpy(ret->only, only.p, only.n);
	if (place.n)
		memcpy(ret->place, place.p, place.n);
	if (root.n)
		memcpy(ret->root, root.p, root.n);
	memcpy(ret->key, key.p, key.n);
	memcpy(ret->run, run.p, run.n);
	return id_is_prefix(ret->run) ? 0 : -EPROTO;
}

int unpack_put_note(struct buf *b, const struct unpack_note *n)
{
	(void)buf_u8(b, n->action);
	(void)buf_bytes(b, n->path.p, n->path.n);
	(void)buf_bytes(b, n->rule.p, n->rule.n);
	return buf_bytes(b, n->detail.p, n->detail.n);
}

int unpack_get_note(struct view v, struct unpack_note *ret)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	ret->action = cursor_u8(&c);
	ret->path = cursor_bytes(&c, PATH_MEMBER_MAX);
	ret->rule = cursor_bytes(&c, sizeof(((struct unpack_change *)0)->rule) - 1);
	ret->detail = cursor_bytes(&c, TEXT_MAX);
	return cursor_end(&c) && ret->action < UA_ACTION_COUNT ? 0 : -EPROTO;
}

int unpack_put_done(struct buf *b, const struct unpack_done *d)
{
	(void)buf_u64(b, d->bytes_written);
	(void)buf_u8(b, d->mass_delete);
	(void)buf_u8(b, d->rejected);
	(void)buf_u8(b, d->repaired);
	(void)buf_bytes(b, d->rule.p, d->rule.n);
	(void)buf_bytes(b, d->text.p, d->text.n);
	return buf_bytes(b, d->path.p, d->path.n);
}

int unpack_get_done(struct view v, struct unpack_done *ret)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	ret->bytes_written = cursor_u64(&c);
	ret->mass_delete = cursor_u8(&c);
	ret->rejected = cursor_u8(&c);
	ret->repaired = cursor_u8(&c);
	ret->rule = cursor_bytes(&c, sizeof(((struct unpack_report *)0)->rule) - 1);
	ret->text = cursor_bytes(&c, TEXT_MAX);
	ret->path = cursor_bytes(&c, PATH_MEMBER_MAX);
	return cursor_end(&c) ? 0 : -EPROTO;
}

int unpack_put_error(struct buf *b, const struct err *e)
{
	(void)buf_u32(b, (uint32_t)e->code);
	(void)buf_u32(b, (uint32_t)e->sys);
	return buf_str(b, e->text);
}

static const char *remedy(const struct err *e)
{
	switch (e->sys) {
	case ENOSPC:
		return "free some space on the file systems of the workspace and of the state directory";
	case EDQUOT:
		return "free some space or raise the quota";
	case EMFILE:
	case ENFILE:
		return "raise the limit of open files (ulimit -n, fs.file-max)";
	case ENOMEM:
		return "free some memory";
	case EIO:
		return "look for errors of the disk in the kernel's log";
	default:
		return e->code == ERR_NOMEM ? "free some memory" : "see to that";
	}
}

void unpack_explain(struct err *e, bool begun)
{
	size_t n = strlen(e->text);
	bool said = strstr(e->text, "nothing was ") || strstr(e->text, "unchanged");

	if (strstr(e->text, "bring the results back"))
		return;
	if (begun)
		(void)snprintf(e->text + n, sizeof(e->text) - n,
			       "; publishing had begun and is finished by the next run in this "
			       "workspace or by 'airlock recover': %s first",
			       remedy(e));
	else
		(void)snprintf(e->text + n, sizeof(e->text) - n,
			       "%s: %s, then bring the results back again",
			       said ? "" : "; nothing was changed", remedy(e));
}

int unpack_get_error(struct view v, struct err *e)
{
	struct cursor c;
	uint32_t code, sys;
	struct view text;
	int r;

	cursor_init(&c, v.p, v.n);
	code = cursor_u32(&c);
	sys = cursor_u32(&c);
	text = cursor_bytes(&c, TEXT_MAX);
	if (!cursor_end(&c) || code >= ERR_CODE_COUNT)
		return err_set(e, ERR_PROTOCOL, "airlock-unpack sent a malformed error");
	r = err_set(e, (enum err_code)code, "%.*s", (int)text.n, text.p);
	if (e)
		e->sys = (int)sys;
	return sys ? -(int)sys : r;
}
