#include "sync/quarantine_differ.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "sync/quarantine_convert.h"

#define BATCH 512

struct item {
	char oid[BUNDLE_OID_MAX + 1];
	char *path; /* owned */
	bool exec;
	struct quarantine_file here;
	enum { SAME, LINES_DIFFER, BYTES_DIFFER } found;
};

struct quarantine_differ {
	const struct quarantine *q;
	int top; /* borrowed */
	quarantine_on_differ *on_path;
	void *arg;
	struct quarantine_settings settings;
	struct item items[BATCH];
	size_t n;
	/* What git puts out: a line "<oid> <type> <size>", so many bytes, a newline. */
	size_t at;
	char line[BUNDLE_OID_MAX + 64];
	size_t line_n;
	uint64_t left;
	enum { IN_LINE, IN_BYTES, IN_END } where;
	crypto_generichash_state h, crlf;
	bool plain; /* so far neither CR nor NUL */
};

struct quarantine_differ *quarantine_differ_new(const struct quarantine *q, int top,
						quarantine_on_differ *on_path, void *arg)
{
	struct quarantine_differ *d = calloc(1, sizeof(*d));

	if (d) {
		d->q = q;
		d->top = top;
		d->on_path = on_path;
		d->arg = arg;
	}
	return d;
}

static void empty(struct quarantine_differ *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->items[i].path);
	d->n = d->at = d->line_n = 0;
	d->where = IN_LINE;
}

void quarantine_differ_free(struct quarantine_differ *d)
{
	if (d)
		empty(d);
	free(d);
}

/* "<oid> blob <size>". */
static int begin(struct quarantine_differ *d)
{
	const struct item *it = &d->items[d->at < d->n ? d->at : 0];
	size_t n = strlen(it->oid);
	char *end;

	d->line[d->line_n] = '\0';
	d->line_n = 0;
	if (d->at == d->n || strncmp(d->line, it->oid, n) != 0 ||
	    strncmp(d->line + n, " blob ", 6) != 0)
		return -EPROTO;
	errno = 0;
	d->left = strtoull(d->line + n + 6, &end, 10);
	if (*end || errno)
		return -EPROTO;
	(void)crypto_generichash_init(&d->h, NULL, 0, MANIFEST_HASH);
	d->crlf = d->h;
	d->plain = !it->here.link;
	d->where = IN_BYTES;
	return 0;
}

static void judged(struct quarantine_differ *d)
{
	struct item *it = &d->items[d->at++];
	uint8_t hash[MANIFEST_HASH], crlf[MANIFEST_HASH];

	d->where = IN_LINE;
	(void)crypto_generichash_final(&d->h, hash, MANIFEST_HASH);
	(void)crypto_generichash_final(&d->crlf, crlf, MANIFEST_HASH);
	if (memcmp(hash, it->here.hash, MANIFEST_HASH) == 0)
		it->found = SAME;
	else if (d->plain && memcmp(crlf, it->here.hash, MANIFEST_HASH) == 0)
		it->found = LINES_DIFFER;
	else
		it->found = BYTES_DIFFER;
}

static void take(struct quarantine_differ *d, const char *p, size_t n)
{
	(void)crypto_generichash_update(&d->h, (const unsigned char *)p, n);
	d->plain = d->plain && !memchr(p, '\r', n) && !memchr(p, '\0', n);
	while (d->plain && n) {
		const char *lf = memchr(p, '\n', n);
		size_t k = lf ? (size_t)(lf - p) : n;

		(void)crypto_generichash_update(&d->crlf, (const unsigned char *)p, k);
		if (lf)
			(void)crypto_generichash_update(&d->crlf, (const unsigned char *)"\r\n", 2);
		k += lf != NULL;
		p += k;
		n -= k;
	}
}

static int on_line(struct quarantine_differ *d, char c)
{
	if (c == '\n')
		return begin(d);
	if (d->line_n == sizeof(d->line) - 1)
		return -EPROTO;
	d->line[d->line_n++] = c;
	return 0;
}

static int on_bytes(void *arg, const char *p, size_t n)
{
	struct quarantine_differ *d = arg;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n;) {
		if (d->where == IN_LINE) {
			r = on_line(d, p[i++]);
		} else if (d->left) {
			size_t k = d->left < n - i ? (size_t)d->left : n - i;

			take(d, p + i, k);
			d->left -= k;
			i += k;
		} else {
			i++; /* the newline behind the bytes */
			judged(d);
		}
	}
	return r;
}

/* Bytes that differ are looked at again: git may have made them so. Where it does not say, it did not. */
static void ask_conversions(struct quarantine_differ *d, enum quarantine_convert by[BATCH])
{
	enum quarantine_convert got[BATCH];
	const char *paths[BATCH];
	size_t at[BATCH], n = 0;

	for (size_t i = 0; i < d->at; i++) {
		by[i] = CONVERT_NOTHING;
		if (d->items[i].found == SAME || d->items[i].here.link)
			continue;
		at[n] = i;
		paths[n++] = d->items[i].path;
	}
	if (!n)
		return;
	quarantine_settings_read(d->q->host, &d->settings);
	if (quarantine_convert(d->q->host, &d->settings, d->top, paths, n, got) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		by[at[i]] = got[i];
}

static bool mode_differs(struct quarantine_differ *d, const struct item *it)
{
	if (it->here.link || it->here.exec == it->exec)
		return false;
	quarantine_settings_read(d->q->host, &d->settings);
	return !d->settings.plain_mode;
}

/* What git did not show any more is no part of it. */
static int tell(struct quarantine_differ *d)
{
	enum quarantine_convert by[BATCH];
	int r = 0;

	ask_conversions(d, by);
	for (size_t i = 0; r == 0 && i < d->at; i++) {
		const struct item *it = &d->items[i];
		bool same =
		    it->found == SAME || (it->found == LINES_DIFFER && by[i] == CONVERT_LINES);

		if (!same)
			r = d->on_path(d->arg, it->path,
				       by[i] == CONVERT_BYTES ? DIFFERS_CONVERTED : DIFFERS_BYTES);
		else if (mode_differs(d, it))
			r = d->on_path(d->arg, it->path, DIFFERS_MODE);
	}
	return r;
}

int quarantine_differ_end(struct quarantine_differ *d, struct err *e)
{
	static const char *const words[] = {"cat-file", "--batch", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(BATCH * (BUNDLE_OID_MAX + 1) + 1);
	struct process_opts io = PROCESS_OPTS_INIT;
	int r = 0, told;

	for (size_t i = 0; r == 0 && i < d->n; i++)
		r = buf_putf(&in, "%s\n", d->items[i].oid);
	if (r == 0 && d->n) {
		io.in = buf_text(&in);
		io.in_len = in.len;
		io.on_out = on_bytes;
		io.on_out_arg = d;
		r = quarantine_git(d->q, words, &io, e);
		if (r == 0 && d->at != d->n)
			r = err_set(e, ERR_IO, "git did not show all files of the commits");
	}
	told = tell(d);
	empty(d);
	return r < 0 ? r : told;
}

int quarantine_differ_add(struct quarantine_differ *d, const char *oid, bool exec, const char *path,
			  const struct quarantine_file *here, struct err *e)
{
	struct item *it = &d->items[d->n];

	*it = (struct item){.path = strdup(path), .exec = exec, .here = *here};
	if (!it->path)
		return err_set(e, ERR_NOMEM, "out of memory");
	(void)snprintf(it->oid, sizeof(it->oid), "%s", oid);
	return ++d->n == BATCH ? quarantine_differ_end(d, e) : 0;
}

static int hash_file(int fd, struct quarantine_file *ret)
{
	crypto_generichash_state h;
	_cleanup_free_ char *p = malloc(65536);
	ssize_t n;

	if (!p)
		return -ENOMEM;
	(void)crypto_generichash_init(&h, NULL, 0, MANIFEST_HASH);
	while ((n = read(fd, p, 65536)) > 0)
		(void)crypto_generichash_update(&h, (const unsigned char *)p, (size_t)n);
	(void)crypto_generichash_final(&h, ret->hash, MANIFEST_HASH);
	return n < 0 ? -errno : 0;
}

int quarantine_file_at(struct beneath *host, const char *path, struct quarantine_file *ret)
{
	char target[LINK_TARGET_MAX + 1];
	_cleanup_fd_ int fd = -1;
	struct stat st;
	long n = beneath_readlink(host, path, target, sizeof(target) - 1);

	*ret = (struct quarantine_file){.link = n > 0};
	if (n < 0)
		return (int)n;
	if (n > 0)
		return crypto_generichash(ret->hash, MANIFEST_HASH, (const unsigned char *)target,
					  (size_t)n, NULL, 0);
	fd = beneath_open(host, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	ret->exec = st.st_mode & S_IXUSR;
	return S_ISREG(st.st_mode) ? hash_file(fd, ret) : -EINVAL;
}
