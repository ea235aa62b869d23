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
#include "policy/member.h"
#include "sync/baseline.h"

#define WORDS 3
#define PLACE_MAX (2 * PATH_MAX)

struct map {
	bool file;
	const char *src, *dst; /* borrowed */
	char root[PATH_MAX];   /* SRC, or the directory of it */
};

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

static size_t count(char *const *maps)
{
	return strv_len(maps) / WORDS;
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
	if (count(*maps) == MAPS_MAX)
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
	for (size_t i = 0; i < count(q->maps); i++) {
		struct map m = map_at(q->maps, i);

		if (q->provider->in_place || q->keep || q->review)
			return err_set(e, ERR_USAGE, "--map does not go with %s",
				       q->keep ? "--keep: its places have one baseline for one run"
				       : q->review
					   ? "--review: only the workspace's changes can wait"
					   : "a provider that works in place");
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

static int send(struct sandbox *sb, const struct map *m, struct baseline_opts *b, struct err *e)
{
	static const char into[] = "mkdir -p -- \"$1\" && exec tar -C \"$1\" -xpf -";
	char dir[PATH_MAX];
	const char *argv[] = {"sh", "-c", into, "airlock-map", dir, NULL};
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

int maps_in(struct sandbox *sb, const struct lease_spec *s, const char *lease_dir, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count(s->maps); i++) {
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
	}
	return r;
}

/* --- out ------------------------------------------------------------------------------- */

static void tell(const struct transfer_job *j, const struct map *m, const struct unpack_report *rep,
		 const char *dir)
{
	uint64_t lost = rep->counts[UA_REFUSE] + rep->counts[UA_CONFLICT] + rep->counts[UA_FAIL];
	uint64_t done = rep->counts[UA_ADD] + rep->counts[UA_CHANGE] + rep->counts[UA_MODE] +
			rep->counts[UA_DELETE] + rep->counts[UA_MERGE];
	_cleanup_buf_ struct buf b = BUF_INIT(64 << 10);

	if (!j->ui->note || (!done && !lost))
		return;
	(void)str_printable(&b, m->src, strlen(m->src));
	(void)buf_putf(&b, ": %llu changed", (unsigned long long)done);
	if (lost)
		(void)buf_putf(&b, ", %llu refused or in conflict", (unsigned long long)lost);
	(void)buf_putf(&b, " (%s/changes.jsonl)", dir);
	j->ui->note(j->ui->arg, lost > 0, buf_text(&b));
}

static int one_back(const struct transfer_job *j, size_t i, bool *ret_kept, struct err *e)
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
	struct map m = map_at(j->spec->maps, i);
	const char *dir_argv[] = {"sh", "-c", all, "airlock-map", m.dst, NULL};
	const char *file_argv[] = {"sh", "-c", one, "airlock-map", m.dst, path_base(m.src), NULL};
	_cleanup_free_ char *lease = state_path(j->st, "leases", j->lease->id, NULL);
	char dir[PLACE_MAX], base[PLACE_MAX];
	struct tarout_end b = {.t = TAROUT_INIT, .ui = j->ui};
	struct unpack_report rep = {0};
	struct unpack_opts o = {
	    .root = m.root,
	    .only = m.file ? path_base(m.src) : NULL,
	    .run_dir = dir,
	    .state_dir = j->st->dir,
	    .manifest_path = base,
	    .strict = j->spec->strict,
	    .without_landlock = j->spec->without & WITHOUT_LANDLOCK,
	    .on_conflict = j->spec->on_conflict,
	    .full_tree = true,
	    .keep_trash = true,
	    .complete = tarout_complete,
	    .complete_arg = &b,
	    .cancel = interrupt_second(),
	};
	int p[2], r;

	if (!lease)
		return err_set(e, ERR_NOMEM, "out of memory");
	(void)snprintf(base, sizeof(base), "%s/map-%zu", lease, i);
	(void)snprintf(dir, sizeof(dir), "%s/maps", j->run_dir);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", dir);
	(void)snprintf(dir, sizeof(dir), "%s/maps/%zu", j->run_dir, i);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", dir);
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	r = tarout_exec(&b.t, j->sb, m.file ? file_argv : dir_argv, -1, p[1], e);
	(void)close(p[1]);
	o.stream_fd = p[0];
	if (r == 0) {
		r = unpack_run(&o, &rep, e);
		(void)close(p[0]);
		(void)tarout_wait(&b.t, NULL);
		/* What was cut off is the archiver's failure, and its reason says more. */
		if (r == -EBADMSG && strcmp(rep.rule, "truncated") == 0 && !tarout_whole(&b.t, e))
			r = -EIO;
	} else {
		(void)close(p[0]);
	}
	*ret_kept |= b.partial;
	if (r == 0)
		tell(j, &m, &rep, dir);
	unpack_report_done(&rep);
	tarout_done(&b.t);
	return r < 0 ? err_wrap(e, r, "bring %s back", m.src) : 0;
}

int maps_out(const struct transfer_job *j, bool *ret_kept, struct err *e)
{
	int first = 0;

	*ret_kept = false;
	for (size_t i = 0; i < count(j->spec->maps); i++) {
		struct err why = ERR_INIT;
		int r = one_back(j, i, ret_kept, &why);

		if (r < 0 && first == 0) {
			first = r;
			*e = why;
		} else if (r < 0 && j->ui->note) {
			j->ui->note(j->ui->arg, true, why.text);
		}
	}
	return first;
}
