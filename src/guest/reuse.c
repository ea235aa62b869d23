#include "guest/reuse.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/delta.h"
#include "guest/land.h"

#define CHUNK 65536

_Static_assert(RM_PART_HASH == BLAKE2B_OUT && MANIFEST_HASH == BLAKE2B_OUT, "one hash");

struct reuser {
	int tree;
	const struct manifest *sent;
	struct manifest *known; /* the index; NULL */
	struct delta *age;	/* of the index, for its time alone */
	struct reuse *out;
	size_t known_pos, known_passed;
	uid_t us, owner;	       /* whose files count; owner 0: ours alone */
	bool touched;		       /* something is not, or was not, as the index has it */
	bool known_left;	       /* k is one that has not been met yet */
	struct manifest_entry m, k, f; /* asked for, known, found by name */
	uint8_t chunk[CHUNK];
};

static int64_t stamp(const struct timespec *t)
{
	return (int64_t)t->tv_sec * NS_PER_S + t->tv_nsec;
}

static void want(struct reuser *u, uint64_t entry)
{
	u->touched = true;
	u->out->want.bits[entry / 8] |= (uint8_t)(1u << entry % 8);
}

static int next_known(struct reuser *u)
{
	int r = u->known ? manifest_next(u->known, &u->known_pos, &u->k) : 0;

	if (u->known)
		manifest_pass(u->known, &u->known_passed, u->known_pos);
	u->known_left = r > 0;
	return r < 0 ? r : 0;
}

/* Up to the entry that is asked for: what is known and not asked for goes. 1: u->k is the same name. */
static int meet(struct reuser *u)
{
	while (u->known_left) {
		int c = manifest_path_cmp(u->k.path, u->k.path_len, u->m.path, u->m.path_len), r;

		if (c > 0)
			return 0;
		if (c == 0)
			return 1;
		u->touched = true;
		/* Safe because: a directory comes before what is in it, so no link stands above it any more. */
		r = land_remove(u->tree, u->k.path);
		if (r == 0)
			r = next_known(u);
		if (r < 0)
			return r;
	}
	return 0;
}

static int rest_of_known(struct reuser *u)
{
	int r = 0;

	while (r == 0 && u->known_left) {
		u->touched = true;
		r = land_remove(u->tree, u->k.path);
		if (r == 0)
			r = next_known(u);
	}
	return r;
}

/* Names that came into a directory after it had landed. Unless somebody made some there, it is as old as the rest. */
static int sweep_dir(struct reuser *u, const char *path, size_t len, const struct stat *st)
{
	int fd, r = 0;
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *ent;

	if (u->age && delta_older(u->age, st))
		return 0;
	fd = openat(u->tree, len ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return -errno;
	while (r == 0 && (errno = 0, ent = readdir(d))) {
		size_t n = strlen(ent->d_name), slash = len ? 1 : 0;
		char name[PATH_MEMBER_MAX + 1];

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		if (len + slash + n <= PATH_MEMBER_MAX) {
			memcpy(name, path, len);
			name[len] = '/';
			memcpy(name + len + slash, ent->d_name, n + 1);
			r = manifest_find(u->sent, name, len + slash + n, &u->f);
		}
		if (r == 0) {
			u->touched = true;
			r = land_remove(dirfd(d), ent->d_name);
		} else if (r > 0)
			r = 0;
	}
	return r < 0 ? r : ent || !errno ? 0 : -errno;
}

/* The hash of the first n bytes: 1 if there are so many. */
static int hash_part(struct reuser *u, int fd, uint64_t n, uint8_t out[BLAKE2B_OUT])
{
	struct blake2b b;

	blake2b_init(&b);
	while (n) {
		ssize_t k = read(fd, u->chunk, n < CHUNK ? (size_t)n : CHUNK);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return 0;
		blake2b_update(&b, u->chunk, (size_t)k);
		n -= (uint64_t)k;
	}
	blake2b_final(&b, out);
	return 1;
}

static bool offer_part(struct reuser *u, uint64_t entry, int fd, const struct stat *st)
{
	struct rm_want *w = &u->out->want;
	struct rm_part *p = &w->part[w->parts];

	if (w->parts == RM_PARTS_MAX || (uint64_t)st->st_size < REUSE_PART_MIN)
		return false;
	p->entry = entry;
	p->have = (uint64_t)st->st_size;
	u->out->part_path[w->parts] = strdup(u->m.path);
	if (!u->out->part_path[w->parts] || !hash_part(u, fd, p->have, p->hash))
		return false;
	w->parts++;
	return true;
}

/* 1: its bytes are the asked ones; 0: not, and a part of them may be; -1: no use. */
static int judge_bytes(struct reuser *u, uint64_t entry, bool met, const struct stat *st)
{
	_cleanup_fd_ int fd = -1;
	uint8_t hash[BLAKE2B_OUT];

	if (met && u->k.kind == 'f' && u->k.ino == st->st_ino &&
	    u->k.size == (uint64_t)st->st_size && u->k.mtime_ns == stamp(&st->st_mtim) &&
	    u->k.ctime_ns == stamp(&st->st_ctim) && delta_older(u->age, st))
		return u->k.size == u->m.size &&
			       memcmp(u->k.hash, u->m.hash, sizeof(u->k.hash)) == 0
			   ? 1
			   : -1;
	u->touched = true;
	if ((uint64_t)st->st_size > u->m.size)
		return -1;
	fd = openat(u->tree, u->m.path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if ((uint64_t)st->st_size < u->m.size)
		return offer_part(u, entry, fd, st) ? 0 : -1;
	return hash_part(u, fd, u->m.size, hash) && memcmp(hash, u->m.hash, sizeof(hash)) == 0 ? 1
											       : -1;
}

static bool is_ours(const struct reuser *u, const struct stat *st)
{
	return st->st_uid == u->us || (u->owner && st->st_uid == u->owner);
}

static int judge_file(struct reuser *u, uint64_t entry, bool met, const struct stat *st)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(u->m.mtime_ns)};
	/* Another name of it may be anywhere. */
	int same = st->st_nlink == 1 && is_ours(u, st) ? judge_bytes(u, entry, met, st) : -1;

	if (same <= 0)
		want(u, entry);
	if (same < 0)
		return land_remove(u->tree, u->m.path);
	if (same == 0)
		return 0;
	if ((st->st_mode & 07777) == (u->m.mode & 0777) && stamp(&st->st_mtim) == u->m.mtime_ns) {
		u->touched |= u->k.mode != (u->m.mode & 0777);
		return 0;
	}
	u->touched = true;
	if ((st->st_mode & 07777) != (u->m.mode & 0777) &&
	    fchmodat(u->tree, u->m.path, u->m.mode & 0777, 0) < 0)
		return -errno;
	if (stamp(&st->st_mtim) != u->m.mtime_ns &&
	    utimensat(u->tree, u->m.path, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

static int judge_link(struct reuser *u, uint64_t entry)
{
	char target[LINK_TARGET_MAX + 1];
	ssize_t n = readlinkat(u->tree, u->m.path, target, sizeof(target));

	if (n > 0 && (size_t)n == u->m.target_len && memcmp(target, u->m.target, (size_t)n) == 0) {
		/* It may have become so on both sides. */
		u->touched |= u->k.kind != 'l' || u->k.target_len != u->m.target_len ||
			      memcmp(u->k.target, u->m.target, u->m.target_len) != 0;
		return 0;
	}
	want(u, entry);
	return land_remove(u->tree, u->m.path);
}

static int judge_dir(struct reuser *u, uint64_t entry, const struct stat *st)
{
	mode_t mode = u->m.mode & 0777;

	/* Another account's (a container's there) is none that files can be written into. */
	if (!is_ours(u, st))
		return -EPERM;
	/* One that denies us something is opened, and shut again when all is in it (the lander does that for what is sent). */
	if ((mode & 0700) != 0700) {
		mode = 0700;
		want(u, entry);
	}
	u->touched |= (st->st_mode & 07777) != mode || u->k.kind != 'd' || u->k.mode != mode;
	if ((st->st_mode & 07777) != mode && fchmodat(u->tree, u->m.path, mode, 0) < 0)
		return -errno;
	return sweep_dir(u, u->m.path, u->m.path_len, st);
}

static int judge(struct reuser *u, uint64_t entry)
{
	struct stat st;
	int met = meet(u);
	bool there = met >= 0 && fstatat(u->tree, u->m.path, &st, AT_SYMLINK_NOFOLLOW) == 0;
	int r = met < 0 ? met : 0;

	u->touched |= met <= 0;
	if (there && u->m.kind == 'f' && S_ISREG(st.st_mode))
		r = judge_file(u, entry, met, &st);
	else if (there && u->m.kind == 'd' && S_ISDIR(st.st_mode))
		r = judge_dir(u, entry, &st);
	else if (there && u->m.kind == 'l' && S_ISLNK(st.st_mode))
		r = judge_link(u, entry);
	else if (r == 0) {
		want(u, entry);
		r = there ? land_remove(u->tree, u->m.path) : 0;
	}
	return r == 0 && met > 0 ? next_known(u) : r;
}

static int walk(struct reuser *u)
{
	size_t pos = 0, passed = 0;
	struct stat st;
	int r = fstat(u->tree, &st) < 0 ? -errno : sweep_dir(u, "", 0, &st);

	if (r == 0)
		r = land_remove(u->tree, ".git");
	if (r == 0)
		r = next_known(u);
	for (uint64_t i = 0; r == 0; i++) {
		r = manifest_next(u->sent, &pos, &u->m);
		if (r <= 0)
			break;
		manifest_pass(u->sent, &passed, pos);
		r = i < u->out->want.count ? judge(u, i) : -EPROTO;
	}
	return r < 0 ? r : rest_of_known(u);
}

static int begin(struct reuser *u, int index, struct err *e)
{
	struct rm_want *w = &u->out->want;
	int r = 0;

	w->count = manifest_count(u->sent);
	w->bits = calloc(w->count / 8 + 1, 1);
	if (!w->bits)
		return err_sys(e, ENOMEM, "look at what is there already");
	/* One that is broken only makes more work. */
	if (index >= 0 && manifest_open(index, &u->known, e) == 0)
		r = delta_open(index, &u->age, e);
	if (r < 0) {
		manifest_free(u->known);
		u->known = NULL;
	}
	return 0;
}

int reuse_tree(int tree, int index, uint32_t owner, const struct manifest *sent, struct reuse *ret,
	       struct err *e)
{
	struct reuser *u = calloc(1, sizeof(*u));
	int r;

	*ret = (struct reuse){0};
	if (!u)
		return err_sys(e, ENOMEM, "look at what is there already");
	u->tree = tree;
	u->sent = sent;
	u->us = geteuid();
	u->owner = owner;
	u->out = ret;
	r = begin(u, index, e);
	if (r == 0) {
		r = walk(u);
		if (r < 0)
			(void)err_sys(e, -r, "make use of what is there already: %s", u->m.path);
	}
	ret->same = r == 0 && u->known && !u->touched;
	manifest_free(u->known);
	delta_free(u->age);
	free(u);
	return r;
}

void reuse_done(struct reuse *r)
{
	for (size_t i = 0; i < RM_PARTS_MAX; i++)
		free(r->part_path[i]);
	rm_want_done(&r->want);
	*r = (struct reuse){0};
}
