#include "engine/changes_show.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* The line that was made goes out. */
static int put(const struct changes_view *v)
{
	int r = v->line->err ? v->line->err
			     : v->style->emit(v->style->arg, buf_text(v->line), v->line->len);

	buf_reset(v->line);
	return r;
}

/* Lines for a person about one path; at most a few, so a fixed size does. */
/* Permissions that the two modes of a patch do not tell: who else may read or write it. */
static bool hides_mode(const struct shown *s)
{
	return s->a.kind == MK_FILE && s->b.kind == MK_FILE && s->a.perm != s->b.perm &&
	       (patch_mode(false, s->a.perm) == patch_mode(false, s->b.perm) ||
		(s->a.perm ^ s->b.perm) & ~(uint32_t)0111);
}

static json_t *perm_json(const struct shown_side *s)
{
	char t[16];

	if (s->kind != MK_FILE && s->kind != MK_DIR)
		return json_null();
	(void)snprintf(t, sizeof(t), "%04o", s->perm & 0777);
	return json_string(t);
}

static void marks_of(const struct changes_view *v, const struct shown *s, struct buf *b)
{
	const char *why = s->rule[0] && v->rule ? v->rule(s->rule) : s->rule;
	bool waiting = v->c->waiting;

	if (s->flags & CHANGE_REFUSED)
		(void)buf_putf(b, "refused: %s\n", why);
	if (s->flags & CHANGE_CONFLICT)
		(void)buf_putf(
		    b, "CONFLICT: %s; %s\n", why[0] ? why : "both sides changed",
		    waiting
			? strcmp(s->rule, "dir_has_changes") == 0
			      ? "an apply keeps all of it, until what is yours is moved out of it"
			      : "an apply keeps the one here, --on-conflict take-sandbox takes this one"
			: "the losing version is saved with the run");
	if (s->flags & CHANGE_MERGED)
		(void)buf_puts(b, waiting ? "changed here too: an apply merges the two\n"
					  : "was changed here too, and merged\n");
	if (s->flags & CHANGE_FAILED)
		(void)buf_putf(b, "not written: %s\n", why);
	if (s->flags & CHANGE_HOST_EXEC)
		(void)buf_puts(b, "the host runs this file by itself: look at it first\n");
	if (hides_mode(s))
		(void)buf_putf(b, "mode %04o -> %04o\n", s->a.perm & 0777, s->b.perm & 0777);
	if (s->flags & CHANGE_DONE)
		(void)buf_puts(b, "it is so here already\n");
}

static void note_line(const struct changes_view *v, const struct shown *s, const char *what)
{
	if (v->style->eyes && v->style->color)
		(void)buf_puts(v->line, "\033[33m");
	(void)buf_puts(v->line, "# airlock: ");
	(void)patch_quote(v->line, v->c->prefix, s->path);
	(void)buf_putf(v->line, ": %.*s", (int)strcspn(what, "\n"), what);
	if (v->style->eyes && v->style->color)
		(void)buf_puts(v->line, "\033[m");
	(void)buf_putc(v->line, '\n');
}

/* Is `entry` below directory dir (> 0: it or what follows may be; < 0: it comes before)? */
static int below(const char *dir, size_t n, const char *entry)
{
	int r = strncmp(entry, dir, n);

	if (r || entry[n] == '/')
		return r;
	return entry[n] < '/' ? -1 : 1; /* sorted by bytes: "d", "d-x", "d/y", "d0" */
}

/* A new directory shows in what is in it; an empty one only here. */
static bool is_empty_dir(const struct changes *c, size_t i)
{
	size_t n = strlen(c->v[i].path), lo = i + 1, hi = c->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int r = below(c->v[i].path, n, c->v[mid].path);

		if (r == 0)
			return false;
		if (r < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return true;
}

static int patch_dir(const struct changes_view *v, size_t i)
{
	const struct shown *s = &v->c->v[i];

	if (s->letter == 'A' && is_empty_dir(v->c, i))
		note_line(v, s, "new directory, empty");
	else if (s->letter == 'D' && is_empty_dir(v->c, i))
		note_line(v, s, "directory deleted");
	else if (s->letter == 'M' && s->a.kind == MK_DIR)
		(void)buf_putf(v->line, "# airlock: directory mode %03o -> %03o: ", s->a.perm,
			       s->b.perm),
		    (void)patch_quote(v->line, v->c->prefix, s->path),
		    (void)buf_putc(v->line, '\n');
	return put(v);
}

/* A file that became a link, or the reverse, is one away and one new, as in git. */
static int patch_type(const struct patch_file *f, const struct patch_style *st)
{
	struct patch_file away = *f, fresh = *f;
	int r;

	away.b.what = fresh.a.what = PATCH_NONE;
	away.b.text = fresh.a.text = (struct view){0};
	fresh.mark = NULL;
	r = patch_write(&away, st, NULL);
	return r ? r : patch_write(&fresh, st, NULL);
}

int changes_patch(const struct changes_view *v, size_t i, struct err *e)
{
	const struct shown *s = &v->c->v[i];
	_cleanup_buf_ struct buf mark = BUF_INIT(4096);
	struct patch_file f;
	int r;

	if (s->flags & CHANGE_NOTE)
		return patch_dir(v, i);
	marks_of(v, s, &mark);
	if (s->flags & CHANGE_REFUSED) {
		note_line(v, s, buf_text(&mark));
		return put(v);
	}
	r = changes_sides(v->c, s, v->a, v->b, &f, e);
	if (r < 0)
		return r;
	if (f.a.what == PATCH_NONE && f.b.what == PATCH_NONE) {
		note_line(v, s, mark.len ? buf_text(&mark) : "neither side is there any more");
		return put(v);
	}
	f.mark = buf_text(&mark);
	return s->letter == 'T' ? patch_type(&f, v->style) : patch_write(&f, v->style, NULL);
}

char changes_letter(const struct shown *s)
{
	return s->flags & CHANGE_REFUSED		      ? '!'
	       : s->flags & (CHANGE_CONFLICT | CHANGE_FAILED) ? 'U'
							      : s->letter;
}

/* UTF-8 as it is, else base64: the same keys as in changes.jsonl. */
static void put_path(json_t *j, const char *key, const char *path)
{
	char key64[32];
	size_t n = strlen(path),
	       room = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_ORIGINAL);
	_cleanup_free_ char *b64 = NULL;
	json_t *text = json_string(path); /* NULL when it is no UTF-8 */

	if (text) {
		(void)json_object_set_new(j, key, text);
		return;
	}
	b64 = malloc(room);
	if (!b64)
		return;
	(void)sodium_bin2base64(b64, room, (const unsigned char *)path, n,
				sodium_base64_VARIANT_ORIGINAL);
	(void)snprintf(key64, sizeof(key64), "%s_b64", key);
	(void)json_object_set_new(j, key64, json_string(b64));
}

static json_t *mode_json(const struct shown_side *s)
{
	char t[16];

	if (s->kind != MK_FILE && s->kind != MK_LINK && s->kind != MK_DIR)
		return json_null();
	(void)snprintf(t, sizeof(t), "%06o",
		       s->kind == MK_DIR ? 040000 : patch_mode(s->kind == MK_LINK, s->perm));
	return json_string(t);
}

int changes_json(const struct changes_view *v, size_t i, json_t *array, struct err *e)
{
	const struct shown *s = &v->c->v[i];
	char letter[2] = {changes_letter(s), '\0'};
	struct patch_count n = {0};
	struct patch_file f;
	json_t *j = json_object();
	int r = 0;

	put_path(j, "path", s->path);
	put_path(j, "root", v->c->part->root);
	if (s->from)
		put_path(j, "from", s->from);
	(void)json_object_set_new(j, "status", json_string(letter));
	(void)json_object_set_new(j, "change",
				  s->letter ? json_stringn(&s->letter, 1) : json_null());
	(void)json_object_set_new(j, "old_mode", mode_json(&s->a));
	(void)json_object_set_new(j, "new_mode", mode_json(&s->b));
	(void)json_object_set_new(j, "old_perm", perm_json(&s->a));
	(void)json_object_set_new(j, "new_perm", perm_json(&s->b));
	(void)json_object_set_new(j, "old_size", json_integer((json_int_t)s->a.size));
	(void)json_object_set_new(j, "new_size", json_integer((json_int_t)s->b.size));
	if (s->from)
		(void)json_object_set_new(j, "similarity", json_integer(s->similarity));
	(void)json_object_set_new(j, "conflict", json_boolean(s->flags & CHANGE_CONFLICT));
	(void)json_object_set_new(j, "merge", json_boolean(s->flags & CHANGE_MERGED));
	(void)json_object_set_new(j, "refused", json_boolean(s->flags & CHANGE_REFUSED));
	(void)json_object_set_new(j, "failed", json_boolean(s->flags & CHANGE_FAILED));
	(void)json_object_set_new(j, "already", json_boolean(s->flags & CHANGE_DONE));
	(void)json_object_set_new(j, "host_executable", json_boolean(s->flags & CHANGE_HOST_EXEC));
	(void)json_object_set_new(j, "rule", json_string(s->rule));
	if (!(s->flags & (CHANGE_NOTE | CHANGE_REFUSED))) {
		r = changes_sides(v->c, s, v->a, v->b, &f, e);
		if (r == 0)
			r = patch_count(&f, &n);
		(void)json_object_set_new(j, "binary", json_boolean(n.binary));
		(void)json_object_set_new(j, "added_lines", json_integer((json_int_t)n.added));
		(void)json_object_set_new(j, "deleted_lines", json_integer((json_int_t)n.deleted));
	}
	(void)json_array_append_new(array, j);
	return r;
}
