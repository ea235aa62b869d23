#include "engine/maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "engine/interrupt.h"
#include "engine/runenv.h"
#include "engine/tarout.h"
#include "os/copy.h"
#include "policy/member.h"
#include "sync/baseline.h"

#define WORDS 3
#define PLACE_MAX (2 * PATH_MAX)

size_t maps_count(char *const *maps)
{
	return strv_len(maps) / WORDS;
}

static struct map map_at(char *const *maps, size_t i)
{
	struct map m = {.file = maps[WORDS * i][0] == 'f',
			.src = maps[WORDS * i + 1],
			.dst = maps[WORDS * i + 2]};

	(void)snprintf(m.root, sizeof(m.root), "%.*s",
		       m.file ? (int)(path_base(m.src) - m.src - 1) : (int)strlen(m.src), m.src);
	if (!m.root[0])
		(void)snprintf(m.root, sizeof(m.root), "/");
	return m;
}

struct map maps_at(const struct lease_spec *s, size_t i)
{
	struct map m = map_at(s->maps, i);
	unsigned long long dev, ino;

	if (i < strv_len(s->map_roots) && sscanf(s->map_roots[i], "%llu:%llu", &dev, &ino) == 2) {
		m.dev = dev;
		m.ino = ino;
	}
	return m;
}

char *maps_run_dir(const char *run_dir, size_t i)
{
	char *dir;

	return asprintf(&dir, "%s/maps/%zu", run_dir, i) < 0 ? NULL : dir;
}

int maps_results(const struct lease_spec *s, const char *run_dir, struct transfer *t, struct err *e)
{
	size_t n = maps_count(s->maps);

	if (!n || t->maps)
		return 0;
	t->maps = calloc(n, sizeof(*t->maps));
	for (size_t i = 0; t->maps && i < n; i++) {
		struct map_result *r = &t->maps[i];
		struct map m = maps_at(s, i);

		*r = (struct map_result){.file = m.file,
					 .src = strdup(m.src),
					 .dst = strdup(m.dst),
					 .dir = maps_run_dir(run_dir, i),
					 .err = ERR_INIT};
		t->maps_len = i + 1;
		if (!r->src || !r->dst || !r->dir)
			return err_set(e, ERR_NOMEM, "out of memory");
	}
	return t->maps ? 0 : err_set(e, ERR_NOMEM, "out of memory");
}

static bool overlap(const char *a, const char *b)
{
	return path_is_within(a, b) || path_is_within(b, a);
}

/* The host's side: there, of the right kind, no link; its directory is resolved once, here. */
static int judge_src(const char *src, const char *kind, char **ret_real, bool *ret_file,
		     struct err *e)
{
	_cleanup_free_ char *real = NULL;
	struct stat st;

	if (lstat(src, &st) < 0)
		return err_set(e, ERR_USAGE, "--map %.300s: %s", src, strerror(errno));
	if (S_ISLNK(st.st_mode))
		return err_set(e, ERR_USAGE,
			       "--map %.300s is a symbolic link: name what it leads to", src);
	*ret_file = S_ISREG(st.st_mode);
	if (!*ret_file && !S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE, "--map %.300s: neither a file nor a directory", src);
	if (kind && (strcmp(kind, "file") == 0) != *ret_file)
		return err_set(e, ERR_USAGE, "--map %.300s is not a %s", src, kind);
	real = realpath(src, NULL);
	if (!real)
		return err_set(e, ERR_USAGE, "--map %.300s: %s", src, strerror(errno));
	if (strcmp(real, "/") == 0 || member_name_rule(real + 1, strlen(real + 1)))
		return err_set(
		    e, ERR_USAGE,
		    "--map %.300s: a reserved place (git's own files, Airlock's, the root)", real);
	*ret_real = TAKE_PTR(real);
	return 0;
}

static int judge_dst(const char *dst, struct err *e)
{
	size_t n = strlen(dst);

	if (!path_is_absolute_normal(dst) || n >= PATH_MAX)
		return err_set(
		    e, ERR_USAGE,
		    "--map ...:%.300s: the place inside is an absolute path without '..', "
		    "'.' or a '/' at its end",
		    dst);
	if ((!path_is_within(dst, INSIDE_HOME) || strcmp(dst, INSIDE_HOME) == 0) &&
	    (!path_is_within(dst, "/tmp") || strcmp(dst, "/tmp") == 0))
		return err_set(e, ERR_USAGE,
			       "--map ...:%.300s: the place inside must lie below %s or /tmp", dst,
			       INSIDE_HOME);
	if (member_name_rule(dst + 1, n - 1))
		return err_set(e, ERR_USAGE, "--map ...:%.300s: a reserved name", dst);
	return 0;
}

int maps_add(char ***maps, const char *word, struct err *e)
{
	_cleanup_free_ char *w = strdup(word), *real = NULL;
	char *dst, *kind = NULL;
	bool file = false;
	int r;

	if (!w)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	if (maps_count(*maps) == MAPS_MAX)
		return err_set(e, ERR_LIMIT, "--map: more than %d of them (limit maps)", MAPS_MAX);
	/* From the right: a host path may hold colons. */
	dst = strrchr(w, ':');
	if (dst && (strcmp(dst, ":file") == 0 || strcmp(dst, ":dir") == 0)) {
		kind = dst + 1;
		*dst = '\0';
		dst = strrchr(w, ':');
	}
	if (!dst || dst == w)
		return err_set(e, ERR_USAGE,
			       "--map %.300s: give SRC:DST, SRC:DST:file or SRC:DST:dir", word);
	*dst++ = '\0';
	r = judge_dst(dst, e);
	if (r == 0)
		r = judge_src(w, kind, &real, &file, e);
	if (r < 0)
		return r;
	if (strv_add(maps, file ? "file" : "dir") < 0 || strv_add(maps, real) < 0 ||
	    strv_add(maps, dst) < 0)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	return 0;
}

int maps_check(const struct request *q, const char *state_dir, struct err *e)
{
	for (size_t i = 0; i < maps_count(q->maps); i++) {
		struct map m = map_at(q->maps, i);

		if (q->provider->in_place)
			return err_set(e, ERR_USAGE,
				       "--map does not go with a provider that works in place");
		if (q->provider->elsewhere && !q->provider->isolates &&
		    !path_is_within(m.dst, "/tmp"))
			return err_set(
			    e, ERR_USAGE,
			    "--map ...:%.300s: on another machine without a sandbox the place lies below /tmp there: its "
			    "home is the account's own",
			    m.dst);
		if (overlap(m.src, q->workspace))
			return err_set(
			    e, ERR_USAGE,
			    "--map %.300s: it and the workspace %.300s lie in one another", m.src,
			    q->workspace);
		if (state_dir && overlap(m.src, state_dir))
			return err_set(e, ERR_USAGE, "--map %.300s: Airlock's own state lies there",
				       m.src);
		for (size_t k = 0; k < q->binds_len; k++)
			if (overlap(m.dst, q->binds[k].dst))
				return err_set(
				    e, ERR_USAGE,
				    "--map ...:%.300s and --bind-ro ...:%.300s lie in one another",
				    m.dst, q->binds[k].dst);
		for (size_t k = 0; k < i; k++) {
			struct map o = map_at(q->maps, k);

			if (overlap(m.src, o.src) || overlap(m.dst, o.dst))
				return err_set(e, ERR_USAGE,
					       "--map %.200s and --map %.200s lie in one another",
					       o.src, m.src);
		}
	}
	return 0;
}

/* --- in -------------------------------------------------------------------------------- */

static int open_root(const struct map *m, struct err *e)
{
	int fd = open(m->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, errno, "open %s", m->root) : fd;
}

/* Places of another machine without a sandbox: everybody's there, and not gone with it. */
static bool shared_places(const struct sandbox *sb)
{
	return sb->ops->elsewhere && !sb->ops->isolates;
}

/*
 * Whose a place of everybody's is: a link `.airlock-map.NAME` beside it, with the place's inode (0: not made yet) and the run's directory. A
 * mark of ours whose run's directory is gone is left over, and the place with it if it is that inode. What clears old files away takes the
 * mark, which nobody reads, no later than the first file of the place.
 */
#define MARK_OF "m=${d%/*}/.airlock-map.${d##*/}; "

static int send(struct sandbox *sb, const struct map *m, struct baseline_opts *b, struct err *e)
{
	static const char own[] = "mkdir -p -- \"$1\" && exec tar -C \"$1\" -xpf -";
	/*
	 * Made here and now, or not at all: what is there is somebody's. A directory above it that is not ours could lead elsewhere
	 * tomorrow. A part of it is nobody's: a file is unpacked beside it and gets its name when it is whole.
	 */
	static const char shared[] =
	    "umask 077; d=$2; p=${d%/*}; " MARK_OF "put=$p/.airlock-put.${d##*/}; "
	    "test \"$p\" = /tmp || { test -d \"$p\" && ! test -L \"$p\" && test -O \"$p\"; } || "
	    "{ echo \"$p is not a directory of this account there\" >&2; exit 1; }; "
	    "look() { ls -ldin -- \"$1\" 2>/dev/null | { read -r i x l u y; echo \"$i:$u\"; }; }; "
	    "me=$(id -u); "
	    "for k in \"$p\"/.airlock-map.*; do "
	    "test -L \"$k\" || continue; o=$(look \"$k\"); test \"${o#*:}\" = \"$me\" || continue; "
	    "t=$(readlink \"$k\"); test -e \"${t#*:}\" && continue; "
	    "n=${k##*/.airlock-map.}; o=$(look \"$p/$n\"); "
	    "if test \"$o\" = \"${t%%:*}:$me\"; then "
	    "test -L \"$p/$n\" || chmod -R u+rwx -- \"$p/$n\" 2>/dev/null; rm -rf -- \"$p/$n\"; "
	    "elif test \"${t%%:*}\" = 0 && ! test -L \"$p/$n\"; then rmdir -- \"$p/$n\" 2>/dev/null; fi; "
	    "rm -rf -- \"$p/.airlock-put.$n\" \"$k\"; done; "
	    "if test -e \"$d\" || test -L \"$d\"; then echo \"$d is there already: it is not overwritten\" >&2; exit 1; fi; "
	    "ln -s -- \"0:$3\" \"$m\" || exit 1; "
	    "sign() { o=$(look \"$1\"); ln -s -- \"${o%%:*}:$3\" \"$m.new\" && mv -f -- \"$m.new\" \"$m\"; }; "
	    "if test \"$1\" = \"$d\"; then "
	    "mkdir -- \"$d\" || { rm -f -- \"$m\"; exit 1; }; "
	    "sign \"$d\" x \"$3\" && tar -C \"$d\" -xpf - || { rm -rf -- \"$d\" \"$m\"; exit 1; }; "
	    "else "
	    "mkdir -- \"$put\" && tar -C \"$put\" -xpf - && sign \"$put/${d##*/}\" x \"$3\" && "
	    "ln -- \"$put/${d##*/}\" \"$d\"; r=$?; rm -rf -- \"$put\"; "
	    "test $r = 0 || rm -f -- \"$m\"; exit $r; fi";
	char dir[PATH_MAX];
	const char *argv[] = {"sh",	     "-c", shared_places(sb) ? shared : own,
			      "airlock-map", dir,  m->dst,
			      sb->inside,    NULL};
	struct tarout t = TAROUT_INIT;
	struct baseline_counts n;
	_cleanup_fd_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct err we = ERR_INIT;
	int p[2], r, k;

	(void)snprintf(dir, sizeof(dir), "%.*s",
		       m->file ? (int)(path_base(m->dst) - m->dst - 1) : (int)strlen(m->dst),
		       m->dst);
	if (null < 0 || pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	r = tarout_exec(&t, sb, argv, p[0], null, e);
	(void)close(p[0]);
	b->tar_fd = p[1];
	k = r == 0 ? baseline_write(b, &n, &we) : 0;
	(void)close(p[1]);
	if (r == 0)
		r = tarout_wait(&t, e);
	if (r == 0 && !tarout_whole(&t, e))
		r = -EIO;
	if (r == 0 && k < 0) {
		*e = we;
		r = k;
	}
	tarout_done(&t);
	return r < 0 ? err_wrap(e, r, "bring %s into the sandbox", m->src) : 0;
}

/* Which directory it is, for when its results come back. */
static int note_root(struct lease_spec *s, int root, struct err *e)
{
	struct stat st;
	char word[48];

	if (fstat(root, &st) < 0)
		return err_sys(e, errno, "look at a mapping's directory");
	(void)snprintf(word, sizeof(word), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	return strv_add(&s->map_roots, word) < 0 ? err_set(e, ERR_NOMEM, "out of memory") : 0;
}

#define GONE_WORDS 5

/* A place that was cleared away may be another run's by now: its mark says so, and it is left alone. */
void maps_gone(struct sandbox *sb, struct lease_spec *s)
{
	static const char script[] =
	    "run=$1; shift; for d do " MARK_OF
	    "if test -L \"$m\"; then t=$(readlink \"$m\"); test \"${t#*:}\" = \"$run\" || continue; fi; "
	    "test -L \"$d\" || ! test -O \"$d\" || chmod -R u+rwx -- \"$d\" 2>/dev/null; "
	    "rm -rf -- \"$d\" \"$m\"; done";
	const char *argv[GONE_WORDS + MAPS_MAX + 1] = {"sh", "-c", script, "airlock-map",
						       sb->inside};
	_cleanup_fd_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct tarout t = TAROUT_INIT;
	size_t n = strv_len(s->map_roots);

	if (!shared_places(sb) || !n || null < 0)
		return;
	for (size_t i = 0; i < n && i < MAPS_MAX; i++)
		argv[GONE_WORDS + i] = map_at(s->maps, i).dst;
	if (tarout_exec(&t, sb, argv, -1, null, NULL) == 0)
		(void)tarout_wait(&t, NULL);
	tarout_done(&t);
	strv_free(TAKE_PTR(s->map_roots));
}

int maps_in(struct sandbox *sb, struct lease_spec *s, const char *lease_dir, struct err *e)
{
	int r = 0;

	strv_free(TAKE_PTR(s->map_roots));
	for (size_t i = 0; r == 0 && i < maps_count(s->maps); i++) {
		struct map m = map_at(s->maps, i);
		struct baseline_opts b = {.cancel = interrupt_first()};
		char path[PLACE_MAX];
		_cleanup_fd_ int root = open_root(&m, e), out = -1;

		if (root < 0)
			return root;
		(void)snprintf(path, sizeof(path), "%s/map-%zu", lease_dir, i);
		out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (out < 0)
			return err_sys(e, errno, "create %s", path);
		b.root_fd = root;
		b.out_fd = out;
		b.only = m.file ? path_base(m.src) : NULL;
		b.as = m.file ? path_base(m.dst) : NULL;
		r = send(sb, &m, &b, e);
		if (r == 0)
			r = note_root(s, root, e);
	}
	if (r < 0)
		maps_gone(sb, s);
	return r;
}

/* --- out ------------------------------------------------------------------------------- */

/* Where it cannot be linked (another disk, a file system without links): whole or not at all, as a name. */
static int copy_manifest(const char *from, const char *to, struct err *e)
{
	_cleanup_fd_ int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), out = -1;
	_cleanup_free_ char *tmp = NULL;
	int r;

	if (in < 0)
		return err_sys(e, errno, "%s", from);
	if (asprintf(&tmp, "%s.new", to) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	out = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	r = out < 0 ? -errno : copy_file(in, out);
	if (r == 0 && (fsync(out) < 0 || rename(tmp, to) < 0))
		r = -errno;
	if (r < 0)
		(void)unlink(tmp);
	return r < 0 ? err_sys(e, -r, "copy %s to %s", from, to) : 0;
}

/* The run's own directory for it, with what was sent: the lease and its manifest may go before the run's results. */
static int make_place(const struct transfer_job *j, const char *manifest, const char *dir,
		      struct err *e)
{
	_cleanup_free_ char *up = path_join(j->run_dir, "maps"),
			    *copy = path_join(dir, MAP_MANIFEST);

	if (!up || !copy)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (mkdir(up, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", up);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", dir);
	/* It is never written again. */
	if (link(manifest, copy) == 0 || errno == EEXIST)
		return 0;
	return copy_manifest(manifest, copy, e);
}

/* The sandbox's archiver into a pipe, airlock-unpack at its other end. */
static int carry(const struct transfer_job *j, const struct map *m, struct unpack_opts *o,
		 struct unpack_report *rep, struct tarout_end *b, struct err *e)
{
	/* Under its host name, from a directory of its own: whatever a link leads to inside is inside's to read. */
	static const char one[] =
	    /* Nothing but a file: cp would wait in a FIFO for a writer. */
	    "[ -f \"$1\" ] || { echo \"$1 is not a file any more\" >&2; exit 1; }; "
	    "d=$(mktemp -d) && cp -p -- \"$1\" \"$d/$2\" && tar -C \"$d\" -cf - -- \"$2\"; r=$?; "
	    "rm -rf -- \"$d\"; exit $r";
	/* A link in its place would bring back another tree in the name of this one. */
	static const char all[] =
	    "[ -d \"$1\" ] && ! [ -L \"$1\" ] || { echo \"$1 is not a directory any more\" >&2; exit 1; }; "
	    "exec tar -C \"$1\" -cf - .";
	/* Where old files are cleared away, what is missing was not deleted by the run: then no deletion counts. */
	static const char shared[] =
	    "d=$1; " MARK_OF
	    "[ -d \"$d\" ] && ! [ -L \"$d\" ] || { echo \"$d is not a directory any more\" >&2; exit 1; }; "
	    "tar -C \"$d\" -cf - .; r=$?; "
	    "[ -L \"$m\" ] || { echo \"$m is gone: files there may have been cleared away\" >&2; exit 1; }; exit $r";
	const char *dir_argv[] = {"sh",		 "-c",	 shared_places(j->sb) ? shared : all,
				  "airlock-map", m->dst, NULL};
	const char *file_argv[] = {"sh", "-c", one, "airlock-map", m->dst, path_base(m->src), NULL};
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	r = tarout_exec(&b->t, j->sb, m->file ? file_argv : dir_argv, -1, p[1], e);
	(void)close(p[1]);
	o->stream_fd = p[0];
	if (r < 0) {
		(void)close(p[0]);
		return r;
	}
	r = unpack_run(o, rep, e);
	(void)close(p[0]);
	(void)tarout_wait(&b->t, NULL);
	/* What was cut off is the archiver's failure, and its reason says more. */
	if (r == -EBADMSG && strcmp(rep->rule, "truncated") == 0 && !tarout_whole(&b->t, e))
		r = -EIO;
	return r;
}

static int one_back(const struct transfer_job *j, size_t i, struct map_result *res, bool *ret_kept,
		    struct err *e)
{
	struct map m = maps_at(j->spec, i);
	_cleanup_free_ char *lease = state_path(j->st, "leases", j->lease->id, NULL);
	char manifest[PLACE_MAX], turn[32];
	_cleanup_fd_ int moving = -1;
	struct tarout_end b = {.t = TAROUT_INIT, .ui = j->ui};
	struct unpack_opts o = {
	    .root = m.root,
	    .root_dev = transfer_device(j->spec, m.dev),
	    .root_ino = m.ino,
	    .only = m.file ? path_base(m.src) : NULL,
	    .run_dir = res->dir,
	    .state_dir = j->st->dir,
	    .manifest_path = manifest,
	    .strict = j->spec->strict,
	    .without_landlock = j->spec->without & WITHOUT_LANDLOCK,
	    .review = j->spec->review,
	    .on_conflict = j->spec->on_conflict,
	    .full_tree = true,
	    .keep_trash = true,
	    .complete = tarout_complete,
	    .complete_arg = &b,
	    .cancel = interrupt_second(),
	};
	int r;

	if (!lease)
		return err_set(e, ERR_NOMEM, "out of memory");
	(void)snprintf(manifest, sizeof(manifest), "%s/map-%zu", lease, i);
	(void)snprintf(turn, sizeof(turn), "map-%zu.baseline", i);
	r = make_place(j, manifest, res->dir, e);
	if (r == 0 && j->baseline >= 0)
		r = transfer_turn(j, turn, &moving, e);
	o.baseline_fd = moving;
	if (r == 0)
		r = carry(j, &m, &o, &res->rep, &b, e);
	*ret_kept |= b.partial;
	res->done = r == 0 || r == -EBADMSG;
	if (!res->done) {
		unpack_report_done(&res->rep);
		res->rep = (struct unpack_report){0};
	}
	tarout_done(&b.t);
	return r < 0 ? err_wrap(e, r, "bring %s back", m.src) : 0;
}

int maps_out(const struct transfer_job *j, struct transfer *t, bool *ret_kept, struct err *e)
{
	int first = maps_results(j->spec, j->run_dir, t, e);

	*ret_kept = false;
	for (size_t i = 0; first != -ENOMEM && i < t->maps_len; i++) {
		struct err *why = &t->maps[i].err;
		int r;

		/* Never there whole, so no command ran: what is missing of it was not deleted. */
		if (i >= strv_len(j->spec->map_roots)) {
			(void)err_set(
			    why, ERR_NOT_FOUND,
			    "%s had not gone into the sandbox whole: nothing of it is taken back",
			    t->maps[i].src);
			if (j->ui->note)
				j->ui->note(j->ui->arg, true, why->text);
			continue;
		}
		r = one_back(j, i, &t->maps[i], ret_kept, why);
		if (r < 0 && first == 0) {
			first = r;
			*e = *why;
		} else if (r < 0 && j->ui->note) {
			j->ui->note(j->ui->arg, true, why->text);
		}
	}
	return first;
}
