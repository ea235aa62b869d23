#include "api/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/path.h"

#define LEAF "seal.key"
#define LOCK "seal.lock"
#define KEYFILE_MAX 4096
#define KEY_HEX 64

/* --- files -------------------------------------------------------------------------------- */

static int read_whole(int fd, const char *path, char **ret, struct err *e)
{
	char text[KEYFILE_MAX + 1];
	size_t n = 0;
	ssize_t k;

	while ((k = read(fd, text + n, sizeof(text) - n)) > 0)
		n += (size_t)k;
	if (k < 0)
		return err_sys(e, errno, "read %s", path);
	if (n > KEYFILE_MAX)
		return err_set(e, ERR_LIMIT, "%s has more than %d bytes", path, KEYFILE_MAX);
	while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	text[n] = '\0';
	*ret = strlen(text) == n ? strdup(text) : NULL;
	sodium_memzero(text, sizeof(text));
	return *ret ? 0 : err_set(e, ERR_INVALID, "%s holds a zero byte", path);
}

static int open_checked(const char *path, bool private, char **ret, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : err_sys(e, errno, "open %s", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "%s is not a plain file", path);
	if (private && (st.st_uid != geteuid() || (st.st_mode & 077)))
		return err_set(e, ERR_PERMISSION,
			       "%s can be read or changed by others: 'chmod 600 %s', owned by you",
			       path, path);
	return read_whole(fd, path, ret, e);
}

/* On the disk when it returns: what was sealed with a key that is lost is lost. first: -EEXIST if it is there. */
static int keyfile_write(const char *dir, const char *leaf, const char *text, bool first,
			 struct err *e)
{
	_cleanup_free_ char *path = path_join(dir, leaf);
	_cleanup_buf_ struct buf tmp = BUF_INIT(8192);
	_cleanup_fd_ int fd = -1, parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char unique[ID_LEN + 1];
	size_t n = strlen(text);
	int r = 0;

	if (!path || id_new(unique) < 0 || buf_putf(&tmp, "%s/.%s.%s", dir, leaf, unique) < 0)
		return err_set(e, ERR_NOMEM, "write a key: out of memory");
	fd = open(buf_text(&tmp), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (parent < 0 || fd < 0 || write(fd, text, n) != (ssize_t)n || fsync(fd) < 0)
		r = -errno;
	else if (first ? link(buf_text(&tmp), path) < 0 : rename(buf_text(&tmp), path) < 0)
		r = -errno;
	if (fd >= 0 && (first || r < 0))
		(void)unlink(buf_text(&tmp));
	if (r == 0 && fsync(parent) < 0)
		r = -errno;
	return r == -EEXIST || r == 0 ? r : err_sys(e, -r, "write %s", path);
}

/* A credential of systemd's. -ENOENT without a word: it gives none. */
static int credential_read(const char *name, char **ret, struct err *e)
{
	const char *dir = getenv("CREDENTIALS_DIRECTORY");
	_cleanup_free_ char *path = dir && dir[0] == '/' ? path_join(dir, name) : NULL;

	if (!dir || dir[0] != '/')
		return -ENOENT;
	return path ? open_checked(path, false, ret, e)
		    : err_set(e, ERR_NOMEM, "read a key: out of memory");
}

bool seal_of_systemd(void)
{
	char *text = NULL;
	bool there = credential_read(SEAL_CREDENTIAL, &text, NULL) != -ENOENT;

	seal_wipe(&text);
	return there;
}

bool seal_has_file(const char *dir)
{
	_cleanup_free_ char *path = path_join(dir, LEAF);
	struct stat st;

	return path && lstat(path, &st) == 0;
}

int keyfile_read(const char *dir, const char *name, const char *leaf, char **ret, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	unsigned char fresh[32];
	char hex[KEY_HEX + 1];
	int r;

	r = credential_read(name, ret, e);
	if (r != -ENOENT)
		return r;
	path = path_join(dir, leaf);
	if (!path)
		return err_set(e, ERR_NOMEM, "read a key: out of memory");
	r = open_checked(path, true, ret, e);
	if (r != -ENOENT)
		return r;
	randombytes_buf(fresh, sizeof(fresh));
	(void)sodium_bin2hex(hex, sizeof(hex), fresh, sizeof(fresh));
	sodium_memzero(fresh, sizeof(fresh));
	r = keyfile_write(dir, leaf, hex, true, e);
	*ret = r < 0 ? NULL : strdup(hex);
	sodium_memzero(hex, sizeof(hex));
	/* Another first start was faster: its key is the key. */
	if (r == -EEXIST)
		return open_checked(path, true, ret, e);
	return r < 0 ? r : *ret ? 0 : err_set(e, ERR_NOMEM, "make a key: out of memory");
}

/* --- keys --------------------------------------------------------------------------------- */

static int add_key(struct seal *s, const char *hex, size_t n, struct err *e)
{
	struct seal_key *k = &s->v[s->n];
	unsigned char hash[crypto_generichash_BYTES];
	size_t len = 0;

	if (s->n == SEAL_KEYS_MAX)
		return err_set(e, ERR_LIMIT, "there are more than %d sealing keys", SEAL_KEYS_MAX);
	if (n != KEY_HEX || sodium_hex2bin(k->key, sizeof(k->key), hex, n, NULL, &len, NULL) != 0 ||
	    len != sizeof(k->key))
		return err_set(e, ERR_INVALID,
			       "line %zu of the sealing key is not %d hexadecimal digits", s->n + 1,
			       KEY_HEX);
	(void)crypto_generichash(hash, sizeof(hash), k->key, sizeof(k->key), NULL, 0);
	(void)sodium_bin2hex(k->id, sizeof(k->id), hash, SECRET_KEY_ID_LEN / 2);
	s->n++;
	return 0;
}

static int take_lock(struct seal *s, const char *dir, struct err *e)
{
	_cleanup_free_ char *path = path_join(dir, LOCK);
	int r;

	if (!path)
		return err_set(e, ERR_NOMEM, "sealing key: out of memory");
	s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	do
		r = s->lock < 0 ? -1
				: flock(s->lock, LOCK_SH); /* a change of keys takes a moment */
	while (r < 0 && errno == EINTR);
	return r < 0 ? err_sys(e, errno, "lock %s", path) : 0;
}

static int add_lines(struct seal *s, const char *text, struct err *e)
{
	int r = 0;

	for (const char *p = text; r == 0 && *p;) {
		size_t n = strcspn(p, "\n");

		r = add_key(s, p, n, e);
		p += n + (p[n] == '\n');
	}
	return r;
}

/* What a rotation leaves behind it: opens, and never seals. */
static int add_old(struct seal *s, struct err *e)
{
	_cleanup_secret_ char *text = NULL;
	int r = credential_read(SEAL_CREDENTIAL_OLD, &text, e);

	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : err_wrap(e, add_lines(s, text, e), SEAL_CREDENTIAL_OLD);
}

/* The keys as they are under the lock that is held now, in place of those before. On failure these stay. */
static int load(struct seal *s, const char *dir, struct err *e)
{
	_cleanup_secret_ char *text = NULL;
	/* Guarded and locked where the limit allows; plain memory is no reason not to start. */
	struct seal now = {.v = sodium_allocarray(SEAL_KEYS_MAX, sizeof(*s->v))};
	int r = now.v ? keyfile_read(dir, SEAL_CREDENTIAL, LEAF, &text, e)
		      : err_set(e, ERR_NOMEM, "sealing key: out of memory");

	if (r == 0)
		r = add_lines(&now, text, e);
	if (r == 0 && now.n == 0)
		r = err_set(e, ERR_INVALID, "the file of the sealing key is empty");
	if (r == 0)
		r = add_old(&now, e);
	if (r < 0) {
		sodium_free(now.v);
		return r;
	}
	sodium_free(s->v);
	s->v = now.v;
	s->n = now.n;
	return 0;
}

int seal_shared(struct seal *s, const char *dir, struct err *e)
{
	int r;

	do
		r = flock(s->lock, LOCK_SH);
	while (r < 0 && errno == EINTR);
	return r < 0 ? err_sys(e, errno, "lock %s/" LOCK, dir) : load(s, dir, e);
}

/* The kernel lets the old lock go before it looks for the new one: a failure leaves none, and whoever came between changed the keys. */
int seal_alone(struct seal *s, const char *dir, struct err *e)
{
	int r;

	if (flock(s->lock, LOCK_EX | LOCK_NB) == 0)
		return load(s, dir, e);
	if (errno != EWOULDBLOCK)
		return err_sys(e, errno, "lock %s/" LOCK, dir);
	r = seal_shared(s, dir, e);
	if (r < 0)
		return r;
	(void)err_set(
	    e, ERR_CONFLICT,
	    "the sealing key of %s is in use, by airlockd or a run of it: stop it first, or "
	    "what it seals from now on could never be opened again",
	    dir);
	return -EBUSY;
}

int seal_open(struct seal *s, const char *dir, struct err *e)
{
	int r;

	*s = (struct seal){.lock = -1};
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "libsodium does not start");
	r = take_lock(s, dir, e);
	if (r == 0)
		r = load(s, dir, e);
	if (r < 0)
		seal_done(s);
	return r;
}

void seal_done(struct seal *s)
{
	sodium_free(s->v);
	/* Also of one that was never opened, all zero. */
	if (s->lock > 0)
		(void)close(s->lock);
	*s = (struct seal){.lock = -1};
}

static int save(const struct seal *s, const char *dir, size_t n, struct err *e)
{
	char text[SEAL_KEYS_MAX * (KEY_HEX + 1) + 1];
	int r;

	for (size_t i = 0; i < n; i++) {
		(void)sodium_bin2hex(text + i * (KEY_HEX + 1), KEY_HEX + 1, s->v[i].key,
				     sizeof(s->v[i].key));
		text[i * (KEY_HEX + 1) + KEY_HEX] = '\n';
	}
	text[n * (KEY_HEX + 1)] = '\0';
	r = keyfile_write(dir, LEAF, text, false, e);
	sodium_memzero(text, sizeof(text));
	return r;
}

int seal_add_key(struct seal *s, const char *dir, bool (*used)(void *arg, const char *key_id),
		 void *arg, struct err *e)
{
	unsigned char fresh[32];
	char hex[KEY_HEX + 1];
	size_t n = 0;
	int r = seal_alone(s, dir, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < s->n; i++)
		if (used(arg, s->v[i].id))
			s->v[n++] = s->v[i];
	s->n = n;
	randombytes_buf(fresh, sizeof(fresh));
	(void)sodium_bin2hex(hex, sizeof(hex), fresh, sizeof(fresh));
	r = add_key(s, hex, KEY_HEX, e);
	sodium_memzero(fresh, sizeof(fresh));
	sodium_memzero(hex, sizeof(hex));
	if (r < 0)
		return r;
	/* The newest one seals: to the front. */
	struct seal_key last = s->v[s->n - 1];

	memmove(s->v + 1, s->v, (s->n - 1) * sizeof(*s->v));
	s->v[0] = last;
	sodium_memzero(&last, sizeof(last));
	return save(s, dir, s->n, e);
}

int seal_drop_old(struct seal *s, const char *dir, struct err *e)
{
	int r = seal_alone(s, dir, e);

	if (r == 0)
		r = save(s, dir, 1, e);
	if (r == 0)
		s->n = 1;
	return r;
}

/* --- values ------------------------------------------------------------------------------- */

#define OVERHEAD (crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES)

static size_t label(const char *id, int64_t version, char *out, size_t n)
{
	return (size_t)snprintf(out, n, "%s:%lld\n", id, (long long)version);
}

int seal_put(const struct seal *s, const char *secret_id, int64_t version, const char *value,
	     char **ret, struct err *e)
{
	char head[80];
	size_t h = label(secret_id, version, head, sizeof(head)), n = strlen(value),
	       boxed = OVERHEAD + h + n,
	       len = sodium_base64_ENCODED_LEN(boxed, sodium_base64_VARIANT_ORIGINAL);
	_cleanup_free_ unsigned char *box = malloc(boxed), *plain = malloc(h + n + 1);
	char *text = malloc(len);

	*ret = NULL;
	if (n > SECRET_VALUE_MAX) {
		free(text);
		return err_set(e, ERR_LIMIT, "a secret has at most %d bytes", SECRET_VALUE_MAX);
	}
	if (!box || !plain || !text) {
		free(text);
		return err_set(e, ERR_NOMEM, "seal a secret: out of memory");
	}
	memcpy(plain, head, h);
	memcpy(plain + h, value, n + 1); /* with its end, which is not sealed */
	randombytes_buf(box, crypto_secretbox_NONCEBYTES);
	(void)crypto_secretbox_easy(box + crypto_secretbox_NONCEBYTES, plain, h + n, box,
				    s->v[0].key);
	sodium_memzero(plain, h + n);
	(void)sodium_bin2base64(text, len, box, boxed, sodium_base64_VARIANT_ORIGINAL);
	*ret = text;
	return 0;
}

int seal_get(const struct seal *s, const char *secret_id, int64_t version, const char *sealed,
	     char **ret, struct err *e)
{
	char head[80];
	size_t h = label(secret_id, version, head, sizeof(head)), max = strlen(sealed), n = 0;
	_cleanup_free_ unsigned char *box = malloc(max + 1);
	char *plain = malloc(max + 1);

	*ret = NULL;
	if (box && plain &&
	    sodium_base642bin(box, max + 1, sealed, max, NULL, &n, NULL,
			      sodium_base64_VARIANT_ORIGINAL) == 0 &&
	    n >= OVERHEAD + h)
		for (size_t i = 0; i < s->n && !*ret; i++)
			if (crypto_secretbox_open_easy(
				(unsigned char *)plain, box + crypto_secretbox_NONCEBYTES,
				n - crypto_secretbox_NONCEBYTES, box, s->v[i].key) == 0 &&
			    memcmp(plain, head, h) == 0) {
				memmove(plain, plain + h, n - OVERHEAD - h);
				plain[n - OVERHEAD - h] = '\0';
				*ret = plain;
			}
	if (*ret)
		return 0;
	free(plain);
	return err_set(e, ERR_UNAVAILABLE,
		       "secret %s (version %lld) cannot be opened: its sealing key is not there or "
		       "the row was changed",
		       secret_id, (long long)version);
}

void seal_wipe(char **value)
{
	if (*value)
		sodium_memzero(*value, strlen(*value));
	free(*value);
	*value = NULL;
}
