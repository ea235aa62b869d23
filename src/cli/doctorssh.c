#include "cli/doctorssh.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
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
    "if \"$t\" >/dev/null 2>&1; then s cache yes; else s cache noexec; fi; else s cache unwritable; fi; rm -f \"$t\"; "
    "if unshare -Ur true >/dev/null 2>&1; then s userns yes; else s userns no; fi; if test \"$w\" = sandbox; then "
    "u() { if unshare -Ur $2 sh -c \"$3\" >/dev/null 2>&1; then s $1 yes; else s $1 no; fi; }; "
    "o=lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w; "
    "u mountns -m \"mount -t tmpfs none /mnt\"; "
    "u overlay -m \"mount -t tmpfs none /mnt; cd /mnt; mkdir l u w m; mount -t overlay -o $o none m\"; "
    "u pidns \"-p -f --mount-proc\" true; u netns -n true; u ipcns -i true; u utsns -u true; "
    "if grep -qw landlock /sys/kernel/security/lsm 2>/dev/null; then s landlock yes; else s landlock no; fi; "
    "if test -r /proc/sys/kernel/seccomp/actions_avail; then s seccomp yes; else s seccomp no; fi; "
    "c=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup); "
    "if test -w $c/cgroup.procs && test -w $c/cgroup.subtree_control; then s cgroup yes; else s cgroup no; fi; fi";

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
	struct utsname u = {0};
	char ours[160];

	(void)uname(&u);
	r->plain = !str_eq(cache, "yes");
	(void)snprintf(ours, sizeof(ours), "%s-%s", u.sysname, u.machine);
	r->plain |= !str_eq(m, ours);
	row(r, "machine", str_eq(m, ours), false, m ? m : "unknown",
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
	    "commands run there without isolation in any case; 'airlock doctor' on that machine tells more");
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
	static const char *const layers[][3] = {
	    {"user namespace", "userns",
	     "allow unprivileged user namespaces there (sysctl kernel.unprivileged_userns_clone, AppArmor), and install util-linux"},
	    {"mount namespace", "mountns", "see user namespace"},
	    {"overlay", "overlay", "a kernel from 5.11 on mounts it in a user namespace"},
	    {"pid namespace", "pidns",
	     "see user namespace; in a container, its /proc must be whole"},
	    {"network namespace", "netns", "see user namespace"},
	    {"ipc namespace", "ipcns", "see user namespace"},
	    {"uts namespace", "utsns", "see user namespace"},
	    {"landlock", "landlock", "a kernel from 5.13 on, with landlock among its lsm="},
	    {"seccomp", "seccomp", "a kernel with CONFIG_SECCOMP_FILTER"},
	    {"cgroup limits", "cgroup",
	     "let the account's session have a delegated cgroup v2 (systemd: Delegate=yes); limits alone need it"},
	};

	for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
		_cleanup_free_ char *v = ssh_said_get(s, layers[i][1]);
		bool yes = str_eq(v, "yes");

		row(r, layers[i][0], yes, false, yes ? "can be had there" : "cannot be had there",
		    layers[i][2]);
	}
	row(r, "remote sandbox", false, false,
	    "run --ssh cannot use these layers: this version brings no launcher to another machine",
	    "install Airlock there and run it there; 'airlock doctor' on that machine tells what is in force");
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
		(void)printf("\n`airlock run --ssh` %s there; nothing isolates what it runs.\n",
			     r.ok ? "works" : "does not work");
	return 0;
}
