#include "cli/ui.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"

#define SHOW_AFTER_NS (300 * NS_PER_MS)
#define PLAIN_AFTER_NS NS_PER_S
#define BAR 24
#define WORD_MAX 60

static void wipe(struct ui *u)
{
	if (u->drawn)
		(void)fputs("\r\033[K", stderr);
	u->drawn = false;
}

static void note(void *arg, bool warn, const char *text)
{
	struct ui *u = arg;

	(void)warn;
	wipe(u);
	if (!u->quiet)
		cli_say("%s%s", text, u->raw ? "\r" : "");
}

static const char *title(const char *phase)
{
	/* As sync_in.c, layer.c and unpack.c name them. */
	if (strcmp(phase, "scan") == 0)
		return "looking through the workspace";
	if (strcmp(phase, "copy") == 0)
		return "copying the workspace in";
	if (strcmp(phase, "sync out") == 0)
		return "bringing results back";
	return phase;
}

static void draw(struct ui *u, uint64_t done, uint64_t total, uint64_t bytes)
{
	char bar[BAR + 1], size[16];

	str_human_size(bytes, size, sizeof(size));
	if (total) {
		size_t fill = (size_t)(done >= total ? BAR : done * BAR / total);

		memset(bar, '.', BAR);
		memset(bar, '#', fill);
		bar[BAR] = '\0';
		(void)fprintf(stderr, "\r\033[Kairlock: %s [%s] %llu/%llu %s", title(u->phase), bar,
			      (unsigned long long)done, (unsigned long long)total, size);
	} else {
		(void)fprintf(stderr, "\r\033[Kairlock: %s: %llu %s", title(u->phase),
			      (unsigned long long)done, size);
	}
	(void)fflush(stderr);
	u->drawn = true;
}

static void progress(void *arg, const char *phase, uint64_t done, uint64_t total, uint64_t bytes)
{
	struct ui *u = arg;
	int64_t now = clock_mono_ns();

	if (strcmp(u->phase, phase) != 0) {
		(void)snprintf(u->phase, sizeof(u->phase), "%s", phase);
		if (!u->began_ns)
			u->began_ns = now;
	}
	u->done = done;
	u->bytes = bytes;
	if (u->tty && !u->quiet && now - u->began_ns >= SHOW_AFTER_NS)
		draw(u, done, total, bytes);
}

static void progress_end(void *arg)
{
	struct ui *u = arg;
	int64_t took = u->began_ns ? clock_mono_ns() - u->began_ns : 0;
	char t[32], size[16];

	wipe(u);
	if (!u->quiet && !u->tty && took >= PLAIN_AFTER_NS) {
		clock_human(took, t, sizeof(t));
		str_human_size(u->bytes, size, sizeof(size));
		cli_say("%s: %llu entries, %s, %s", title(u->phase), (unsigned long long)u->done,
			size, t);
	}
	u->phase[0] = '\0';
	u->began_ns = 0;
	u->done = u->bytes = 0;
}

static void terminal(void *arg, bool raw)
{
	struct ui *u = arg;
	struct termios t;

	if (raw == u->raw || !isatty(STDIN_FILENO))
		return;
	if (!raw) {
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &u->saved);
		u->raw = false;
		return;
	}
	if (tcgetattr(STDIN_FILENO, &u->saved) < 0)
		return;
	t = u->saved;
	cfmakeraw(&t);
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0)
		u->raw = true;
}

void ui_init(struct ui *u, bool quiet, bool json_on_stdout)
{
	*u = (struct ui){.quiet = quiet, .tty = isatty(STDERR_FILENO) == 1};
	u->run = (struct run_ui){
	    .arg = u,
	    .note = note,
	    .progress = progress,
	    .progress_end = progress_end,
	    .terminal = terminal,
	    .in = STDIN_FILENO,
	    .out = json_on_stdout ? STDERR_FILENO : STDOUT_FILENO,
	    .err = STDERR_FILENO,
	};
}

void ui_done(struct ui *u)
{
	wipe(u);
	terminal(u, false);
}

/* Whole characters of at most WORD_MAX bytes, as the store has them: printable. What is cut off shows as dots. */
static void print_word(const char *s)
{
	size_t len = strlen(s), n = 0, k;

	while (n < len && (k = str_printable_len(s + n, len - n)) > 0 && n + k <= WORD_MAX)
		n += k;
	(void)printf("%.*s%s", (int)n, s, n < len ? "..." : "");
}

void ui_print_command(const char *json)
{
	json_t *argv = json_loads(json ? json : "[]", 0, NULL), *w;
	size_t i = 0;

	json_array_foreach(argv, i, w)
	{
		if (i)
			(void)putchar(' ');
		print_word(json_is_string(w) ? json_string_value(w) : "");
	}
	(void)puts(i ? "" : "(shell)");
	json_decref(argv);
}

void ui_print_name(const char *s)
{
	struct buf b = BUF_INIT((size_t)1 << 20);

	(void)str_printable(&b, s, strlen(s));
	(void)fputs(buf_text(&b), stdout);
	buf_done(&b);
}
