#include "cli/runwords.h"

#include <stdint.h>

#include "base/str.h"
#include "cli/cli.h"

static int set_flag(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)value;
	(void)e;
	((struct runwords *)arg)->on |= 1u << o->id;
	return 0;
}

bool runwords_parse(struct runwords *f, const struct opt *const *tables, int argc, char **argv,
		    const char *want, int *status)
{
	struct opt_parse p = {
	    .tables = tables, .verb = argv[0], .permute = true, .set = set_flag, .arg = f};
	struct err e = ERR_INIT;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);
	size_t n = strv_len(p.words);

	f->words = p.words;
	if (r == 0 && runwords_has(f, 0)) {
		*status = cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
		return false;
	}
	if (r == 0 && want && n != 1)
		r = err_set(&e, ERR_USAGE, "%s needs one %s: 'airlock help %s'", argv[0], want,
			    argv[0]);
	if (r == 0 && !want && n)
		r = err_set(&e, ERR_USAGE, "%s takes no word %.80s", argv[0], p.words[0]);
	if (r < 0)
		*status = cli_fail(&e);
	return r == 0;
}

int runwords_find(const struct runwords *f, struct state *st, struct run_row *ret, struct err *e)
{
	int r = state_open(st, e);

	return r < 0 ? r : run_find(st->store, f->words[0], ret, e);
}

void runwords_done(struct runwords *f)
{
	strv_free(f->words);
}
