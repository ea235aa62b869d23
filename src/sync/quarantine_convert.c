#include "sync/quarantine_convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"

#define ATTRIBUTES ".gitattributes"
#define VALUE_MAX (64 << 10) /* a path, or a line of .gitattributes */

enum attr { TEXT, CRLF, EOL, FILTER, ENCODING, IDENT, ATTRS };
static const char *const names[ATTRS] = {"text", "crlf", "eol", "filter", "working-tree-encoding",
					 "ident"};

/* As git reads a truth value: a word of these, or a number. */
static bool is_false(const char *v)
{
	static const char *const words[] = {"", "false", "no", "off"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strcasecmp(v, words[i]) == 0)
			return true;
	return strspn(v, "0") == strlen(v);
}

void quarantine_settings_read(const struct git_repo *host, struct quarantine_settings *s)
{
	struct git_config c = {0};
	const char *v;

	if (s->read)
		return;
	*s = (struct quarantine_settings){.read = true};
	if (git_config_read(host, &c, NULL) < 0)
		return;
	v = git_config_get(&c, "core.autocrlf");
	s->autocrlf = v && !is_false(v);
	v = git_config_get(&c, "core.filemode");
	s->plain_mode = v && is_false(v);
	git_config_done(&c);
}

/* What git prints of the attributes of one path after the other: "<path>" "<attribute>" "<value>". */
struct asked {
	const struct quarantine_settings *s;
	const char *const *paths;
	size_t n, at, field;
	enum quarantine_convert *ret;
	bool bytes, eol;
	bool text_told, text;
};

static bool is_word(const char *v)
{
	return strcmp(v, "unspecified") != 0 && strcmp(v, "unset") != 0 && strcmp(v, "set") != 0;
}

static void on_value(struct asked *a, enum attr attr, const char *v)
{
	switch (attr) {
	case TEXT:
	case CRLF: /* its old name, which counts where text is not told */
		if (a->text_told)
			return;
		a->text =
		    strcmp(v, "set") == 0 || strcmp(v, "auto") == 0 || strcmp(v, "input") == 0;
		/* Any other word is as none to git. */
		a->text_told = a->text || strcmp(v, "unset") == 0;
		return;
	case EOL:
		a->eol = strcmp(v, "lf") == 0 || strcmp(v, "crlf") == 0;
		return;
	case IDENT:
		a->bytes |= strcmp(v, "set") == 0;
		return;
	default: /* the name of a filter, of an encoding */
		a->bytes |= is_word(v);
	}
}

static void end_path(struct asked *a)
{
	const bool lines = a->text_told ? a->text : a->eol || a->s->autocrlf;

	a->ret[a->at++] = a->bytes ? CONVERT_BYTES : lines ? CONVERT_LINES : CONVERT_NOTHING;
	a->bytes = a->eol = a->text_told = a->text = false;
	a->field = 0;
}

static int on_record(void *arg, const char *p, size_t n)
{
	struct asked *a = arg;
	const size_t attr = a->field / 3;

	(void)n;
	if (a->at == a->n)
		return -EPROTO;
	switch (a->field++ % 3) {
	case 0:
		return strcmp(p, a->paths[a->at]) == 0 ? 0 : -EPROTO;
	case 1:
		return strcmp(p, names[attr]) == 0 ? 0 : -EPROTO;
	default:
		on_value(a, (enum attr)attr, p);
		if (attr == ATTRS - 1)
			end_path(a);
		return 0;
	}
}

static bool is_fifo(int dir, const char *path)
{
	struct stat st;

	return fstatat(dir, path, &st, 0) == 0 && S_ISFIFO(st.st_mode);
}

/* git opens what is called so on the way to a path, and would wait in a FIFO for whoever writes to it. */
static bool git_would_wait(const struct git_repo *host, int top, const char *const *paths, size_t n)
{
	_cleanup_free_ char *info = path_join(host->common_dir, "info/attributes");
	char at[PATH_MEMBER_MAX + sizeof(ATTRIBUTES)] = ATTRIBUTES;

	if (!info || is_fifo(AT_FDCWD, info) || is_fifo(top, at))
		return true;
	for (size_t i = 0; i < n; i++)
		for (const char *slash = strchr(paths[i], '/'); slash;
		     slash = strchr(slash + 1, '/')) {
			(void)snprintf(at, sizeof(at), "%.*s/" ATTRIBUTES, (int)(slash - paths[i]),
				       paths[i]);
			if (is_fifo(top, at))
				return true;
		}
	return false;
}

int quarantine_convert(const struct git_repo *host, const struct quarantine_settings *s, int top,
		       const char *const *paths, size_t n, enum quarantine_convert *ret)
{
	const char *const words[] = {"check-attr", "-z",       "--stdin",     names[TEXT],
				     names[CRLF],  names[EOL], names[FILTER], names[ENCODING],
				     names[IDENT], NULL};
	_cleanup_buf_ struct buf in = BUF_INIT(n * (PATH_MEMBER_MAX + 1) + 1);
	struct asked a = {.s = s, .paths = paths, .n = n, .ret = ret};
	struct process_records cut = {on_record, &a, BUF_INIT(VALUE_MAX)};
	struct process_opts io = PROCESS_OPTS_INIT;
	int r;

	if (git_would_wait(host, top, paths, n))
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		(void)buf_put(&in, paths[i], strlen(paths[i]) + 1);
	io.in = buf_text(&in);
	io.in_len = in.len;
	io.cwd_fd = top; /* git would take the paths as below our own */
	io.on_out = process_split_nul;
	io.on_out_arg = &cut;
	r = in.err ? in.err : git_run(host, words, NULL, &io, NULL);
	buf_done(&cut.rest);
	return r == 0 && a.at != n ? -EPROTO : r;
}
