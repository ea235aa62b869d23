/* recover: brings back the work of a run that was cut short. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/summary.h"
#include "cli/ui.h"
#include "engine/interrupt.h"
#include "engine/recover.h"

static int help_wanted(void *arg, const struct opt *o, const char *value, struct err *e)
{
	(void)o;
	(void)value;
	(void)e;
	*(bool *)arg = true;
	return 0;
}

int cmd_recover(int argc, char **argv)
{
	static const struct opt *const tables[] = {opts_help, NULL};
	_cleanup_state_ struct state st = {0};
	_cleanup_free_ char *run_dir = NULL;
	bool help = false;
	struct opt_parse p = {
	    .tables = tables, .verb = "recover", .permute = true, .set = help_wanted, .arg = &help};
	struct transfer t = {0};
	struct err e = ERR_INIT;
	struct ui ui;
	int r = opt_parse(&p, argc - 1, argv + 1, &e);

	if (r == 0 && help) {
		strv_free(p.words);
		return cmd_help(2, (char *[]){(char *)(uintptr_t) "help", argv[0]});
	}
	if (r == 0 && strv_len(p.words) != 1)
		r = err_set(&e, ERR_USAGE, "recover needs one run: airlock recover RUN");
	ui_init(&ui, false, false);
	if (r == 0)
		r = interrupt_setup(&e);
	if (r == 0)
		r = state_open(&st, &e);
	if (r == 0)
		r = recover_run(&st, p.words[0], &ui.run, &t, &run_dir, &e);
	ui_done(&ui);
	summary_results(&t, run_dir ? run_dir : "");
	transfer_done(&t);
	if (r >= 0)
		cli_say("the work of run %s is back", p.words[0]);
	strv_free(p.words);
	return r < 0 ? cli_fail(&e) : 0;
}
