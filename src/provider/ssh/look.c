#include "provider/ssh/look.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "os/process.h"
#include "provider/ssh/explain.h"
#include "provider/ssh/reach.h"
#include "wire/remote.h"

#define NONCE 16 /* bytes */
#define LINE_MAX_SHOWN 400

struct hearing {
	struct buf all;
	char mark[2 * NONCE + 16];
	int64_t began_ns, spoke_ns, spoke_real_ns;
	struct process *proc;
	int64_t all_ns; /* deadline once it has spoken */
};

void ssh_said_done(struct ssh_said *s)
{
	buf_done(&s->lines);
}

static int hear(void *arg, const char *p, size_t n)
{
	struct hearing *h = arg;
	int r = buf_put(&h->all, p, n);

	if (r == 0 && !h->spoke_ns && memmem(h->all.data, h->all.len, h->mark, strlen(h->mark))) {
		h->spoke_ns = clock_mono_ns();
		h->spoke_real_ns = clock_real_ns();
		h->proc->deadline_ns = h->all_ns;
	}
	return r;
}

static void show_noise(struct ssh_said *s, const char *p, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	s->noise += n;
	if (s->shown[0] || n == 0)
		return;
	(void)str_printable(&b, p, n < 60 ? n : 60);
	(void)snprintf(s->shown, sizeof(s->shown), "%s", buf_text(&b));
}

/* Ours without the mark; the rest is noise. */
static void sort(const struct hearing *h, struct ssh_said *s)
{
	const char *p = h->all.data, *end;
	size_t left = h->all.len, k = strlen(h->mark);

	for (; left; left -= (size_t)(end - p), p = end) {
		const char *nl = memchr(p, '\n', left);
		size_t n = nl ? (size_t)(nl - p) : left;

		end = p + n + (nl != NULL);
		if (n < k || memcmp(p, h->mark, k) != 0) {
			show_noise(s, p, n);
			continue;
		}
		n -= k;
		s->done |= n == 4 && memcmp(p + k, "done", 4) == 0;
		(void)str_printable(&s->lines, p + k, n < LINE_MAX_SHOWN ? n : LINE_MAX_SHOWN);
		(void)buf_putc(&s->lines, '\n');
	}
}

/* "hello <seconds>": taken when the line came, so the way back is in it. */
static void read_clock(const struct hearing *h, struct ssh_said *s)
{
	_cleanup_free_ char *text = ssh_said_get(s, "hello");
	uint64_t t;

	if (!text || str_to_u64(text, INT64_MAX / NS_PER_S, &t) < 0)
		return;
	s->clock = true;
	s->ahead_ns = (int64_t)t * NS_PER_S - h->spoke_real_ns / NS_PER_S * NS_PER_S;
}

static int not_heard(const struct ssh_look *o, const struct hearing *h, const char *tail, int r,
		     struct err *e)
{
	_cleanup_free_ char *said = NULL;

	if (r == -ECANCELED)
		return r;
	if (r == -ETIMEDOUT && o->reach_ns)
		return reach_failed(o->target->label, o->reach_ns, e);
	/* It is too much, too slow, or over. */
	if (r == -ETIMEDOUT && !tail[0])
		return err_set(
		    e, ERR_TIMEOUT,
		    "ssh %s: connecting, the login and its start files took longer than %d s: a machine or "
		    "network that is slow, or start files that wait for something",
		    o->target->label, o->timeout_ms / 1000);
	/* What the shell printed instead, if ssh itself has nothing to say. */
	if (!tail[0] && h->all.len)
		said =
		    strndup(h->all.data, h->all.len < LINE_MAX_SHOWN ? h->all.len : LINE_MAX_SHOWN);
	return ssh_explain(o->target,
			   r == -ETIMEDOUT ? LINK_SILENT
			   : r == -E2BIG   ? LINK_NOISE
					   : LINK_NO_SHELL,
			   said ? said : tail, false, e);
}

static int make_command(const struct ssh_look *o, char **ret)
{
	return asprintf(ret,
			"exec /bin/sh -c '"
			"read -r n || exit 97; s() { echo \"airlock $n $*\"; }; "
			"echo; s hello \"$(date +%%s 2>/dev/null)\"; %s; s done'",
			o->script) < 0
		   ? -ENOMEM
		   : 0;
}

int ssh_look(const struct ssh_look *o, struct ssh_said *ret, struct err *e)
{
	_cleanup_strv_ char **argv = NULL, **env = NULL;
	_cleanup_free_ char *command = NULL, *input = NULL;
	struct hearing h = {.all = BUF_INIT(REMOTE_NOISE_MAX)};
	char nonce[2 * NONCE + 1];
	unsigned char raw[NONCE];
	struct process_opts p = PROCESS_OPTS_INIT;
	struct process proc = {.tail = ""};
	struct err pe = ERR_INIT;
	int r;

	*ret = (struct ssh_said){.lines = BUF_INIT((size_t)4 * REMOTE_NOISE_MAX), .status = -1};
	randombytes_buf(raw, sizeof(raw));
	(void)sodium_bin2hex(nonce, sizeof(nonce), raw, sizeof(raw));
	(void)snprintf(h.mark, sizeof(h.mark), "airlock %s ", nonce);
	if (make_command(o, &command) < 0 ||
	    asprintf(&input, "%s\n%s", nonce, o->input ? o->input : "") < 0)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	r = ssh_target_argv(o->target, NULL, command, &argv, e);
	if (r == 0)
		r = ssh_target_env(&env, e);
	if (r < 0)
		return r;
	p.argv = (const char *const *)argv;
	p.envp = (const char *const *)env;
	p.cwd_fd = -1;
	p.in = input;
	p.in_len = strlen(input);
	p.on_out = hear;
	p.on_out_arg = &h;
	p.timeout_ms = o->timeout_ms;
	p.cancel = o->cancel;
	p.session = true;
	h.began_ns = clock_mono_ns();
	h.all_ns = h.began_ns + o->timeout_ms * NS_PER_MS;
	h.proc = &proc;
	r = process_start(&proc, &p, &pe);
	if (r == 0 && o->reach_ns)
		proc.deadline_ns = h.began_ns + o->reach_ns;
	if (r == 0)
		r = process_wait(&proc, &p, &ret->status, &pe);
	if (r == -ENOENT)
		r = err_set(e, ERR_UNAVAILABLE,
			    "there is no program ssh in PATH: install openssh-client");
	else if (!h.spoke_ns)
		r = not_heard(o, &h, proc.tail, r, r == -ECANCELED ? &pe : e);
	else
		r = r == -ECANCELED ? r : 0;
	if (r == -ECANCELED)
		*e = pe;
	if (r == 0) {
		ret->login_ns = h.spoke_ns - h.began_ns;
		sort(&h, ret);
		read_clock(&h, ret);
	}
	buf_done(&h.all);
	return r;
}

char *ssh_said_get(const struct ssh_said *s, const char *word)
{
	size_t k = strlen(word);

	for (const char *p = s->lines.len ? buf_text(&s->lines) : ""; *p;) {
		size_t n = strcspn(p, "\n");

		if (n > k && memcmp(p, word, k) == 0 && p[k] == ' ')
			return strndup(p + k + 1, n - k - 1);
		p += n + (p[n] == '\n');
	}
	return NULL;
}
