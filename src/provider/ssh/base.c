#include "provider/ssh/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"

#define NAME_BYTES 16
#define KEY_BYTES 8
#define INDEX_NAME "remote-index"
#define BOXED "-s"
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Where the workspace's manifests are; -1. */
static int home_of(const struct sandbox_spec *s)
{
	const char *slash = s->manifest ? strrchr(s->manifest, '/') : NULL;
	_cleanup_free_ char *at =
	    slash ? strndup(s->manifest, (size_t)(slash - s->manifest)) : NULL;

	return at ? open(at, DIR_FLAGS) : -1;
}

/* A file that is there already is what another run has made. */
static int read_name(int dir, char name[2 * NAME_BYTES + 1])
{
	_cleanup_fd_ int fd = openat(dir, "remote-name", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, name, (size_t)2 * NAME_BYTES);

	name[2 * NAME_BYTES] = '\0';
	return n == (ssize_t)2 * NAME_BYTES &&
		       strspn(name, "0123456789abcdef") == (size_t)2 * NAME_BYTES
		   ? 0
		   : -EINVAL;
}

static int make_name(int dir)
{
	uint8_t raw[NAME_BYTES];
	char name[2 * NAME_BYTES + 1], temp[48];
	_cleanup_fd_ int fd = -1;
	int r;

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -EIO;
	str_hex(name, raw, sizeof(raw));
	(void)snprintf(temp, sizeof(temp), ".%s", name);
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write(fd, name, (size_t)2 * NAME_BYTES) == (ssize_t)2 * NAME_BYTES &&
		    linkat(dir, temp, dir, "remote-name", 0) == 0
		? 0
		: -errno;
	(void)unlinkat(dir, temp, 0);
	return r;
}

char *ssh_base_name(const struct sandbox_spec *s, bool sandbox)
{
	_cleanup_fd_ int dir = home_of(s);
	char name[2 * NAME_BYTES + 1] = "", whole[sizeof(name) + sizeof(BOXED)];

	if (dir >= 0 && read_name(dir, name) < 0)
		(void)make_name(dir);
	if (dir < 0 || read_name(dir, name) < 0)
		name[0] = '\0';
	(void)snprintf(whole, sizeof(whole), "%s%s", name, sandbox && name[0] ? BOXED : "");
	return strdup(whole);
}

/* Of the machine and the directory there: the first word (target.h). */
static void index_name(const struct sandbox_spec *s, bool sandbox,
		       char out[sizeof(INDEX_NAME) + 2 * KEY_BYTES + 1])
{
	const char *place = s->remote && s->remote[0] ? s->remote[0] : "";
	uint8_t sum[BLAKE2B_OUT];
	struct blake2b b;

	blake2b_init(&b);
	blake2b_update(&b, place, strlen(place));
	if (sandbox)
		blake2b_update(&b, BOXED, sizeof(BOXED));
	blake2b_final(&b, sum);
	(void)snprintf(out, sizeof(INDEX_NAME) + 1, INDEX_NAME ".");
	str_hex(out + sizeof(INDEX_NAME), sum, KEY_BYTES);
}

void ssh_base_index(const struct sandbox_spec *s, bool sandbox, struct rm_index *ret)
{
	char name[sizeof(INDEX_NAME) + 2 * KEY_BYTES + 1];
	_cleanup_fd_ int dir = home_of(s), fd = -1;

	*ret = (struct rm_index){0};
	index_name(s, sandbox, name);
	fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || read(fd, ret->sum, sizeof(ret->sum)) != (ssize_t)sizeof(ret->sum))
		*ret = (struct rm_index){0};
}

/* Whole or not at all; what cannot be written is not known. */
static void put_index(int dir, const char *name, const char *tag, const struct rm_index *x)
{
	char temp[96];
	_cleanup_fd_ int fd = -1;

	(void)snprintf(temp, sizeof(temp), ".%.60s.%.20s", name, tag);
	fd = openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, x->sum, sizeof(x->sum)) != (ssize_t)sizeof(x->sum) ||
	    renameat(dir, temp, dir, name) < 0)
		(void)unlinkat(dir, temp, 0);
}

void ssh_base_landed(const struct sandbox_spec *s, const struct rm_index *x)
{
	_cleanup_fd_ int dir = open(s->lease_dir, DIR_FLAGS);

	if (dir >= 0)
		put_index(dir, INDEX_NAME, "new", x);
}

void ssh_base_kept(const struct sandbox_spec *s, bool sandbox)
{
	char name[sizeof(INDEX_NAME) + 2 * KEY_BYTES + 1];
	_cleanup_fd_ int lease = open(s->lease_dir, DIR_FLAGS), home = home_of(s), fd = -1;
	struct rm_index x;

	fd = lease < 0 ? -1 : openat(lease, INDEX_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || home < 0 || read(fd, x.sum, sizeof(x.sum)) != (ssize_t)sizeof(x.sum))
		return;
	index_name(s, sandbox, name);
	put_index(home, name, s->lease_id, &x);
}
