/*
 * Fuzz target: the member rules. The input is a script of members over a few names, so that links,
 * directories and deletions meet often. Whatever was accepted is laid beside the links of the host
 * and judged again by a second, slow and simple model: no symlink leads out, nothing lies below
 * what is not a directory, no .git, hard links only to files.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "fuzz.h"
#include "hostile/cases.h"
#include "policy/member.h"

enum { ITEMS = 48, TEXT = 256 };

struct item {
	struct tar_member t;
	char path[TEXT], target[TEXT];
	bool accepted;
};

static const char *const names[] = {"a", "b", "c", "d", "hostabs", "hostup", "hostin", ".git"};
static const char *const steps[] = {"..",     ".",  "a", "b", "c",    "hostin",
				    "hostup", "..", "d", "",  "real", "hostabs"};

static const char *host_link(const char *path)
{
	for (size_t i = 0; i < hostile_host_len; i++)
		if (strcmp(hostile_host[i].path, path) == 0)
			return hostile_host[i].target;
	return NULL;
}

static long host_readlink(void *arg, const char *path, char *out, size_t max)
{
	const char *target = host_link(path);

	(void)arg;
	if (!target)
		return 0;
	MUST(strlen(target) <= max);
	memcpy(out, target, strlen(target));
	return (long)strlen(target);
}

static uint8_t take(const uint8_t **p, size_t *n)
{
	if (!*n)
		return 0;
	--*n;
	return *(*p)++;
}

static void text(char *out, const char *const *words, size_t words_len, unsigned count,
		 const uint8_t **p, size_t *n)
{
	size_t len = 0;

	for (unsigned i = 0; i < count; i++)
		len += (size_t)snprintf(out + len, TEXT - len, "%s%s", i ? "/" : "",
					words[take(p, n) % words_len]);
	out[len] = '\0';
}

static void read_item(struct item *x, const uint8_t **p, size_t *n)
{
	static const enum tar_type types[] = {TAR_SYMLINK,  TAR_SYMLINK, TAR_DIR,  TAR_FILE,
					      TAR_HARDLINK, TAR_SPECIAL, TAR_FILE, TAR_FILE};
	uint8_t k = take(p, n);

	x->t = (struct tar_member){.type = types[k & 7], .mode = 0755};
	if ((k & 7) >= 6)
		x->t.op = (k & 7) == 6 ? TAR_OP_DELETE : TAR_OP_UNREADABLE;
	text(x->path, names, ARRAY_LEN(names), 1 + (k >> 3) % 3, p, n);
	x->target[0] = '\0';
	if (x->t.type == TAR_HARDLINK)
		text(x->target, names, ARRAY_LEN(names), 1 + (k >> 5) % 2, p, n);
	else if (x->t.type == TAR_SYMLINK)
		text(x->target, steps, ARRAY_LEN(steps), 1 + take(p, n) % 6, p, n);
	if (x->t.type == TAR_SYMLINK && !x->target[0])
		(void)snprintf(x->target, TEXT, ".");
	x->t.path = (struct view){x->path, strlen(x->path)};
	x->t.target = (struct view){x->target, strlen(x->target)};
}

/*
 * The model, once for a host that takes all that was accepted and once for one that keeps its own
 * links (conflicts): does target, seen from directory dir, stay inside? Recursion instead of
 * a rest buffer.
 */
static bool inside(const struct item *v, size_t n, char *dir, const char *target, bool host_first,
		   int *budget)
{
	while (*target) {
		size_t k = strcspn(target, "/"), len = strlen(dir);
		const char *link = NULL;
		const struct item *last = NULL;

		if (target[0] == '/' || --*budget < 0)
			return false;
		if (k == 2 && memcmp(target, "..", 2) == 0) {
			char *slash = strrchr(dir, '/');

			if (!len)
				return false;
			*(slash ? slash : dir) = '\0';
		} else if (k > 0 && !(k == 1 && target[0] == '.')) {
			MUST(len + k + 2 < 16 * TEXT);
			(void)snprintf(dir + len, 16 * TEXT - len, "%s%.*s", len ? "/" : "", (int)k,
				       target);
			for (size_t i = 0; i < n; i++)
				if (v[i].accepted && v[i].t.op == TAR_OP_NONE &&
				    strcmp(v[i].path, dir) == 0)
					last = &v[i];
			if (!last || (host_first && host_link(dir)))
				link = host_link(dir);
			else if (last->t.type == TAR_SYMLINK)
				link = last->target;
			if (link) {
				dir[len] = '\0';
				if (!inside(v, n, dir, link, host_first, budget))
					return false;
			}
		}
		target += k;
		while (target[0] == '/')
			target++;
	}
	return true;
}

static void check(const struct item *v, size_t n, const struct item *x)
{
	char dir[16 * TEXT];
	char *slash;

	MUST(!strstr(x->path, ".git") && x->t.type != TAR_SPECIAL);
	for (size_t i = 0; i < n; i++) {
		size_t k = strlen(v[i].path);

		if (v[i].accepted && v[i].t.type != TAR_DIR)
			MUST(strncmp(x->path, v[i].path, k) != 0 || x->path[k] != '/');
	}
	if (x->t.type == TAR_HARDLINK) {
		bool found = false;

		for (const struct item *i = v; i < x; i++)
			found |=
			    i->accepted && i->t.type == TAR_FILE && strcmp(i->path, x->target) == 0;
		MUST(found);
	}
	if (x->t.type != TAR_SYMLINK)
		return;
	for (int host_first = 0; host_first < 2; host_first++) {
		int budget = 2000;

		(void)snprintf(dir, sizeof(dir), "%s", x->path);
		slash = strrchr(dir, '/');
		*(slash ? slash : dir) = '\0';
		MUST(inside(v, n, dir, x->target, host_first, &budget));
	}
}

struct finish {
	struct item *v;
	size_t n;
};

static int refused(void *arg, struct view path, const char *rule)
{
	struct finish *f = arg;
	bool was_accepted = false;

	MUST(rule);
	for (size_t i = 0; i < f->n; i++)
		if (strlen(f->v[i].path) == path.n && memcmp(f->v[i].path, path.p, path.n) == 0) {
			was_accepted |= f->v[i].accepted;
			f->v[i].accepted = false;
		}
	MUST(was_accepted);
	return 0;
}

static void judge(struct members *m, struct item *x, bool *ret_hostile)
{
	const char *rule;
	int r = members_judge(m, &x->t, &rule);

	MUST(r >= 0 && (r == MEMBER_ACCEPT) == (rule == NULL));
	x->accepted = r == MEMBER_ACCEPT;
	*ret_hostile = r == MEMBER_HOSTILE;
}

static struct members *judge_all(struct item *v, size_t n, bool *ret_hostile)
{
	static const struct member_opts opts = {.key = "fixed key", .readlink_at = host_readlink};
	struct members *m;

	*ret_hostile = false;
	MUST(members_new(&opts, &m) == 0);
	for (size_t i = 0; i < n && !*ret_hostile; i++)
		judge(m, &v[i], ret_hostile);
	return m;
}

/* A hostile member is taken out again, or few streams would get longer than three members. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct item v[ITEMS];
	struct finish f = {v, 0};
	struct members *m = NULL;
	bool hostile;

	m = judge_all(v, 0, &hostile);
	while (n > 0 && f.n < ITEMS) {
		read_item(&v[f.n], &p, &n);
		judge(m, &v[f.n], &hostile);
		if (hostile) {
			members_free(m);
			m = judge_all(v, f.n, &hostile);
		} else {
			f.n++;
		}
	}
	MUST(!hostile && members_finish(m, refused, &f) == 0);
	for (size_t i = 0; i < f.n; i++)
		if (v[i].accepted)
			check(v, f.n, &v[i]);
	members_free(m);
	return 0;
}

bool fuzz_seed(size_t i, struct buf *b)
{
	uint32_t s = 0x9e3779b9U + (uint32_t)i;

	if (i >= 512)
		return false;
	for (size_t k = 0; k < 4 + i / 4; k++)
		(void)buf_putc(b, (char)(fuzz_random(&s) >> 7));
	return true;
}

void fuzz_repair(uint8_t *p, size_t n)
{
	(void)p;
	(void)n;
}
