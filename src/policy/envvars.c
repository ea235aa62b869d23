#include "policy/envvars.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

static const char *const reserved[] = {"PAPERCLIP_RUN_ID", "PAPERCLIP_API_URL",
				       "PAPERCLIP_API_KEY"};
static const char *const hooks[] = {
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",      "BASH_ENV",
    "ENV",	  "NODE_OPTIONS",    "PERL5OPT",      "RUBYOPT",
    "IFS",	  "PYTHONHOME",	     "PYTHONSTARTUP", "GIT_EXTERNAL_DIFF"};

static size_t name_len(const char *word)
{
	size_t n = strspn(word, NAME_CHARS);

	return n && !(word[0] >= '0' && word[0] <= '9') && word[n] == '=' ? n : 0;
}

static bool is_one_of(const char *word, size_t n, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(list[i]) == n && memcmp(list[i], word, n) == 0)
			return true;
	return false;
}

bool envvars_name_ok(const char *word)
{
	return name_len(word) > 0;
}

int envvars_check(const char *word, bool isolates, struct err *e)
{
	size_t n = name_len(word);

	if (!n)
		return err_set(
		    e, ERR_INVALID,
		    "a variable is NAME=VALUE with a NAME of letters, digits and '_' that does not "
		    "begin with a digit");
	if (str_starts(word, "AIRLOCK_") || is_one_of(word, n, reserved, ARRAY_LEN(reserved)))
		return err_set(
		    e, ERR_INVALID,
		    "the variable %.*s is set by Airlock itself and cannot be given: use another name",
		    (int)n, word);
	if (!isolates && is_one_of(word, n, hooks, ARRAY_LEN(hooks)))
		return err_set(
		    e, ERR_PERMISSION,
		    "the variable %.*s makes loaders or interpreters run other code; without "
		    "isolation (provider local) it is refused: export it inside the command if you mean it",
		    (int)n, word);
	if (strlen(word) > ENV_VALUE_MAX)
		return err_set(
		    e, ERR_LIMIT,
		    "the variable %.*s is longer than %d bytes, the kernel's limit for one word: "
		    "put the value into a file",
		    (int)n, word, ENV_VALUE_MAX);
	return 0;
}

int envvars_set(char ***v, const char *word)
{
	size_t n = strcspn(word, "=") + 1;

	for (size_t i = 0; i < strv_len(*v); i++) {
		char *copy;

		if (strncmp((*v)[i], word, n) != 0)
			continue;
		copy = strdup(word);
		if (!copy)
			return -ENOMEM;
		free((*v)[i]);
		(*v)[i] = copy;
		return 0;
	}
	return strv_add(v, word);
}

struct parser {
	const char *name, *p, *end;
	unsigned line;
	struct buf word;
};

static int fail(struct parser *s, unsigned line, struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID, "%s, line %u: %s", s->name, line, what);
}

static void skip_blank(struct parser *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r'))
		s->p++;
}

static int quoted(struct parser *s, char q, struct err *e)
{
	unsigned from = s->line;

	for (s->p++; s->p < s->end && *s->p != q; s->p++) {
		char c = *s->p;

		if (c == '\n')
			s->line++;
		if (q == '"' && c == '\\' && s->p + 1 < s->end) {
			static const char in[] = "nrt\\\"$", out[] = "\n\r\t\\\"$";
			const char *at = strchr(in, s->p[1]);

			if (at && s->p[1]) {
				c = out[at - in];
				s->p++;
			}
		}
		(void)buf_putc(&s->word, c);
	}
	if (s->p == s->end)
		return fail(s, from, e, "the quote that begins here is never closed");
	s->p++;
	skip_blank(s);
	if (s->p < s->end && *s->p != '\n' && *s->p != '#')
		return fail(s, s->line, e, "text after the closing quote");
	return 0;
}

static void unquoted(struct parser *s)
{
	size_t keep = s->word.len;

	for (; s->p < s->end && *s->p != '\n'; s->p++) {
		bool blank = *s->p == ' ' || *s->p == '\t' || *s->p == '\r';

		if (*s->p == '#' && s->p[-1] != '=' && (s->p[-1] == ' ' || s->p[-1] == '\t'))
			break;
		(void)buf_putc(&s->word, *s->p);
		if (!blank)
			keep = s->word.len;
	}
	if (!s->word.err && s->word.data) {
		s->word.len = keep;
		s->word.data[keep] = '\0';
	}
}

static int assignment(struct parser *s, char ***v, struct err *e)
{
	unsigned line = s->line;
	size_t n;
	int r = 0;

	buf_reset(&s->word);
	if ((size_t)(s->end - s->p) > 7 && memcmp(s->p, "export ", 7) == 0) {
		s->p += 7;
		skip_blank(s);
	}
	while (s->p < s->end && *s->p && strchr(NAME_CHARS, *s->p))
		(void)buf_putc(&s->word, *s->p++);
	n = s->word.len;
	skip_blank(s);
	if (!n || s->p == s->end || *s->p != '=')
		return fail(s, line, e, "expected NAME=VALUE, a comment or a blank line");
	(void)buf_putc(&s->word, '=');
	s->p++;
	skip_blank(s);
	if (s->p < s->end && (*s->p == '"' || *s->p == '\''))
		r = quoted(s, *s->p, e);
	else
		unquoted(s);
	if (r < 0)
		return r;
	if (s->word.err == -E2BIG)
		return fail(s, line, e, "the value is too long: put it into a file");
	if (s->word.err || envvars_set(v, buf_text(&s->word)) < 0)
		return err_set(e, ERR_NOMEM, "%s: out of memory", s->name);
	if (strv_len(*v) > ENV_MAX)
		return fail(s, line, e, "more variables than one command may have");
	return 0;
}

int envvars_parse(const char *name, const char *text, size_t n, char ***v, struct err *e)
{
	struct parser s = {.name = name, .p = text, .end = text + n, .line = 1};
	const char *nul = memchr(text, '\0', n);
	int r = 0;

	buf_init(&s.word, ENV_VALUE_MAX);
	if (nul) {
		for (const char *p = text; p < nul; p++)
			s.line += *p == '\n';
		return fail(&s, s.line, e, "a zero byte: is this a text file?");
	}
	/* A byte order mark is what some editors put first. */
	if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		s.p += 3;
	while (r == 0 && s.p < s.end) {
		skip_blank(&s);
		if (s.p < s.end && *s.p != '\n' && *s.p != '#')
			r = assignment(&s, v, e);
		while (r == 0 && s.p < s.end && *s.p != '\n')
			s.p++;
		if (s.p < s.end && r == 0) {
			s.p++;
			s.line++;
		}
	}
	buf_done(&s.word);
	return r;
}
