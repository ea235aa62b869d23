/*
 * Policy: archive, compression and JSON of an image are foreign bytes. The process that reads them holds the source and one new
 * directory; Landlock lets it write below that directory and read below a source that is one, seccomp lets it start
 * nothing and connect nowhere, and it is confined before it reads the first of these bytes. What it made is hashed by it from
 * the disk, not from what it read.
 * Not done here: whether the image's programs can be trusted, which nobody knows: they run in a sandbox.
 */
#include "sync/image_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/cursor.h"
#include "base/limits.h"
#include "os/chan.h"
#include "os/confine.h"
#include "sync/image_internal.h"
#include "sync/image_proto.h"

/* A zstd window, JSON of an index, the reader's own. */
#define DATA_MAX (UINT64_C(384) << 20)
#define NOFILE (PATH_DEPTH_MAX + 64)
#define LAYOUT "layout" /* beside the tree: an archive that turned out to hold an OCI layout */

struct server {
	struct chan ch;
	int source, into; /* owned */
	bool directory, without_landlock;
	char ref[IMAGE_REF_MAX + 1];
};

static int set_up(struct server *s, struct err *e)
{
	int fds[FRAME_FDS_MAX];
	struct cursor c;
	struct view ref;
	struct frame f;
	int r = chan_recv(&s->ch, INT64_MAX, &f, fds, e);

	if (r <= 0)
		return r < 0 ? r : err_set(e, ERR_CANCELLED, "airlock went away");
	s->source = fds[0];
	s->into = fds[1];
	cursor_init(&c, f.payload.p, f.payload.n);
	s->directory = cursor_u8(&c) != 0;
	s->without_landlock = cursor_u8(&c) != 0;
	ref = cursor_bytes(&c, IMAGE_REF_MAX);
	memcpy(s->ref, ref.n ? ref.p : "", ref.n);
	if (f.type != IF_SETUP || !cursor_end(&c) || s->source < 0 || s->into < 0)
		return err_set(e, ERR_PROTOCOL, "malformed set-up frame");
	s->ch.accept_fds = false;
	return 0;
}

static int confine(const struct server *s, struct err *e)
{
	const struct confine_path p[] = {{s->into, CONFINE_READ | CONFINE_WRITE},
					 {s->source, CONFINE_READ}};
	struct confine_opts o = {.paths = p,
				 .paths_len = s->directory ? 2 : 1,
				 .data_max = DATA_MAX,
				 .nofile_max = NOFILE,
				 .without = s->without_landlock ? CONFINE_NO_LANDLOCK : 0};

	return confine_self(&o, e);
}

static int make_dir(int at, const char *name, int *ret_fd, struct err *e)
{
	if (mkdirat(at, name, 0755) < 0)
		return err_sys(e, errno, "make %s", name);
	*ret_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? err_sys(e, errno, "open %s", name) : 0;
}

/* The archive is unpacked as a tree first; only then it shows what it is. */
static int from_archive(struct server *s, struct image_tree *t, struct err *e)
{
	_cleanup_fd_ int first = -1, second = -1;
	struct beneath layout;
	int r = make_dir(s->into, IMAGE_TREE, &first, e);

	if (r < 0)
		return r;
	t->at = layout = (struct beneath){.root = first};
	r = image_layer_apply(t, s->source, LAYER_ALL, e);
	if (r == 0)
		r = image_oci_is(&layout, e);
	if (r == 1) {
		if (renameat(s->into, IMAGE_TREE, s->into, LAYOUT) < 0)
			return err_sys(e, errno, "set the archive aside");
		r = make_dir(s->into, IMAGE_TREE, &second, e);
		if (r < 0)
			return r;
		*t = (struct image_tree){.at = {.root = second}, .facts = t->facts};
		*t->facts = (struct image_facts){0};
		r = image_oci_apply(&layout, s->ref[0] ? s->ref : NULL, t, e);
		if (r == 0) {
			struct beneath into = {.root = s->into};

			r = beneath_remove_tree(&into, LAYOUT);
			r = r < 0 ? err_sys(e, -r, "remove the archive's own files") : 0;
		}
	} else if (r == 0 && s->ref[0]) {
		r = err_set(e, ERR_INVALID, "--ref is for OCI images; this is a plain archive");
	}
	return r;
}

static int from_directory(struct server *s, struct image_tree *t, struct err *e)
{
	_cleanup_fd_ int tree = -1;
	struct beneath layout = {.root = s->source};
	int r = image_oci_is(&layout, e);

	if (r == 0)
		return err_set(
		    e, ERR_INVALID,
		    "the directory holds no OCI layout (oci-layout, index.json); a root file system: 'tar -C DIR -c . | airlock image import -'");
	if (r < 0)
		return r;
	r = make_dir(s->into, IMAGE_TREE, &tree, e);
	if (r < 0)
		return r;
	t->at = (struct beneath){.root = tree};
	return image_oci_apply(&layout, s->ref[0] ? s->ref : NULL, t, e);
}

/* RT-02: a sandbox without a shell is of no use. Links are those of the image, so its tree is their root. */
static int check_shell(int into, struct err *e)
{
	_cleanup_fd_ int root = openat(into, IMAGE_TREE, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	_cleanup_fd_ int fd =
	    root < 0 ? -1 : (int)syscall(SYS_openat2, root, "bin/sh", &how, sizeof(how));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0100))
		return err_set(
		    e, ERR_INVALID,
		    "that is no root file system for a sandbox: it has no program /bin/sh");
	return 0;
}

/* A sandbox sees these four name by name, beside what is made there (provider/native/imported.c). */
static int check_names(int tree, struct err *e)
{
	static const char *const opened[] = {".", "etc", "opt", "var"};
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(opened); i++) {
		int fd = openat(tree, opened[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		_cleanup_dir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
		const struct dirent *de;

		/* Not a directory: a sandbox gets one of its own. */
		if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
			continue;
		if (!d) {
			cleanup_fd(&fd);
			return err_sys(e, errno, "list %s of the image", opened[i]);
		}
		while ((de = readdir(d)))
			n += strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0;
	}
	return n <= IMAGE_MOUNTS_MAX
		   ? 0
		   : err_set(
			 e, ERR_LIMIT,
			 "the image has %zu names in /, /etc, /opt and /var, at most %d are taken",
			 n, IMAGE_MOUNTS_MAX);
}

static int make(struct server *s, struct image_facts *f, struct err *e)
{
	_cleanup_fd_ int tree = -1;
	struct image_tree t = {.facts = f};
	int r = s->directory ? from_directory(s, &t, e) : from_archive(s, &t, e);

	if (r == 0)
		r = check_shell(s->into, e);
	if (r < 0)
		return r;
	tree = openat(s->into, IMAGE_TREE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (tree < 0)
		return err_sys(e, errno, "open the image");
	r = check_names(tree, e);
	if (r == 0)
		r = image_digest(tree, f, e);
	/* A power cut must not leave an image with a digest and without its contents. */
	if (r == 0 && syncfs(tree) < 0)
		r = err_sys(e, errno, "write the image to the disk");
	return r;
}

static int send_done(struct server *s, const struct image_facts *f, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	(void)buf_str(&b, f->digest);
	(void)buf_str(&b, f->source);
	(void)buf_str(&b, f->arch);
	(void)buf_u64(&b, f->files);
	(void)buf_u64(&b, f->dirs);
	(void)buf_u64(&b, f->links);
	(void)buf_u64(&b, f->bytes);
	(void)buf_u32(&b, f->layers);
	(void)buf_u64(&b, f->specials);
	(void)buf_u64(&b, f->privileged);
	return b.err ? err_sys(e, -b.err, "answer")
		     : chan_send(&s->ch, IF_DONE, b.data, b.len, NULL, 0, INT64_MAX, e);
}

int image_serve(int fd)
{
	struct server s = {.source = -1, .into = -1};
	struct image_facts f = {0};
	struct err e = ERR_INIT;
	int r;

	(void)umask(0);
	if (sodium_init() < 0)
		return -EIO;
	chan_init(&s.ch, fd, true);
	r = set_up(&s, &e);
	if (r == 0)
		r = confine(&s, &e);
	if (r == 0)
		r = make(&s, &f, &e);
	if (r == 0)
		r = send_done(&s, &f, &e);
	if (r < 0) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);

		if (e.code == ERR_NONE)
			(void)err_sys(&e, -r, "import the image");
		(void)buf_u32(&b, e.code);
		(void)buf_str(&b, e.text);
		(void)chan_send(&s.ch, IF_ERROR, b.data, b.len, NULL, 0, INT64_MAX, NULL);
	}
	cleanup_fd(&s.source);
	cleanup_fd(&s.into);
	chan_done(&s.ch);
	return r;
}
