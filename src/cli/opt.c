#include "cli/opt.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define WORD_MAX 63
#define NEAR 3 /* edits; farther words are not what was meant */
#define NAMES_MAX 128

/* Edit distance of two short words; long ones are not suggestions for anything. */
static size_t distance(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b), row[WORD_MAX + 1];

	if (na > WORD_MAX || nb > WORD_MAX)
		return WORD_MAX;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[nb];
}

const char *opt_nearest(const char *word, const char *const *names, size_t n)
{
	const char *found = NULL;
	size_t best = NEAR + 1;

	for (size_t i = 0; i < n; i++) {
		size_t d =
		    strlen(word) >= 3 && str_starts(names[i], word) ? 1 : distance(word, names[i]);

		/* Half of the letters changed is another word; "rnu" still is "run". */
		if (d < best && d < strlen(word) && (d < 3 || 2 * d <= strlen(word))) {
			best = d;
			found = names[i];
		}
	}
	return found;
}

static const struct opt *find(const struct opt_parse *p, const char *name, size_t n, char letter)
{
	for (size_t t = 0; p->tables[t]; t++)
		for (const struct opt *o = p->tables[t]; o->name; o++)
			if (letter ? o->letter == letter
				   : strlen(o->name) == n && strncmp(o->name, name, n) == 0)
				return o;
	return NULL;
}

static int unknown(const struct opt_parse *p, const char *word, struct err *e)
{
	const char *names[NAMES_MAX], *near;
	_cleanup_free_ char *bare =
	    strndup(word + (word[1] == '-' ? 2 : 1), strcspn(word + (word[1] == '-' ? 2 : 1), "="));
	size_t n = 0;

	for (size_t t = 0; p->tables[t]; t++)
		for (const struct opt *o = p->tables[t]; o->name && n < NAMES_MAX; o++)
			names[n++] = o->name;
	near = bare ? opt_nearest(bare, names, n) : NULL;
	if (near)
		return err_set(e, ERR_USAGE, "%s has no option %.80s: did you mean --%s?", p->verb,
			       word, near);
	return err_set(e, ERR_USAGE, "%s has no option %.80s: 'airlock help %s' lists them",
		       p->verb, word, p->verb);
}

static int long_option(struct opt_parse *p, int argc, char *const *argv, int *i, struct err *e)
{
	const char *word = argv[*i] + 2, *eq = strchr(word, '=');
	size_t n = eq ? (size_t)(eq - word) : strlen(word);
	const struct opt *o = find(p, word, n, 0);

	if (!o)
		return unknown(p, argv[*i], e);
	if (!o->arg && eq)
		return err_set(e, ERR_USAGE, "option --%s takes no value", o->name);
	if (!o->arg || o->arg[0] == '=')
		return p->set(p->arg, o, eq ? eq + 1 : NULL, e);
	if (eq)
		return p->set(p->arg, o, eq + 1, e);
	if (*i + 1 >= argc)
		return err_set(e, ERR_USAGE, "option --%s needs a value: --%s %s", o->name, o->name,
			       o->arg);
	return p->set(p->arg, o, argv[++*i], e);
}

/* "-abc" is a, b, c; a letter with a value takes the rest of the word, or the next word. */
static int short_options(struct opt_parse *p, int argc, char *const *argv, int *i, struct err *e)
{
	int r = 0;

	for (const char *c = argv[*i] + 1; r == 0 && *c; c++) {
		const struct opt *o = find(p, "", 0, *c);

		if (!o)
			return unknown(p, argv[*i], e);
		if (!o->arg || o->arg[0] == '=') {
			r = p->set(p->arg, o, NULL, e);
			continue;
		}
		if (c[1])
			return p->set(p->arg, o, c + 1, e);
		if (*i + 1 >= argc)
			return err_set(e, ERR_USAGE, "option -%c needs a value: -%c %s", *c, *c,
				       o->arg);
		return p->set(p->arg, o, argv[++*i], e);
	}
	return r;
}

int opt_parse(struct opt_parse *p, int argc, char *const *argv, struct err *e)
{
	bool only_words = false;
	int r = 0;

	for (int i = 0; r == 0 && i < argc; i++) {
		const char *w = argv[i];

		if (!only_words && strcmp(w, "--") == 0)
			only_words = true;
		else if (only_words || w[0] != '-' || !w[1]) {
			r = strv_add(&p->words, w);
			if (r < 0)
				return err_set(e, ERR_NOMEM, "out of memory");
			only_words |= !p->permute;
		} else if (w[1] == '-')
			r = long_option(p, argc, argv, &i, e);
		else
			r = short_options(p, argc, argv, &i, e);
	}
	return r;
}
