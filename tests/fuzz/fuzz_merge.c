/*
 * Fuzz target: the merge planner with what it leads to (S1-04, cases G). Eight paths get a state of their
 * own in the manifest, on the host and in the sandbox; then the plan is made and carried out.
 *
 * What must hold, whatever the states: a path that the sandbox did not touch keeps its very inode; no
 * version that a person made on the host is lost; what the sandbox made is at its place, kept beside the run
 * or said not to be; for entries outside directories the result is that of a second, plainer statement of the
 * rules; a second publish of the same changes finds nothing to do; nothing outside the root is touched.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "rig.h"
#include "sync/merge3.h"
#include "sync/unpack_proto.h"

/* In the order of a manifest. The last three stand alone: for them the whole result is predicted. */
static const char *const paths[] = {"d", "d/e", "d/e/z", "d/x", "d/y", "p", "q", "r"};
enum { N = ARRAY_LEN(paths), ALONE = 5 };

static const struct {
	const char *p;
	size_t n;
} contents[] = {
#define C(t)                     \
	{                        \
		t, sizeof(t) - 1 \
	}
    C("one\ntwo\nthree\nfour\nfive\n"),
    C("ONE\ntwo\nthree\nfour\nfive\n"),
    C("one\ntwo\nthree\nfour\nFIVE\n"),
    C("one\n2\nthree\nfour\nfive"),
    C("\0binary\n"),
    C(""),
#undef C
};
static const char *const targets[] = {"x", "../out", "/etc", "d/x"};
static const unsigned modes[] = {0644, 0755, 0600, 0400};

struct state {
	char kind; /* '-', 'd', 'f', 'l'; for the sandbox also '=' not listed, '?' unreadable */
	unsigned content, mode;
};

struct world {
	struct state b[N], h[N], s[N];
	bool full, take, opaque, same_inode;
	struct seen before[N], after[N];
	bool told[N], ended; /* a line of the report about it */
	int action[N];
};

static struct state decode(uint8_t c, bool sandbox)
{
	struct state s = {.content = c / 8 % 6, .mode = modes[c / 48 % 4]};

	s.kind = sandbox ? "==-fffld"[c % 8] : "--ffffld"[c % 8];
	if (sandbox && c == 255)
		s.kind = '?';
	if (s.kind == 'l')
		s.content %= ARRAY_LEN(targets);
	if (s.kind == 'd')
		s.mode |= 0700;
	return s;
}

static int above(size_t i) /* the slot of the directory that holds slot i; -1: the root */
{
	return i == 1 || i == 3 || i == 4 ? 0 : i == 2 ? 1 : -1;
}

/* What cannot be (an entry below none) is made to be possible. b NULL: of manifest or host. */
static void settle(struct state *v, const struct state *b)
{
	for (size_t i = 0; i < N; i++) {
		int up = above(i);
		bool dir;

		if (up < 0)
			continue;
		dir = v[up].kind == 'd' || (b && v[up].kind == '=' && b[up].kind == 'd');
		if (!dir)
			v[i].kind = b ? '=' : '-';
	}
}

static void make_entry(int dir, const char *path, struct state s)
{
	if (s.kind == 'd')
		rig_dir(dir, path, s.mode);
	else if (s.kind == 'l')
		rig_link(dir, path, targets[s.content]);
	else if (s.kind == 'f')
		rig_file(dir, path, contents[s.content].p, contents[s.content].n, s.mode);
}

static void hash_state(struct state s, uint8_t ret[MANIFEST_HASH])
{
	const void *p = s.kind == 'l' ? targets[s.content] : contents[s.content].p;
	size_t n = s.kind == 'l' ? strlen(targets[s.content]) : contents[s.content].n;

	(void)crypto_generichash(ret, MANIFEST_HASH, p, n, NULL, 0);
}

static bool equal(struct state a, struct state b)
{
	if (a.kind != b.kind)
		return false;
	if (a.kind != '-' && a.kind != 'd' && a.content != b.content)
		return false;
	return a.kind == '-' || a.kind == 'l' || a.mode == b.mode;
}

static void make_manifest(struct rig *g, const struct world *w)
{
	struct manifest_entry *m = calloc(1, sizeof(*m));
	struct manifest_writer mw;
	int fd = memfd_create("manifest", MFD_CLOEXEC);

	MUST(m && fd >= 0 && manifest_writer_init(&mw, fd, NULL) == 0);
	for (size_t i = 0; i < N; i++) {
		struct state b = w->b[i];

		if (b.kind == '-')
			continue;
		*m = (struct manifest_entry){
		    .kind = b.kind, .mode = b.kind == 'l' ? 0 : b.mode, .layer = 1};
		m->path_len = strlen(paths[i]);
		memcpy(m->path, paths[i], m->path_len + 1);
		if (b.kind == 'l') {
			m->target_len = strlen(targets[b.content]);
			memcpy(m->target, targets[b.content], m->target_len + 1);
		}
		if (b.kind == 'f') {
			hash_state(b, m->hash);
			m->size = contents[b.content].n;
			/* As sync in records it: the host's file of that time, often the same one still. */
			if (w->same_inode && equal(b, w->h[i])) {
				m->ino = w->before[i].ino;
				m->mtime_ns = w->before[i].mtime_ns;
			}
		}
		MUST(manifest_writer_add(&mw, m, NULL) == 0);
	}
	MUST(manifest_writer_finish(&mw, NULL) == 0);
	manifest_writer_done(&mw);
	MUST(manifest_open(fd, &g->u.m, NULL) == 0);
	(void)close(fd);
	free(m);
}

static void stage(struct rig *g, const char *path, struct state s, struct change *c)
{
	char name[20];
	int fd;

	if (s.kind == 'f') {
		fd = stage_create(&g->u, path, 0600, &c->id, &g->e);
		MUST(fd >= 0);
		c->size = contents[s.content].n;
		MUST(write(fd, contents[s.content].p, c->size) == (ssize_t)c->size);
		(void)close(fd);
	} else {
		c->id = g->u.st.next_id++;
		stage_name(c->id, name);
		MUST(symlinkat(targets[s.content], g->u.st.content, name) == 0);
	}
	hash_state(s, c->hash);
}

static void make_changes(struct rig *g, const struct world *w)
{
	struct change *c = calloc(1, sizeof(*c));

	MUST(c && stage_open(&g->u, &g->e) == 0 && chlist_new(g->u.st.dir, &g->u.list) == 0);
	for (size_t i = 0; i < N; i++) {
		struct state s = w->s[i];

		if (s.kind == '=')
			continue;
		*c = (struct change){.seq = i,
				     .mode = s.kind == 'l' ? 0 : s.mode,
				     .path_len = (uint32_t)strlen(paths[i])};
		memcpy(c->path, paths[i], c->path_len + 1);
		c->kind = s.kind == '-'	  ? MK_ABSENT
			  : s.kind == 'd' ? MK_DIR
			  : s.kind == 'l' ? MK_LINK
					  : MK_FILE;
		if (s.kind == '?') {
			c->kind = MK_UNKNOWN;
			g->u.unknown++;
		}
		if (s.kind == 'd' && i == 0 && w->opaque)
			c->flags |= CH_OPAQUE;
		if (w->b[i].kind == '-')
			c->flags |= CH_NEW;
		/* Only its mode changed: the packer of a layer sends the bytes all the same. */
		if (s.kind == 'f' || s.kind == 'l')
			stage(g, paths[i], s, c);
		MUST(chlist_add(g->u.list, c) == 0);
	}
	MUST(chlist_seal(g->u.list) == 0);
	free(c);
}

static int slot_of(struct view path)
{
	for (size_t i = 0; i < N; i++)
		if (path.n == strlen(paths[i]) && !memcmp(path.p, paths[i], path.n))
			return (int)i;
	return -1;
}

static void read_report(struct rig *g, struct world *w)
{
	struct chan peer;
	struct frame f;
	struct unpack_note n;

	MUST(chan_flush(&g->u.ch, INT64_MAX, NULL) == 0);
	chan_init(&peer, dup(g->peer), false);
	while (chan_recv(&peer, 0, &f, NULL, NULL) == 1) {
		int i;

		MUST(f.type == UF_CHANGE && unpack_get_note(f.payload, &n) == 0);
		i = slot_of(n.path);
		MUST(i >= 0 && n.action < UA_ACTION_COUNT);
		w->told[i] = true;
		w->action[i] = n.action;
	}
	chan_done(&peer);
}

/* Does the sandbox say something about slot i, itself or by what holds it? */
static bool touched(const struct world *w, size_t i)
{
	if (w->s[i].kind != '=')
		return w->s[i].kind != '?' && !equal(w->s[i], w->b[i]);
	for (int up = above(i); up >= 0; up = above((size_t)up)) {
		char k = w->s[up].kind;

		if (k == '?')
			return false;
		if (k == '-' || k == 'f' || k == 'l' || (k == 'd' && up == 0 && w->opaque))
			return true;
	}
	return w->full;
}

/* The bytes of `s` somewhere below a directory of the run that keeps losers. */
static bool kept(struct rig *g, const char *place, const char *path, struct state s)
{
	struct beneath run = {.root = g->u.run_fd};
	_cleanup_fd_ int fd = beneath_open(&run, place, O_RDONLY | O_DIRECTORY, 0);
	struct seen k;

	if (fd < 0)
		return false;
	rig_look(fd, path, &k);
	if (s.kind == 'l')
		return k.kind == 'l' && k.n == strlen(targets[s.content]) &&
		       !memcmp(k.text, targets[s.content], k.n);
	return k.kind == 'f' && k.n == contents[s.content].n &&
	       !memcmp(k.text, contents[s.content].p, k.n);
}

static bool holds(const struct seen *a, struct state s)
{
	if (s.kind == 'l')
		return a->kind == 'l' && a->n == strlen(targets[s.content]) &&
		       !memcmp(a->text, targets[s.content], a->n);
	if (s.kind == 'f')
		return a->kind == 'f' && a->n == contents[s.content].n &&
		       !memcmp(a->text, contents[s.content].p, a->n);
	return a->kind == s.kind;
}

static bool leaf(struct state s)
{
	return s.kind == 'f' || s.kind == 'l';
}

static int take_piece(void *arg, const void *p, size_t n)
{
	return buf_put(arg, p, n);
}

/* For a person who looks at a failure. */
static void show(const struct world *w)
{
	(void)fprintf(stderr, "full %d, take %d, opaque %d, same inode %d\n", w->full, w->take,
		      w->opaque, w->same_inode);
	for (size_t i = 0; i < N; i++)
		(void)fprintf(
		    stderr,
		    "%-5s B %c%u %03o  S %c%u %03o  H %c%u %03o  after %c %03o %.*s  said %d\n",
		    paths[i], w->b[i].kind, w->b[i].content, w->b[i].mode, w->s[i].kind,
		    w->s[i].content, w->s[i].mode, w->h[i].kind, w->h[i].content, w->h[i].mode,
		    w->after[i].kind, w->after[i].mode, w->after[i].n > 3 ? 3 : (int)w->after[i].n,
		    w->after[i].text, w->told[i] ? w->action[i] : -1);
}

#define HOLD(w, x)                                                                                \
	do {                                                                                      \
		if (!(x)) {                                                                       \
			show(w);                                                                  \
			(void)fprintf(stderr, "%s:%d: at %s: %s\n", __FILE__, __LINE__, paths[i], \
				      #x);                                                        \
			abort();                                                                  \
		}                                                                                 \
	} while (0)

/* The rules once more, for a path that no directory has a part in. Modes are left to the unit test. */
static void check_alone(const struct world *w, size_t i)
{
	struct state b = w->b[i], s = w->s[i], h = w->h[i];
	const struct seen *a = &w->after[i];
	_cleanup_buf_ struct buf m = BUF_INIT(4096);

	if (b.kind == 'd' || s.kind == 'd' || h.kind == 'd' || !touched(w, i))
		return;
	if (s.kind == '=')
		s.kind = '-'; /* of a full tree */
	if (s.kind == '-') {
		HOLD(w, holds(a, equal(b, h) ? s : h));
	} else if (b.kind == s.kind && b.content == s.content) { /* only its mode */
		HOLD(w, holds(a, h.kind == '-' ? s : h));
	} else if (h.kind == '-' || (h.kind == b.kind && h.content == b.content)) {
		HOLD(w, holds(a, s));
	} else if (h.kind == s.kind && h.content == s.content) {
		HOLD(w, holds(a, h));
	} else if (b.kind == 'f' && s.kind == 'f' && h.kind == 'f' &&
		   merge3((struct view){contents[b.content].p, contents[b.content].n},
			  (struct view){contents[h.content].p, contents[h.content].n},
			  (struct view){contents[s.content].p, contents[s.content].n}, take_piece,
			  &m) == MERGE3_CLEAN) {
		HOLD(w, a->kind == 'f' && a->n == m.len && !memcmp(a->text, buf_text(&m), m.len));
	} else {
		HOLD(w, holds(a, w->take ? s : h));
	}
}

static void check(struct rig *g, const struct world *w)
{
	for (size_t i = 0; i < N; i++) {
		struct state b = w->b[i], s = w->s[i], h = w->h[i];
		bool merged = w->told[i] && w->action[i] == UA_MERGE;
		bool cover = false; /* a leaf of the sandbox took the place of a directory above */

		for (int up = above(i); up >= 0; up = above((size_t)up))
			cover |= leaf(w->s[up]) || w->after[up].kind != 'd';
		/* A directory that the host removed is made again for what the sandbox did in it. */
		bool again =
		    w->before[i].kind == '-' && w->after[i].kind == 'd' && above(i + 1) >= 0;

		if (!touched(w, i) && !cover && !again)
			HOLD(w, rig_same(&w->before[i], &w->after[i], true));
		/* What a person made here and did not come from what was sent in is still here. */
		if (leaf(h) && !(leaf(b) && h.kind == b.kind && h.content == b.content))
			HOLD(w, holds(&w->after[i], h) || merged ||
				    kept(g, "conflicts/host", paths[i], h) ||
				    (leaf(s) && s.kind == h.kind && s.content == h.content));
		/* What the sandbox made is here, or beside the run, or its line says why not. */
		if (leaf(s) && !equal(s, b) && !(s.kind == b.kind && s.content == b.content))
			HOLD(w, holds(&w->after[i], s) || merged ||
				    kept(g, "conflicts/sandbox", paths[i], s) || w->told[i]);
		/* Nothing is lost in silence. */
		if (!rig_same(&w->before[i], &w->after[i], false) && w->before[i].kind != '-' &&
		    w->after[i].kind == '-')
			HOLD(w, w->told[i]);
		if (i >= ALONE)
			check_alone(w, i);
	}
}

static void look(struct rig *g, struct seen *v)
{
	for (size_t i = 0; i < N; i++)
		rig_look(g->ws, paths[i], &v[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct world w;
	static struct rig g;
	struct seen staging;

	if (n < 1 + 3 * N)
		return 0;
	memset(&w, 0, sizeof(w));
	w.full = p[0] & 1;
	w.take = p[0] & 2;
	w.opaque = p[0] & 4;
	w.same_inode = p[0] & 8;
	for (size_t i = 0; i < N; i++) {
		w.b[i] = decode(p[1 + 3 * i], false);
		w.h[i] = p[2 + 3 * i] % 3 ? w.b[i] : decode(p[2 + 3 * i] / 3 * 5, false);
		w.s[i] = decode(p[3 + 3 * i], true);
	}
	settle(w.b, NULL);
	settle(w.h, NULL);
	settle(w.s, w.b);
	rig_start(&g);
	g.u.s.full_tree = w.full;
	g.u.s.take_sandbox = w.take;
	for (size_t i = 0; i < N; i++) {
		make_entry(g.ws, paths[i], w.h[i]);
		make_entry(g.layer, paths[i], w.b[i]);
	}
	look(&g, w.before);
	make_manifest(&g, &w);
	make_changes(&g, &w);
	if (publish_journal(&g.u, &g.e) < 0) {
		(void)fprintf(stderr, "publish: %s\n", g.e.text);
		abort();
	}
	stage_close(&g.u, false);
	read_report(&g, &w);
	look(&g, w.after);
	rig_look(g.ws, STAGING_TOP, &staging);
	MUST(staging.kind == '-');
	check(&g, &w);
	rig_end(&g);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	uint32_t s = (uint32_t)i * 2654435761u | 1;

	if (i >= 64)
		return false;
	MUST(buf_u8(b, (uint8_t)i) == 0);
	for (size_t k = 0; k < 3 * N; k++)
		MUST(buf_u8(b, (uint8_t)(fuzz_random(&s) >> 7)) == 0);
	return true;
}

FUZZ_NO_REPAIR()
