#include "engine/maps_internal.h"

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
#include "engine/tarout.h"
#include "provider/ssh/places.h"
#include "sync/baseline.h"

#define WORDS 3

size_t maps_count(char *const *maps)
{
	return strv_len(maps) / WORDS;
}

struct map maps_word(char *const *maps, size_t i)
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
	struct map m = maps_word(s->maps, i);
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

static int open_root(const struct map *m, struct err *e)
{
	int fd = open(m->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_sys(e, errno, "open %s", m->root) : fd;
}

static int send(struct sandbox *sb, const struct map *m, struct baseline_opts *b, struct err *e)
{
	static const char own[] = "mkdir -p -- \"$1\" && exec tar -C \"$1\" -xpf -";
	/*
	 * Made here and now, or not at all: what is there is somebody's. A directory above it that is not ours could lead elsewhere
	 * tomorrow. A part of it is nobody's: a file is unpacked beside it and gets its name when it is whole.
	 */
	static const char shared[] =
	    "umask 077; d=$2; p=${d%/*}; " PLACES_MARK_OF "put=$p/.airlock-put.${d##*/}; "
	    "test \"$p\" = /tmp || { test -d \"$p\" && ! test -L \"$p\" && test -O \"$p\"; } || "
	    "{ echo \"$p is not a directory of this account there\" >&2; exit 1; }; " PLACES_LEFT
	    "left; "
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
	    "run=$1; shift; for d do " PLACES_MARK_OF
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
		argv[GONE_WORDS + i] = maps_word(s->maps, i).dst;
	if (tarout_exec(&t, sb, argv, -1, null, NULL) == 0)
		(void)tarout_wait(&t, NULL);
	tarout_done(&t);
	strv_free(TAKE_PTR(s->map_roots));
}

int maps_parents(const struct lease_spec *s, char ***ret)
{
	for (size_t i = 0; i < maps_count(s->maps); i++) {
		const char *dst = maps_word(s->maps, i).dst;
		_cleanup_free_ char *dir = strndup(dst, (size_t)(path_base(dst) - dst - 1));

		if (!dir || strv_add(ret, dir) < 0)
			return -ENOMEM;
	}
	return 0;
}

int maps_in(struct sandbox *sb, struct lease_spec *s, const char *lease_dir, struct err *e)
{
	int r = 0;

	strv_free(TAKE_PTR(s->map_roots));
	for (size_t i = 0; r == 0 && i < maps_count(s->maps); i++) {
		struct map m = maps_word(s->maps, i);
		struct baseline_opts b = {.cancel = interrupt_first()};
		char path[MAP_PLACE_MAX];
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
