/*
 * json.h: a strict JSON reader for flat envelopes of known shape, without allocation or recursion.
 *
 * It reads what the caller asks for and nothing else: an object, a key, a text, texts in a list, a whole number. Any other
 * value is an error, so depth is no question. Texts must be UTF-8, without control bytes, without \u0000 and
 * without half surrogate pairs. The first failure sticks, as in base/cursor.h.
 *
 * No name here may be one of libjansson's: airlock links both.
 *
 *	json_init(&j, p, n);
 *	json_enter(&j);
 *	while (json_key(&j, &key)) ... json_text(&j, &v) or json_number(&j, max) ...
 *	if (!json_end(&j)) j.why
 */
#ifndef AIRLOCK_WIRE_JSON_H
#define AIRLOCK_WIRE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

struct json {
	const unsigned char *p, *end;
	bool failed, first; /* first: no member of the open object was read yet */
	const char *why;    /* static text of the first failure */
};

/* A text between its quotes, judged but not unescaped. */
struct json_text {
	struct view raw;
	size_t len; /* bytes when unescaped */
};

void json_init(struct json *j, const void *p, size_t n);
void json_fail(struct json *j, const char *why);
/* The brace that opens an object. */
void json_enter(struct json *j);
/* The next key, with its colon; false at the closing brace or after a failure. */
bool json_key(struct json *j, struct json_text *ret);
/* As json_key, for the object around one that has ended: call when json_key of the inner one gave false. */
void json_resume(struct json *j);
void json_text(struct json *j, struct json_text *ret);
/* The bracket that opens a list, if one is next; its texts are then read with json_text, json_more between them. */
bool json_list(struct json *j);
/* True: a comma, and one more; false: the bracket that closes it, or a failure. */
bool json_more(struct json *j);
/* A whole number 0..max without sign, fraction, exponent or leading zeros. */
uint64_t json_number(struct json *j, uint64_t max);
/* True if nothing failed and only white space is left. */
bool json_end(struct json *j);

/* True if the text is this word, written without escapes. */
bool json_is(const struct json_text *t, const char *word);
/* Exactly t->len bytes at out. */
void json_unescape(const struct json_text *t, char *out) __attribute__((nonnull));
/* Appends p as a quoted text. -EILSEQ: not UTF-8 (something may have been appended). Else as buf_put. */
int json_put(struct buf *b, struct view p);

#endif
