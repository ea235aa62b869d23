#include "sync/image.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/cursor.h"
#include "base/str.h"
#include "os/helper.h"
#include "sync/image_proto.h"

#define LOOK_NS (100 * NS_PER_MS) /* between two looks at cancel */

static void get_text(struct cursor *c, char *out, size_t max)
{
	struct view v = cursor_bytes(c, max - 1);

	memcpy(out, v.n ? v.p : "", v.n);
	out[v.n] = '\0';
}

static int get_done(struct view v, struct image_facts *f, struct err *e)
{
	struct cursor c;

	cursor_init(&c, v.p, v.n);
	get_text(&c, f->digest, sizeof(f->digest));
	get_text(&c, f->source, sizeof(f->source));
	get_text(&c, f->arch, sizeof(f->arch));
	f->files = cursor_u64(&c);
	f->dirs = cursor_u64(&c);
	f->links = cursor_u64(&c);
	f->bytes = cursor_u64(&c);
	f->layers = cursor_u32(&c);
	f->specials = cursor_u64(&c);
	f->privileged = cursor_u64(&c);
	/* The helper has read foreign bytes: the name of a directory is not taken from it unseen. */
	if (!cursor_end(&c) || !image_is_hex(f->digest) ||
	    (f->source[0] && !image_is_hex(f->source)))
		return err_set(e, ERR_PROTOCOL, "airlock-image: a malformed answer");
	return 0;
}

static int get_error(struct view v, struct err *e)
{
	struct cursor c;
	char text[sizeof(e->text)];
	struct buf b = BUF_INIT(4 * sizeof(text));
	uint32_t code;
	int r;

	cursor_init(&c, v.p, v.n);
	code = cursor_u32(&c);
	get_text(&c, text, sizeof(text));
	if (c.failed || code == ERR_NONE || code >= ERR_CODE_COUNT)
		return err_set(e, ERR_PROTOCOL, "airlock-image: a malformed error");
	/* B-01: the helper has read foreign bytes, so its words are such. What it escaped itself stays as it is. */
	for (size_t i = 0, n = strlen(text), k; i < n; i += k ? k : 1) {
		k = text[i] == '\\' ? 1 : str_printable_len(text + i, n - i);
		(void)(k ? buf_put(&b, text + i, k)
			 : buf_putf(&b, "\\x%02x", (unsigned char)text[i]));
	}
	r = err_set(e, (enum err_code)code, "%s", buf_text(&b));
	buf_done(&b);
	return r;
}

static int answer(struct chan *ch, const volatile int *cancel, struct image_facts *ret,
		  struct err *e)
{
	struct frame f;
	int r;

	do {
		r = chan_recv(ch, clock_mono_ns() + LOOK_NS, &f, NULL, e);
		if (cancel && *cancel)
			return err_set(e, ERR_CANCELLED, "cancelled: nothing was imported");
	} while (r == -EAGAIN);
	if (r == 0)
		return err_set(
		    e, ERR_INTERNAL,
		    "airlock-image ended without an answer: out of memory, or it met a limit");
	if (r < 0)
		return r;
	if (f.type == IF_ERROR)
		return get_error(f.payload, e);
	return f.type == IF_DONE ? get_done(f.payload, ret, e)
				 : err_set(e, ERR_PROTOCOL, "airlock-image: frame %u", f.type);
}

int image_unpack(const struct image_source *s, int into, struct image_facts *ret, struct err *e)
{
	struct buf b = BUF_INIT(4096);
	struct helper h = {0};
	struct chan ch = {.fd = -1};
	const int fds[] = {s->fd, into};
	int r = helper_start(&h, "airlock-image", &ch, e), status;

	*ret = (struct image_facts){0};
	(void)buf_u8(&b, s->directory);
	(void)buf_u8(&b, s->without_landlock);
	(void)buf_str(&b, s->ref ? s->ref : "");
	if (r == 0 && b.err)
		r = err_sys(e, -b.err, "ask airlock-image");
	if (r == 0)
		r = chan_send(&ch, IF_SETUP, b.data, b.len, fds, 2, INT64_MAX, e);
	if (r == 0)
		r = answer(&ch, s->cancel, ret, e);
	buf_done(&b);
	chan_done(&ch);
	if (r == 0) {
		r = process_wait(&h.proc, &h.popts, &status, e);
		h.started = false;
		if (r == 0 && status)
			r = err_set(e, ERR_INTERNAL, "airlock-image ended with status %d", status);
	}
	helper_kill(&h);
	return r;
}
