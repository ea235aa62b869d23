/* What became of commits, in words; see gitback.h. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "sync/gitback.h"

const char *history_outcome_name(enum history_outcome o)
{
	static const char *const names[HISTORY_OUTCOME_COUNT] = {
	    "none", "fast_forwarded", "merged", "imported", "conflict", "failed", "held"};

	return names[o];
}

void history_done(struct history *h)
{
	free(h->branch);
	*h = (struct history){0};
}

static void put_branch(const struct history *h, struct buf *b)
{
	const char *name = h->branch ? h->branch : "the branch";

	if (str_starts(name, "refs/heads/"))
		name += strlen("refs/heads/");
	(void)str_printable(b, name, strlen(name));
}

static void put_commits(const struct history *h, struct buf *b)
{
	(void)buf_putf(b, "%llu commit%s", (unsigned long long)h->commits,
		       h->commits == 1 ? "" : "s");
}

static void put_outcome(const struct history *h, struct buf *b)
{
	switch (h->outcome) {
	case HISTORY_NONE:
		(void)buf_putf(b, "none%s%s", h->why[0] ? ": " : "", h->why);
		return;
	case HISTORY_FORWARD:
		(void)buf_puts(b, "fast-forwarded ");
		put_commits(h, b);
		(void)buf_puts(b, " on ");
		put_branch(h, b);
		return;
	case HISTORY_MERGED:
		(void)buf_puts(b, "merged ");
		put_commits(h, b);
		(void)buf_puts(b, " into ");
		put_branch(h, b);
		return;
	case HISTORY_IMPORTED:
	case HISTORY_CONFLICT:
		(void)buf_puts(b, h->outcome == HISTORY_CONFLICT ? "CONFLICT: " : "imported ");
		if (h->outcome == HISTORY_IMPORTED)
			put_commits(h, b);
		else
			put_branch(h, b);
		(void)buf_putf(b, "%s (%s); look: git log %s; take: git merge %s",
			       h->outcome == HISTORY_CONFLICT ? " was left as it is"
							      : ", no branch moved",
			       h->why, h->ref, h->ref);
		return;
	case HISTORY_HELD:
		put_commits(h, b);
		(void)buf_puts(b, " for ");
		put_branch(h, b);
		(void)buf_puts(b, " wait for 'airlock apply'");
		return;
	default:
		(void)buf_putf(b, "FAILED: %s; files do not depend on it", h->why);
	}
}

void history_text(const struct history *h, struct buf *b)
{
	put_outcome(h, b);
	if (h->flagged[0])
		(void)buf_putf(
		    b, "; CHECK, a program on the host runs or obeys what the commits have in: %s",
		    h->flagged);
	if (h->missing[0])
		(void)buf_putf(b, "; the commits have files that the workspace %s: %s",
			       h->outcome == HISTORY_HELD ? "would not have" : "has not",
			       h->missing);
	if (h->differs[0])
		(void)buf_putf(
		    b, "; the commits have other bytes or modes than the workspace%s in: %s",
		    h->outcome == HISTORY_HELD ? " would have" : "", h->differs);
}
