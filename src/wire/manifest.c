#include "wire/manifest_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

/* `ten`: 'A' or 'a', the one case that is accepted. */
static int nibble(char c, char ten)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= ten && c < ten + 6 ? c - ten + 10 : -1;
}

/* Next decoded byte of a word; -1 for an escape that our writer would not make. */
static int unescape(const char **p, const char *end)
{
	uint8_t c = (uint8_t) * (*p)++;
	int hi, lo;

	if (manifest_plain(c))
		return c;
	if (c != '%' || end - *p < 2)
		return -1;
	hi = nibble((*p)[0], 'A');
	lo = nibble((*p)[1], 'A');
	*p += 2;
	if (hi < 0 || lo < 0)
		return -1;
	c = (uint8_t)(hi << 4 | lo);
	/* One spelling per path, else bisection and equality of lines would lie. */
	return c && !manifest_plain(c) ? c : -1;
}

static bool decode(struct view w, char *out, size_t max, size_t *ret_n)
{
	const char *p = w.p, *end = w.p + w.n;
	size_t n = 0;
	int c;

	while (p < end) {
		c = unescape(&p, end);
		if (c < 0 || n == max)
			return false;
		out[n++] = (char)c;
	}
	out[n] = '\0';
	*ret_n = n;
	return n > 0;
}

static struct view word(struct view *line)
{
	const char *sp = memchr(line->p, ' ', line->n);
	struct view w = {line->p, sp ? (size_t)(sp - line->p) : line->n};
	size_t used = w.n + (sp ? 1 : 0);

	line->p += used;
	line->n -= used;
	return w;
}

static bool number(struct view w, unsigned base, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!w.n || (w.n > 1 && w.p[0] == '0'))
		return false;
	for (size_t i = 0; i < w.n; i++) {
		unsigned d = (unsigned)(uint8_t)w.p[i] - '0';

		if (d >= base || __builtin_mul_overflow(v, base, &v) ||
		    __builtin_add_overflow(v, d, &v))
			return false;
	}
	*ret = v;
	return v <= max;
}

static bool time_ns(struct view w, int64_t *ret)
{
	bool neg = w.n && w.p[0] == '-';
	uint64_t v;

	if (neg) {
		w.p++;
		w.n--;
	}
	if (!number(w, 10, INT64_MAX, &v) || (neg && !v))
		return false;
	*ret = neg ? -(int64_t)v : (int64_t)v;
	return true;
}

static bool hash_word(struct view w, uint8_t out[MANIFEST_HASH])
{
	if (w.n != 2 * MANIFEST_HASH)
		return false;
	for (size_t i = 0; i < MANIFEST_HASH; i++) {
		int hi = nibble(w.p[2 * i], 'a'), lo = nibble(w.p[2 * i + 1], 'a');

		if (hi < 0 || lo < 0)
			return false;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	return true;
}

static bool mode_word(struct view w, uint32_t *ret)
{
	uint64_t v;

	if (!number(w, 8, 0777, &v))
		return false;
	*ret = (uint32_t)v;
	return true;
}

static bool parse_file(struct view *line, struct manifest_entry *ret)
{
	uint64_t layer = 0;
	bool ok =
	    mode_word(word(line), &ret->mode) && number(word(line), 10, INT64_MAX, &ret->size) &&
	    time_ns(word(line), &ret->mtime_ns) && hash_word(word(line), ret->hash) &&
	    number(word(line), 10, UINT32_MAX, &layer) &&
	    number(word(line), 10, UINT64_MAX, &ret->ino) && time_ns(word(line), &ret->ctime_ns);

	ret->layer = (uint32_t)layer;
	return ok;
}

/* What the sandbox's own state became the baseline of. */
static bool is_sandbox(struct view line)
{
	return line.n && line.p[0] >= 'A' && line.p[0] <= 'Z';
}

static bool parse_sandbox_file(struct view *line, struct manifest_entry *ret)
{
	return mode_word(word(line), &ret->mode) && mode_word(word(line), &ret->host_mode) &&
	       number(word(line), 10, INT64_MAX, &ret->size) &&
	       time_ns(word(line), &ret->mtime_ns) && hash_word(word(line), ret->hash) &&
	       number(word(line), 10, UINT64_MAX, &ret->content);
}

static bool parse_line(struct view line, struct manifest_entry *ret)
{
	struct view kind = word(&line);
	bool ok = false;

	if (kind.n != 1)
		return false;
	/* Everything but the two big buffers, which decode() fills. */
	memset(ret, 0, offsetof(struct manifest_entry, path));
	ret->path[0] = ret->target[0] = '\0';
	ret->kind = kind.p[0];
	ret->sandbox = is_sandbox(kind);
	switch (ret->kind) {
	case 'D':
		ok = mode_word(word(&line), &ret->mode) && mode_word(word(&line), &ret->host_mode);
		break;
	case 'F':
		ok = parse_sandbox_file(&line, ret);
		break;
	case 'd':
		ok = mode_word(word(&line), &ret->mode);
		break;
	case 'f':
		ok = parse_file(&line, ret);
		break;
	case 'l':
	case 'L':
		ok = decode(word(&line), ret->target, LINK_TARGET_MAX, &ret->target_len);
		break;
	default:
		break;
	}
	if (ret->sandbox)
		ret->kind = (char)(ret->kind - 'A' + 'a');
	/* The path is the rest: a further space would be an unescaped byte. */
	return ok && decode(line, ret->path, PATH_MEMBER_MAX, &ret->path_len) &&
	       path_is_member(ret->path, ret->path_len);
}

/* The line that begins at body offset `at`, without its newline. */
static struct view line_at(const struct manifest *m, size_t at)
{
	const char *p = m->body + at;
	const char *nl = memchr(p, '\n', m->body_len - at);

	return (struct view){p, nl ? (size_t)(nl - p) : m->body_len - at};
}

static size_t line_begin(const struct manifest *m, size_t at)
{
	const char *nl = at ? memrchr(m->body, '\n', at) : NULL;

	return nl ? (size_t)(nl - m->body) + 1 : 0;
}

/* Compares the line's decoded path with key; sets *broken when the path has no valid form. */
static int cmp_line(struct view line, const char *key, size_t n, bool *broken)
{
	const char *sp = memrchr(line.p, ' ', line.n);
	const char *p = sp ? sp + 1 : line.p, *end = line.p + line.n;

	for (size_t i = 0; p < end; i++) {
		int c = unescape(&p, end);

		if (c < 0) {
			*broken = true;
			return 0;
		}
		if (i == n)
			return 1;
		if (c != (uint8_t)key[i])
			return c < (uint8_t)key[i] ? -1 : 1;
		if (p == end)
			return i + 1 == n ? 0 : -1;
	}
	*broken = true; /* empty path */
	return 0;
}

/* Offset of the first line whose path is >= key; body_len if there is none. */
static size_t lower_bound(const struct manifest *m, const char *key, size_t n, bool *broken)
{
	size_t lo = 0, hi = m->body_len;

	while (lo < hi) {
		size_t at = line_begin(m, lo + (hi - lo) / 2);
		struct view line = line_at(m, at);

		if (cmp_line(line, key, n, broken) < 0)
			lo = at + line.n + 1;
		else
			hi = at;
		if (*broken)
			return at;
	}
	return lo;
}

static bool judge_frame(struct manifest *m)
{
	static const char first[] = MANIFEST_FIRST_LINE;
	const size_t first_n = sizeof(first) - 1;
	const char *nl;
	struct view last, tag;

	if (m->map_len < first_n + 1 || memcmp(m->map, first, first_n) != 0 ||
	    m->map[m->map_len - 1] != '\n')
		return false;
	/* The newline before the last line; the first line has one, so it exists. */
	nl = memrchr(m->map, '\n', m->map_len - 1);
	if (!nl || nl < m->map + first_n - 1)
		return false;
	last = (struct view){nl + 1, (size_t)(m->map + m->map_len - 1 - (nl + 1))};
	tag = word(&last);
	if (tag.n != 3 || memcmp(tag.p, "end", 3) != 0 || !number(last, 10, UINT64_MAX, &m->count))
		return false;
	m->body = m->map + first_n;
	m->body_len = (size_t)(nl + 1 - m->body);
	return (m->count == 0) == (m->body_len == 0);
}

int manifest_open(int fd, struct manifest **ret, struct err *e)
{
	struct manifest *m;
	struct stat st;
	void *p;

	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "manifest: cannot be examined");
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return err_set(e, ERR_PROTOCOL, "manifest: empty or not a regular file");
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_sys(e, ENOMEM, "manifest");
	m->map_len = (size_t)st.st_size;
	/* Written once under another name and renamed: nobody truncates it under the mapping. */
	p = mmap(NULL, m->map_len, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		free(m);
		return err_sys(e, errno, "manifest: cannot be mapped");
	}
	m->map = p;
	if (!judge_frame(m)) {
		manifest_free(m);
		return err_set(
		    e, ERR_PROTOCOL,
		    "manifest: first or last line is wrong, so it is not complete: make it "
		    "anew ('airlock manifest'; a run makes its own)");
	}
	*ret = m;
	return 0;
}

void manifest_free(struct manifest *m)
{
	if (!m)
		return;
	(void)munmap((void *)(uintptr_t)m->map, m->map_len);
	free(m);
}

uint64_t manifest_count(const struct manifest *m)
{
	return m->count;
}

int manifest_find(const struct manifest *m, const char *path, size_t n, struct manifest_entry *ret)
{
	bool broken = false;
	size_t at = lower_bound(m, path, n, &broken);

	if (broken)
		return -EPROTO;
	if (at >= m->body_len || cmp_line(line_at(m, at), path, n, &broken) != 0 || broken)
		return broken ? -EPROTO : 0;
	return parse_line(line_at(m, at), ret) ? 1 : -EPROTO;
}

int manifest_next(const struct manifest *m, size_t *pos, struct manifest_entry *ret)
{
	struct view line;

	if (*pos >= m->body_len)
		return 0;
	line = line_at(m, *pos);
	if (!parse_line(line, ret))
		return -EPROTO;
	*pos += line.n + 1;
	return 1;
}

int manifest_next_sandbox(const struct manifest *m, size_t *pos, struct manifest_entry *ret)
{
	while (*pos < m->body_len) {
		struct view line = line_at(m, *pos);

		if (is_sandbox(line))
			return manifest_next(m, pos, ret);
		*pos += line.n + 1;
	}
	return 0;
}

/* Takes "<v> " off the line. */
static bool eat_number(struct view *line, unsigned base, uint64_t v)
{
	uint64_t got = 0;
	size_t i = 0;

	/* 19 digits cannot overflow; a longer one is left to number(). */
	while (i < line->n && i < 19 && (unsigned)(uint8_t)line->p[i] - '0' < base)
		got = got * base + ((unsigned)(uint8_t)line->p[i++] - '0');
	if (!i || i == line->n || line->p[i] != ' ' || got != v || (i > 1 && line->p[0] == '0'))
		return false;
	line->p += i + 1;
	line->n -= i + 1;
	return true;
}

/* Takes the next word off, unread. */
static bool eat_word(struct view *line, size_t n)
{
	if (line->n <= n || line->p[n] != ' ')
		return false;
	line->p += n + 1;
	line->n -= n + 1;
	return true;
}

static bool same_path(struct view w, const char *path, size_t n)
{
	if (w.n != n || memcmp(w.p, path, n) != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!manifest_plain((uint8_t)path[i]))
			return false;
	return true;
}

bool manifest_skip_same(const struct manifest *m, size_t *pos, const struct manifest_stat *s)
{
	struct view line, all;
	bool same;

	if (*pos >= m->body_len || s->mtime_ns < 0 || s->ctime_ns < 0)
		return false;
	line = all = line_at(m, *pos);
	same = line.n > 2 && line.p[0] == s->kind && eat_word(&line, 1) &&
	       eat_number(&line, 8, s->mode);
	if (same && s->kind == 'f')
		same = eat_number(&line, 10, s->size) &&
		       eat_number(&line, 10, (uint64_t)s->mtime_ns) &&
		       eat_word(&line, 2 * MANIFEST_HASH) && word(&line).n &&
		       eat_number(&line, 10, s->ino) &&
		       eat_number(&line, 10, (uint64_t)s->ctime_ns);
	if (!same || !same_path(line, s->path, s->path_len))
		return false;
	*pos += all.n + 1;
	return true;
}

void manifest_seek_below(const struct manifest *m, const char *dir, size_t n, size_t *pos)
{
	char key[PATH_MEMBER_MAX + 2];
	bool broken = false;

	*pos = 0;
	if (!n)
		return;
	if (n > PATH_MEMBER_MAX) {
		*pos = m->body_len;
		return;
	}
	memcpy(key, dir, n);
	key[n] = '/';
	/* On a broken line *pos is that line, so manifest_next reports it. */
	*pos = lower_bound(m, key, n + 1, &broken);
}

void manifest_pass(const struct manifest *m, size_t *mark, size_t pos)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), lead = (size_t)(m->body - m->map), from, to;

	if (pos > m->body_len || pos < *mark || pos - *mark < MANIFEST_PASS_BYTES)
		return;
	from = (lead + *mark) / page * page;
	to = (lead + pos) / page * page;
	(void)madvise((void *)(uintptr_t)(m->map + from), to - from, MADV_DONTNEED);
	*mark = pos;
}

int manifest_seek(const struct manifest *m, const char *path, size_t n, size_t *pos)
{
	bool broken = false;

	*pos = lower_bound(m, path, n, &broken);
	return broken ? -EPROTO : 0;
}

uint64_t manifest_lines(const struct manifest *m, size_t from, size_t to)
{
	uint64_t n = 0;

	if (to > m->body_len)
		to = m->body_len;
	while (from < to) {
		const char *nl = memchr(m->body + from, '\n', to - from);

		n++;
		from = nl ? (size_t)(nl - m->body) + 1 : to;
	}
	return n;
}

int manifest_path_cmp(const char *a, size_t na, const char *b, size_t nb)
{
	size_t n = na < nb ? na : nb;
	int r = n ? memcmp(a, b, n) : 0;

	if (r)
		return r < 0 ? -1 : 1;
	return na < nb ? -1 : na > nb;
}
