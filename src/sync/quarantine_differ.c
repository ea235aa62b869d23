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

#define BATCH 512

struct item {
	char oid[BUNDLE_OID_MAX + 1];
	char *path; /* owned */
	struct quarantine_file here;
};

struct quarantine_differ {
	const struct quarantine *q;
	int (*on_path)(void *arg, const char *path);
	void *arg;
	struct item items[BATCH];
	size_t n;
	/* What git puts out: a line "<oid> <type> <size>", so many bytes, a newline. */
	size_t at;
	char line[BUNDLE_OID_MAX + 64];
	size_t line_n;
	uint64_t left;
	enum { IN_LINE, IN_BYTES, IN_END } where;
	crypto_generichash_state h;
};

struct quarantine_differ *quarantine_differ_new(const struct quarantine *q,
						int (*on_path)(void *arg, const char *path),
						void *arg)
{
	struct quarantine_differ *d = calloc(1, sizeof(*d));

	if (d) {
		d->q = q;
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
	d->where = IN_BYTES;
	return 0;
}

static int judged(struct quarantine_differ *d)
{
	const struct item *it = &d->items[d->at++];
	uint8_t hash[MANIFEST_HASH];

	d->where = IN_LINE;
	(void)crypto_generichash_final(&d->h, hash, MANIFEST_HASH);
	return memcmp(hash, it->here.hash, MANIFEST_HASH) ? d->on_path(d->arg, it->path) : 0;
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

			(void)crypto_generichash_update(&d->h, (const unsigned char *)p + i, k);
			d->left -= k;
			i += k;
		} else {
			i++; /* the newline behind the bytes */
			r = judged(d);
		}
	}
	return r;
}

int quarantine_differ_end(struct quarantine_differ *d, struct err *e)
{
	static const char *const words[] = {"cat-file", "--batch", NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(BATCH * (BUNDLE_OID_MAX + 1) + 1);
	struct process_opts io = PROCESS_OPTS_INIT;
	int r = 0;

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
	empty(d);
	return r;
}

int quarantine_differ_add(struct quarantine_differ *d, const char *oid, const char *path,
			  const struct quarantine_file *here, struct err *e)
{
	struct item *it = &d->items[d->n];

	*it = (struct item){.path = strdup(path), .here = *here};
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
	return S_ISREG(st.st_mode) ? hash_file(fd, ret) : -EINVAL;
}
