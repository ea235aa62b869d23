#include "sync/image_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/limits.h"

#define PIECE (256 << 10)
#define GZIP_WINDOW (15 + 16) /* the largest, with a gzip header */

enum kind { UNKNOWN, PLAIN, GZIP, ZSTD };

struct image_stream {
	int fd;
	enum kind kind;
	bool eof, between; /* between: no compressed member is open */
	size_t at, len;	   /* of in */
	z_stream z;
	ZSTD_DCtx *zstd;
	uint8_t in[PIECE], out[PIECE];
};

int image_stream_new(int fd, struct image_stream **ret, struct err *e)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return err_set(e, ERR_NOMEM, "read the archive: out of memory");
	(*ret)->fd = fd;
	return 0;
}

void image_stream_free(struct image_stream *s)
{
	if (!s)
		return;
	if (s->kind == GZIP)
		(void)inflateEnd(&s->z);
	(void)ZSTD_freeDCtx(s->zstd);
	free(s);
}

static int fill(struct image_stream *s, struct err *e)
{
	ssize_t n;

	if (s->at < s->len || s->eof)
		return 0;
	do {
		n = read(s->fd, s->in, sizeof(s->in));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, errno, "read the archive");
	s->at = 0;
	s->len = (size_t)n;
	s->eof = n == 0;
	return 0;
}

/* A pipe may give its first bytes one by one. */
static int fill_magic(struct image_stream *s, struct err *e)
{
	while (s->len < 4 && !s->eof) {
		ssize_t n = read(s->fd, s->in + s->len, sizeof(s->in) - s->len);

		if (n < 0 && errno != EINTR)
			return err_sys(e, errno, "read the archive");
		s->eof = n == 0;
		s->len += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int recognise(struct image_stream *s, struct err *e)
{
	static const uint8_t gzip[] = {0x1f, 0x8b}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
	static const struct {
		const char *name;
		uint8_t magic[4];
		size_t n;
	} others[] = {{"xz", {0xfd, '7', 'z', 'X'}, 4}, {"bzip2", {'B', 'Z', 'h'}, 3}};
	int r = fill_magic(s, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (s->len >= others[i].n && memcmp(s->in, others[i].magic, others[i].n) == 0)
			return err_set(
			    e, ERR_INVALID,
			    "the archive is compressed with %s; gzip, zstd or none is read: decompress it first",
			    others[i].name);
	s->between = true;
	if (s->len >= sizeof(gzip) && memcmp(s->in, gzip, sizeof(gzip)) == 0) {
		if (inflateInit2(&s->z, GZIP_WINDOW) != Z_OK)
			return err_set(e, ERR_NOMEM, "read the archive: out of memory");
		s->kind = GZIP;
	} else if (s->len >= sizeof(zstd) && memcmp(s->in, zstd, sizeof(zstd)) == 0) {
		s->zstd = ZSTD_createDCtx();
		/* A frame says how much memory it wants: a cap for that is the kind's only defence. */
		if (!s->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax,
								    IMAGE_ZSTD_WINDOW_LOG)))
			return err_set(e, ERR_NOMEM, "read the archive: out of memory");
		s->kind = ZSTD;
	} else {
		s->kind = PLAIN;
	}
	return 0;
}

static int bad(struct err *e)
{
	return err_set(e, ERR_INVALID, "the archive's compressed bytes are damaged or cut short");
}

/* Several members behind one another are one stream, as gzip -d has it. */
static int next_gzip(struct image_stream *s, size_t *ret_n, struct err *e)
{
	int r;

	s->z.next_in = s->in + s->at;
	s->z.avail_in = (unsigned)(s->len - s->at);
	s->z.next_out = s->out;
	s->z.avail_out = sizeof(s->out);
	s->between = false;
	r = inflate(&s->z, Z_NO_FLUSH);
	s->at = s->len - s->z.avail_in;
	*ret_n = sizeof(s->out) - s->z.avail_out;
	if (r == Z_STREAM_END) {
		s->between = true;
		return inflateReset(&s->z) == Z_OK ? 0 : bad(e);
	}
	return r == Z_OK || (r == Z_BUF_ERROR && !s->eof) ? 0 : bad(e);
}

static int next_zstd(struct image_stream *s, size_t *ret_n, struct err *e)
{
	ZSTD_inBuffer in = {s->in + s->at, s->len - s->at, 0};
	ZSTD_outBuffer out = {s->out, sizeof(s->out), 0};
	size_t r = ZSTD_decompressStream(s->zstd, &out, &in);

	if (ZSTD_isError(r))
		return ZSTD_getErrorCode(r) == ZSTD_error_frameParameter_windowTooLarge
			   ? err_set(
				 e, ERR_LIMIT,
				 "the archive wants over 2^%d bytes of memory to be decompressed",
				 IMAGE_ZSTD_WINDOW_LOG)
			   : bad(e);
	s->at += in.pos;
	*ret_n = out.pos;
	s->between = r == 0;
	return 0;
}

int image_stream_next(struct image_stream *s, const uint8_t **ret_p, size_t *ret_n, struct err *e)
{
	int r = s->kind == UNKNOWN ? recognise(s, e) : 0;

	*ret_n = 0;
	while (r == 0 && *ret_n == 0) {
		r = fill(s, e);
		if (r < 0)
			break;
		if (s->at == s->len && s->eof && s->between)
			return 0;
		if (s->kind == PLAIN) {
			*ret_p = s->in + s->at;
			*ret_n = s->len - s->at;
			s->at = s->len;
			/* What was cut short, the reader of the archive tells. */
			return 0;
		}
		/* Output that waits in the decompressor comes without input, the end does not. */
		*ret_p = s->out;
		r = s->kind == GZIP ? next_gzip(s, ret_n, e) : next_zstd(s, ret_n, e);
		if (r == 0 && *ret_n == 0 && s->at == s->len && s->eof && !s->between)
			r = bad(e);
	}
	return r;
}
