/* manifest: the baseline of a directory, for `airlock unpack --baseline`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/interrupt.h"
#include "sync/baseline.h"

enum id { O_OUTPUT = 1, O_QUIET };

const struct opt opts_manifest[] = {
    {"output", 'o', "FILE", "write it to FILE (whole or not at all) instead of standard output",
     O_OUTPUT},
    {"quiet", 'q', NULL, "do not name what is left out", O_QUIET},
    {NULL, 0, NULL, NULL, 0},
};

struct job {
	const char *output; /* borrowed from argv */
	bool quiet, help;
};

static int set(void *arg, const struct opt *opt, const char *v, struct err *e)
{
	struct job *j = arg;

	(void)e;
	if (opt->id == O_OUTPUT)
		j->output = v;
	else if (opt->id == O_QUIET)
		j->quiet = true;
	else
		j->help = true;
	return 0;
}

static void note(void *arg, const char *path, const char *reason)
{
	const struct job *j = arg;
	struct buf b = BUF_INIT(1 << 16);

	if (j->quiet)
		return;
	(void)str_printable(&b, path, strlen(path));
	cli_say("left out: %s (%s)", buf_text(&b), reason);
	buf_done(&b);
}

/* A new file beside the target; the caller renames or removes it. */
static int open_beside(const char *output, char **ret_tmp, struct err *e)
{
	struct stat st;
	int fd;

	if (stat(output, &st) == 0 && !S_ISREG(st.st_mode))
		return err_set(e, ERR_USAGE, "--output %.400s: not a regular file", output);
	if (asprintf(ret_tmp, "%s.%d.new", output, (int)getpid()) < 0) {
		*ret_tmp = NULL;
		return err_set(e, ERR_NOMEM, "out of memory");
	}
	fd = open(*ret_tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, errno, "--output %.400s", output) : fd;
}

static int write_it(const struct job *j, const char *dir, struct err *e)
{
	struct baseline_opts o = {
	    .note = note, .arg = (void *)(uintptr_t)j, .out_fd = STDOUT_FILENO, .tar_fd = -1};
	_cleanup_fd_ int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	_cleanup_free_ char *tmp = NULL;
	struct baseline_counts n;
	int r;

	if (root < 0)
		return err_set(e, ERR_USAGE, "%.400s: %s", dir, strerror(errno));
	o.root_fd = root;
	o.cancel = interrupt_first();
	if (j->output) {
		fd = open_beside(j->output, &tmp, e);
		if (fd < 0)
			return fd;
		o.out_fd = fd;
	}
	r = baseline_write(&o, &n, e);
	if (r == 0 && tmp && fsync(fd) < 0)
		r = err_sys(e, errno, "write %.400s", j->output);
	if (r == 0 && tmp && rename(tmp, j->output) < 0)
		r = err_sys(e, errno, "--output %.400s", j->output);
	if (r < 0 && tmp)
		(void)unlink(tmp);
	return r;
}

int cmd_manifest(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_manifest, opts_help, NULL};
	struct job j = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = "manifest", .permute = true, .set = set, .arg = &j};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && j.help) {
		strv_free(p.words);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0 && strv_len(p.words) != 1)
		r = err_set(&e, ERR_USAGE,
			    "manifest needs one directory: airlock manifest DIR [-o FILE]");
	if (r == 0 && !j.output && isatty(STDOUT_FILENO))
		r = err_set(&e, ERR_USAGE, "a manifest is no text to read: give --output FILE");
	if (r == 0)
		r = interrupt_setup(&e);
	if (r == 0)
		r = write_it(&j, p.words[0], &e);
	strv_free(p.words);
	if (r < 0) {
		cli_say("%s", e.text);
		return e.code == ERR_USAGE ? 2 : 4;
	}
	return 0;
}
