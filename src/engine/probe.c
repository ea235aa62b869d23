#include "engine/probe.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "engine/command.h"
#include "engine/interrupt.h"
#include "engine/runenv.h"

#define ANSWER_MAX 65536

/* Names come as arguments, so no quoting is needed. Each missing thing is one line. */
static const char script[] =
    "command -v tar >/dev/null || echo 'need tar'\n"
    "for d in \"$PWD\" \"$HOME\" \"${XDG_CACHE_HOME:-$HOME}\" \"${TMPDIR:-/tmp}\"; do\n"
    "  [ -d \"$d\" ] || mkdir -p \"$d\" 2>/dev/null\n"
    "  [ -w \"$d\" ] || echo \"dir $d\"\n"
    "done\n"
    "for c do command -v \"$c\" >/dev/null || echo \"cli $c\"; done\n"
    "echo done\n";

/* A CLI that is on the host but not in the sandbox: the bind that would bring it in. */
static void host_hint(const char *cli, struct buf *b)
{
	static const char *const more[] = {"/.local/bin", "/.npm-global/bin", "/bin", "/.bun/bin",
					   "/.cargo/bin"};
	const char *path = getenv("PATH"), *home = getenv("HOME");
	_cleanup_strv_ char **dirs = NULL;

	if (strchr(cli, '/'))
		return;
	for (const char *p = path; p && *p;) {
		size_t n = strcspn(p, ":");
		_cleanup_free_ char *d = strndup(p, n);

		if (d && d[0] == '/')
			(void)strv_add(&dirs, d);
		p += n + (p[n] == ':');
	}
	for (size_t i = 0; home && i < ARRAY_LEN(more); i++) {
		_cleanup_free_ char *d = path_join(home, more[i] + 1);

		if (d)
			(void)strv_add(&dirs, d);
	}
	for (size_t i = 0; dirs && dirs[i]; i++) {
		_cleanup_free_ char *f = path_join(dirs[i], cli);
		_cleanup_free_ char *real = NULL;
		struct stat st;
		size_t n;

		if (!f || access(f, X_OK) < 0 || stat(f, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		/* An npm prefix has the program in bin/ and the rest beside it: the whole prefix is needed. */
		n = strlen(dirs[i]);
		if (n > 4 && strcmp(dirs[i] + n - 4, "/bin") == 0)
			n -= 4;
		real = realpath(f, NULL);
		(void)buf_putf(b, "; on this host it is %s: add --bind-ro %.*s", f, (int)n,
			       dirs[i]);
		if (real && strncmp(real, dirs[i], n) != 0) {
			char *slash = strrchr(real, '/');

			*slash = '\0';
			(void)buf_putf(b, " --bind-ro %s", real);
		}
		return;
	}
}

static int ask(const struct probe_ctx *c, struct buf *out, struct err *e)
{
	_cleanup_strv_ char **argv = NULL;
	struct command_result res;
	struct command_opts o = {.env = c->env,
				 .cwd = c->cwd,
				 .io = {.in = -1, .out = -1, .err = -1, .capture_out = out},
				 .timeout_ns = PROBE_TIMEOUT_MS * NS_PER_MS,
				 .interruptible = true};
	int r = 0;

	r = strv_add(&argv, c->q->bash ? "bash" : "sh");
	if (r == 0)
		r = strv_add(&argv, "-c");
	if (r == 0)
		r = strv_add(&argv, script);
	if (r == 0)
		r = strv_add(&argv, "probe");
	for (size_t i = 0; r == 0 && i < strv_len(c->q->clis); i++)
		r = strv_add(&argv, c->q->clis[i]);
	if (r < 0)
		return err_set(e, ERR_NOMEM, "probe: out of memory");
	o.argv = argv;
	r = command_run(c->sb, &o, &res, e);
	if (r < 0)
		return r;
	if (res.end == END_STOPPED || res.end == END_ABANDONED)
		return err_set(e, ERR_CANCELLED, "stopped while the sandbox was being probed");
	if (res.end == END_FAILED)
		return err_set(
		    e, ERR_NOT_FOUND,
		    "%s cannot be started in environment %s (%s: %s): the environment must supply it",
		    argv[0], c->q->env_name, res.step, strerror(res.sys));
	if (res.end == END_TIMEOUT)
		return err_set(
		    e, ERR_TIMEOUT,
		    "limit probe: %d s passed while looking for tools in environment %s (built-in, "
		    "PROBE_TIMEOUT_MS)",
		    PROBE_TIMEOUT_MS / 1000, c->q->env_name);
	if (!strstr(buf_text(out), "done\n"))
		return err_set(e, ERR_UNAVAILABLE,
			       "the probe in environment %s gave no whole answer (status %d)",
			       c->q->env_name, command_status(&res));
	return 0;
}

/* A program that an install put where PATH does not look (FR-B068). */
static void find_stray(const struct probe_ctx *c, const char *cli, struct buf *b)
{
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	char *argv[] = {
	    (char *)(uintptr_t) "sh",
	    (char *)(uintptr_t) "-c",
	    (char *)(uintptr_t) "find \"$HOME\" /opt /usr/local -maxdepth 6 -name \"$1\" "
				"-perm -100 ! -type d 2>/dev/null | head -n 1",
	    (char *)(uintptr_t) "find",
	    (char *)(uintptr_t)cli,
	    NULL};
	struct command_opts o = {.argv = argv,
				 .env = c->env,
				 .cwd = "/",
				 .io = {.in = -1, .out = -1, .err = -1, .capture_out = &out},
				 .timeout_ns = PROBE_TIMEOUT_MS * NS_PER_MS};
	struct command_result res;

	if (command_run(c->sb, &o, &res, NULL) < 0 || !out.len)
		return;
	(void)buf_puts(b, "; it is installed but not on PATH: ");
	(void)str_printable(b, out.data, strcspn(buf_text(&out), "\n"));
	(void)buf_puts(b, " (set it with --setenv PATH=...)");
}

int probe_run(const struct probe_ctx *c, bool *missing_cli, struct err *e)
{
	_cleanup_buf_ struct buf out = BUF_INIT(ANSWER_MAX);
	_cleanup_buf_ struct buf text = BUF_INIT(ANSWER_MAX);
	bool other = false, cli = false;
	int r = ask(c, &out, e);

	*missing_cli = false;
	if (r < 0)
		return r;
	for (const char *p = buf_text(&out); *p;) {
		size_t n = strcspn(p, "\n");

		if (str_starts(p, "need ") || str_starts(p, "dir ")) {
			other = true;
			(void)buf_puts(&text, str_starts(p, "dir ") ? "; not writable: "
								    : "; not found: ");
			(void)str_printable(&text, strchr(p, ' ') + 1, n - strcspn(p, " ") - 1);
		}
		p += n + (p[n] == '\n');
	}
	for (size_t i = 0; i < strv_len(c->q->clis); i++) {
		_cleanup_buf_ struct buf line = BUF_INIT(4096);

		(void)buf_putf(&line, "cli %s\n", c->q->clis[i]);
		if (!strstr(buf_text(&out), buf_text(&line)))
			continue;
		cli = true;
		(void)buf_putf(&text, "; not found: %s", c->q->clis[i]);
		find_stray(c, c->q->clis[i], &text);
		if (c->q->provider->isolates)
			host_hint(c->q->clis[i], &text);
	}
	if (!cli && !other)
		return 0;
	*missing_cli = cli && !other;
	return err_set(
	    e, ERR_NOT_FOUND,
	    "environment %s lacks what the run needs%s (user %s, looked with 'command -v' on PATH=%s; "
	    "change it with --setenv PATH=... or --bind-ro)",
	    c->q->env_name, buf_text(&text),
	    c->q->provider->isolates	? "agent"
	    : c->q->provider->elsewhere ? "as ssh logs in"
					: "as you",
	    runenv_path(c->env)[0] ? runenv_path(c->env) : "(the login's own there)");
}

static void say(const struct probe_ctx *c, const char *text)
{
	if (c->log)
		runlog_note(c->log, clock_real_ns(), text);
	if (c->ui->note)
		c->ui->note(c->ui->arg, true, text);
}

int probe_install(const struct probe_ctx *c, struct err *e)
{
	char *argv[] = {(char *)(uintptr_t)(c->q->bash ? "bash" : "sh"), (char *)(uintptr_t) "-c",
			c->q->install, NULL};
	struct command_opts o = {
	    .argv = argv,
	    .env = c->env,
	    .cwd = c->cwd,
	    .io = {.log = c->log, .in = -1, .out = c->ui->err, .err = c->ui->err},
	    .timeout_ns = INSTALL_TIMEOUT_MS * NS_PER_MS,
	    .interruptible = true};
	struct command_result res;
	struct err ie = ERR_INIT;
	char text[256];
	int r = command_run(c->sb, &o, &res, &ie);

	if (r < 0) {
		say(c, ie.text);
		return 0;
	}
	/* One that was over before it could be stopped has been stopped all the same. */
	if (res.end == END_STOPPED || res.end == END_ABANDONED || *interrupt_first())
		return err_set(e, ERR_CANCELLED, "stopped during the install command");
	if (res.end == END_TIMEOUT)
		(void)snprintf(
		    text, sizeof(text),
		    "limit install: ended after %d s (built-in, INSTALL_TIMEOUT_MS); going on",
		    INSTALL_TIMEOUT_MS / 1000);
	else if (res.end == END_EXITED && res.code == 0)
		(void)snprintf(text, sizeof(text), "install command succeeded");
	else
		(void)snprintf(text, sizeof(text),
			       "install command failed with status %d; going on",
			       command_status(&res));
	say(c, text);
	return 0;
}
