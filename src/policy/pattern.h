/*
 * pattern.h: ignore patterns with the meaning that gitignore(5) gives them.
 *
 * Patterns and paths are bytes. A list belongs to the directory that holds its file; paths are
 * given relative to that directory. Matching is a set of states walked once over the path, so no
 * pattern of a hostile repository makes it exponential: cost <= pattern bytes x path bytes.
 *
 * Rules: '#' comment, '!' negates, trailing '/' only directories, a '/' elsewhere anchors, '*'
 * and '?' never match '/', a whole segment "**" matches any number of segments, brackets with
 * ranges, classes and '!' or '^', backslash quotes. A broken pattern matches nothing.
 * "A file below an ignored directory cannot come back" is the walker's rule, not this file's.
 */
#ifndef AIRLOCK_POLICY_PATTERN_H
#define AIRLOCK_POLICY_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pattern_token;

struct pattern {
	char *text; /* owned; as given, for messages */
	char *glob; /* owned; without '!', leading and trailing '/' */
	size_t glob_len;
	size_t literal;		      /* leading bytes of glob without a special */
	struct pattern_token *tokens; /* owned; NULL if the glob is literal or only "*literal" */
	size_t tokens_len;
	bool negated, dir_only, anchored, suffix;
	uint64_t hits; /* paths it decided; pattern_list_match counts */
};

struct pattern_list {
	struct pattern *v; /* owned */
	size_t n, cap;
};

enum pattern_verdict {
	PATTERN_NONE,	/* no pattern speaks of this path */
	PATTERN_MATCH,	/* the last one that matches is plain */
	PATTERN_NEGATED /* the last one that matches begins with '!' */
};

/* One pattern; comment and blank lines add nothing. 0, -E2BIG beyond PATTERNS_MAX, -ENOMEM. */
int pattern_list_add(struct pattern_list *l, const char *line, size_t n, struct err *e);
/* The text of an ignore file (lines; CR LF accepted; a leading UTF-8 mark is skipped). */
int pattern_list_parse(struct pattern_list *l, const char *text, size_t n, struct err *e);
void pattern_list_done(struct pattern_list *l);

/* path: relative to the list's directory, no leading or trailing '/'. The last match decides. */
enum pattern_verdict pattern_list_match(struct pattern_list *l, const char *path, size_t n,
					bool is_dir);
/*
 * Could a pattern of the list match something below directory dir? True when in doubt.
 */
bool pattern_list_reaches_below(const struct pattern_list *l, const char *dir, size_t n);

#endif
