#include "wire/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

#define CWD_MAX 4095	  /* Linux PATH_MAX - 1 */
#define SIGNO_MAX 64	  /* Linux _NSIG */
#define ERRNO_MAX 4095	  /* Linux MAX_ERRNO */
#define WINSIZE_MAX 65535 /* unsigned short of struct winsize */

/* A word must be NAME=VALUE: a nameless one cannot be looked up and shells drop it in silence. */
static bool env_word(const char *p, size_t n)
{
	return n > 1 && p[0] != '=' && memchr(p, '=', n);
}

static int count_words(char *const *v, size_t max, bool env, size_t *ret_n)
{
	size_t n = strv_len(v);

	if (n > max)
		return -E2BIG;
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(v[i]);

		if (len > ENV_VALUE_MAX)
			return -E2BIG;
		if (env && !env_word(v[i], len))
			return -EINVAL;
	}
	*ret_n = n;
	return 0;
}

static void put_words(struct buf *b, char *const *v, size_t n)
{
	(void)buf_u32(b, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		(void)buf_str(b, v[i]);
}

int gm_exec_put(struct buf *b, const struct gm_exec *m)
{
	size_t argc, envc;
	int r;

	r = count_words(m->argv, ARGV_MAX, false, &argc);
	if (r < 0)
		return r;
	r = count_words(m->env, ENV_MAX, true, &envc);
	if (r < 0)
		return r;
	if (!argc || !m->cwd || m->cwd[0] != '/' || (m->flags & ~GX_TTY) || m->rows > WINSIZE_MAX ||
	    m->cols > WINSIZE_MAX)
		return -EINVAL;
	if (strlen(m->cwd) > CWD_MAX)
		return -E2BIG;
	(void)buf_u32(b, m->id);
	(void)buf_u32(b, m->flags);
	(void)buf_u32(b, m->rows);
	(void)buf_u32(b, m->cols);
	(void)buf_str(b, m->cwd);
	put_words(b, m->argv, argc);
	put_words(b, m->env, envc);
	return b->err;
}

/* A heap copy of a length-prefixed word without NUL. 0, -EPROTO, -ENOMEM. */
static int get_word(struct cursor *c, size_t max, char **ret)
{
	struct view v = cursor_bytes(c, max);
	char *s;

	if (c->failed || (v.n && memchr(v.p, '\0', v.n)))
		return -EPROTO;
	s = malloc(v.n + 1);
	if (!s)
		return -ENOMEM;
	if (v.n)
		memcpy(s, v.p, v.n);
	s[v.n] = '\0';
	*ret = s;
	return 0;
}

static int get_words(struct cursor *c, size_t max, bool env, char ***ret)
{
	size_t n = cursor_u32(c);
	char **v;
	int r;

	/* Each word costs four bytes at least: a small message cannot ask for a big vector. */
	if (c->failed || n > max || n > c->left / 4)
		return -EPROTO;
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	*ret = v;
	for (size_t i = 0; i < n; i++) {
		r = get_word(c, ENV_VALUE_MAX, &v[i]);
		if (r < 0)
			return r;
		if (env && !env_word(v[i], strlen(v[i])))
			return -EPROTO;
	}
	return 0;
}

int gm_exec_get(struct view p, struct gm_exec *ret)
{
	struct cursor c;
	int r;

	*ret = (struct gm_exec){0};
	cursor_init(&c, p.p, p.n);
	ret->id = cursor_u32(&c);
	ret->flags = cursor_u32(&c);
	ret->rows = cursor_u32(&c);
	ret->cols = cursor_u32(&c);
	r = get_word(&c, CWD_MAX, &ret->cwd);
	if (r < 0)
		return r;
	r = get_words(&c, ARGV_MAX, false, &ret->argv);
	if (r < 0)
		return r;
	r = get_words(&c, ENV_MAX, true, &ret->env);
	if (r < 0)
		return r;
	if (!cursor_end(&c) || !ret->argv[0] || ret->cwd[0] != '/' || (ret->flags & ~GX_TTY) ||
	    ret->rows > WINSIZE_MAX || ret->cols > WINSIZE_MAX)
		return -EPROTO;
	return 0;
}

void gm_exec_done(struct gm_exec *m)
{
	free(m->cwd);
	strv_free(m->argv);
	strv_free(m->env);
	*m = (struct gm_exec){0};
}

static bool signal_fits(const struct gm_signal *m)
{
	return m->signo >= 1 && m->signo <= SIGNO_MAX;
}

int gm_signal_put(struct buf *b, const struct gm_signal *m)
{
	if (!signal_fits(m))
		return -EINVAL;
	(void)buf_u32(b, m->id);
	return buf_u32(b, m->signo);
}

int gm_signal_get(struct view p, struct gm_signal *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct gm_signal){.id = cursor_u32(&c)};
	ret->signo = cursor_u32(&c);
	return cursor_end(&c) && signal_fits(ret) ? 0 : -EPROTO;
}

static bool winsize_fits(const struct gm_winsize *m)
{
	return m->rows <= WINSIZE_MAX && m->cols <= WINSIZE_MAX;
}

int gm_winsize_put(struct buf *b, const struct gm_winsize *m)
{
	if (!winsize_fits(m))
		return -EINVAL;
	(void)buf_u32(b, m->id);
	(void)buf_u32(b, m->rows);
	return buf_u32(b, m->cols);
}

int gm_winsize_get(struct view p, struct gm_winsize *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct gm_winsize){.id = cursor_u32(&c)};
	ret->rows = cursor_u32(&c);
	ret->cols = cursor_u32(&c);
	return cursor_end(&c) && winsize_fits(ret) ? 0 : -EPROTO;
}

/* The step is shown to a person as it is: printable ASCII, one word or more, short. */
static bool step_fits(const char *p, size_t n)
{
	if (n == 0 || n >= GM_STEP_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (p[i] < ' ' || p[i] > '~')
			return false;
	return true;
}

int gm_failed_put(struct buf *b, const struct gm_failed *m)
{
	size_t n = strnlen(m->step, GM_STEP_MAX);

	if (!step_fits(m->step, n) || m->error == 0 || m->error > ERRNO_MAX)
		return -EINVAL;
	(void)buf_u32(b, m->id);
	(void)buf_u32(b, m->error);
	return buf_bytes(b, m->step, n);
}

int gm_failed_get(struct view p, struct gm_failed *ret)
{
	struct cursor c;
	struct view step;

	cursor_init(&c, p.p, p.n);
	*ret = (struct gm_failed){.id = cursor_u32(&c)};
	ret->error = cursor_u32(&c);
	step = cursor_bytes(&c, GM_STEP_MAX - 1);
	if (!cursor_end(&c) || !step_fits(step.p, step.n) || ret->error == 0 ||
	    ret->error > ERRNO_MAX)
		return -EPROTO;
	memcpy(ret->step, step.p, step.n);
	return 0;
}

static bool exited_fits(const struct gm_exited *m)
{
	return m->code <= 255 && m->signo <= SIGNO_MAX && (!m->signo || !m->code);
}

int gm_exited_put(struct buf *b, const struct gm_exited *m)
{
	if (!exited_fits(m))
		return -EINVAL;
	(void)buf_u32(b, m->id);
	(void)buf_u32(b, m->code);
	(void)buf_u32(b, m->signo);
	(void)buf_u32(b, m->leftovers);
	(void)buf_u64(b, m->cpu_ns);
	return buf_u64(b, m->maxrss_kib);
}

int gm_exited_get(struct view p, struct gm_exited *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct gm_exited){.id = cursor_u32(&c)};
	ret->code = cursor_u32(&c);
	ret->signo = cursor_u32(&c);
	ret->leftovers = cursor_u32(&c);
	ret->cpu_ns = cursor_u64(&c);
	ret->maxrss_kib = cursor_u64(&c);
	return cursor_end(&c) && exited_fits(ret) ? 0 : -EPROTO;
}

int gm_packed_put(struct buf *b, const struct gm_packed *m)
{
	if (m->error > ERRNO_MAX)
		return -EINVAL;
	(void)buf_u32(b, m->id);
	(void)buf_u32(b, m->error);
	(void)buf_u64(b, m->members);
	(void)buf_u64(b, m->unreadable);
	(void)buf_u64(b, m->shrunk);
	return buf_u64(b, m->left_out);
}

int gm_packed_get(struct view p, struct gm_packed *ret)
{
	struct cursor c;

	cursor_init(&c, p.p, p.n);
	*ret = (struct gm_packed){.id = cursor_u32(&c)};
	ret->error = cursor_u32(&c);
	ret->members = cursor_u64(&c);
	ret->unreadable = cursor_u64(&c);
	ret->shrunk = cursor_u64(&c);
	ret->left_out = cursor_u64(&c);
	return cursor_end(&c) && ret->error <= ERRNO_MAX ? 0 : -EPROTO;
}
