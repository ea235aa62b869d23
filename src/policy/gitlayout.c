#include "policy/gitlayout.h"

#include "policy/member.h"

/* Folded, in the order of the enum. */
static const char *const names[] = {"config", "config.worktree", "hooks", "commondir",
				    "head",   "objects",	 "refs",  NULL};

int gitlayout_which(const char *segment, size_t n)
{
	return member_is_folded_of(segment, n, names);
}

const char *gitlayout_on_disk(enum gitlayout_name which)
{
	return which == GITLAYOUT_HEAD ? "HEAD" : names[which];
}

bool gitlayout_is(unsigned bits)
{
	const unsigned both = GITLAYOUT_BIT(GITLAYOUT_OBJECTS) | GITLAYOUT_BIT(GITLAYOUT_REFS);

	return bits & GITLAYOUT_BIT(GITLAYOUT_HEAD) &&
	       (bits & GITLAYOUT_BIT(GITLAYOUT_COMMONDIR) || (bits & both) == both);
}
