#include "api/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/seal.h"
#include "base/cleanup.h"

static int read_all(int fd, char *text, size_t size)
{
	size_t n = 0;

	while (n < size) {
		ssize_t got = read(fd, text + n, size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		n += (size_t)got;
	}
	return 0;
}

/* word: what every PEM text of that kind has. */
static int read_pem(const char *path, const char *word, bool secret, char **ret, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_secret_ char *text = NULL;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "open %s", path);
	if (!S_ISREG(st.st_mode) || (size_t)st.st_size > TLS_FILE_MAX)
		return err_set(e, ERR_INVALID, "%s is no regular file of at most %zu bytes", path,
			       TLS_FILE_MAX);
	if (secret && (st.st_mode & 07))
		return err_set(e, ERR_PERMISSION, "everybody can read the key %s: chmod 600 %s",
			       path, path);
	text = calloc(1, (size_t)st.st_size + 1);
	if (!text)
		return err_set(e, ERR_NOMEM, "%s: out of memory", path);
	r = read_all(fd, text, (size_t)st.st_size);
	if (r < 0)
		return err_sys(e, -r, "read %s", path);
	if (strlen(text) != (size_t)st.st_size || !strstr(text, word))
		return err_set(e, ERR_INVALID, "%s has no \"%s\": it is not in PEM form", path,
			       word);
	*ret = TAKE_PTR(text);
	return 0;
}

int tls_read(const char *cert, const char *key, struct tls_pair *ret, struct err *e)
{
	int r;

	*ret = (struct tls_pair){0};
	if (!cert && !key)
		return 0;
	if (!cert || !key)
		return err_set(e, ERR_USAGE, "--tls-cert and --tls-key go together");
	r = read_pem(cert, "-----BEGIN CERTIFICATE-----", false, &ret->cert, e);
	if (r == 0)
		r = read_pem(key, "PRIVATE KEY-----", true, &ret->key, e);
	if (r < 0)
		tls_done(ret);
	return r;
}

void tls_done(struct tls_pair *p)
{
	free(p->cert);
	p->cert = NULL;
	seal_wipe(&p->key);
}
