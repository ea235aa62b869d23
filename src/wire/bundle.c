#include "wire/bundle.h"

#include <errno.h>
#include <string.h>

#define V2 "# v2 git bundle"
#define V3 "# v3 git bundle"
#define PACK_HEADER 12

struct parse {
	const char *p;
	size_t n, at;
	struct bundle *b;
	const char **why;
	bool has_ref;
};

static int refuse(struct parse *s, int r, const char *why)
{
	*s->why = why;
	return r;
}

/* 1 and the line without its end, 0 when its end has not come yet. */
static int next_line(struct parse *s, const char **line, size_t *len)
{
	const char *from = s->p + s->at, *nl = memchr(from, '\n', s->n - s->at);

	if (!nl && s->n >= BUNDLE_HEADER_MAX)
		return refuse(s, -E2BIG, "its header is too long");
	if (!nl)
		return 0;
	*line = from;
	*len = (size_t)(nl - from);
	s->at += *len + 1;
	if (s->at > BUNDLE_HEADER_MAX)
		return refuse(s, -E2BIG, "its header is too long");
	if (memchr(*line, '\0', *len))
		return refuse(s, -EPROTO, "its header holds a NUL byte");
	return 1;
}

static bool is(const char *line, size_t len, const char *word)
{
	return len == strlen(word) && memcmp(line, word, len) == 0;
}

static size_t oid_len(const struct parse *s)
{
	return s->b->sha256 ? 64 : 40;
}

static bool take_oid(const struct parse *s, const char *line, size_t len, char *ret)
{
	size_t want = oid_len(s);

	if (len < want)
		return false;
	for (size_t i = 0; i < want; i++)
		if (!strchr("0123456789abcdef", line[i]))
			return false;
	memcpy(ret, line, want);
	ret[want] = '\0';
	return true;
}

static int prerequisite(struct parse *s, const char *line, size_t len)
{
	if (s->has_ref)
		return refuse(s, -EPROTO, "a prerequisite comes after the reference");
	if (s->b->prereq_n == BUNDLE_PREREQ_MAX)
		return refuse(s, -E2BIG, "it has too many prerequisites");
	if (!take_oid(s, line, len, s->b->prereq[s->b->prereq_n]))
		return refuse(s, -EPROTO, "a prerequisite is not an object id");
	len -= oid_len(s);
	/* What follows is a subject for people: any bytes. */
	if (len && line[oid_len(s)] != ' ')
		return refuse(s, -EPROTO, "a prerequisite is not an object id");
	s->b->prereq_n++;
	return 0;
}

static int reference(struct parse *s, const char *line, size_t len, const char *ref)
{
	size_t oid = oid_len(s);

	if (s->has_ref)
		return refuse(s, -EPROTO, "it has more than one reference");
	if (!take_oid(s, line, len, s->b->head) || len <= oid || line[oid] != ' ')
		return refuse(s, -EPROTO, "its reference is not an object id and a name");
	if (!is(line + oid + 1, len - oid - 1, ref))
		return refuse(s, -EPROTO, "its reference has another name than the one asked for");
	s->has_ref = true;
	return 0;
}

static int capability(struct parse *s, const char *line, size_t len)
{
	if (s->b->version != 3 || s->has_ref || s->b->prereq_n)
		return refuse(s, -EPROTO, "a capability stands where none may");
	if (is(line, len, "object-format=sha256"))
		s->b->sha256 = true;
	else if (!is(line, len, "object-format=sha1"))
		return refuse(s, -EPROTO, "it has a capability that is not used here");
	return 0;
}

static int pack_header(struct parse *s)
{
	const unsigned char *h = (const unsigned char *)s->p + s->at;

	if (s->n - s->at < PACK_HEADER)
		return s->n >= BUNDLE_HEADER_MAX ? refuse(s, -E2BIG, "its header is too long") : 0;
	if (memcmp(h, "PACK", 4) != 0 || h[4] || h[5] || h[6] || (h[7] != 2 && h[7] != 3))
		return refuse(s, -EPROTO, "no pack follows its header");
	s->b->pack_at = s->at;
	s->b->pack_objects =
	    (uint32_t)h[8] << 24 | (uint32_t)h[9] << 16 | (uint32_t)h[10] << 8 | h[11];
	return 1;
}

static int signature(struct parse *s)
{
	const char *line;
	size_t len;
	int r;

	/* Whatever is no bundle is told at once, not when a line end comes. */
	if (memcmp(s->p, V2, s->n < 3 ? s->n : 3) != 0)
		return refuse(s, -EPROTO, "it does not begin like a bundle");
	r = next_line(s, &line, &len);
	if (r <= 0)
		return r;
	if (is(line, len, V2))
		s->b->version = 2;
	else if (is(line, len, V3))
		s->b->version = 3;
	else
		return refuse(s, -EPROTO, "it is not a bundle of version 2 or 3");
	return 1;
}

int bundle_parse(const char *p, size_t n, const char *ref, struct bundle *ret, const char **why)
{
	struct parse s = {.p = p, .n = n, .b = ret, .why = why};
	int r;

	memset(ret, 0, sizeof(*ret));
	*why = "";
	r = n ? signature(&s) : 0;
	if (r <= 0)
		return r;
	for (;;) {
		const char *line;
		size_t len;

		r = next_line(&s, &line, &len);
		if (r <= 0)
			return r;
		if (len == 0)
			break;
		if (line[0] == '@')
			r = capability(&s, line + 1, len - 1);
		else if (line[0] == '-')
			r = prerequisite(&s, line + 1, len - 1);
		else
			r = reference(&s, line, len, ref);
		if (r < 0)
			return r;
	}
	if (!s.has_ref)
		return refuse(&s, -EPROTO, "it has no reference");
	return pack_header(&s);
}
