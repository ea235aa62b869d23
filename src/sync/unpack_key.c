#include "sync/unpack_key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "os/beneath.h"

/* Tells the keys of one purpose from those of another. */
#define LABEL_ROOT "airlock journal: workspace"
#define LABEL_STAGE "airlock journal: staging directory"

static int write_all(int fd, const uint8_t *p, size_t n)
{
	ssize_t k;

	do {
		k = write(fd, p, n);
	} while (k < 0 && errno == EINTR);
	if (k != (ssize_t)n)
		return k < 0 ? -errno : -ENOSPC;
	return fsync(fd) < 0 ? -errno : 0;
}

/* Whoever comes first wins; the loser reads what the winner made. Not every file system has links, or that flag. */
static int put(int dir, const char *tmp)
{
	if (linkat(dir, tmp, dir, JOURNAL_KEY_FILE, 0) == 0 || errno == EEXIST)
		return 0;
	if (renameat2(dir, tmp, dir, JOURNAL_KEY_FILE, RENAME_NOREPLACE) == 0 || errno == EEXIST)
		return 0;
	return errno == EINVAL && renameat(dir, tmp, dir, JOURNAL_KEY_FILE) == 0 ? 0 : -errno;
}

static int make(int dir)
{
	char tmp[sizeof(JOURNAL_KEY_FILE) + 1 + ID_LEN], id[ID_LEN + 1];
	_cleanup_fd_ int fd = -1;
	uint8_t key[JOURNAL_KEY];
	int r = id_new(id);

	if (r < 0)
		return r;
	(void)snprintf(tmp, sizeof(tmp), "%s-%s", JOURNAL_KEY_FILE, id);
	fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	randombytes_buf(key, sizeof(key));
	r = write_all(fd, key, sizeof(key));
	sodium_memzero(key, sizeof(key));
	if (r == 0)
		r = put(dir, tmp);
	(void)unlinkat(dir, tmp, 0);
	/* A journal must not be durable before the key that it can be read with. */
	return r == 0 ? beneath_sync_dir(dir) : r;
}

/* Can a file here be this user's alone? Not on vfat, drvfs or a network mount that maps its owners. */
static bool keeps_modes(int dir)
{
	_cleanup_fd_ int fd = -1;
	char id[ID_LEN + 1], tmp[sizeof(JOURNAL_KEY_FILE) + 1 + ID_LEN];
	struct stat st;

	if (id_new(id) < 0)
		return true;
	(void)snprintf(tmp, sizeof(tmp), "%s-%s", JOURNAL_KEY_FILE, id);
	fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return true;
	(void)unlinkat(dir, tmp, 0);
	return fstat(fd, &st) < 0 || (st.st_uid == geteuid() && !(st.st_mode & 077));
}

/* 0, or why it is no key that only this user knows: -EPERM, errno. */
static int read_key(int dir, uint8_t ret[JOURNAL_KEY])
{
	_cleanup_fd_ int fd =
	    openat(dir, JOURNAL_KEY_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) ||
	    st.st_size != JOURNAL_KEY)
		return -EPERM;
	do {
		n = pread(fd, ret, JOURNAL_KEY, 0);
	} while (n < 0 && errno == EINTR);
	if (n != JOURNAL_KEY)
		return n < 0 ? -errno : -EIO;
	return 0;
}

static void derive(const uint8_t key[JOURNAL_KEY], const char *label, const void *p, size_t n,
		   uint8_t ret[JOURNAL_KEY])
{
	crypto_generichash_state h;

	(void)crypto_generichash_init(&h, key, JOURNAL_KEY, JOURNAL_KEY);
	(void)crypto_generichash_update(&h, (const uint8_t *)label, strlen(label) + 1);
	(void)crypto_generichash_update(&h, p, n);
	(void)crypto_generichash_final(&h, ret, JOURNAL_KEY);
}

int unpack_key_load(const char *state_dir, uint64_t root_ino, uint8_t ret[JOURNAL_KEY],
		    struct err *e)
{
	_cleanup_fd_ int dir = -1;
	uint8_t key[JOURNAL_KEY];
	int r;

	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "libsodium does not start");
	if (!state_dir) {
		randombytes_buf(ret, JOURNAL_KEY);
		return 0;
	}
	dir = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, errno, "open the state directory %s", state_dir);
	r = read_key(dir, key);
	if (r == -ENOENT) {
		r = make(dir);
		if (r == 0)
			r = read_key(dir, key);
	}
	if (r == -EPERM && !keeps_modes(dir))
		return err_set(
		    e, ERR_PERMISSION,
		    "the file system of the state directory %s does not keep who may read a file (vfat, "
		    "drvfs, some network mounts): set XDG_STATE_HOME to a directory on one that does",
		    state_dir);
	if (r == -EPERM || r == -ELOOP)
		return err_set(
		    e, ERR_PERMISSION,
		    "%s/" JOURNAL_KEY_FILE
		    " is not a file of %d bytes that only you can read: 'rm' it (a publish that was "
		    "cut is then left alone where it is, and told)",
		    state_dir, JOURNAL_KEY);
	if (r < 0)
		return err_sys(e, -r, "read or make the key of journals %s/" JOURNAL_KEY_FILE,
			       state_dir);
	derive(key, LABEL_ROOT, &root_ino, sizeof(root_ino), ret);
	sodium_memzero(key, sizeof(key));
	return 0;
}

void unpack_key_stage(const uint8_t key[JOURNAL_KEY], const char *name, uint8_t ret[JOURNAL_KEY])
{
	derive(key, LABEL_STAGE, name, strlen(name), ret);
}
