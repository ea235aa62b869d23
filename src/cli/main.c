/* The table of verbs, dispatch, help, version. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/version.h"
#include "cli/cli.h"
#include "os/files.h"

const struct opt opts_help[] = {{"help", 'h', NULL, "this text", 0}, {NULL, 0, NULL, NULL, 0}};
static const struct opt opts_help_verb[] = {
    {"dump-options", 0, NULL, "every verb and option, one a line, tab-separated", 1},
    {NULL, 0, NULL, NULL, 0},
};

static const struct opt *const t_run[] = {opts_run, opts_exec, NULL};
static const struct opt *const t_exec[] = {opts_exec, NULL};
static const struct opt *const t_ps[] = {opts_ps, opts_help, NULL};
static const struct opt *const t_logs[] = {opts_logs, opts_help, NULL};
static const struct opt *const t_rm[] = {opts_rm, opts_help, NULL};
static const struct opt *const t_env[] = {opts_env, opts_help, NULL};
static const struct opt *const t_recover[] = {opts_recover, opts_help, NULL};
static const struct opt *const t_unpack[] = {opts_unpack, opts_help, NULL};
static const struct opt *const t_manifest[] = {opts_manifest, opts_help, NULL};
static const struct opt *const t_bridge[] = {opts_bridge, opts_help, NULL};
static const struct opt *const t_policy[] = {opts_policy, opts_help, NULL};
static const struct opt *const t_audit[] = {opts_audit, opts_help, NULL};
static const struct opt *const t_runs[] = {opts_runs, opts_help, NULL};
static const struct opt *const t_diff[] = {opts_diff, opts_help, NULL};
static const struct opt *const t_apply[] = {opts_apply, opts_help, NULL};
static const struct opt *const t_discard[] = {opts_discard, opts_help, NULL};
static const struct opt *const t_prune[] = {opts_prune, opts_help, NULL};
static const struct opt *const t_access_map[] = {opts_access_map, opts_help, NULL};
static const struct opt *const t_serve[] = {opts_serve, opts_help, NULL};
static const struct opt *const t_user[] = {opts_user, opts_help, NULL};
static const struct opt *const t_agent[] = {opts_agent, opts_help, NULL};
static const struct opt *const t_project[] = {opts_project, opts_help, NULL};
static const struct opt *const t_token[] = {opts_token, opts_help, NULL};
static const struct opt *const t_image[] = {opts_image, opts_help, NULL};
static const struct opt *const t_plain[] = {opts_help, NULL};
static const struct opt *const t_help[] = {opts_help_verb, opts_help, NULL};
static const struct opt *const t_doctor[] = {opts_doctor, opts_help, NULL};

static const char run_text[] =
    "One word after -- is a script for 'sh -c'; several words are a command and its arguments. The command starts\n"
    "in the directory of the workspace where you stand. Exit status: the command's own; 128+N if signal N ended\n"
    "it; 124 time-out; 125 Airlock's own failure; 126 not executable; 127 not found; 130 Ctrl-C; 2 wrong usage.\n"
    "First Ctrl-C: the command is ended and its results are brought back. Second: stop at once; the work is\n"
    "kept for 'airlock recover'.\n";

static const char diff_text[] =
    "A PATH is a file, a directory or a glob, relative to where you stand. Refused, conflicting and host-executable\n"
    "entries are marked. On a terminal the output is coloured and goes through AIRLOCK_PAGER, PAGER or less; control\n"
    "characters in names and contents are shown, never sent. Elsewhere it is a patch that 'git apply' takes, unless a file is\n"
    "binary: of such a one it says only that it differs.\n";

static const char apply_text[] =
    "The results are merged with the workspace as it is now, as at the end of a run. What conflicts, and what PATHs leave\n"
    "out, goes on waiting. Commits come with the last of the files. Exit status: 0 all is there; 1 some of it\n"
    "conflicts, was refused or could not be written; 3 nothing was written, the set is damaged or the workspace is another\n"
    "one; 4 any other failure; 2 wrong usage.\n";

static const char doctor_text[] =
    "Tries every layer for real and prints which are in force, which are missing, why, and the command that repairs\n"
    "it. Leaves nothing behind. Exit status: 0 if 'airlock run' will work, 1 if a layer that it needs is missing.\n";

static const char unpack_text[] =
    "Prints one JSON line for each refused, hostile or conflicting member, and a closing record. Exit status: 0 all\n"
    "applied; 1 applied, but for refusals or conflicts; 3 rejected, nothing written; 2 wrong usage; 4 any other failure:\n"
    "the directory is as it was, or 'airlock recover DIR' repairs it, or the message says that the stream was applied\n"
    "(the report could not be printed; a helper was killed and its publish finished). Without --baseline nothing is\n"
    "ever deleted or overwritten. The stream is a plain tar: decompress it first.\n";

static const char policy_text[] =
    "NAME is a built-in policy, or a file if it has a '/' or ends with .json. explain asks the guard of a run itself:\n"
    "which route or rule decides, what would be sent upstream, what is dropped. Exit status: 0 valid or allowed, 1 denied,\n"
    "2 wrong usage, 125 not valid. The file format: bridge.md in the documentation.\n";

static const char prune_text[] =
    "Removes copies of workspaces that no sandbox uses and left-overs of what was removed before, and the logs and records of\n"
    "runs that are over. Prints one line for each kind. Without --yes runs stay that keep what may be nowhere else;\n"
    "results that wait for a decision (--review) stay always. Older means not used, or ended, for that time: 30 days.\n";

static const char image_text[] =
    "import reads the tar archive of a root file system, or an OCI image: an archive, a directory with its layout, or '-',\n"
    "standard input; plain, gzip or zstd. IMAGE is a name, or a digest or the first 8 or more of its digits. A sandbox sees an\n"
    "image read-only. verify hashes it again. rm refuses while a lease or an environment needs it.\n";

static const char serve_text[] =
    "Starts airlockd, which see. Without --mode whoever can connect is the local board, so it listens on loopback only.\n";

static const char access_map_text[] =
    "For each capability of the daemon: its operations, whom they are for, under which policy, and what the tests of this very\n"
    "build said. What was not tried with this build is 'not-run'. A daemon serves the same at /api/agent-access.\n";

static const char token_text[] =
    "create prints a key once: 'airlock token create --user NAME' or '--agent NAME'. run prints a token that proves one run of\n"
    "an agent. rotate-seal makes a new sealing key and seals every secret anew.\n";

static const struct verb verbs[] = {
    {"run", cmd_run, "[options] -- CMD ...",
     "run a command in a sandbox and bring its results back", t_run, run_text},
    {"exec", cmd_exec, "[options] RUN -- CMD ...", "run another command in a kept sandbox", t_exec,
     NULL},
    {"shell", cmd_shell, "[options] [RUN]",
     "interactive shell in a kept sandbox; makes one without RUN", t_run, NULL},
    {"ps", cmd_ps, "[-a] [--json]", "runs that go on or are kept", t_ps, NULL},
    {"logs", cmd_logs, "[-f] RUN", "what a run printed", t_logs, NULL},
    {"stop", cmd_stop, "RUN", "end a run, in any phase; its results still come back", t_plain,
     NULL},
    {"runs", cmd_runs, "[--waiting] [--json]", "every run and what became of its results", t_runs,
     NULL},
    {"diff", cmd_diff, "[options] RUN [PATH ...]", "what a run changed, as git diff shows it",
     t_diff, diff_text},
    {"apply", cmd_apply, "[options] RUN [PATH ...]",
     "take the results of a run with --review, all or some", t_apply, apply_text},
    {"discard", cmd_discard, "[--yes] RUN", "drop the results of a run with --review", t_discard,
     NULL},
    {"recover", cmd_recover, "[options] RUN | DIR",
     "bring back the work of a run that was cut short; repair a directory", t_recover, NULL},
    {"audit", cmd_audit, "[--json] RUN", "what the bridge of a run let through and refused",
     t_audit, NULL},
    {"rm", cmd_rm, "[--force] RUN | --all [--yes]", "remove kept sandboxes and the data of runs",
     t_rm, NULL},
    {"prune", cmd_prune, "[--older-than TIME] [--dry-run] [--yes] [--json]",
     "free space: unused copies of workspaces, left-overs, data of old runs", t_prune, prune_text},
    {"unpack", cmd_unpack, "--into DIR | --file PATH [options] < STREAM",
     "judge a tar stream and apply what is safe of it to a directory", t_unpack, unpack_text},
    {"manifest", cmd_manifest, "DIR [-o FILE]", "write the baseline of a directory for 'unpack'",
     t_manifest, NULL},
    {"env", cmd_env, "create NAME [run options] | list | show NAME | rm NAME | clean --ssh TARGET",
     "named environments with default options", t_env, NULL},
    {"bridge", cmd_bridge, "--upstream URL --listen ADDRESS:PORT [options]",
     "put the policy bridge in front of an API, without a sandbox", t_bridge, NULL},
    {"policy", cmd_policy, "list | show NAME | check FILE | explain [options] METHOD PATH",
     "what a bridge lets through, and why", t_policy, policy_text},
    {"serve", cmd_serve, "[options]", "run the daemon that serves the operators' API", t_serve,
     serve_text},
    {"access-map", cmd_access_map, "[--json]",
     "what agents may do, and what tests of this build said of it", t_access_map, access_map_text},
    {"company", cmd_company, "add NAME | list | rm NAME", "companies of the daemon", t_plain, NULL},
    {"user", cmd_user,
     "add NAME | list | join NAME | leave NAME | promote NAME | demote NAME | rm NAME",
     "people who may use the daemon", t_user, NULL},
    {"agent", cmd_agent, "add NAME | list | set NAME", "agents that the daemon knows", t_agent,
     NULL},
    {"project", cmd_project, "add NAME | list", "projects that the daemon knows", t_project, NULL},
    {"token", cmd_token, "create | run | list | revoke ID | rotate-seal",
     "keys of users and agents, and the key that seals secrets", t_token, token_text},
    {"preset", cmd_preset, "list | show NAME", "presets for agent CLIs: what each is given",
     t_plain, NULL},
    {"image", cmd_image,
     "import [--name NAME] FILE|DIR|- | list | show IMAGE | verify IMAGE | name IMAGE NAME | rm IMAGE",
     "system images for sandboxes: imported once, never changed, named by their contents", t_image,
     image_text},
    {"doctor", cmd_doctor, "[--quick] [--json]",
     "try every layer of isolation and say what is missing", t_doctor, doctor_text},
    {"version", cmd_version, "", "version of this program", t_plain, NULL},
    {"help", cmd_help, "[VERB]", "this text, or that of a verb", t_help, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct verb *cli_verbs(void)
{
	return verbs;
}

void cli_say(const char *fmt, ...)
{
	va_list ap;

	/* One write a line, so that lines of concurrent runs do not mix. */
	struct buf b = BUF_INIT(1 << 20);
	char *text = NULL;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) >= 0) {
		(void)buf_putf(&b, "airlock: %s\n", text);
		(void)fwrite(buf_text(&b), 1, b.len, stderr);
		(void)fflush(stderr);
	}
	va_end(ap);
	free(text);
	buf_done(&b);
}

int cli_fail(const struct err *e)
{
	cli_say("%s", e->text);
	return err_exit_status(e->code);
}

void cli_usage(const struct verb *v, FILE *f)
{
	(void)fprintf(f, "Usage: airlock %s %s\n\n%s%s.\n", v->name, v->synopsis,
		      "Purpose: ", v->summary);
	if (v->text)
		(void)fprintf(f, "\n%s", v->text);
	(void)fputs("\n", f);
	for (size_t t = 0; v->tables[t]; t++) {
		for (const struct opt *o = v->tables[t]; o->name; o++) {
			char left[96], letter[8] = "    ";

			if (o->letter)
				(void)snprintf(letter, sizeof(letter), "-%c, ", o->letter);
			if (o->arg && o->arg[0] == '=')
				(void)snprintf(left, sizeof(left), "%s--%s[%s]", letter, o->name,
					       o->arg);
			else
				(void)snprintf(left, sizeof(left), "%s--%s%s%s", letter, o->name,
					       o->arg ? " " : "", o->arg ? o->arg : "");
			if (strlen(left) > 30)
				(void)fprintf(f, "  %s\n  %-30s  %s\n", left, "", o->help);
			else
				(void)fprintf(f, "  %-30s  %s\n", left, o->help);
		}
	}
}

static void overview(FILE *f)
{
	(void)fputs(
	    "Usage: airlock VERB ...\n\nRuns AI coding agents, or any command, on a copy of your workspace in a sandbox and "
	    "brings back validated\nresults only.\n\n",
	    f);
	for (const struct verb *v = verbs; v->name; v++)
		(void)fprintf(f, "  %-8s  %s\n", v->name, v->summary);
	(void)fputs(
	    "\n'airlock help VERB' says more. Example: airlock run -- claude -p \"fix the tests\"\n",
	    f);
}

static const struct verb *find(const char *name, struct err *e)
{
	const char *names[64], *near;
	size_t n = 0;

	for (const struct verb *v = verbs; v->name; v++) {
		if (strcmp(v->name, name) == 0)
			return v;
		names[n++] = v->name;
	}
	near = opt_nearest(name, names, n);
	(void)err_set(e, ERR_USAGE,
		      near ? "there is no verb %.80s: did you mean %s?"
			   : "there is no verb %.80s: 'airlock help' lists them%s",
		      name, near ? near : "");
	return NULL;
}

static int dump_options(void)
{
	for (const struct verb *v = verbs; v->name; v++) {
		(void)printf("verb\t%s\t%s\t%s\n", v->name, v->synopsis, v->summary);
		for (size_t t = 0; v->tables[t]; t++)
			for (const struct opt *o = v->tables[t]; o->name; o++)
				(void)printf("option\t%s\t--%s\t%s%c\t%s\t%s\n", v->name, o->name,
					     o->letter ? "-" : "", o->letter ? o->letter : '-',
					     o->arg ? o->arg : "-", o->help);
	}
	return 0;
}

int cmd_help(int argc, char **argv)
{
	struct err e = ERR_INIT;
	const struct verb *v;

	if (argc > 1 && strcmp(argv[1], "--dump-options") == 0)
		return dump_options();
	if (argc < 2 || argv[1][0] == '-') {
		overview(stdout);
		return 0;
	}
	v = find(argv[1], &e);
	if (!v)
		return cli_fail(&e);
	cli_usage(v, stdout);
	return 0;
}

int cmd_version(int argc, char **argv)
{
	struct err e = ERR_INIT;

	if (argc > 1) {
		(void)err_set(&e, ERR_USAGE, "version takes no word %.80s", argv[1]);
		return cli_fail(&e);
	}
	(void)printf("airlock %s%s\n", AIRLOCK_VERSION, VERSION_NOTE);
	return 0;
}

int cli_main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	const struct verb *v;

	files_raise();
	if (argc < 2) {
		overview(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return cmd_help(1, argv);
	if (strcmp(argv[1], "--version") == 0)
		return cmd_version(1, argv);
	v = find(argv[1], &e);
	return v ? v->run(argc - 1, argv + 1) : cli_fail(&e);
}
