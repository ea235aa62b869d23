/* The state directory: usable, room, file system, noexec, nosymfollow. */
#include "os/probe_fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/mounts.h"

/* One lease with its logs; below this a run fails sooner or later (limits.h keeps the reserve for a publish).
 */
#define ROOM_MIN_BYTES (4 * DISK_RESERVE_BYTES)
#define ROOM_LOW_BYTES (32 * DISK_RESERVE_BYTES)
#define INODES_MIN 10000
#define INODES_LOW 100000

void probe_fs_name(const char *path, char *out, size_t n)
{
	/* Numbers of linux/magic.h, and of file systems whose headers are not installed everywhere. */
	static const struct {
		unsigned long magic;
		const char *name;
	} names[] = {
	    {0xef53, "ext4"},	     {0x58465342, "xfs"},      {0x9123683e, "btrfs"},
	    {0x01021994, "tmpfs"},   {0x6969, "nfs"},	       {0xf15f, "ecryptfs"},
	    {0x794c7630, "overlay"}, {0x65735546, "fuse"},     {0xff534d42, "cifs"},
	    {0xfe534d42, "smb"},     {0x2fc12fc1, "zfs"},      {0x01021997, "9p"},
	    {0xf2f52010, "f2fs"},    {0xca451a4e, "bcachefs"}, {0x4d44, "vfat"},
	    {0x2011bab0, "exfat"},   {0x858458f6, "ramfs"},    {0x6a656a63, "virtiofs"},
	    {0x5346414f, "afs"},     {0x47504653, "gpfs"},     {0x0bd00bd0, "lustre"},
	    {0x00c36400, "ceph"},
	};
	struct statfs fs;

	if (statfs(path, &fs) < 0) {
		(void)snprintf(out, n, "unknown");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (names[i].magic == ((unsigned long)fs.f_type & 0xffffffff)) {
			(void)snprintf(out, n, "%s", names[i].name);
			return;
		}
	}
	(void)snprintf(out, n, "type 0x%lx", (unsigned long)fs.f_type & 0xffffffff);
}

/* Opens path or its nearest existing parent; room gets what is missing, nearest the root last. */
static int open_nearest(const char *path, struct probe_room *room)
{
	char at[PATH_MAX];
	int fd;

	room->made_len = 0;
	if ((size_t)snprintf(at, sizeof(at), "%s", path) >= sizeof(at))
		return -ENAMETOOLONG;
	for (;;) {
		char *slash;

		fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 || errno != ENOENT)
			return fd >= 0 ? fd : -errno;
		slash = strrchr(at, '/');
		if (!slash || room->made_len == ARRAY_LEN(room->made))
			return -ENOENT;
		(void)snprintf(room->made[room->made_len++], PATH_MAX, "%s", at);
		slash[slash == at ? 1 : 0] = '\0';
	}
}

int probe_state_open(const struct probe_env *env, bool make, int *ret_fd, struct probe_room *room)
{
	int fd = open_nearest(env->state_dir, room);
	unsigned missing = room->made_len;

	if (fd < 0 || !make || missing == 0) {
		room->made_len = 0;
		*ret_fd = fd;
		return fd < 0 ? fd : 0;
	}
	(void)close(fd);
	/* Nearest the root first; only what was really made here is removed again. */
	for (unsigned i = missing; i-- > 0;) {
		int err = mkdir(room->made[i], 0700) < 0 ? errno : 0;

		if (err == EEXIST) {
			/* Somebody else was faster: theirs. */
			room->made[i][0] = '\0';
		} else if (err) {
			/* made[0..i] do not exist. */
			for (unsigned k = 0; k <= i; k++)
				room->made[k][0] = '\0';
			probe_state_close(room);
			return -err;
		}
	}
	*ret_fd = open(env->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

void probe_state_close(struct probe_room *room)
{
	for (unsigned i = 0; i < room->made_len; i++)
		if (room->made[i][0])
			(void)rmdir(room->made[i]);
	room->made_len = 0;
}

static void judge_room(struct probe_result *r, const struct statvfs *vfs)
{
	uint64_t bytes = (uint64_t)vfs->f_bavail * vfs->f_frsize;
	char size[16], text[PROBE_TEXT_MAX];
	/* btrfs and others count no inodes. */
	bool counted = vfs->f_files > 0;

	str_human_size(bytes, size, sizeof(size));
	(void)snprintf(text, sizeof(text), "%s free", size);
	if (counted)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %llu files",
			       (unsigned long long)vfs->f_favail);
	(void)snprintf(r->detail + strlen(r->detail), sizeof(r->detail) - strlen(r->detail), ", %s",
		       text);
	if (bytes < ROOM_MIN_BYTES || (counted && vfs->f_favail < INODES_MIN))
		probe_missing(r, CAUSE_STATE_FULL, ENOSPC, "statvfs", text);
	else if (bytes < ROOM_LOW_BYTES || (counted && vfs->f_favail < INODES_LOW))
		probe_limited(r, CAUSE_STATE_LOW, text);
}

void probe_state_dir(const struct probe_env *env, struct probe_result *r)
{
	_cleanup_fd_ int fd = -1;
	char where[64], text[PROBE_TEXT_MAX];
	struct probe_room room;
	struct statvfs vfs;
	int err = probe_state_open(env, false, &fd, &room);

	if (!err && (fstatvfs(fd, &vfs) < 0 || faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0))
		err = -errno;
	if (err < 0) {
		(void)snprintf(text, sizeof(text), "%s: %s", env->state_dir, strerror(-err));
		probe_missing(r, CAUSE_STATE_UNUSABLE, -err, "open", text);
		return;
	}
	(void)snprintf(where, sizeof(where), "/proc/self/fd/%d", fd);
	probe_fs_name(where, r->detail, 32);
	if (vfs.f_flag & ST_NOEXEC)
		probe_limited(r, CAUSE_STATE_NOEXEC, env->state_dir);
	if (vfs.f_flag & ST_NOSYMFOLLOW)
		probe_limited(r, CAUSE_STATE_NOSYMFOLLOW, env->state_dir);
	judge_room(r, &vfs);
}
