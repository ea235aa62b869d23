#include "cli/doctorssh.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "provider/ssh/layers.h"
#include "provider/ssh/program.h"
#include "provider/ssh/look.h"

#define LOOK_MS 60000
#define SLOW_NS (5 * NS_PER_S)
#define SKEW_NS (30 * NS_PER_S)
#define NOISE 4096
#define DISK_KIB (1024 * 1024)
#define INODES 10000

/* For /bin/sh there: one line for each thing. No single quote, backslash or exclamation mark (provider/ssh/script.h). */
static const char script[] =
    "read -r p; read -r w; s machine \"$(uname -s)-$(uname -m)\"; "
    "if test -d \"$p\"; then if test -w \"$p\" && test -x \"$p\"; then s path yes; else s path unwritable; fi; "
    "set -- $(df -Pk \"$p\" 2>/dev/null | tail -n 1); s disk \"$4\"; "
    "set -- $(df -Pi \"$p\" 2>/dev/null | tail -n 1); s inodes \"$4\"; else s path absent; fi; "
    "m() { m=; for c in $*; do command -v $c >/dev/null 2>&1 || m=\"$m $c\"; done; }; "
    "m head wc mkdir mv chmod uname; s programs \"$m\"; "
    "m tar base64 mkdir rm mv cat sed env grep sleep ls; s plain \"$m\"; "
    "s git \"$(git --version 2>/dev/null)\"; "
    "m=; for c in claude codex gemini opencode node; do "
    "x=$(command -v $c 2>/dev/null) && m=\"$m $x\"; done; s agents \"$m\"; "
    "l=$(getconf GNU_LIBC_VERSION 2>/dev/null) || l=$(ldd --version 2>&1 | head -n 1); s libc \"$l\"; "
    "d=${XDG_CACHE_HOME:-$HOME/.cache}; t=$d/.airlock-doctor-$$; mkdir -p \"$d\" 2>/dev/null; "
    "if cp \"$(command -v true || echo /bin/true)\" \"$t\" 2>/dev/null || cp /bin/true \"$t\" 2>/dev/null; then "
    "if \"$t\" >/dev/null 2>&1; then s cache yes; else s cache noexec; fi; else s cache unwritable; fi; rm -f \"$t\"; " SSH_USERNS_SCRIPT
    "if test \"$w\" = sandbox; then " SSH_LAYERS_SCRIPT "fi";

struct report {
	json_t *rows;
	bool json, ok;
	bool plain; /* no guest program can run there */
};

/* need: without it runs do not work there. */
static void row(struct report *r, const char *name, bool fine, bool need, const char *what,
		const char *remedy)
{
	r->ok &= fine || !need;
	(void)json_array_append_new(r->rows,
				    json_pack("{s:s,s:s,s:s,s:s}", "check", name, "state",
					      fine   ? "ok"
					      : need ? "failed"
						     : "warning",
					      "detail", what, "remedy", fine ? "" : remedy));
	if (r->json)
		return;
	(void)printf("%-18s %-8s %s\n", name, fine ? "ok" : need ? "FAILED" : "warning", what);
	if (!fine && remedy[0])
		(void)printf("%-27s remedy: %s\n", "", remedy);
}

static void told(struct report *r, const struct ssh_said *s, const char *name, const char *word,
		 uint64_t least, const char *unit, const char *remedy)
{
	_cleanup_free_ char *v = ssh_said_get(s, word);
	char text[96];
	uint64_t n = 0;

	if (!v || str_to_u64(v, UINT64_MAX, &n) < 0)
		return;
	(void)snprintf(text, sizeof(text), "%llu %s free", (unsigned long long)n, unit);
	row(r, name, n >= least, false, text, remedy);
}

static void session(struct report *r, const struct ssh_said *s)
{
	char text[256];

	row(r, "reachable", true, true, "the host key is known, the login is accepted", "");
	(void)snprintf(text, sizeof(text), "%lld ms until a command ran",
		       (long long)(s->login_ns / NS_PER_MS));
	row(r, "login time", s->login_ns < SLOW_NS, false, text,
	    "see what the account's start files do, and sshd's UseDNS; runs share one login for a minute");
	(void)snprintf(text, sizeof(text), "%llu bytes beside ours%s%s",
		       (unsigned long long)s->noise, s->noise > 1 ? ": " : "",
		       s->noise > 1 ? s->shown : "");
	row(r, "shell noise", s->noise < NOISE, false, text,
	    "let start files print only in interactive shells");
	if (s->clock) {
		(void)snprintf(text, sizeof(text), "%+lld s", (long long)(s->ahead_ns / NS_PER_S));
		row(r, "clock", s->ahead_ns > -SKEW_NS && s->ahead_ns < SKEW_NS, false, text,
		    "run a time service there; dates of files that come back are that machine's");
	}
}

static void machine(struct report *r, const struct ssh_said *s)
{
	_cleanup_free_ char *m = ssh_said_get(s, "machine"), *libc = ssh_said_get(s, "libc"),
			    *tools = ssh_said_get(s, "programs"),
			    *userns = ssh_said_get(s, "userns"), *plain = ssh_said_get(s, "plain"),
			    *git = ssh_said_get(s, "git"), *agents = ssh_said_get(s, "agents"),
			    *cache = ssh_said_get(s, "cache");
	char ours[SSH_MACHINE_MAX + 1];
	bool served;

	r->plain = !str_eq(cache, "yes");
	ssh_machine_here(ours);
	served = str_eq(m, ours) || ssh_program_is_for("airlock-guest", m ? m : "");
	r->plain |= !served;
	row(r, "machine", served, false, m ? m : "unknown",
	    "there is no guest program for that machine in this build: runs do without, slower (--ssh-guest)");
	row(r, "C library", true, false, libc ? libc : "unknown", "");
	row(r, "programs", !tools || !tools[strspn(tools, " ")], true,
	    tools && tools[strspn(tools, " ")] ? tools : "all that the start needs",
	    "install what is named");
	row(r, "without a guest", !plain || !plain[strspn(plain, " ")], r->plain,
	    plain && plain[strspn(plain, " ")] ? plain
					       : "all that runs without the guest program need",
	    "install what is named");
	row(r, "git", git && git[0], false, git && git[0] ? git : "is not there",
	    "install it: without, commits that are made there do not come back, files do");
	row(r, "agents", agents && agents[strspn(agents, " ")], false,
	    agents && agents[strspn(agents, " ")]
		? agents + strspn(agents, " ")
		: "none on PATH: claude, codex, gemini, opencode, node",
	    "install the one that runs use there, or set its place with --setenv PATH=...");
	row(r, "native sandbox", str_eq(userns, "yes"), false,
	    str_eq(userns, "yes") ? "user namespaces can be made there"
				  : "no user namespaces (or no program unshare)",
	    "nothing isolates what runs there unless --remote-sandbox is given; with it the doctor tries each layer");
}

static void places(struct report *r, const struct ssh_said *s, const char *path)
{
	_cleanup_free_ char *p = ssh_said_get(s, "path"), *cache = ssh_said_get(s, "cache");

	row(r, "directory", str_eq(p, "yes"), true,
	    str_eq(p, "absent") ? "is not there"
	    : str_eq(p, "yes")	? path
				: "cannot be written",
	    "make it there, owned by the account that logs in");
	told(r, s, "disk", "disk", DISK_KIB, "KiB", "make room there");
	told(r, s, "inodes", "inodes", INODES, "", "remove files there");
	row(r, "guest's place", str_eq(cache, "yes"), false,
	    str_eq(cache, "yes")      ? "~/.cache takes programs and runs them"
	    : str_eq(cache, "noexec") ? "~/.cache runs no programs (noexec)"
				      : "~/.cache cannot be written",
	    "set XDG_CACHE_HOME there to a place that the account can write and that runs programs; until then runs do without, slower");
}

/* Each tried there, by that machine's own programs. */
static void sandbox(struct report *r, const struct ssh_said *s)
{
	bool all = !r->plain;

	for (size_t i = 0; i < SSH_LAYERS; i++) {
		const struct ssh_layer *l = &ssh_layers[i];
		bool yes = ssh_layer_there(l, s);

		all &= yes || !l->needed;
		row(r, l->name, yes, false, yes ? "can be had there" : "cannot be had there",
		    l->remedy);
	}
	row(r, "remote sandbox", all, true,
	    all	       ? "run --ssh --remote-sandbox isolates what it runs there"
	    : r->plain ? "our programs do not run there (machine, guest's place)"
		       : "a layer that it needs cannot be had there",
	    "see the rows above; --without LAYER does without overlay or seccomp");
}

int doctor_ssh(char *const *words, bool json, bool layers, bool *ret_ok, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	_cleanup_said_ struct ssh_said said = {0};
	_cleanup_free_ char *input = NULL, *text = NULL;
	struct report r = {.rows = json_array(), .json = json, .ok = true};
	struct err why = ERR_INIT;
	json_t *doc;
	int k = ssh_target_parse(words, &t, e);

	if (k == 0)
		k = ssh_target_files(&t, e);
	if (k == 0 && asprintf(&input, "%s\n%s\n", t.path, layers ? "sandbox" : "") < 0) {
		input = NULL;
		k = err_set(e, ERR_NOMEM, "doctor: out of memory");
	}
	if (k < 0) {
		json_decref(r.rows);
		return k;
	}
	if (ssh_look(
		&(struct ssh_look){
		    .target = &t, .script = script, .input = input, .timeout_ms = LOOK_MS},
		&said, &why) < 0) {
		row(&r, "reachable", false, true, why.text, "");
	} else {
		session(&r, &said);
		machine(&r, &said);
		places(&r, &said, t.path);
		if (layers)
			sandbox(&r, &said);
		if (!said.done)
			row(&r, "answers", false, true,
			    "the checks there did not come to their end in time",
			    "the check behind the last one above was slow: a file system that hangs?");
	}
	*ret_ok = r.ok;
	doc =
	    json_pack("{s:s,s:b,s:o}", "target", t.label, "run_works", (int)r.ok, "checks", r.rows);
	text = doc ? json_dumps(doc, JSON_INDENT(2)) : NULL;
	json_decref(doc);
	if (json)
		(void)puts(text ? text : "{}");
	else
		(void)printf("\n`airlock run --ssh%s` %s there; %s.\n",
			     layers ? " --remote-sandbox" : "", r.ok ? "works" : "does not work",
			     layers ? "without that option nothing isolates what it runs"
				    : "nothing isolates what it runs");
	return 0;
}
