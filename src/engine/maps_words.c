/* What --map may name: the words of a mapping, judged by themselves and against the run's other places. */
#include "engine/maps_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "engine/runenv.h"
#include "policy/member.h"

static bool overlap(const char *a, const char *b)
{
	return path_is_within(a, b) || path_is_within(b, a);
}

/* The host's side: there, of the right kind, no link; its directory is resolved once, here. */
static int judge_src(const char *src, const char *kind, char **ret_real, bool *ret_file,
		     struct err *e)
{
	_cleanup_free_ char *real = NULL;
	struct stat st;

	if (lstat(src, &st) < 0)
		return err_set(e, ERR_USAGE, "--map %.300s: %s", src, strerror(errno));
	if (S_ISLNK(st.st_mode))
		return err_set(e, ERR_USAGE,
			       "--map %.300s is a symbolic link: name what it leads to", src);
	*ret_file = S_ISREG(st.st_mode);
	if (!*ret_file && !S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE, "--map %.300s: neither a file nor a directory", src);
	if (kind && (strcmp(kind, "file") == 0) != *ret_file)
		return err_set(e, ERR_USAGE, "--map %.300s is not a %s", src, kind);
	real = realpath(src, NULL);
	if (!real)
		return err_set(e, ERR_USAGE, "--map %.300s: %s", src, strerror(errno));
	if (strcmp(real, "/") == 0 || member_name_rule(real + 1, strlen(real + 1)))
		return err_set(
		    e, ERR_USAGE,
		    "--map %.300s: a reserved place (git's own files, Airlock's, the root)", real);
	*ret_real = TAKE_PTR(real);
	return 0;
}

static int judge_dst(const char *dst, struct err *e)
{
	size_t n = strlen(dst);

	if (!path_is_absolute_normal(dst) || n >= PATH_MAX)
		return err_set(
		    e, ERR_USAGE,
		    "--map ...:%.300s: the place inside is an absolute path without '..', "
		    "'.' or a '/' at its end",
		    dst);
	if ((!path_is_within(dst, INSIDE_HOME) || strcmp(dst, INSIDE_HOME) == 0) &&
	    (!path_is_within(dst, "/tmp") || strcmp(dst, "/tmp") == 0))
		return err_set(e, ERR_USAGE,
			       "--map ...:%.300s: the place inside must lie below %s or /tmp", dst,
			       INSIDE_HOME);
	if (member_name_rule(dst + 1, n - 1))
		return err_set(e, ERR_USAGE, "--map ...:%.300s: a reserved name", dst);
	return 0;
}

int maps_add(char ***maps, const char *word, struct err *e)
{
	_cleanup_free_ char *w = strdup(word), *real = NULL;
	char *dst, *kind = NULL;
	bool file = false;
	int r;

	if (!w)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	if (maps_count(*maps) == MAPS_MAX)
		return err_set(e, ERR_LIMIT, "--map: more than %d of them (limit maps)", MAPS_MAX);
	/* From the right: a host path may hold colons. */
	dst = strrchr(w, ':');
	if (dst && (strcmp(dst, ":file") == 0 || strcmp(dst, ":dir") == 0)) {
		kind = dst + 1;
		*dst = '\0';
		dst = strrchr(w, ':');
	}
	if (!dst || dst == w)
		return err_set(e, ERR_USAGE,
			       "--map %.300s: give SRC:DST, SRC:DST:file or SRC:DST:dir", word);
	*dst++ = '\0';
	r = judge_dst(dst, e);
	if (r == 0)
		r = judge_src(w, kind, &real, &file, e);
	if (r < 0)
		return r;
	if (strv_add(maps, file ? "file" : "dir") < 0 || strv_add(maps, real) < 0 ||
	    strv_add(maps, dst) < 0)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	return 0;
}

int maps_check(const struct request *q, const char *state_dir, struct err *e)
{
	for (size_t i = 0; i < maps_count(q->maps); i++) {
		struct map m = maps_word(q->maps, i);

		if (q->provider->in_place)
			return err_set(e, ERR_USAGE,
				       "--map does not go with a provider that works in place");
		if (q->provider->elsewhere && !q->provider->isolates &&
		    !path_is_within(m.dst, "/tmp"))
			return err_set(
			    e, ERR_USAGE,
			    "--map ...:%.300s: on another machine without a sandbox the place lies below /tmp there: its "
			    "home is the account's own",
			    m.dst);
		if (overlap(m.src, q->workspace))
			return err_set(
			    e, ERR_USAGE,
			    "--map %.300s: it and the workspace %.300s lie in one another", m.src,
			    q->workspace);
		if (state_dir && overlap(m.src, state_dir))
			return err_set(e, ERR_USAGE, "--map %.300s: Airlock's own state lies there",
				       m.src);
		for (size_t k = 0; k < q->binds_len; k++)
			if (overlap(m.dst, q->binds[k].dst))
				return err_set(
				    e, ERR_USAGE,
				    "--map ...:%.300s and --bind-ro ...:%.300s lie in one another",
				    m.dst, q->binds[k].dst);
		for (size_t k = 0; k < i; k++) {
			struct map o = maps_word(q->maps, k);

			if (overlap(m.src, o.src) || overlap(m.dst, o.dst))
				return err_set(e, ERR_USAGE,
					       "--map %.200s and --map %.200s lie in one another",
					       o.src, m.src);
		}
	}
	return 0;
}
