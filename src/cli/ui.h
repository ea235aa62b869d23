/* ui.h: what a person sees while a run goes on: notes, progress, the terminal's mode. */
#ifndef AIRLOCK_CLI_UI_H
#define AIRLOCK_CLI_UI_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "engine/ui.h"

struct ui {
	bool quiet;
	bool tty;   /* stderr is a terminal */
	bool drawn; /* a bar is on the screen */
	char phase[24];
	int64_t began_ns; /* of the phase */
	uint64_t done, bytes;
	bool raw;
	struct termios saved;
	struct run_ui run; /* handed to the engine */
};

/* json_on_stdout: stdout is for the record, the command's stdout goes to stderr. */
void ui_init(struct ui *u, bool quiet, bool json_on_stdout);
/* Restores the terminal and clears the bar. */
void ui_done(struct ui *u);
/* Columns of a table line cut to nothing: prints foreign text in printable form. */
void ui_print_name(const char *s);
/* The words of a run's command, the store's JSON array or NULL, on one line: of each at most 60 bytes. */
void ui_print_command(const char *json);

#endif
