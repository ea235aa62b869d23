#include "provider/ssh/send.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "wire/layerfile.h"
#include "wire/manifest.h"
#include "wire/remote.h"
#include "wire/tar.h"

#define CHUNK 65536
#define SMALL 32768 /* so much of a file goes out together with its neighbours */
#define LOOK_MS 100
#define LAYERS (DELTA_LAYERS_MAX + 2)
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct sender {
	int out, from;		    /* from: what is wanted comes from there */
	bool bare;		    /* the tar stream alone */
	const volatile int *cancel; /* may be NULL */
	struct layer {
		int fd;
		struct layerfile *one; /* it is one file; NULL: a directory */
		uint64_t number;       /* 0: the repository's */
	} layer[LAYERS];
	size_t layers;
	struct buf head; /* headers that have not been written yet */
	struct rm_want want;
	bool goes_on[RM_PARTS_MAX];
	struct manifest_entry m;
	char path[PATH_MEMBER_MAX + 1];
	char chunk[CHUNK];
};

/* Where the bytes of a file are read. */
struct source {
	int fd; /* borrowed */
	uint64_t at;
	const char *path; /* for who is told */
};

static int put(struct sender *s, const void *p, size_t n, struct err *e)
{
	struct pollfd room = {.fd = s->out, .events = POLLOUT};
	int64_t until = 0;

	for (size_t done = 0; done < n;) {
		ssize_t k;

		if (s->cancel && *s->cancel)
			return err_set(e, ERR_CANCELLED,
				       "stopped while the workspace was being sent");
		if (until && clock_mono_ns() > until)
			return err_set(
			    e, ERR_TIMEOUT,
			    "send the workspace: the other machine took no byte of it for %d s: it, "
			    "its disk or the connection is too slow, or hangs",
			    REMOTE_TREE_MS / 1000);
		k = write(s->out, (const char *)p + done, n - done);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN) {
			until = until ? until : clock_mono_ns() + REMOTE_TREE_MS * NS_PER_MS;
			(void)poll(&room, 1, LOOK_MS);
			continue;
		}
		if (k < 0)
			return err_sys(e, errno, "send the workspace");
		done += (size_t)k;
		until = 0;
	}
	return 0;
}

/* Exactly n bytes of what the other side says. */
static int get(struct sender *s, void *to, size_t n, struct err *e)
{
	int64_t until = clock_mono_ns() + REMOTE_TREE_MS * NS_PER_MS;
	struct pollfd p = {.fd = s->from, .events = POLLIN};

	for (size_t got = 0; got < n;) {
		ssize_t k;

		if (s->cancel && *s->cancel)
			return err_set(e, ERR_CANCELLED,
				       "stopped while the workspace was being sent");
		k = read(s->from, (char *)to + got, n - got);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN && clock_mono_ns() < until) {
			(void)poll(&p, 1, LOOK_MS);
			continue;
		}
		if (k <= 0)
			return err_sys(e,
				       k == 0		 ? EPIPE
				       : errno == EAGAIN ? ETIMEDOUT
							 : errno,
				       "hear what the other machine has of the workspace");
		got += (size_t)k;
	}
	return 0;
}

static int flush(struct sender *s, struct err *e)
{
	int r = s->head.err ? err_sys(e, -s->head.err, "send the workspace")
			    : put(s, s->head.data, s->head.len, e);

	buf_reset(&s->head);
	return r;
}

/* A seed is a directory always, and so is the layer of one who ran natively before. */
static int open_layer(const char *path, struct layer *l, struct err *e)
{
	struct stat st;

	l->fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (l->fd < 0 || fstat(l->fd, &st) < 0)
		return err_sys(e, errno, "open %s", path);
	return S_ISREG(st.st_mode) ? layerfile_open(l->fd, &l->one, e) : 0;
}

static int open_layers(struct sender *s, char *const *layers, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && layers && layers[i]; i++) {
		const char *base = path_base(layers[i]);
		uint64_t n = 0;

		if (s->layers == LAYERS)
			return err_set(e, ERR_INTERNAL, "more than %d layers", LAYERS);
		/* A seed is named by a hash (sync/gitseed.c), which is no number of 32 bits. */
		if (str_to_u64(base, UINT32_MAX, &n) < 0)
			n = 0;
		s->layer[s->layers].number = n;
		r = open_layer(layers[i], &s->layer[s->layers++], e);
	}
	return r;
}

static int send_manifest(struct sender *s, int fd, struct err *e)
{
	struct stat st;
	uint64_t left;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(e, errno, "manifest");
	left = (uint64_t)st.st_size;
	(void)buf_u64(&s->head, left);
	r = flush(s, e);
	for (off_t at = 0; r == 0 && left;) {
		ssize_t k = pread(fd, s->chunk, sizeof(s->chunk), at);

		if (k <= 0)
			return err_sys(e, k < 0 ? errno : EIO, "read the manifest");
		r = put(s, s->chunk, (size_t)k, e);
		at += k;
		left -= (uint64_t)k;
	}
	return r;
}

static int header(struct sender *s, struct tar_member *m, const char *path, size_t n, struct err *e)
{
	m->path = (struct view){path, n};
	if (tar_put_header(&s->head, m) < 0)
		return err_set(e, ERR_LIMIT, "send %s: its name is too long", path);
	return s->head.len < CHUNK ? 0 : flush(s, e);
}

/* One that is small goes out with its neighbours. */
static int small_contents(struct sender *s, const struct source *from, uint64_t size, struct err *e)
{
	for (uint64_t done = 0; done < size;) {
		size_t n = (size_t)(size - done);
		char *room = buf_room(&s->head, n);
		ssize_t k = room ? pread(from->fd, room, n, (off_t)(from->at + done)) : -1;

		if (room && k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return err_sys(e,
				       !room   ? ENOMEM
				       : k < 0 ? errno
					       : EIO,
				       "read the copy of %s", from->path);
		buf_add(&s->head, (size_t)k);
		done += (uint64_t)k;
	}
	return 0;
}

static int large_contents(struct sender *s, const struct source *from, uint64_t size, struct err *e)
{
	int r = flush(s, e);

	for (uint64_t done = 0; r == 0 && done < size;) {
		size_t want = size - done < CHUNK ? (size_t)(size - done) : CHUNK;
		ssize_t k = pread(from->fd, s->chunk, want, (off_t)(from->at + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return err_sys(e, k < 0 ? errno : EIO, "read the copy of %s", from->path);
		r = put(s, s->chunk, (size_t)k, e);
		done += (uint64_t)k;
	}
	return r;
}

/* Exactly `size` bytes, as the header has announced. */
static int contents(struct sender *s, const struct source *from, uint64_t size, struct err *e)
{
	int r = size <= SMALL ? small_contents(s, from, size, e) : large_contents(s, from, size, e);

	if (r == 0 && tar_put_padding(&s->head, size) < 0)
		r = err_set(e, ERR_NOMEM, "send %s: out of memory", from->path);
	return r;
}

static const struct layer *layer_of(const struct sender *s, uint32_t number)
{
	for (size_t i = 0; i < s->layers; i++)
		if (s->layer[i].number == number && number)
			return &s->layer[i];
	return NULL;
}

static int not_recorded(const struct manifest_entry *m, int errnum, struct err *e)
{
	return err_sys(e, errnum,
		       "the copy of %s is not what was recorded: remove it with 'airlock prune'",
		       m->path);
}

/* *ret_fd: to be closed, if it is a file of its own. */
static int open_copy(const struct sender *s, struct source *ret, int *ret_fd, struct err *e)
{
	const struct manifest_entry *m = &s->m;
	const struct layer *l = layer_of(s, m->layer);
	struct stat st;

	*ret = (struct source){.path = m->path};
	if (l && l->one) {
		ret->fd = l->fd;
		return layerfile_find(l->one, m, &ret->at) ? 0 : not_recorded(m, EIO, e);
	}
	/* Safe because: layers are our own, nobody else writes in them, and they hold no way out. */
	*ret_fd = openat(l ? l->fd : -1, m->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0 || fstat(*ret_fd, &st) < 0 || (uint64_t)st.st_size != m->size)
		return not_recorded(m, *ret_fd < 0 ? errno : EIO, e);
	ret->fd = *ret_fd;
	return 0;
}

/* have: bytes of a file that are there. */
static int send_entry(struct sender *s, uint64_t have, struct err *e)
{
	const struct manifest_entry *m = &s->m;
	struct tar_member t = {.mode = m->mode, .mtime_ns = m->mtime_ns};
	_cleanup_fd_ int fd = -1;
	struct source from;
	int r;

	if (m->kind == 'd') {
		t.type = TAR_DIR;
		return header(s, &t, m->path, m->path_len, e);
	}
	if (m->kind == 'l') {
		t.type = TAR_SYMLINK;
		t.mode = 0777;
		t.target = (struct view){m->target, m->target_len};
		return header(s, &t, m->path, m->path_len, e);
	}
	r = open_copy(s, &from, &fd, e);
	if (r < 0)
		return r;
	t.type = TAR_FILE;
	t.size = m->size - have;
	from.at += have;
	r = header(s, &t, m->path, m->path_len, e);
	return r < 0 ? r : contents(s, &from, t.size, e);
}

/* What is wanted. --------------------------------------------------------------------------------- */

static int read_want(struct sender *s, const struct manifest *list, struct err *e)
{
	uint8_t head[8], parts[RM_PARTS_MAX * RM_PART_BYTES];
	struct cursor c;
	uint32_t n;
	int r = get(s, head, 1, e);

	if (r < 0 || head[0] == 0)
		return r;
	r = get(s, head, 8, e);
	if (r < 0)
		return r;
	cursor_init(&c, head, 8);
	s->want.count = cursor_u64(&c);
	if (s->want.count != manifest_count(list))
		return err_set(e, ERR_PROTOCOL, "the guest there knows another list of files");
	s->want.bits = malloc((size_t)(s->want.count / 8 + 1));
	if (!s->want.bits)
		return err_set(e, ERR_NOMEM, "send the workspace: out of memory");
	r = get(s, s->want.bits, (size_t)(s->want.count / 8 + 1), e);
	if (r == 0)
		r = get(s, head, 4, e);
	if (r < 0)
		return r;
	cursor_init(&c, head, 4);
	n = cursor_u32(&c);
	if (n > RM_PARTS_MAX)
		return err_set(e, ERR_PROTOCOL, "the guest there offers %u parts of files", n);
	r = get(s, parts, n * (size_t)RM_PART_BYTES, e);
	if (r == 0 && rm_parts_get((struct view){(const char *)parts, n * (size_t)RM_PART_BYTES}, n,
				   &s->want) < 0)
		r = err_set(e, ERR_PROTOCOL,
			    "the guest there offers parts of files that it has whole");
	return r;
}

/* Are the first bytes of that file here what they are there? */
static bool same_part(struct sender *s, const struct rm_part *p)
{
	_cleanup_fd_ int fd = -1;
	uint8_t hash[BLAKE2B_OUT];
	struct source from;
	struct blake2b b;

	if (s->m.kind != 'f' || p->have >= s->m.size || open_copy(s, &from, &fd, NULL) < 0)
		return false;
	blake2b_init(&b);
	for (uint64_t left = p->have; left;) {
		ssize_t k = pread(from.fd, s->chunk, left < CHUNK ? (size_t)left : CHUNK,
				  (off_t)(from.at + p->have - left));

		if (k <= 0 || (s->cancel && *s->cancel))
			return false;
		blake2b_update(&b, s->chunk, (size_t)k);
		left -= (uint64_t)k;
	}
	blake2b_final(&b, hash);
	return memcmp(hash, p->hash, sizeof(hash)) == 0;
}

/* A byte for each part. */
static int answer_parts(struct sender *s, const struct manifest *list, struct err *e)
{
	size_t pos = 0, part = 0;
	int r = 1;

	for (uint64_t i = 0; part < s->want.parts && r > 0; i++) {
		r = manifest_next(list, &pos, &s->m);
		if (r > 0 && s->want.part[part].entry == i) {
			s->goes_on[part] = same_part(s, &s->want.part[part]);
			(void)buf_u8(&s->head, s->goes_on[part]);
			part++;
		}
	}
	return part < s->want.parts ? err_set(e, ERR_PROTOCOL, "the manifest has a broken line")
				    : flush(s, e);
}

static int send_tree(struct sender *s, const struct manifest *list, struct err *e)
{
	size_t pos = 0, passed = 0, part = 0;
	int r;

	for (uint64_t i = 0; (r = manifest_next(list, &pos, &s->m)) > 0; i++) {
		uint64_t have = 0;

		manifest_pass(list, &passed, pos);
		if (!rm_want_has(&s->want, i))
			continue;
		if (part < s->want.parts && s->want.part[part].entry == i) {
			have = s->goes_on[part] ? s->want.part[part].have : 0;
			part++;
		}
		r = send_entry(s, have, e);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(e, ERR_PROTOCOL, "the manifest has a broken line") : 0;
}

/* The repository. ----------------------------------------------------------------------------- */

static int send_dir(struct sender *s, int at, size_t len, unsigned depth, struct err *e);

static int send_found(struct sender *s, int at, const char *name, size_t len, unsigned depth,
		      struct err *e)
{
	struct tar_member t = {0};
	char target[LINK_TARGET_MAX + 1];
	_cleanup_fd_ int fd = -1;
	struct stat st;
	ssize_t k;
	int r;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, errno, "read %s", s->path);
	t.mode = st.st_mode & 0777;
	t.mtime_ns = (int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
	if (S_ISLNK(st.st_mode)) {
		k = readlinkat(at, name, target, sizeof(target));
		if (k < 0)
			return err_sys(e, errno, "read %s", s->path);
		t.type = TAR_SYMLINK;
		t.target = (struct view){target, (size_t)k};
		return header(s, &t, s->path, len, e);
	}
	fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "read %s", s->path);
	if (S_ISDIR(st.st_mode)) {
		t.type = TAR_DIR;
		r = header(s, &t, s->path, len, e);
		return r < 0 ? r : send_dir(s, fd, len, depth + 1, e);
	}
	if (!S_ISREG(st.st_mode))
		return 0;
	t.type = TAR_FILE;
	t.size = (uint64_t)st.st_size;
	r = header(s, &t, s->path, len, e);
	return r < 0 ? r : contents(s, &(struct source){fd, 0, s->path}, t.size, e);
}

/* What lies in the directory at s->path[0..len). */
static int send_dir(struct sender *s, int at, size_t len, unsigned depth, struct err *e)
{
	int fd = openat(at, ".", DIR_FLAGS), r = 0;
	_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d)
		return err_sys(e, errno, "read %s", s->path);
	while (r == 0 && (errno = 0, ent = readdir(d))) {
		size_t n = strlen(ent->d_name), slash = len ? 1 : 0;

		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		if (len + slash + n > PATH_MEMBER_MAX || depth > PATH_DEPTH_MAX)
			return err_set(e, ERR_LIMIT, "the repository's %s is too deep", s->path);
		if (slash)
			s->path[len] = '/';
		memcpy(s->path + len + slash, ent->d_name, n + 1);
		r = send_found(s, at, ent->d_name, len + slash + n, depth, e);
		s->path[len] = '\0';
	}
	/* Without this a read error would pass for the end, and a part for the whole. */
	return r == 0 && !ent && errno ? err_sys(e, errno, "read %s", s->path) : r;
}

static int send_all(struct sender *s, const char *manifest, char *const *layers, struct err *e)
{
	_cleanup_fd_ int fd = open(manifest, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct manifest *list = NULL;
	int r = fd < 0 ? err_sys(e, errno, "open %s", manifest) : open_layers(s, layers, e);

	if (r == 0 && !s->bare)
		r = send_manifest(s, fd, e);
	if (r == 0)
		r = manifest_open(fd, &list, e);
	if (r == 0 && !s->bare)
		r = read_want(s, list, e);
	if (r == 0)
		r = answer_parts(s, list, e);
	if (r == 0)
		r = send_tree(s, list, e);
	manifest_free(list);
	for (size_t i = 0; r == 0 && i < s->layers; i++)
		if (!s->layer[i].number)
			r = send_dir(s, s->layer[i].fd, 0, 0, e);
	if (r == 0 && tar_put_end(&s->head) < 0)
		r = err_set(e, ERR_NOMEM, "send the workspace: out of memory");
	return r < 0 ? r : flush(s, e);
}

static int send(const struct sandbox_spec *spec, int out, int from, struct err *e)
{
	struct sender *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ERR_NOMEM, "send the workspace: out of memory");
	s->out = out;
	s->from = from;
	s->bare = from < 0;
	s->cancel = spec->cancel;
	buf_init(&s->head, (size_t)4 << 20);
	r = send_all(s, spec->manifest, spec->layers, e);
	for (size_t i = 0; i < s->layers; i++) {
		layerfile_free(s->layer[i].one);
		cleanup_fd(&s->layer[i].fd);
	}
	rm_want_done(&s->want);
	buf_done(&s->head);
	free(s);
	return r;
}

int ssh_send(const struct sandbox_spec *spec, int out, int want, struct err *e)
{
	return send(spec, out, want, e);
}

int ssh_send_tar(const struct sandbox_spec *spec, int out, struct err *e)
{
	return send(spec, out, -1, e);
}
