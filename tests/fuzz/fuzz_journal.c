/*
 * Fuzz target: a journal that recovery finds (S1-07, B-01). It lies in the workspace, so anybody who can write
 * there can have written it: as bytes, and as intents that no planner makes.
 *
 * What must hold: both directions read the same records; a replay touches nothing outside the root and no
 * file that no intent names with its true identity; what it carried out once it does not carry out again.
 */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "rig.h"
#include "sync/unpack_key.h"

#define PLACE STAGING_TOP "/" RIG_RUN
#define RECORD 10 /* bytes of input for one intent */
#define SUM 16	  /* as in journal.c */

static const struct {
	const char *path;
	char kind; /* what the workspace has there; '-' nothing */
} tree[] = {
    {"f", 'f'},
    {"g", 'f'},
    {"d", 'd'},
    {"d/x", 'f'},
    {"d/e", 'd'},
    {"l", 'l'},
    {"m", 'l'},
    {"s", 'd'},
    /* nothing there, or nothing that may be reached */
    {"n", '-'},
    {"d/n", '-'},
    {"new/n", '-'},
    {"l/victim", '-'},
    {"l/n", '-'},
    {"f/x", '-'},
    {"m", '-'},
    {"../out/victim", '-'},
    {"/etc/airlock-fuzz", '-'},
    {"", '-'},
    {"d/../../out/n", '-'},
    {"a//b", '-'},
    {".", '-'},
    {"..", '-'},
    {PLACE "/journal", '-'},
    {PLACE "/c", '-'},
    {".git/hooks", '-'},
    {"n/.GIT", '-'},
};
enum { REAL = 8, N = ARRAY_LEN(tree), STAGED = 3 };

static void make_tree(int ws)
{
	rig_file(ws, "f", "host f", 6, 0644);
	rig_file(ws, "g", "host g", 6, 0600);
	rig_dir(ws, "d", 0755);
	rig_file(ws, "d/x", "host x", 6, 0644);
	rig_dir(ws, "d/e", 0755);
	rig_link(ws, "l", "../out");
	rig_link(ws, "m", "../out/victim");
	rig_dir(ws, "s", 0700);
}

static void make_staging(int ws, uint8_t how)
{
	rig_dir(ws, STAGING_TOP, 0700);
	rig_dir(ws, PLACE, 0700);
	if (how & 2) {
		rig_link(ws, PLACE "/c", "../../../out");
	} else {
		rig_file(ws, PLACE "/c/1", "staged 1", 8, 0600);
		rig_file(ws, PLACE "/c/2", "staged 2", 8, 0600);
		rig_link(ws, PLACE "/c/3", "../../../out/victim");
	}
	if (how & 4)
		rig_link(ws, PLACE "/t", "../../../out");
	else
		rig_dir(ws, PLACE "/t", 0700);
	if ((how & 12) == 8)
		rig_file(ws, PLACE "/t/1", "trash 1", 7, 0600);
}

static void identify(int ws, const char *path, struct intent_old *ret)
{
	struct beneath b = {.root = ws};
	struct stat st;

	*ret = (struct intent_old){0};
	if (beneath_stat(&b, path, &st) < 0)
		return;
	ret->ino = st.st_ino;
	ret->size = (uint64_t)st.st_size;
	ret->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	ret->ctime_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
}

struct script {
	bool may_go[REAL]; /* some intent says truly what is there */
	bool raw, foreign;
};

static const uint8_t another[JOURNAL_KEY] = {1};

/* Of the journal in RIG_RUN: the workspace's key is zeros here. */
static void own_key(uint8_t ret[JOURNAL_KEY])
{
	static const uint8_t zero[JOURNAL_KEY];

	unpack_key_stage(zero, RIG_RUN, ret);
}

/* op, path, id, whose identity, which staged inode, mode (2), action, spare (2) */
static void make_intent(int ws, const uint8_t *p, struct intent *in, struct script *s)
{
	static const char *const staged[STAGED] = {PLACE "/c/1", PLACE "/c/2", PLACE "/c/3"};
	size_t at = p[1] % N, who = p[3] % (REAL + 1);
	struct intent_old o;

	*in = (struct intent){.op = p[0] % 10,
			      .action = p[7] % 12,
			      .id = p[2] % 5,
			      .mode = (uint32_t)(p[5] << 8 | p[6])};
	in->path_len = (uint32_t)strlen(tree[at].path);
	memcpy(in->path, tree[at].path, in->path_len + 1);
	if (p[8] == 255) /* a NUL inside */
		in->path[in->path_len / 2] = '\0';
	identify(ws, staged[p[4] % STAGED], &o);
	in->new_ino = o.ino;
	in->size = p[9];
	if (who < REAL)
		identify(ws, tree[who].path, &in->old);
	if (p[8] % 4 == 3)
		in->old.ctime_ns++;
	if (p[8] % 8 == 5)
		in->old.mtime_ns++;
	for (size_t i = 0; i < REAL; i++) {
		size_t n = strlen(in->path);

		/* The path itself, or a directory that goes as a whole. Identity of a directory is its inode. */
		if (who < REAL && !strcmp(in->path, tree[who].path) &&
		    !strncmp(tree[i].path, in->path, n) &&
		    (tree[i].path[n] == '\0' || tree[i].path[n] == '/'))
			s->may_go[i] = true;
	}
}

static void make_journal(int ws, const uint8_t *p, size_t n, struct script *s)
{
	struct beneath b = {.root = ws};
	_cleanup_fd_ int fd = beneath_create(&b, PLACE "/journal", 0600);
	struct journal j;
	struct intent in = {.op = IN_HEADER, .action = UA_ACTION_COUNT};
	uint8_t own[JOURNAL_KEY];
	struct stat st;

	MUST(fd >= 0);
	s->raw = p[0] & 1;
	s->foreign = p[0] & 16;
	if (s->raw) {
		MUST(write(fd, p + 1, n - 1) == (ssize_t)(n - 1));
		return;
	}
	MUST(fstat(ws, &st) == 0);
	in.new_ino = st.st_ino;
	in.id = st.st_dev;
	own_key(own);
	journal_init(&j, fd, s->foreign ? another : own);
	MUST(journal_add(&j, &in) == 0);
	for (size_t at = 1; at + RECORD <= n && at < 1 + 48 * RECORD; at += RECORD) {
		make_intent(ws, p + at, &in, s);
		if (in.op != IN_COMMIT)
			MUST(journal_add(&j, &in) == 0);
	}
	MUST(journal_commit(&j) == 0);
	journal_done(&j);
}

/* Both directions, the same records. */
static void walk(const uint8_t *p, size_t n)
{
	static struct intent a, b;
	_cleanup_fd_ int fd = memfd_create("journal", MFD_CLOEXEC);
	uint64_t at[4096], pos = 0, end = 0;
	uint8_t own[JOURNAL_KEY];
	_cleanup_journal_cache_ struct journal_cache c = {.key = own}, d = {.key = own};
	size_t k = 0;
	int r;

	own_key(own);
	MUST(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	r = journal_committed(fd, own, &end);
	MUST(r == 0 || r == 1 || r == -EKEYREJECTED);
	if (r != 1)
		return;
	MUST(end < n);
	for (at[0] = 0; k < ARRAY_LEN(at) - 1 && (r = journal_next(fd, &c, &pos, end, &a)) == 1;
	     at[++k] = pos)
		MUST(a.op != IN_COMMIT && a.path_len <= PATH_MEMBER_MAX);
	if (k == ARRAY_LEN(at) - 1)
		return;
	MUST(r == 0 && pos == end);
	for (; (r = journal_prev(fd, &c, &pos, &b)) == 1; k--) {
		uint64_t again = pos;

		MUST(k > 0 && pos == at[k - 1]);
		MUST(journal_next(fd, &d, &again, end, &a) == 1 && again == at[k]);
		MUST(a.op == b.op && a.id == b.id && a.mode == b.mode && a.old.ino == b.old.ino &&
		     a.path_len == b.path_len && !memcmp(a.path, b.path, a.path_len));
	}
	MUST(r == 0 && k == 0);
}

static void look(int ws, struct seen *v)
{
	for (size_t i = 0; i < REAL; i++)
		rig_look(ws, tree[i].path, &v[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct seen before[REAL], after[REAL], again[REAL];
	struct script s = {0};
	static struct rig g;
	uint64_t repaired = 0;
	int r;

	if (n < 2 || n > 65536)
		return 0;
	walk(p + 1, n - 1);
	rig_start(&g);
	make_tree(g.ws);
	make_staging(g.ws, p[0]);
	make_journal(g.ws, p, n, &s);
	look(g.ws, before);
	(void)close(g.peer); /* nobody listens: a replay does not stop for that */
	g.peer = -1;
	g.u.publishing = true;
	r = publish_recover(&g.u, &repaired, &g.e);
	MUST(r <= 0 && (r < 0) == (g.e.code != ERR_NONE));
	look(g.ws, after);
	/* Not even with our key: no member could have had these names. */
	MUST(faccessat(g.ws, ".git", F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	     faccessat(g.ws, "n/.GIT", F_OK, AT_SYMLINK_NOFOLLOW) < 0);
	for (size_t i = 0; i < REAL; i++)
		/* A journal of bytes is never of this workspace: it does not know its inode. */
		if (s.raw || s.foreign || (!s.may_go[i] && tree[i].kind != 'd'))
			MUST(rig_same(&before[i], &after[i], true));
	if (r == 0) {
		MUST(publish_recover(&g.u, &repaired, &g.e) == 0 && repaired == 0);
		look(g.ws, again);
		for (size_t i = 0; i < REAL; i++)
			MUST(rig_same(&after[i], &again[i], true));
	}
	cleanup_fd(&g.u.st.dir);
	cleanup_fd(&g.u.st.content);
	cleanup_fd(&g.u.st.trash);
	cleanup_fd(&g.u.st.journal);
	rig_end(&g);
	return 0;
}

static void raw_seed(struct buf *b, size_t intents, bool commit)
{
	_cleanup_fd_ int fd = memfd_create("seed", MFD_CLOEXEC);
	uint8_t own[JOURNAL_KEY];
	struct intent in = {.op = IN_HEADER, .action = UA_ACTION_COUNT};
	struct journal j;
	uint64_t end;
	char *room;

	MUST(fd >= 0 && sodium_init() >= 0);
	own_key(own);
	journal_init(&j, fd, own);
	for (size_t i = 0; i <= intents; i++) {
		MUST(journal_add(&j, &in) == 0);
		in = (struct intent){.op = (uint8_t)(IN_PUT + i % 6), .id = i, .mode = 0644};
		in.path_len = (uint32_t)strlen(tree[i % N].path);
		memcpy(in.path, tree[i % N].path, in.path_len + 1);
	}
	MUST(commit ? journal_commit(&j) == 0 : journal_flush(&j, &end) == 0);
	end = (uint64_t)lseek(fd, 0, SEEK_END);
	room = buf_room(b, end);
	MUST(room && pread(fd, room, end, 0) == (ssize_t)end);
	buf_add(b, end);
	journal_done(&j);
}

bool fuzz_seed(size_t i, struct buf *b)
{
	uint32_t s = (uint32_t)i * 2654435761u | 1;

	if (i >= 48 + 2 * 6 * N)
		return false;
	if (i >=
	    48) { /* one intent each: every step at every place, with the true identity and with another's */
		size_t k = i - 48, at = k / 2 % N, lie = k % 2;
		uint8_t who = (uint8_t)(at < REAL ? (at + 3 * lie) % REAL : REAL - lie);
		const uint8_t one[] = {
		    0, (uint8_t)(IN_PUT + k / 2 / N), (uint8_t)at, 1, who, 0, 001, 0244, 1, 0, 0};

		return buf_put(b, one, sizeof(one)) == 0;
	}
	if (i % 3 == 0) {
		MUST(buf_u8(b, 1) == 0);
		raw_seed(b, i % 24, i % 2 == 0);
		return true;
	}
	MUST(buf_u8(b, (uint8_t)(i % 8 < 5 ? 0 : i << 1 & 0x1e)) == 0);
	for (size_t k = 0; k < (i % 7 + 1) * RECORD; k++)
		MUST(buf_u8(b, (uint8_t)(fuzz_random(&s) >> 7)) == 0);
	/* Most intents tell the truth about what is there. */
	for (size_t k = 1; k + RECORD <= b->len; k += RECORD) {
		b->data[k + 3] = (char)((uint8_t)b->data[k + 1] % N);
		b->data[k + 8] = 0;
	}
	return true;
}

/* MACs and lengths of a journal of bytes are made right, and the count and seal of its last record. */
void fuzz_repair(uint8_t *p, size_t n)
{
	const size_t fixed = 4 + 2 + 4 + 7 * 8 + 4 + INTENT_HASH + 4, over = fixed + SUM + 4;
	crypto_generichash_state seal, sofar;
	uint8_t own[JOURNAL_KEY];
	uint64_t count = 0;
	size_t at = 1;

	own_key(own);
	(void)crypto_generichash_init(&seal, own, sizeof(own), INTENT_HASH);

	if (n < 2 || !(p[0] & 1))
		return;
	while (n - at >= over) {
		uint8_t *rec = p + at;
		uint32_t len = rec[0] | (uint32_t)rec[1] << 8 | (uint32_t)rec[2] << 16 |
			       (uint32_t)rec[3] << 24;
		uint32_t path;

		if (len < over || len > n - at)
			return;
		path = (uint32_t)(len - over);
		for (int i = 0; i < 4; i++)
			rec[fixed - 4 + i] = (uint8_t)(path >> 8 * i);
		if (rec[4] == IN_COMMIT) {
			for (int i = 0; i < 8; i++)
				rec[4 + 2 + 4 + 8 + 8 + i] = (uint8_t)(count >> 8 * i);
			sofar = seal;
			(void)crypto_generichash_final(&sofar, rec + fixed - 4 - INTENT_HASH,
						       INTENT_HASH);
		}
		(void)crypto_generichash(rec + len - SUM - 4, SUM, rec, len - SUM - 4, own,
					 sizeof(own));
		(void)crypto_generichash_update(&seal, rec + len - SUM - 4, SUM);
		memcpy(rec + len - 4, rec, 4);
		count++;
		at += len;
	}
}
