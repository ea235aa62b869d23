/*
 * Phase 1 of door 1, member by member: each is judged, and what may come is staged.
 *
 * Policy: what a rule refuses leaves nothing staged; what a rule calls hostile ends the transfer. Sizes are
 * claims until the bytes are there, and are bounded before anything is made of them. File contents are data: they are
 * hashed and copied, never looked into. The rules themselves are in policy/member.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "sync/unpack_intake.h"

#define LINK_PROBE "l" /* no number */

void intake_blame(struct unpack *u, struct view path)
{
	memcpy(u->rule_path, path.n ? path.p : "", path.n);
	u->rule_path[path.n] = '\0';
}

int intake_reject(struct intake *k, const char *rule, const char *text, struct view path,
		  struct err *e)
{
	struct unpack *u = k->u;
	_cleanup_buf_ struct buf b = BUF_INIT(sizeof(u->rule_text));

	u->rejected = true;
	u->rule = rule;
	if (path.n)
		intake_blame(u, path);
	(void)str_printable(&b, path.p, path.n < 200 ? path.n : 200);
	(void)snprintf(u->rule_text, sizeof(u->rule_text), "%s%s%s", buf_text(&b),
		       path.n ? ": " : "", text);
	(void)err_set(e, ERR_HOSTILE, "the sandbox's result stream was rejected (%s): %s", rule,
		      u->rule_text);
	return -EBADMSG;
}

/* With where a link leads, as a refusal has it. */
static int reject_member(struct intake *k, const char *rule, const struct tar_member *m,
			 struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(sizeof(k->u->rule_text));
	size_t n = m->target.n < 100 ? m->target.n : 100;

	(void)buf_puts(&b, "a boundary rule is broken");
	if (n) {
		(void)buf_puts(&b, ", it leads to ");
		(void)str_printable(&b, m->target.p, n);
	}
	return intake_reject(k, rule, buf_text(&b), m->path, e);
}

/* What counts against nothing is bounded all the same: at four times the limit of what counts. */
static int reject_bulk(struct intake *k, const char *what, struct err *e)
{
	char limit[24], text[256];

	str_human_size(k->u->s.total_max, limit, sizeof(limit));
	(void)snprintf(
	    text, sizeof(text),
	    "with this file %s hold over four times %s, the limit of all results together; "
	    "delete or shrink some in the sandbox",
	    what, limit);
	return intake_reject(k, "limit", text, (struct view){k->c.path, k->c.path_len}, e);
}

static int hash_zeros(struct intake *k, uint64_t n)
{
	static const uint8_t zero[4096];

	while (n) {
		size_t m = n < sizeof(zero) ? (size_t)n : sizeof(zero);

		(void)crypto_generichash_update(&k->hash, zero, m);
		n -= m;
	}
	return 0;
}

/* From here on the member is the writer's to make. */
static int make_staged(struct intake *k, struct err *e)
{
	struct writer_entry m = {.path = k->c.path, .mode = k->c.mode & ~k->u->s.umask};
	char name[20];
	int r = 0;

	/* A new file is made with the mode that it will have, unless we could not open it again then. */
	if (k->have_base || (m.mode & 0600) != 0600)
		m.mode = 0600;
	if (m.mode == (k->c.mode & ~k->u->s.umask))
		r = tree_place(k->u, &k->c, &m, e);
	if (r == 0) {
		r = tree_drop(k->u, &k->c, e);
		if (r == 0)
			r = stage_ready(k->u, e);
		if (r < 0)
			return r;
		m.dir = k->u->st.content;
		k->c.id = k->u->st.next_id++;
		stage_name(k->c.id, name);
		m.name = name;
	} else if (r > 0 && k->u->baseline.dir < 0) {
		k->c.flags |= CH_UNHASHED;
	}
	if (r >= 0)
		r = writer_file(k->u->writer, &m, e);
	/* small is contiguous from 0 unless the file is sparse, and sparse files are never small. */
	if (r == 0)
		r = writer_data(k->u->writer, k->small, k->small_len, 0, e);
	k->staged = r == 0;
	k->small_len = 0;
	return r;
}

int intake_data(struct intake *k, const struct tar_out *o, struct err *e)
{
	k->bytes += o->data.n;
	/* What is refused is read all the same, but not without end. */
	if (k->bytes / 4 > k->u->s.total_max)
		return reject_bulk(k, "all files of the stream, refused or sent again ones too,",
				   e);
	if (!k->wanted)
		return 0;
	if (o->data_offset < k->at)
		return err_set(e, ERR_INTERNAL, "tar reader went backwards in %s", k->c.path);
	if (!(k->c.flags & CH_UNHASHED)) {
		(void)hash_zeros(k, o->data_offset - k->at);
		(void)crypto_generichash_update(&k->hash, (const uint8_t *)o->data.p, o->data.n);
	}
	k->at = o->data_offset + o->data.n;
	if (!k->staged) {
		memcpy(k->small + k->small_len, o->data.p, o->data.n);
		k->small_len += o->data.n;
		return 0;
	}
	k->unchecked += o->data.n;
	return writer_data(k->u->writer, o->data.p, o->data.n, o->data_offset, e);
}

int intake_add(struct intake *k, struct err *e)
{
	int r;

	k->c.seq = k->members;
	r = chlist_add(k->u->list, &k->c);
	if (r == -E2BIG)
		return intake_reject(k, "limit", "the list of changes is over 512 MiB",
				     (struct view){0}, e);
	return r < 0 ? err_sys(e, -r, "note change of %s", k->c.path) : 0;
}

static bool equals_base(const struct intake *k)
{
	/* Of the sandbox's own state the bytes may be nowhere else: another mode may want them again. */
	if (k->base.sandbox && k->base.mode != k->c.mode)
		return false;
	return k->have_base && k->base.kind == 'f' && k->base.size == k->c.size &&
	       !memcmp(k->base.hash, k->c.hash, MANIFEST_HASH);
}

int intake_end(struct intake *k, struct err *e)
{
	struct writer *w = k->u->writer;
	char name[20];
	bool drop;
	int r = 0;

	if (!(k->c.flags & CH_UNHASHED)) {
		(void)hash_zeros(k, k->c.size - k->at);
		(void)crypto_generichash_final(&k->hash, k->c.hash, MANIFEST_HASH);
	}
	/* Without layers nobody else has the bytes, should the host have lost them. */
	drop = equals_base(k) && (k->u->layers_len || k->base.mode == k->c.mode);
	if (!drop && !k->staged)
		r = make_staged(k, e);
	if (r == 0 && k->staged)
		r = writer_end(w, k->c.size, k->at < k->c.size, k->c.mtime_ns, e);
	if (drop && k->staged && r == 0) {
		stage_name(k->c.id, name);
		r = writer_unlink(w, k->u->st.content, name, k->c.path, e);
	}
	if (drop)
		k->c.id = 0;
	k->staged = false;
	k->small_len = 0;
	memcpy(k->last, k->c.path, k->c.path_len + 1);
	k->last_len = k->c.path_len;
	k->last_size = k->c.size;
	k->last_id =
	    k->c.flags & CH_TREE ? 0 : k->c.id; /* of a tree the name itself is taken again */
	return r == 0 ? intake_add(k, e) : r;
}

/*
 * The same name right after its file: that copy is none of the results any more. Its bytes go before the next are
 * staged, and they do not count. Whoever sends again without end meets a bound: of all bytes (take_data), and here of
 * logical ones, for a sparse file costs the stream next to nothing and us a hash of all its zeros.
 */
static int forget_last(struct intake *k, struct err *e)
{
	size_t n = k->last_len;
	char name[20];

	k->last_len = 0;
	if (!n || n != k->c.path_len || memcmp(k->last, k->c.path, n) != 0)
		return 0;
	k->u->taken -= k->last_size;
	k->again += k->last_size;
	if (k->again / 4 > k->u->s.total_max)
		return reject_bulk(k, "files that were sent again", e);
	if (!k->last_id)
		return 0;
	stage_name(k->last_id, name);
	return writer_unlink(k->u->writer, k->u->st.content, name, k->c.path, e);
}

/* vfat, some of FUSE. Asked once: to find out file by file would end the transfer at the first one. */
static bool has_links(struct intake *k)
{
	int dir = k->u->st.content;

	if (k->links_asked)
		return !k->no_links;
	k->links_asked = true;
	if (symlinkat(LINK_PROBE, dir, LINK_PROBE) == 0)
		(void)unlinkat(dir, LINK_PROBE, 0);
	else
		k->no_links = errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS;
	return !k->no_links;
}

static int take_link(struct intake *k, const struct tar_member *m, struct err *e)
{
	struct writer_entry at = {.path = k->c.path, .mtime_ns = k->c.mtime_ns};
	char target[LINK_TARGET_MAX + 1], name[20];
	int r;

	if (m->target.n == 0 || m->target.n > LINK_TARGET_MAX)
		return intake_reject(k, "target_too_long", "link target", m->path, e);
	memcpy(target, m->target.p, m->target.n);
	target[m->target.n] = '\0';
	k->c.size = m->target.n;
	(void)crypto_generichash(k->c.hash, MANIFEST_HASH, (const uint8_t *)target, m->target.n,
				 NULL, 0);
	if (k->c.kind == MK_LINK && k->have_base && k->base.kind == 'l' &&
	    k->base.target_len == m->target.n && !memcmp(k->base.target, target, m->target.n))
		return intake_add(k, e);
	r = stage_ready(k->u, e);
	if (r == 0 && !has_links(k))
		return k->u->s.strict ? intake_reject(k, "no_links",
						      "the file system here has none", m->path, e)
				      : intake_refuse(k, "no_links", m->target, e);
	if (r == 0)
		r = tree_place(k->u, &k->c, &at, e);
	if (r == 0) {
		k->c.id = k->u->st.next_id++;
		stage_name(k->c.id, name);
		at.dir = k->u->st.content;
		at.name = name;
	}
	if (r >= 0)
		r = writer_link(k->u->writer, &at, target, e);
	return r < 0 ? r : intake_add(k, e);
}

int intake_find_base(struct intake *k, struct err *e)
{
	int r = 0;

	if (k->u->m)
		r = manifest_find(k->u->m, k->c.path, k->c.path_len, &k->base);
	if (r < 0)
		return err_set(e, ERR_PROTOCOL, "the manifest of this run is damaged near %s",
			       k->c.path);
	k->have_base = r > 0;
	if (!k->have_base)
		k->c.flags |= CH_NEW;
	return 0;
}

int intake_refuse(struct intake *k, const char *rule, struct view target, struct err *e)
{
	char detail[256] = "";
	int r;

	if (target.n)
		(void)snprintf(detail, sizeof(detail), "%.*s",
			       (int)(target.n < 255 ? target.n : 255), target.p);
	r = tree_drop(k->u, &k->c, e);
	if (r < 0)
		return r;
	k->c.kind = MK_UNKNOWN;
	k->c.flags |= CH_REFUSED;
	k->u->unknown++;
	r = intake_add(k, e);
	return r < 0 ? r : tell(k->u, UA_REFUSE, k->c.path, rule, detail, e);
}

/* One file that could never fit is refused alone; files that do not fit together reject the stream. */
static int judge_size(struct intake *k, const struct tar_member *m, struct err *e)
{
	uint64_t max = k->u->s.total_max;
	uint64_t one = k->u->s.member_max && k->u->s.member_max < max ? k->u->s.member_max : max;
	char size[24], limit[24], text[256];

	if (m->size > one) {
		str_human_size(m->size, size, sizeof(size));
		str_human_size(one, limit, sizeof(limit));
		(void)snprintf(text, sizeof(text),
			       "%s, the limit of %s is %s; make it smaller in the sandbox", size,
			       one < max ? "one file" : "all results", limit);
		return k->u->s.strict
			   ? intake_reject(k, "too_large", text, m->path, e)
			   : intake_refuse(k, "too_large", (struct view){text, strlen(text)}, e);
	}
	if (m->size > max - k->u->taken) {
		str_human_size(max, limit, sizeof(limit));
		(void)snprintf(text, sizeof(text),
			       "with this file the results are over %s, the limit of all results "
			       "together; delete or shrink some in the sandbox",
			       limit);
		return intake_reject(k, "limit", text, m->path, e);
	}
	k->u->taken += m->size;
	return 1;
}

static int start_file(struct intake *k, const struct tar_member *m, struct err *e)
{
	uint64_t need = m->sparse ? 0 : m->size;
	int r = judge_size(k, m, e);

	if (r <= 0)
		return r;
	r = 0;

	if (k->unchecked + need > (1 << 20) || k->unchecked == 0) {
		r = stage_space(k->u, need, e);
		k->unchecked = 1;
	}
	k->unchecked += need <= INTAKE_SMALL ? need : 0;
	k->wanted = true;
	k->at = 0;
	/* What may turn out to be the manifest's file is looked at before it is made, if it is small. */
	if (r == 0 && (!k->have_base || m->sparse || m->size > INTAKE_SMALL))
		r = make_staged(k, e);
	if (!(k->c.flags & CH_UNHASHED))
		(void)crypto_generichash_init(&k->hash, NULL, 0, MANIFEST_HASH);
	return r;
}

int intake_member(struct intake *k, const struct tar_member *m, struct err *e)
{
	const char *rule = NULL;
	int r, verdict;

	k->members++;
	k->wanted = false;
	/* From a sandbox nothing is older than 1970. */
	k->c = (struct change){
	    .mode = member_mode(m), .size = m->size, .mtime_ns = m->mtime_ns > 0 ? m->mtime_ns : 0};
	k->c.path_len = (uint32_t)m->path.n;
	memcpy(k->c.path, m->path.n ? m->path.p : "", m->path.n);
	verdict = members_judge(k->judge, m, &rule);
	if (verdict < 0)
		return err_sys(e, -verdict, "judge member %s", k->c.path);
	if (verdict == MEMBER_HOSTILE)
		return reject_member(k, rule, m, e);
	/* A mapping of one file has authority over that name and no other (S1-08). */
	if (k->u->s.only[0] &&
	    (m->type != TAR_FILE || m->op != TAR_OP_NONE || strcmp(k->c.path, k->u->s.only) != 0))
		return intake_reject(k, "not_mapped", "only one file may come here", m->path, e);
	r = forget_last(k, e);
	if (r == 0)
		r = intake_find_base(k, e);
	if (r < 0)
		return r;
	if (verdict == MEMBER_REFUSE)
		return intake_refuse(k, rule, m->target, e);
	/* A file made anew inside has what the umask there left: a secret of the host's stays its owner's. */
	if (k->u->s.only[0] && k->have_base)
		k->c.mode &= k->base.mode | 0700;
	switch (m->op) {
	case TAR_OP_DELETE:
		k->c.kind = MK_ABSENT;
		return k->have_base ? intake_add(k, e) : 0;
	case TAR_OP_UNREADABLE:
		return intake_refuse(k, "unreadable", (struct view){0}, e);
	case TAR_OP_OPAQUE:
		k->c.flags |= CH_OPAQUE;
		break;
	case TAR_OP_NONE:
		break;
	}
	switch (m->type) {
	case TAR_DIR:
		if (!k->c.path_len && !(k->c.flags & CH_OPAQUE))
			return 0; /* "." : the root's own metadata is the host's business */
		k->c.kind = MK_DIR;
		/* Inside, its owner may write in every directory (layer.c): that alone is no change. */
		if (k->have_base && k->base.kind == 'd' && (k->base.mode | 0700) == k->c.mode)
			k->c.mode = k->base.mode;
		r = tree_dir(k->u, &k->c, e);
		return r < 0 ? r : intake_add(k, e);
	case TAR_SYMLINK:
		k->c.kind = MK_LINK;
		k->c.mode = 0;
		return take_link(k, m, e);
	case TAR_HARDLINK:
		k->c.kind = MK_FILE;
		k->c.flags |= CH_HARDLINK;
		return take_link(k, m, e);
	case TAR_FILE:
		k->c.kind = MK_FILE;
		return start_file(k, m, e);
	case TAR_SPECIAL:
		return intake_refuse(k, "special_file", (struct view){0}, e);
	}
	return 0;
}
