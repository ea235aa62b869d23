/* External merge sort: runs of RUN_BYTES, one merge. */
#include "sync/chlist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#ifndef RUN_BYTES /* a test has smaller ones */
#define RUN_BYTES (512 << 10)
#endif
#define FIXED offsetof(struct change, path)
/* A run is full when the next record does not fit: less than one record of it is empty. */
#define RUNS_MAX (CHANGES_BYTES_MAX / (RUN_BYTES - sizeof(struct change)) + 2)
#define WINDOWS_BYTES (2 << 20) /* of all runs together while they are merged */
#define WINDOW_MAX (16 << 10)

struct run {
	uint64_t at, end;    /* in the runs spool */
	struct change *head; /* current record, path_len + 1 bytes of path only; NULL at the end */
	char *win;	     /* owned: of the spool, from win_at on; may be NULL */
	uint64_t win_at;
	size_t win_len;
};

struct chlist {
	int dir;
	char *mem; /* records of the current run, each FIXED + path_len + 1, aligned */
	size_t mem_len;
	uint32_t *at; /* their offsets */
	size_t n, cap;
	struct spool runs;  /* sorted runs */
	struct spool data;  /* all, sorted, unique */
	struct spool index; /* u64 offset in data, per record */
	struct run *run;
	size_t run_n, win_max; /* win_max: bytes of each run's window */
	uint64_t count, total;
};

static size_t record_len(const struct change *c)
{
	return (FIXED + c->path_len + 1 + 7) & ~(size_t)7;
}

static int order(const struct change *a, const struct change *b)
{
	int r = manifest_path_cmp(a->path, a->path_len, b->path, b->path_len);

	return r ? r : a->seq < b->seq ? -1 : a->seq > b->seq;
}

static int order_at(const void *a, const void *b, void *mem)
{
	return order((const void *)((const char *)mem + *(const uint32_t *)a),
		     (const void *)((const char *)mem + *(const uint32_t *)b));
}

int chlist_new(int dir, struct chlist **ret)
{
	struct chlist *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->dir = dir;
	spool_init(&l->runs, dir, 2 * (uint64_t)CHANGES_BYTES_MAX);
	spool_init(&l->data, dir, 2 * (uint64_t)CHANGES_BYTES_MAX);
	spool_init(&l->index, dir, UINT64_MAX / 2);
	*ret = l;
	return 0;
}

static void run_done(struct run *u)
{
	free(u->head);
	free(u->win);
	u->head = NULL;
	u->win = NULL;
}

void chlist_free(struct chlist *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->run_n; i++)
		run_done(&l->run[i]);
	free(l->run);
	free(l->mem);
	free(l->at);
	spool_done(&l->runs);
	spool_done(&l->data);
	spool_done(&l->index);
	free(l);
}

/* Sorted and unique into the final spools; `to` NULL: into the runs. */
static int put_final(struct chlist *l, const struct change *c)
{
	uint64_t off = spool_len(&l->data);
	int r = spool_put(&l->data, c, record_len(c));

	if (r == 0)
		r = spool_put(&l->index, &off, sizeof(off));
	if (r == 0)
		l->count++;
	return r;
}

static const struct change *in_mem(const struct chlist *l, size_t i)
{
	return (const void *)(l->mem + l->at[i]);
}

static bool same_path(const struct change *a, const struct change *b)
{
	return a->path_len == b->path_len && !memcmp(a->path, b->path, a->path_len);
}

/* Sorts what is in memory and moves it out, the last of equal paths only. */
static int flush_run(struct chlist *l, bool final)
{
	uint64_t start = spool_len(&l->runs);
	int r = 0;

	if (l->n)
		qsort_r(l->at, l->n, sizeof(*l->at), order_at, l->mem);
	for (size_t i = 0; i < l->n && r == 0; i++) {
		const struct change *c = in_mem(l, i);

		if (i + 1 < l->n && same_path(c, in_mem(l, i + 1)))
			continue;
		r = final ? put_final(l, c) : spool_put(&l->runs, c, record_len(c));
	}
	if (r == 0 && !final && spool_len(&l->runs) > start) {
		struct run *v =
		    l->run_n < RUNS_MAX ? reallocarray(l->run, l->run_n + 1, sizeof(*v)) : NULL;

		if (!v)
			return l->run_n < RUNS_MAX ? -ENOMEM : -E2BIG;
		l->run = v;
		l->run[l->run_n++] = (struct run){.at = start, .end = spool_len(&l->runs)};
	}
	l->n = 0;
	l->mem_len = 0;
	return r;
}

int chlist_add(struct chlist *l, const struct change *c)
{
	size_t n = record_len(c);

	if (l->total + n > CHANGES_BYTES_MAX)
		return -E2BIG;
	if (l->mem_len + n > RUN_BYTES && l->n) {
		int r = flush_run(l, false);

		if (r < 0)
			return r;
	}
	if (!l->mem && !(l->mem = calloc(1, RUN_BYTES)))
		return -ENOMEM;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 256;
		uint32_t *at = reallocarray(l->at, cap, sizeof(*at));

		if (!at)
			return -ENOMEM;
		l->at = at;
		l->cap = cap;
	}
	memcpy(l->mem + l->mem_len, c, FIXED + c->path_len);
	l->mem[l->mem_len + FIXED + c->path_len] = '\0';
	l->at[l->n++] = (uint32_t)l->mem_len;
	l->mem_len += n;
	l->total += n;
	return 0;
}

static int read_record(const struct spool *s, uint64_t off, struct change *ret)
{
	long k = spool_get(s, off, ret, FIXED + 96);

	if (k < 0)
		return (int)k;
	if (k < (long)FIXED || ret->path_len > PATH_MEMBER_MAX)
		return -EIO;
	if (k < (long)(FIXED + ret->path_len)) {
		long more = spool_get(s, off + (uint64_t)k, (char *)ret + k,
				      FIXED + ret->path_len - (size_t)k);

		if (more < 0 || k + more < (long)(FIXED + ret->path_len))
			return more < 0 ? (int)more : -EIO;
	}
	ret->path[ret->path_len] = '\0';
	return 0;
}

/* The record at u->at, if the window holds all of it. The spool's own window is no help: runs take turns. */
static bool in_window(const struct run *u, struct change *ret)
{
	size_t off = (size_t)(u->at - u->win_at), have;

	if (u->at < u->win_at || off >= u->win_len || u->win_len - off < FIXED)
		return false;
	have = u->win_len - off;
	memcpy(ret, u->win + off, FIXED);
	if (ret->path_len > PATH_MEMBER_MAX || have - FIXED < ret->path_len)
		return false;
	memcpy(ret->path, u->win + off + FIXED, ret->path_len);
	ret->path[ret->path_len] = '\0';
	return true;
}

static int next_record(struct chlist *l, struct run *u, struct change *ret)
{
	uint64_t left = u->end - u->at;
	long k;

	if (in_window(u, ret))
		return 0;
	if (!u->win)
		u->win = malloc(l->win_max); /* without one it is slower, no worse */
	u->win_len = 0;
	if (!u->win)
		return read_record(&l->runs, u->at, ret);
	k = spool_get(&l->runs, u->at, u->win, left < l->win_max ? (size_t)left : l->win_max);
	if (k < 0)
		return (int)k;
	u->win_at = u->at;
	u->win_len = (size_t)k;
	return in_window(u, ret) ? 0 : read_record(&l->runs, u->at, ret);
}

static int advance(struct chlist *l, struct run *u)
{
	struct change c;
	int r;

	free(u->head);
	u->head = NULL;
	if (u->at >= u->end) {
		run_done(u);
		return 0;
	}
	r = next_record(l, u, &c);
	if (r < 0)
		return r;
	/* Zeroed: the rounding of the record is written as well. */
	u->head = calloc(1, FIXED + c.path_len + 8);
	if (!u->head)
		return -ENOMEM;
	memcpy(u->head, &c, FIXED + c.path_len + 1);
	u->at += record_len(&c);
	return 0;
}

static bool before(const struct run *a, const struct run *b)
{
	return a->head && (!b->head || order(a->head, b->head) < 0);
}

static void sift(struct run *v, size_t n, size_t i)
{
	for (;;) {
		size_t least = i, c = 2 * i + 1;
		struct run t;

		for (size_t k = c; k < n && k < c + 2; k++)
			if (before(&v[k], &v[least]))
				least = k;
		if (least == i)
			return;
		t = v[i];
		v[i] = v[least];
		v[least] = t;
		i = least;
	}
}

static int merge_runs(struct chlist *l)
{
	int r = 0;

	l->win_max = WINDOWS_BYTES / l->run_n < WINDOW_MAX ? WINDOWS_BYTES / l->run_n : WINDOW_MAX;
	for (size_t i = 0; i < l->run_n && r == 0; i++)
		r = advance(l, &l->run[i]);
	for (size_t i = l->run_n; i-- > 0 && r == 0;)
		sift(l->run, l->run_n, i);
	while (r == 0 && l->run[0].head) {
		struct change *c = l->run[0].head;

		l->run[0].head = NULL;
		r = advance(l, &l->run[0]);
		sift(l->run, l->run_n, 0);
		/* The next in order has the same path: that one is newer and stands for both. */
		if (r == 0 && !(l->run[0].head && same_path(c, l->run[0].head)))
			r = put_final(l, c);
		free(c);
	}
	return r;
}

int chlist_seal(struct chlist *l)
{
	int r = flush_run(l, l->run_n == 0);

	if (r == 0 && l->run_n)
		r = merge_runs(l);
	free(l->mem);
	free(l->at);
	l->mem = NULL;
	l->at = NULL;
	spool_done(&l->runs);
	return r;
}

uint64_t chlist_count(const struct chlist *l)
{
	return l->count;
}

int chlist_get(const struct chlist *l, uint64_t i, struct change *ret)
{
	uint64_t off;
	long k = spool_get(&l->index, i * sizeof(off), &off, sizeof(off));

	if (k != sizeof(off))
		return k < 0 ? (int)k : -EIO;
	return read_record(&l->data, off, ret);
}

/* 1: *ret_i is the path's, and *ret it; 0: it would be there; errno. */
static int bisect(const struct chlist *l, const char *path, size_t n, struct change *ret,
		  uint64_t *ret_i)
{
	uint64_t lo = 0, hi = l->count;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		int r = chlist_get(l, mid, ret);

		if (r < 0)
			return r;
		r = manifest_path_cmp(ret->path, ret->path_len, path, n);
		if (r == 0) {
			*ret_i = mid;
			return 1;
		}
		if (r < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_i = lo;
	return 0;
}

int chlist_find(const struct chlist *l, const char *path, size_t n, struct change *ret)
{
	uint64_t i;

	return bisect(l, path, n, ret, &i);
}

int chlist_seek(const struct chlist *l, const char *path, size_t n, uint64_t *ret_i)
{
	struct change c;
	int r = bisect(l, path, n, &c, ret_i);

	return r < 0 ? r : 0;
}
