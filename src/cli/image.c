/* image: the store of system images. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "engine/images.h"
#include "engine/interrupt.h"
#include "wire/jsonmember.h"

enum { I_HELP = 0, I_NAME, I_REF, I_JSON, I_WITHOUT };

const struct opt opts_image[] = {
    {"name", 0, "NAME", "import: a name for it; moves one that exists", I_NAME},
    {"ref", 0, "NAME", "import: which image of an OCI layout with several", I_REF},
    {"without", 0, "landlock", "import: read the archive without this layer of confinement",
     I_WITHOUT},
    {"json", 0, NULL, "import, list, show, verify: as JSON", I_JSON},
    {NULL, 0, NULL, NULL, 0},
};
static const struct opt *const tables[] = {opts_image, opts_help, NULL};

struct words {
	char *name, *ref; /* owned */
	bool json, help, without_landlock;
};

static int set(void *arg, const struct opt *o, const char *value, struct err *e)
{
	struct words *w = arg;
	char **to = o->id == I_NAME ? &w->name : o->id == I_REF ? &w->ref : NULL;

	w->json |= o->id == I_JSON;
	w->help |= o->id == I_HELP;
	if (o->id == I_WITHOUT) {
		if (strcmp(value, "landlock") != 0)
			return err_set(e, ERR_USAGE,
				       "--without %.60s: only landlock can be left out", value);
		w->without_landlock = true;
	}
	if (!to)
		return 0;
	free(*to);
	*to = strdup(value);
	return *to ? 0 : err_set(e, ERR_NOMEM, "options: out of memory");
}

static int print_json(json_t *j, struct err *e)
{
	char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;

	if (text)
		(void)puts(text);
	free(text);
	return text ? 0 : err_set(e, ERR_NOMEM, "image: out of memory");
}

static void size_of(const json_t *j, char out[16])
{
	str_human_size((uint64_t)json_integer_value(json_object_get(j, "bytes")), out, 16);
}

/* Names with a comma between. */
static void names_of(const json_t *j, struct buf *b)
{
	const json_t *n;
	size_t i;

	json_array_foreach(json_object_get(j, "names"), i, n)(void)
	    buf_putf(b, "%s%s", i ? "," : "", json_string_value(n));
}

/* --- import ------------------------------------------------------------------------------- */

static int open_source(const char *word, struct image_source *s, struct err *e)
{
	struct stat st;

	if (strcmp(word, "-") == 0) {
		s->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		if (s->fd >= 0 && isatty(s->fd))
			return err_set(
			    e, ERR_USAGE,
			    "standard input is a terminal: 'airlock image import - < FILE'");
	} else {
		s->fd = open(word, O_RDONLY | O_CLOEXEC);
	}
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return err_sys(e, errno, "open %s", word);
	s->directory = S_ISDIR(st.st_mode);
	return 0;
}

static int import(struct state *st, struct words *w, char *const *v, struct err *e)
{
	struct image_import i = {.name = w->name,
				 .source = {.fd = -1,
					    .ref = w->ref,
					    .without_landlock = w->without_landlock,
					    .cancel = interrupt_first()}};
	struct image_facts f;
	char size[16];
	json_t *j;
	int r;

	if (strlen(w->ref ? w->ref : "") > 255)
		return err_set(e, ERR_USAGE, "--ref: over 255 bytes");
	if (interrupt_setup(e) < 0 || open_source(v[0], &i.source, e) < 0) {
		cleanup_fd(&i.source.fd);
		return -EINVAL;
	}
	r = images_import(st, &i, &f, e);
	cleanup_fd(&i.source.fd);
	if (r < 0)
		return err_wrap(e, r, "import %s", v[0]);
	if (w->json) {
		j = images_get(st, f.digest, e);
		r = j ? print_json(j, e) : -EIO;
		json_decref(j);
		return r;
	}
	str_human_size(f.bytes, size, sizeof(size));
	(void)printf(IMAGE_WORD "%s\n", f.digest);
	cli_say("%s: %llu files, %s%s", r ? "the store has it already" : "imported",
		(unsigned long long)f.files, size, f.layers ? ", of an OCI image" : "");
	if (f.specials)
		cli_say("%llu devices, FIFOs and sockets were left out: a sandbox has its own /dev",
			(unsigned long long)f.specials);
	if (f.privileged)
		cli_say(
		    "%llu set-uid and set-gid bits were taken away: they have no effect in a sandbox",
		    (unsigned long long)f.privileged);
	return 0;
}

/* --- others ------------------------------------------------------------------------------- */

static int list(struct state *st, struct words *w, char *const *v, struct err *e)
{
	json_t *all = images_list(st, e), *j;
	size_t i;
	int r = 0;

	(void)v;
	if (!all)
		return -EIO;
	if (w->json) {
		r = print_json(all, e);
	} else {
		(void)printf("%-19s  %-5s  %10s  %8s  %s\n", "DIGEST", "ARCH", "SIZE", "FILES",
			     "NAMES");
		json_array_foreach(all, i, j)
		{
			_cleanup_buf_ struct buf b = BUF_INIT(65536);
			char size[16];

			size_of(j, size);
			names_of(j, &b);
			(void)printf(
			    "%.19s  %-5s  %10s  %8lld  %s\n", json_member_text(j, "digest"),
			    json_member_text(j, "arch")[0] ? json_member_text(j, "arch") : "-",
			    size, (long long)json_integer_value(json_object_get(j, "files")),
			    buf_text(&b));
		}
	}
	json_decref(all);
	return r;
}

static void show_text(const json_t *j)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	static const char *const numbers[] = {"files",	"directories",	  "links",
					      "layers", "leftOutSpecial", "takenAwaySetId"};
	char size[16];

	size_of(j, size);
	names_of(j, &b);
	(void)printf("%-15s %s\n", "digest", json_member_text(j, "digest"));
	(void)printf("%-15s %s\n", "names", b.len ? buf_text(&b) : "-");
	(void)printf("%-15s %s\n", "OCI manifest",
		     json_member_text(j, "source")[0] ? json_member_text(j, "source") : "-");
	(void)printf("%-15s %s\n", "architecture",
		     json_member_text(j, "arch")[0] ? json_member_text(j, "arch") : "not said");
	(void)printf("%-15s %s\n", "size", size);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		(void)printf("%-15s %lld\n", numbers[i],
			     (long long)json_integer_value(json_object_get(j, numbers[i])));
}

static int show(struct state *st, struct words *w, char *const *v, struct err *e)
{
	char digest[IMAGE_HEX + 1];
	int r = images_find(st, v[0], digest, e);
	json_t *j = r == 0 ? images_get(st, digest, e) : NULL;

	if (!j)
		return r < 0 ? r : -ENOENT;
	if (w->json)
		r = print_json(j, e);
	else
		show_text(j);
	json_decref(j);
	return r;
}

static int verify(struct state *st, struct words *w, char *const *v, struct err *e)
{
	char digest[IMAGE_HEX + 1];
	struct image_facts f;
	json_t *j;
	int r = images_find(st, v[0], digest, e);

	if (r == 0)
		r = images_verify(st, digest, &f, e);
	if (r < 0)
		return r;
	if (!w->json) {
		(void)printf(IMAGE_WORD "%s\n", digest);
		cli_say("its contents are what they were");
		return 0;
	}
	j = images_get(st, digest, e);
	r = j ? print_json(j, e) : -EIO;
	json_decref(j);
	return r;
}

static int name(struct state *st, struct words *w, char *const *v, struct err *e)
{
	char digest[IMAGE_HEX + 1];
	int r = images_find(st, v[0], digest, e);

	(void)w;
	return r == 0 ? images_rename(st, v[1], digest, e) : r;
}

static int rm(struct state *st, struct words *w, char *const *v, struct err *e)
{
	char digest[IMAGE_HEX + 1];
	int r = images_find(st, v[0], digest, e);

	(void)w;
	if (r == 0)
		r = images_remove(st, digest, e);
	if (r == 0)
		cli_say("image " IMAGE_WORD "%s is gone", digest);
	return r;
}

static const struct {
	const char *word;
	int (*run)(struct state *st, struct words *w, char *const *v, struct err *e);
	size_t args;
} actions[] = {{"import", import, 1}, {"list", list, 0}, {"show", show, 1},
	       {"verify", verify, 1}, {"name", name, 2}, {"rm", rm, 1}};

static int act(struct words *w, char *const *v, struct err *e)
{
	_cleanup_state_ struct state st = {0};
	size_t n = strv_len(v), i = 0;
	int r;

	while (n && i < ARRAY_LEN(actions) && strcmp(actions[i].word, v[0]) != 0)
		i++;
	if (!n || i == ARRAY_LEN(actions))
		return err_set(
		    e, ERR_USAGE,
		    "image: say import, list, show, verify, name or rm: 'airlock help image' explains them");
	if (n != actions[i].args + 1)
		return err_set(e, ERR_USAGE, "image %s takes %zu words: 'airlock help image'", v[0],
			       actions[i].args);
	if ((w->name || w->ref || w->without_landlock) && actions[i].run != import)
		return err_set(e, ERR_USAGE, "--name, --ref and --without belong to image import");
	r = state_open(&st, e);
	/* What was killed goes first: its space may be what an import needs. */
	if (r == 0)
		r = images_recover(&st, e);
	return r < 0 ? r : actions[i].run(&st, w, v + 1, e);
}

int cmd_image(int argc, char **argv)
{
	struct words w = {0};
	struct opt_parse p = {
	    .tables = tables, .verb = argv[0], .permute = true, .set = set, .arg = &w};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && w.help)
		r = cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	else if (r == 0)
		r = act(&w, p.words, &e);
	strv_free(p.words);
	free(w.name);
	free(w.ref);
	return r < 0 ? cli_fail(&e) : r;
}
