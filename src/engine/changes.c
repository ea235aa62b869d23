#include "engine/changes_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/beneath.h"
#include "policy/hostexec.h"

void changes_shown_done(struct shown *s)
{
	free(s->path);
	free(s->from);
	free(s->file);
}

void changes_done(struct changes *c)
{
	for (size_t i = 0; i < c->n; i++)
		changes_shown_done(&c->v[i]);
	free(c->v);
	free(c->part);
	free(c->prefix);
	free(c->shown[0]);
	free(c->shown[1]);
	review_free(c->review);
	*c = (struct changes){0};
}

static struct shown *add(struct changes *c, const char *path)
{
	struct shown *s;

	if (c->n == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 64;
		struct shown *v = reallocarray(c->v, cap, sizeof(*v));

		if (!v)
			return NULL;
		c->v = v;
		c->cap = cap;
	}
	s = &c->v[c->n];
	*s = (struct shown){.path = strdup(path)};
	if (!s->path)
		return NULL;
	c->n++;
	return s;
}

static char letter_of(const struct shown *s)
{
	bool a = s->a.kind == MK_FILE || s->a.kind == MK_LINK;
	bool b = s->b.kind == MK_FILE || s->b.kind == MK_LINK;

	if (a && b)
		return s->a.kind == s->b.kind ? 'M' : 'T';
	return b ? 'A' : 'D';
}

static void sent_side(const struct review_entry *en, struct shown_side *ret)
{
	*ret = (struct shown_side){.kind = en->old_kind, .perm = en->b.mode, .size = en->b.size};
	if (en->b.kind == 'f')
		memcpy(ret->hash, en->b.hash, sizeof(ret->hash));
	if (en->b.kind == 'l') {
		ret->size = en->b.target_len;
		(void)crypto_generichash(ret->hash, sizeof(ret->hash),
					 (const uint8_t *)en->b.target, en->b.target_len, NULL, 0);
	}
}

/* What is asked for, of one part. */
struct chosen {
	const struct changes_filter *f;
	size_t part;
};

static bool is_chosen(const struct chosen *only, const char *path)
{
	return only->f->match(only->f->arg, only->part, path);
}

/* --- a set that waits ---------------------------------------------------------------------- */

static int from_entry(struct changes *c, const struct review_entry *en)
{
	struct shown *s = add(c, en->s.path);

	if (!s)
		return -ENOMEM;
	sent_side(en, &s->a);
	s->b = (struct shown_side){.kind = en->s.kind, .perm = en->s.mode, .size = en->s.size};
	memcpy(s->b.hash, en->s.hash, sizeof(s->b.hash));
	(void)snprintf(s->rule, sizeof(s->rule), "%s", en->rule);
	s->flags =
	    (en->status == REVIEW_CONFLICT ? CHANGE_CONFLICT : 0u) |
	    (en->status == REVIEW_MERGE ? CHANGE_MERGED : 0u) |
	    (en->status == REVIEW_FAIL ? CHANGE_FAILED : 0u) |
	    (en->status == REVIEW_DONE ? CHANGE_DONE : 0u) |
	    (en->s.kind != MK_ABSENT && hostexec_flags(s->path, strlen(s->path)) ? CHANGE_HOST_EXEC
										 : 0u);
	s->letter = letter_of(s);
	if ((s->a.kind == MK_DIR || s->a.kind == MK_ABSENT) &&
	    (s->b.kind == MK_DIR || s->b.kind == MK_ABSENT)) {
		s->flags |= CHANGE_NOTE;
		s->letter = s->a.kind == MK_ABSENT ? 'A' : s->b.kind == MK_ABSENT ? 'D' : 'M';
	}
	return 0;
}

static int load_waiting(struct changes *c, const struct chosen *only, struct err *e)
{
	_cleanup_free_ struct review_entry *en = malloc(sizeof(*en));
	uint64_t n = review_count(c->review, NULL);
	int r = en ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < n && r == 0; i++) {
		r = review_get(c->review, i, en);
		if (r < 0 || !is_chosen(only, en->s.path))
			continue;
		r = review_look(c->review, en, e);
		if (r == 0)
			r = from_entry(c, en);
	}
	return r < 0 ? err_sys(e, -r, "read the change set") : 0;
}

/* --- the record of a run -------------------------------------------------------------------- */

/* path, or path_b64. Heap or NULL. */
static char *bytes_of(const json_t *j, const char *key, const char *key64)
{
	const char *text = json_string_value(json_object_get(j, key));
	const char *b64 = json_string_value(json_object_get(j, key64));
	size_t n = b64 ? strlen(b64) : 0, len = 0;
	char *raw;

	if (text)
		return strdup(text);
	raw = b64 ? malloc(n + 1) : NULL;
	if (raw && sodium_base642bin((unsigned char *)raw, n, b64, n, NULL, &len, NULL,
				     sodium_base64_VARIANT_ORIGINAL) == 0)
		raw[len] = '\0';
	else if (raw)
		raw[0] = '\0';
	return raw;
}

static void host_side(struct changes *c, struct shown *s)
{
	_cleanup_fd_ int root = open(c->part->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct beneath b = {.root = root};
	struct stat st;

	s->b = (struct shown_side){.kind = MK_ABSENT};
	if (root < 0 || beneath_stat(&b, s->path, &st) < 0)
		return;
	s->b.kind = S_ISREG(st.st_mode) ? MK_FILE : S_ISLNK(st.st_mode) ? MK_LINK : MK_ABSENT;
	s->b.perm = st.st_mode & 0777;
	s->b.size = (uint64_t)st.st_size;
}

/* Bytes that lie in the run's directory stand for one side. */
static int file_side(struct changes *c, struct shown *s, const char *file, bool old)
{
	struct shown_side *side = old ? &s->a : &s->b;
	_cleanup_free_ char *full = path_join(c->part->dir, file);
	struct stat st;

	*side = (struct shown_side){.kind = MK_ABSENT};
	if (!full)
		return -ENOMEM;
	if (lstat(full, &st) < 0)
		return 0;
	side->kind = S_ISLNK(st.st_mode) ? MK_LINK : S_ISREG(st.st_mode) ? MK_FILE : MK_ABSENT;
	side->perm = old ? s->a.perm : s->a.kind == MK_FILE ? s->a.perm : 0644;
	side->size = (uint64_t)st.st_size;
	s->file = strdup(file);
	s->file_is_old = old;
	return s->file ? 0 : -ENOMEM;
}

static int from_record(struct changes *c, const json_t *j, const char *path,
		       struct review_entry *en)
{
	const char *action = json_string_value(json_object_get(j, "action"));
	const char *rule = json_string_value(json_object_get(j, "rule"));
	_cleanup_free_ char *detail = bytes_of(j, "detail", "detail_b64"), *trash = NULL;
	struct shown *s;
	int r = 0;

	if (!action || strcmp(action, "ignore") == 0 || strcmp(action, "not_trashed") == 0 ||
	    (rule && strcmp(rule, "dir") == 0))
		return 0;
	if (review_sent(c->review, path, en) < 0)
		return 0; /* no usable path: it could not have been written */
	s = add(c, path);
	if (!s)
		return -ENOMEM;
	(void)snprintf(s->rule, sizeof(s->rule), "%s", rule ? rule : "");
	sent_side(en, &s->a);
	if (json_is_true(json_object_get(j, "host_exec")))
		s->flags |= CHANGE_HOST_EXEC;
	if (strcmp(action, "refuse") == 0) {
		s->flags |= CHANGE_REFUSED;
		return 0;
	}
	host_side(c, s);
	if (strcmp(action, "delete") == 0) {
		s->b = (struct shown_side){.kind = MK_ABSENT};
		if (s->a.kind == MK_ABSENT && asprintf(&trash, "trash/%s", path) > 0)
			r = file_side(c, s, trash, true);
	} else if (strcmp(action, "conflict") == 0) {
		s->flags |= CHANGE_CONFLICT;
		if (detail && str_starts(detail, "conflicts/host/"))
			r = file_side(c, s, detail, true);
		else if (detail && str_starts(detail, "conflicts/sandbox/"))
			r = file_side(c, s, detail, false);
		else
			s->b = (struct shown_side){.kind = MK_ABSENT};
	} else if (strcmp(action, "fail") == 0) {
		s->flags |= CHANGE_FAILED;
	} else if (strcmp(action, "merge") == 0) {
		s->flags |= CHANGE_MERGED;
	} else if (s->a.kind == MK_ABSENT && strcmp(action, "add") != 0) {
		s->a = s->b; /* it was there; which bytes is not known any more */
		s->a.size = 0;
		s->file_is_old = true;
	}
	s->letter = letter_of(s);
	return r;
}

static int load_record(struct changes *c, const struct chosen *only, struct err *e)
{
	_cleanup_free_ char *file = path_join(c->part->dir, "changes.jsonl");
	_cleanup_free_ struct review_entry *en = malloc(sizeof(*en));
	_cleanup_file_ FILE *f = file ? fopen(file, "re") : NULL;
	int r = en && file ? 0 : -ENOMEM;
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;

	if (r == 0 && !f)
		return errno == ENOENT ? 0 : err_sys(e, errno, "open %s", file);
	while (r == 0 && getline(&line, &cap, f) > 0) {
		json_t *j = json_loads(line, 0, NULL);
		_cleanup_free_ char *path = j ? bytes_of(j, "path", "path_b64") : NULL;

		if (path && is_chosen(only, path))
			r = from_record(c, j, path, en);
		json_decref(j);
	}
	return r < 0 ? err_sys(e, -r, "read %s", file) : 0;
}

/* What was refused is in the record only. */
static int load_refused(struct changes *c, const struct chosen *only, struct err *e)
{
	size_t had = c->n, to = c->n;
	int r = load_record(c, only, e);

	for (size_t i = had; i < c->n; i++) {
		if (c->v[i].flags & CHANGE_REFUSED)
			c->v[to++] = c->v[i];
		else
			changes_shown_done(&c->v[i]);
	}
	c->n = to;
	return r;
}

static int by_path(const void *x, const void *y)
{
	return strcmp(((const struct shown *)x)->path, ((const struct shown *)y)->path);
}

/* Which part it is about. */
static int settle_on(struct changes *c, const struct changeset *set, size_t part, struct err *e)
{
	*c = (struct changes){.set = set, .waiting = set->files};
	c->part = calloc(1, sizeof(*c->part));
	if (!c->part)
		return err_set(e, ERR_NOMEM, "out of memory");
	changeset_part(set, part, c->part);
	if (!part)
		c->prefix = strdup("");
	else if (asprintf(&c->prefix, "%s%s", c->part->root, c->part->root[1] ? "/" : "") < 0)
		c->prefix = NULL;
	return c->prefix ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

int changes_load(struct changes *c, const struct changeset *set, size_t part,
		 const struct changes_filter *f, struct err *e)
{
	const struct chosen only = {f, part};
	int r = settle_on(c, set, part, e);

	if (r == 0)
		r = changeset_open(set, part, !c->waiting, &c->review, e);
	if (r == -ENOENT) { /* decided a moment ago */
		c->waiting = false;
		r = changeset_open(set, part, true, &c->review, e);
	}
	if (r == -ENOENT && part)
		return 0; /* nothing of it came */
	if (r == 0)
		r = c->waiting ? load_waiting(c, &only, e) : load_record(c, &only, e);
	if (r == 0 && c->waiting)
		r = load_refused(c, &only, e);
	if (r == 0 && c->waiting)
		r = changes_find_renames(c, e);
	if (r == 0 && c->n)
		qsort(c->v, c->n, sizeof(*c->v), by_path);
	if (r < 0)
		changes_done(c);
	return r;
}

/* --- contents ----------------------------------------------------------------------------- */

static int read_file(struct changes *c, const struct shown *s, struct buf *b, uint64_t *ret_size)
{
	_cleanup_fd_ int dir = open(c->part->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct beneath root = {.root = dir};
	const char *base;
	_cleanup_fd_ int parent = dir < 0 ? -1 : beneath_parent(&root, s->file, &base);
	char target[LINK_TARGET_MAX + 1];
	struct stat st;
	ssize_t n;

	if (parent < 0)
		return -ENOENT;
	n = readlinkat(parent, base, target, sizeof(target));
	if (n >= 0)
		return buf_put(b, target, (size_t)n) < 0 ? b->err : 1;
	fd = openat(parent, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	*ret_size = (uint64_t)st.st_size;
	if (*ret_size > DIFF_TEXT_MAX)
		return 0;
	for (;;) {
		char *room = buf_room(b, 64 << 10);

		n = room ? read(fd, room, 64 << 10) : -1;
		if (n <= 0)
			return n < 0 ? -EIO : 1;
		buf_add(b, (size_t)n);
	}
}

static int side(struct changes *c, const struct shown *s, bool old, struct review_entry *en,
		struct buf *b, struct patch_side *ret)
{
	const struct shown_side *w = old ? &s->a : &s->b;
	uint64_t size = w->size;
	int r;

	*ret = (struct patch_side){.what = PATCH_NONE};
	if (w->kind != MK_FILE && w->kind != MK_LINK)
		return 0;
	if (s->file && s->file_is_old == old)
		r = read_file(c, s, b, &size);
	else if (!old)
		r = review_read(c->review, en, c->waiting ? REVIEW_SANDBOX : REVIEW_HOST,
				DIFF_TEXT_MAX, b, &size);
	else if (s->from && (r = review_sent(c->review, s->from, en)) < 0)
		return r;
	else
		r = review_read(c->review, en, REVIEW_SENT, DIFF_TEXT_MAX, b, &size);
	if (r == -ENOMEM || r == -E2BIG)
		return r;
	if (r == 1)
		*ret = patch_side_of(0, (struct view){buf_text(b), b->len});
	else
		ret->what = r == 0 ? PATCH_BINARY : PATCH_LOST;
	ret->mode = patch_mode(w->kind == MK_LINK, w->perm);
	ret->size = size;
	return 0;
}

/* The entry of one path: of the set, or made of the manifest. */
static int entry_of(struct changes *c, const char *path, struct review_entry *en)
{
	return c->waiting ? review_find(c->review, path, en) : review_sent(c->review, path, en);
}

int changes_sides(struct changes *c, const struct shown *s, struct buf *a, struct buf *b,
		  struct patch_file *ret, struct err *e)
{
	_cleanup_free_ struct review_entry *en = malloc(sizeof(*en));
	int r = en ? entry_of(c, s->path, en) : -ENOMEM;

	buf_reset(a);
	buf_reset(b);
	for (int i = 0; r == 0 && i < 2; i++) {
		free(c->shown[i]);
		if (asprintf(&c->shown[i], "%s%s", c->prefix,
			     i == 0 && s->from ? s->from : s->path) < 0) {
			c->shown[i] = NULL;
			r = -ENOMEM;
		}
	}
	*ret = (struct patch_file){
	    .old_path = c->shown[0], .new_path = c->shown[1], .similarity = s->similarity};
	if (r == 0)
		r = side(c, s, false, en, b, &ret->b);
	if (r == 0)
		r = side(c, s, true, en, a, &ret->a);
	if (r < 0)
		return err_sys(e, -r, "read the two sides of a file");
	if (c->waiting)
		ret->same = s->a.kind == s->b.kind && !memcmp(s->a.hash, s->b.hash, MANIFEST_HASH);
	else
		ret->same = ret->a.what == PATCH_TEXT && ret->b.what == PATCH_TEXT &&
			    a->len == b->len && !memcmp(buf_text(a), buf_text(b), a->len);
	return 0;
}
