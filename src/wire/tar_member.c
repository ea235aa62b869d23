/*
 * Door 1: one member, from its header block and the extension headers before it.
 *
 * Policy: what the headers say together must have one meaning. A type, a size, a sparse map or a
 * record of ours that does not fit the rest is hostile; a name is judged after the headers have
 * been combined, never before. Not here: limits and the order of blocks (tar_read.c).
 */
#include <string.h>

#include "base/clock.h"
#include "wire/tar_internal.h"

static const char *judge_type(const struct tar_head *h, bool slash, enum tar_type *ret)
{
	char t = h->typeflag;

	if (h->format == TAR_V7 && t != '\0' && t != '0' && t != '1' && t != '2' && t != '5')
		return "bad_type";
	switch (t) {
	case '\0': /* v7 has no directories but names with a slash at the end */
		*ret = slash ? TAR_DIR : TAR_FILE;
		break;
	case '0':
	case '7':
		*ret = TAR_FILE;
		break;
	case 'S':
		if (h->format != TAR_GNU)
			return "format_mix";
		*ret = TAR_FILE;
		break;
	case '1':
		*ret = TAR_HARDLINK;
		break;
	case '2':
		*ret = TAR_SYMLINK;
		break;
	case '5':
		*ret = TAR_DIR;
		break;
	default:
		if (!((t >= '3' && t <= '9') || (t >= 'a' && t <= 'z')))
			return "bad_type";
		*ret = TAR_SPECIAL;
	}
	return slash && *ret != TAR_DIR ? "trailing_slash" : NULL;
}

/* The name that counts: GNU.sparse.name, then path or L, then the header's own. */
static const char *judge_path(struct tar_cur *c, const struct tar_head *h, bool *slash)
{
	char whole[155 + 1 + 100];
	struct view v = h->name;
	const char *rule;

	if (c->ext.sparse_keys & SPARSE_NAME) {
		v = (struct view){buf_text(&c->ext.sparse_name), c->ext.sparse_name.len};
	} else if (c->ext.has_path) {
		v = (struct view){buf_text(&c->ext.path), c->ext.path.len};
	} else if (h->prefix.n) {
		memcpy(whole, h->prefix.p, h->prefix.n);
		whole[h->prefix.n] = '/';
		memcpy(whole + h->prefix.n + 1, h->name.p, h->name.n);
		v = (struct view){whole, h->prefix.n + 1 + h->name.n};
	}
	c->member.path.p = c->path;
	rule = tar_name_clean(v.p, v.n, c->path, &c->member.path.n, slash);
	c->named = true;
	if (rule) { /* for the message: a person looks for the name as the archive has it */
		size_t n = v.n < PATH_MEMBER_MAX ? v.n : PATH_MEMBER_MAX;

		memcpy(c->path, v.p, n);
		c->path[n] = '\0';
	}
	return rule;
}

static const char *judge_target(struct tar_cur *c, const struct tar_head *h)
{
	struct view v = h->link;
	const char *rule;
	bool slash;

	if (c->ext.has_link)
		v = (struct view){buf_text(&c->ext.link), c->ext.link.len};
	if (v.n == 0)
		return "empty_target";
	c->member.target.p = c->target;
	if (c->member.type == TAR_SYMLINK) {
		memcpy(c->target, v.p, v.n); /* verbatim; both sources are shorter than the array */
		c->target[v.n] = '\0';
		c->member.target.n = v.n;
		return NULL;
	}
	rule = tar_name_clean(v.p, v.n, c->target, &c->member.target.n, &slash);
	if (rule && strcmp(rule, "name_too_long") != 0)
		return "hardlink_target";
	return rule ? rule : (slash || c->member.target.n == 0) ? "hardlink_target" : NULL;
}

static const char *judge_op(const struct tar_cur *c)
{
	const struct tar_member *m = &c->member;

	switch (m->op) {
	case TAR_OP_DELETE:
		if (m->path.n == 0)
			return "bad_op";
		__attribute__((fallthrough));
	case TAR_OP_UNREADABLE:
		return (m->type == TAR_FILE || m->type == TAR_DIR) && m->size == 0 && !c->map
			   ? NULL
			   : "bad_op";
	case TAR_OP_OPAQUE:
		return m->type == TAR_DIR ? NULL : "bad_op";
	default:
		return NULL;
	}
}

/* PAX sparse 0.0, 0.1 and 1.0: all keys of exactly one of them. */
static const char *judge_pax_sparse(struct tar_cur *c)
{
	struct tar_ext *x = &c->ext;
	unsigned k = x->sparse_keys;

	if (c->member.type != TAR_FILE || !(k & (SPARSE_SIZE | SPARSE_REALSIZE)) ||
	    (k & SPARSE_OPEN))
		return "bad_sparse";
	c->map = &x->map;
	c->member.sparse = true;
	c->member.size = x->sparse_size;
	if (k & (SPARSE_MAJOR | SPARSE_MINOR)) {
		if (x->sparse_major != 1 || x->sparse_minor != 0 ||
		    (k & (SPARSE_BLOCKS | SPARSE_MAP | SPARSE_LIST)))
			return "bad_sparse";
		c->map_rest = TAR_MAP_PAX1;
		return NULL;
	}
	return !(k & SPARSE_BLOCKS) || x->sparse_blocks != x->map.n ? "bad_sparse" : tar_map_end(c);
}

const char *tar_map_end(const struct tar_cur *c)
{
	return c->map->end > c->member.size || c->map->stored != c->stored ? "bad_sparse" : NULL;
}

const char *tar_map_gnu_more(struct tar_cur *c, const uint8_t *b)
{
	enum { PAIRS = 21, MORE = 504 };
	size_t before = c->map->n;
	const char *rule = tar_sparse_gnu(c->map, b, PAIRS);

	if (rule)
		return rule;
	/* A map that goes on after its end could go on without one. */
	if (b[MORE] > 1 || (b[MORE] && c->map->n != before + PAIRS))
		return "bad_sparse";
	if (b[MORE])
		return NULL;
	c->map_rest = TAR_MAP_READY;
	return tar_map_end(c);
}

/* Old GNU sparse: first pairs, flag and logical size lie in the header block itself. */
static const char *judge_gnu_sparse(struct tar_cur *c, const uint8_t *b)
{
	enum { PAIRS = 386, MORE = 482, REALSIZE = 483 };
	const char *rule;

	tar_sparse_reset(&c->gnu_map);
	c->map = &c->gnu_map;
	c->member.sparse = true;
	if ((rule = tar_field_u64(b + REALSIZE, 12, &c->member.size)) ||
	    (rule = tar_sparse_gnu(c->map, b + PAIRS, 4)))
		return rule;
	if (b[MORE] > 1 || (b[MORE] && c->map->n != 4))
		return "bad_sparse";
	if (!b[MORE])
		return tar_map_end(c);
	c->map_rest = TAR_MAP_GNU;
	return NULL;
}

static void judge_time(struct tar_cur *c, const struct tar_head *h)
{
	int64_t s = h->mtime_s;

	if (c->ext.has_mtime)
		c->member.mtime_ns = c->ext.mtime_ns;
	else if (c->has_global_mtime)
		c->member.mtime_ns = c->global_mtime_ns;
	else if (s >= TAR_MTIME_MAX_S)
		c->member.mtime_ns = TAR_MTIME_MAX_S * NS_PER_S - 1;
	else
		c->member.mtime_ns = s > 0 ? s * NS_PER_S : 0;
}

const char *tar_member_judge(struct tar_cur *c, const struct tar_head *h, const uint8_t *b,
			     uint64_t offset)
{
	struct tar_member *m = &c->member;
	bool slash = false;
	const char *rule;

	if ((c->ext.pax && h->format != TAR_USTAR) || (c->ext.gnu && h->format != TAR_GNU))
		return "format_mix";
	*m = (struct tar_member){.op = c->ext.op,
				 .mode = h->mode,
				 .typeflag = h->typeflag,
				 .target = {"", 0},
				 .header_offset = offset};
	c->map = NULL;
	c->map_rest = TAR_MAP_READY;
	c->stored = m->size = c->ext.has_size ? c->ext.size : h->size;
	if ((rule = judge_path(c, h, &slash)) || (rule = judge_type(h, slash, &m->type)))
		return rule;
	if (m->path.n == 0 && m->type != TAR_DIR)
		return "root_not_dir";
	/* One program skips this data, another reads it as the next header. */
	if (m->type != TAR_FILE && (c->stored || h->size))
		return "hidden_data";
	if ((m->type == TAR_SYMLINK || m->type == TAR_HARDLINK) && (rule = judge_target(c, h)))
		return rule;
	judge_time(c, h);
	if (h->typeflag == 'S')
		rule = judge_gnu_sparse(c, b);
	else if (c->ext.sparse_keys)
		rule = judge_pax_sparse(c);
	return rule ? rule : judge_op(c);
}
