/*
 * A change set that waits for a decision: run_dir/pending/{list,c/}.
 *
 * Policy: pending/ was written by this program from judged members; it is read with the same
 * checks of shape as a journal, and what it holds goes through the same merge as a stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "sync/unpack_server.h"

#define FIXED offsetof(struct change, path)
#define MAGIC "airlock-pending 1\n"

static int write_all(int fd, const void *data, size_t n)
{
	const char *p = data;

	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno != EINTR)
			return -errno;
		p += w > 0 ? w : 0;
		n -= (size_t)(w > 0 ? w : 0);
	}
	return 0;
}

/* Entries that the filter dropped are left out. The hash of everything ends the file. */
static int save_list(struct unpack *u, int fd)
{
	crypto_generichash_state h;
	uint8_t sum[MANIFEST_HASH];
	struct change c;
	int r = write_all(fd, MAGIC, sizeof(MAGIC) - 1);

	(void)crypto_generichash_init(&h, NULL, 0, sizeof(sum));
	for (uint64_t i = 0; i < chlist_count(u->list) && r == 0; i++) {
		r = chlist_get(u->list, i, &c);
		if (r < 0 || (u->skip && u->skip[i / 8] >> (i % 8) & 1))
			continue;
		(void)crypto_generichash_update(&h, (const uint8_t *)&c, FIXED + c.path_len);
		r = write_all(fd, &c, FIXED + c.path_len);
	}
	(void)crypto_generichash_final(&h, sum, sizeof(sum));
	c = (struct change){.path_len = UINT32_MAX};
	memcpy(c.hash, sum, sizeof(sum));
	if (r == 0)
		r = write_all(fd, &c, FIXED);
	return r == 0 && syncfs(fd) < 0 ? -errno : r;
}

int pending_save(struct unpack *u, struct err *e)
{
	_cleanup_fd_ int fd =
	    openat(u->st.dir, "list", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : save_list(u, fd);

	return r < 0 ? err_sys(e, -r, "keep the change set in pending/") : 0;
}

static int read_all(int fd, void *data, size_t n)
{
	char *p = data;

	while (n) {
		ssize_t k = read(fd, p, n);

		if (k == 0)
			return -EBADMSG;
		if (k < 0 && errno != EINTR)
			return -errno;
		p += k > 0 ? k : 0;
		n -= (size_t)(k > 0 ? k : 0);
	}
	return 0;
}

static int copy_content(struct unpack *u, int from_dir, uint64_t id)
{
	char name[20], target[LINK_TARGET_MAX + 1];
	_cleanup_fd_ int in = -1, out = -1;
	struct stat st;
	ssize_t n;

	stage_name(id, name);
	n = readlinkat(from_dir, name, target, sizeof(target) - 1);
	if (n >= 0) {
		target[n] = '\0';
		return symlinkat(target, u->st.content, name) < 0 ? -errno : 0;
	}
	in = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	out = openat(u->st.content, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	n = copy_fd(in, out);
	(void)futimens(out, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, st.st_mtim});
	return (int)n;
}

/* One record with its path. 1, 0 at the end (c->hash is the sum), negative errno. */
static int read_record(int fd, struct change *c)
{
	int r = read_all(fd, c, FIXED);

	if (r < 0 || c->path_len == UINT32_MAX)
		return r;
	r = c->path_len > PATH_MEMBER_MAX ? -EBADMSG : read_all(fd, c->path, c->path_len);
	if (r < 0)
		return r;
	c->path[c->path_len] = '\0';
	return c->path_len == 0 || path_is_member(c->path, c->path_len) ? 1 : -EBADMSG;
}

/* The whole file is checked before anything of it is used. */
static int check_list(int fd)
{
	crypto_generichash_state h;
	uint8_t sum[MANIFEST_HASH];
	char magic[sizeof(MAGIC) - 1];
	struct change c;
	int r = read_all(fd, magic, sizeof(magic));

	if (r < 0 || memcmp(magic, MAGIC, sizeof(magic)) != 0)
		return -EBADMSG;
	(void)crypto_generichash_init(&h, NULL, 0, sizeof(sum));
	while ((r = read_record(fd, &c)) > 0)
		(void)crypto_generichash_update(&h, (const uint8_t *)&c, FIXED + c.path_len);
	(void)crypto_generichash_final(&h, sum, sizeof(sum));
	return r == 0 && !memcmp(sum, c.hash, sizeof(sum)) ? 0 : -EBADMSG;
}

static int load_list(struct unpack *u, int fd, int from_dir, struct err *e)
{
	struct change c;
	int r;

	if (check_list(fd) < 0 || lseek(fd, sizeof(MAGIC) - 1, SEEK_SET) < 0)
		return err_set(e, ERR_INVALID,
			       "pending/list of the run is damaged or no change set");
	while ((r = read_record(fd, &c)) > 0) {
		if (c.kind == MK_UNKNOWN)
			u->unknown++;
		if (c.id >= u->st.next_id)
			u->st.next_id = c.id + 1;
		if (c.id && (r = stage_space(u, c.size, e)) < 0)
			return r;
		r = c.id ? copy_content(u, from_dir, c.id) : 0;
		if (r == 0)
			r = chlist_add(u->list, &c);
		if (r < 0)
			return err_sys(e, -r, "stage %s from pending/", c.path);
	}
	if (r == 0)
		r = chlist_seal(u->list);
	return r < 0 ? err_sys(e, -r, "read pending/list of the run") : 0;
}

int pending_load(struct unpack *u, struct err *e)
{
	_cleanup_fd_ int list = beneath_open(&u->run, "pending/list", O_RDONLY, 0);
	_cleanup_fd_ int dir = beneath_open(&u->run, "pending/c", O_RDONLY | O_DIRECTORY, 0);

	if (list < 0 || dir < 0)
		return err_sys(e, list < 0 ? -list : -dir,
			       "open the change set pending/ of the run");
	return load_list(u, list, dir, e);
}
