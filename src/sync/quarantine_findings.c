/* What of a run's commits may not come as it is; see quarantine_findings.h. Part of door 1. */
#include "sync/quarantine_findings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "sync/quarantine_inside.h"

int quarantine_findings_add(struct findings *to, const struct quarantine_entry *en,
			    const char *rule)
{
	struct finding *f = &to->v[to->n];

	if (!rule)
		return 0;
	if (to->n == FINDINGS_MAX) {
		to->more = "more paths that door 1 refuses than can be told";
		return 1;
	}
	f->path = strdup(en->path);
	if (!f->path)
		return -ENOMEM;
	f->rule = rule;
	memcpy(f->mode, en->mode, sizeof(f->mode));
	memcpy(f->oid, en->oid, sizeof(f->oid));
	to->n++;
	return 0;
}

/* "mode type oid<tab>path" of the commit that was sent. */
static int on_base(void *arg, const char *p, size_t n)
{
	struct findings *all = arg;
	const char *tab = memchr(p, '\t', n);

	for (size_t i = 0; tab && i < all->n; i++) {
		struct finding *f = &all->v[i];

		if (strcmp(tab + 1, f->path) == 0 && strncmp(p, f->mode, strlen(f->mode)) == 0 &&
		    (size_t)(tab - p) > strlen(f->oid) &&
		    memcmp(tab - strlen(f->oid), f->oid, strlen(f->oid)) == 0)
			f->same = true;
	}
	return 0;
}

static int ask_base(const struct quarantine_list *l, struct findings *all, struct err *e)
{
	const char *words[FINDINGS_MAX + 7] = {"--literal-pathspecs", "ls-tree", "-z",
					       "--full-tree",	      l->base,	 "--"};
	struct process_records rec = {
	    .on_record = on_base, .arg = all, .rest = BUF_INIT(2 * PATH_MEMBER_MAX)};
	struct process_opts io = PROCESS_OPTS_INIT;
	size_t n = 6;
	int r = 0;

	for (size_t i = 0; i < all->n; i++)
		if (strlen(all->v[i].path) <= PATH_MEMBER_MAX)
			words[n++] = all->v[i].path;
	io.on_out = process_split_nul;
	io.on_out_arg = &rec;
	if (n > 6 && l->base[0])
		r = quarantine_git(l->q, words, &io, e);
	buf_done(&rec.rest);
	return r;
}

int quarantine_findings_first(const struct quarantine_list *l, struct findings *all,
			      const struct finding **ret, struct err *e)
{
	int r = ask_base(l, all, e);

	*ret = NULL;
	for (size_t i = 0; r == 0 && i < all->n && !*ret; i++)
		if (!all->v[i].same)
			*ret = &all->v[i];
	return r;
}

void quarantine_findings_done(struct findings *all)
{
	for (size_t i = 0; i < all->n; i++) {
		free(all->v[i].path);
		free(all->v[i].target);
	}
}
