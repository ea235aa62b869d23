#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/image_internal.h"

#define READ_SIZE (256 << 10)

/* The list begins with this, so that no other list has the same digest. */
static const char version[] = "airlock-image-1\n";

struct walk {
	crypto_hash_sha256_state h;
	struct image_facts *facts;
	struct err *e;
	unsigned char *buf;
	char path[PATH_MEMBER_MAX + 1]; /* of what is looked at, for messages and the list */
	size_t len;
	char shown[1024]; /* the same for messages: a foreign name commands no terminal */
};

/* Its names, in the order of bytes. strv_add() walks the whole list for each. */
struct names {
	char **v;
	size_t n, room;
};

bool image_is_hex(const char *s)
{
	return strlen(s) == IMAGE_HEX && strspn(s, "0123456789abcdef") == IMAGE_HEX;
}

static const char *shown(struct walk *w)
{
	struct buf b = BUF_INIT(sizeof(w->shown));
	int saved = errno; /* beside it in the arguments of err_sys() */

	(void)str_printable(&b, w->path, strnlen(w->path, 200));
	(void)snprintf(w->shown, sizeof(w->shown), "/%s", buf_text(&b));
	buf_done(&b);
	errno = saved;
	return w->shown;
}

int image_too_large(struct err *e)
{
	return err_set(e, ERR_LIMIT,
		       "the image has over %llu bytes, a file of several names counted for each",
		       (unsigned long long)IMAGE_BYTES_MAX);
}

static void put(struct walk *w, const void *p, size_t n)
{
	(void)crypto_hash_sha256_update(&w->h, p, n);
}

static void put_u64(struct walk *w, uint64_t v)
{
	unsigned char b[8];

	for (size_t i = 0; i < sizeof(b); i++)
		b[i] = (unsigned char)(v >> (8 * i));
	put(w, b, sizeof(b));
}

/* Kind, path and the zero byte that ends it. */
static void put_entry(struct walk *w, char kind)
{
	put(w, &kind, 1);
	put(w, w->path, w->len + 1);
}

static int put_file(struct walk *w, int dir, const char *name, const struct stat *st)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	unsigned char sum[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state h;
	uint64_t total = 0;
	ssize_t n;

	if (fd < 0)
		return err_sys(w->e, errno, "open %s", shown(w));
	/* A file with many names is read as often. */
	if (w->facts->bytes + (uint64_t)st->st_size > IMAGE_BYTES_MAX)
		return image_too_large(w->e);
	(void)crypto_hash_sha256_init(&h);
	while ((n = read(fd, w->buf, READ_SIZE)) > 0) {
		(void)crypto_hash_sha256_update(&h, w->buf, (size_t)n);
		total += (uint64_t)n;
	}
	if (n < 0)
		return err_sys(w->e, errno, "read %s", shown(w));
	(void)crypto_hash_sha256_final(&h, sum);
	put_entry(w, st->st_mode & 0111 ? 'x' : 'f');
	put_u64(w, total);
	put(w, sum, sizeof(sum));
	w->facts->files++;
	w->facts->bytes += total;
	return 0;
}

static int put_link(struct walk *w, int dir, const char *name)
{
	char target[LINK_TARGET_MAX + 1];
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	if (n < 0 || (size_t)n == sizeof(target))
		return err_sys(w->e, n < 0 ? errno : ENAMETOOLONG, "read link %s", shown(w));
	put_entry(w, 'l');
	put_u64(w, (uint64_t)n);
	put(w, target, (size_t)n);
	w->facts->links++;
	return 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_done(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

static int names_add(struct names *l, const char *name)
{
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		char **v = reallocarray(l->v, room, sizeof(*v));

		if (!v)
			return -ENOMEM;
		l->v = v;
		l->room = room;
	}
	l->v[l->n] = strdup(name);
	if (!l->v[l->n])
		return -ENOMEM;
	l->n++;
	return 0;
}

static int list(struct walk *w, int fd, struct names *ret)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (copy < 0 || !(d = fdopendir(copy))) {
		cleanup_fd(&copy);
		return err_sys(w->e, errno, "list %s", shown(w));
	}
	rewinddir(d);
	for (errno = 0; (de = readdir(d)); errno = 0)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		    names_add(ret, de->d_name) < 0)
			return err_set(w->e, ERR_NOMEM, "list %s: out of memory", shown(w));
	if (errno)
		return err_sys(w->e, errno, "list %s", shown(w));
	if (ret->n)
		qsort(ret->v, ret->n, sizeof(*ret->v), by_bytes);
	return 0;
}

static int walk(struct walk *w, int dir, unsigned depth);

static int put_one(struct walk *w, int dir, const char *name, unsigned depth)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(w->e, errno, "look at %s", shown(w));
	if (S_ISREG(st.st_mode))
		return put_file(w, dir, name, &st);
	if (S_ISLNK(st.st_mode))
		return put_link(w, dir, name);
	if (!S_ISDIR(st.st_mode))
		return err_set(w->e, ERR_INVALID,
			       "%s is neither file, directory nor link: no image has that",
			       shown(w));
	if (depth == PATH_DEPTH_MAX)
		return err_set(w->e, ERR_LIMIT, "%s: over %d directories deep", shown(w),
			       PATH_DEPTH_MAX);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(w->e, errno, "open %s", shown(w));
	put_entry(w, 'd');
	w->facts->dirs++;
	return walk(w, fd, depth + 1);
}

/* In the order of bytes, so that no file system's order shows. */
static int walk(struct walk *w, int dir, unsigned depth)
{
	struct names names __attribute__((cleanup(names_done))) = {0};
	size_t at = w->len;
	int r = list(w, dir, &names);

	for (size_t i = 0; r == 0 && i < names.n; i++) {
		size_t n = strlen(names.v[i]);

		if (at + 1 + n >= sizeof(w->path))
			return err_set(w->e, ERR_LIMIT, "%s: a path of over %d bytes", shown(w),
				       PATH_MEMBER_MAX);
		w->len = at;
		if (at)
			w->path[w->len++] = '/';
		memcpy(w->path + w->len, names.v[i], n + 1);
		w->len += n;
		r = put_one(w, dir, names.v[i], depth);
	}
	w->len = at;
	w->path[at] = '\0';
	return r;
}

int image_digest(int dir, struct image_facts *ret, struct err *e)
{
	unsigned char sum[crypto_hash_sha256_BYTES];
	struct walk *w = malloc(sizeof(*w));
	int r;

	if (!w)
		return err_set(e, ERR_NOMEM, "image: out of memory");
	*w = (struct walk){.facts = ret, .e = e, .buf = malloc(READ_SIZE)};
	ret->files = ret->dirs = ret->links = ret->bytes = 0;
	(void)crypto_hash_sha256_init(&w->h);
	put(w, version, sizeof(version) - 1);
	r = w->buf ? walk(w, dir, 0) : err_set(e, ERR_NOMEM, "image: out of memory");
	if (r == 0) {
		(void)crypto_hash_sha256_final(&w->h, sum);
		(void)sodium_bin2hex(ret->digest, sizeof(ret->digest), sum, sizeof(sum));
	}
	free(w->buf);
	free(w);
	return r;
}
