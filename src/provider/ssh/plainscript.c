#include "provider/ssh/plainscript.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "wire/remote.h"

#define SCRIPT_MAX ((size_t)8 << 20)
#define RUNTIME ".airlock-runtime"
/* In the run's directory, and then the name of a command or of all of a session: it is too late to begin. */
#define LATE "late."

/* No single quote, backslash, exclamation mark or newline: fish and csh would read them. */
const char *plain_boot(void)
{
	return "exec /bin/sh -c '"
	       "read -r h || exit 97; d=-d; echo YQ== | base64 -d >/dev/null 2>&1 || d=-D; "
	       "S=$(echo \"$h\" | base64 $d) || exit 97; unset h d; eval \"$S\"'";
}

/*
 * $1: a begin of the mark. Under Linux whatever carries it, wherever it has forked to. A busybox's grep sees of such a file only what is before
 * the first NUL, unless it is told (-z); one that cannot be told gets lines.
 */
#define FIND                                                                                     \
	"f() { if echo x | grep -qz x 2>/dev/null; then "                                        \
	"set -- $(grep -lszF \"" PLAIN_MARK "=$1\" /proc/[0-9]*/environ 2>/dev/null); "          \
	"for x; do x=${x#/proc/}; echo ${x%/environ}; done; else "                               \
	"for x in /proc/[0-9]*; do if { tr \"\\0\" \"\\n\" <$x/environ | grep -qF \"" PLAIN_MARK \
	"=$1\"; } 2>/dev/null; then echo ${x#/proc/}; fi; done; fi; }; "
#define KILL \
	"k() { for i in 1 2 3 4 5 6 7 8 9; do set -- \"$1\" $(f \"$1\"); test -n \"$2\" || return 0; y=$1; shift; kill -9 $* 2>/dev/null; set -- \"$y\"; sleep 0.1 2>/dev/null || sleep 1; done; }; "

/*
 * Whether a process there is found by its mark, tried on one that has it: where it is not (no /proc, or one of another make), nothing
 * could be ended, by nobody. By a path, since busybox starts its own programs without exec. The loop is for a machine so slow that its
 * child is not yet what it will be.
 */
#define PROVE                                                                       \
	"test -r /proc/$$/environ || b ends; y=proof.$l.$$; " PLAIN_MARK            \
	"=$y /bin/sh -c \"exec sleep 99\" </dev/null >/dev/null 2>&1 & z=$!; i=0; " \
	"until x=$(f $y); test -n \"$x\" || test $i -gt 9; do "                     \
	"sleep 0.$i 2>/dev/null || sleep 1; i=$((i+1)); done; kill -9 $z; test -n \"$x\" || b ends; "

/* Another run's end may take the directory of all runs away between the steps: who fails tries again. */
#define MAKE                                                               \
	"m() { for x in " RUNTIME " " RUNTIME "/runs $p $p/workspace; do " \
	"if mkdir $x 2>/dev/null && test $x = " RUNTIME "; then "          \
	"{ echo \"*\" >$x/.gitignore; } 2>/dev/null; fi; "                 \
	"test -L $x && return 1; "                                         \
	"test -d $x && test -O $x && test -w $x || return 1; done; }; "

const char *plain_script_open(void)
{
	return FIND KILL
	    "IFS= read -r d; read -r l; read -r w; umask 077; "
	    "b() { s fail $*; s done; exit 0; }; "
	    "for t in tar base64 mkdir rm mv cat sed env grep sleep ls; do "
	    "command -v $t >/dev/null 2>&1 || b tool $t; done; "
	    "cd \"$d\" 2>/dev/null || b absent; " MAKE PROVE "test $w = shared || k $l.; p=" RUNTIME
	    "/runs/$l; "
	    "if test -d $p/workspace && test -e $p/index; then s there; "
	    "elif test $w = new; then i=0; until m; do i=$((i+1)); test $i -lt 5 || b place $x; "
	    "sleep 0.1 2>/dev/null || sleep 1; done; echo >$p/" REMOTE_PLAIN_ALIVE "; "
	    "s new; else s gone; fi";
}

const char *plain_script_remove(void)
{
	return FIND KILL
	    "IFS= read -r d; read -r l; cd \"$d\" 2>/dev/null || { s fail absent; s done; exit 0; }; "
	    "k $l.; p=" RUNTIME "/runs/$l; "
	    "if test -d $p; then rm -f $p/index; chmod -R u+rwx $p 2>/dev/null; rm -rf $p; fi; "
	    "if test -e $p; then s fail left; else "
	    "rmdir " RUNTIME "/runs 2>/dev/null && rm -f " RUNTIME "/.gitignore && rmdir " RUNTIME
	    "; "
	    "s removed; fi";
}

/*
 * What a guest keeps for next runs (guest/front_base.h) and what has landed of this one go. A tree is renamed first, as the guest does: who
 * takes it has all of it, or does not see it.
 */
const char *plain_script_room(void)
{
	return "IFS= read -r d; read -r l; umask 077; g() { chmod -R u+rwx \"$1\"; rm -rf \"$1\"; } 2>/dev/null; "
	       "cd \"$d\" 2>/dev/null || { s fail absent; s done; exit 0; }; "
	       "p=" RUNTIME "/runs/$l; b=" RUNTIME "/" REMOTE_BASES "; i=0; "
	       "if test ! -L " RUNTIME " && test ! -L $b && test -d $b && test -O $b; then "
	       "for x in $b/*; do test -d \"$x\" || continue; i=$((i+1)); "
	       "mv \"$x\" $b/.going-$l.$$.$i 2>/dev/null; done; "
	       "for x in $b/.going-*; do test -d \"$x\" || continue; g \"$x\"; "
	       "test -e \"$x\" || s room; done; fi; "
	       "g $p/workspace; mkdir $p/workspace 2>/dev/null || s fail place $p/workspace";
}

static void quoted(struct buf *b, const char *text)
{
	(void)buf_puts(b, "'");
	for (; *text; text++)
		(void)(*text == '\'' ? buf_puts(b, "'\\''") : buf_putc(b, *text));
	(void)buf_puts(b, "'");
}

/* What no shell lets go of, or takes over: not for a command to have. */
static bool shells_own(const char *name, size_t n)
{
	static const char *const names[] = {"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "IFS"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0)
			return true;
	return false;
}

static bool is_name(const char *name, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(name[i] == '_' || (name[i] >= 'A' && name[i] <= 'Z') ||
		      (name[i] >= 'a' && name[i] <= 'z') ||
		      (i && name[i] >= '0' && name[i] <= '9')))
			return false;
	return n > 0 && !shells_own(name, n);
}

static void exports(struct buf *b, char *const *env)
{
	for (; env && *env; env++) {
		size_t n = strcspn(*env, "=");

		if (!is_name(*env, n) || !(*env)[n])
			continue;
		(void)buf_puts(b, "export ");
		(void)buf_put(b, *env, n + 1);
		quoted(b, *env + n + 1);
		(void)buf_puts(b, "\n");
	}
}

static int put_line(struct buf *b, const struct buf *script)
{
	size_t room = sodium_base64_encoded_len(script->len, sodium_base64_VARIANT_ORIGINAL);
	char *to = script->err ? NULL : buf_room(b, room + 1);

	if (!to)
		return script->err ? script->err : -E2BIG;
	(void)sodium_bin2base64(to, room, (const unsigned char *)script->data, script->len,
				sodium_base64_VARIANT_ORIGINAL);
	to[room - 1] = '\n';
	buf_add(b, room);
	return b->err;
}

static void begin(struct buf *s, const struct plain_place *p)
{
	(void)buf_puts(s, FIND "\nprintf '\\nairlock %s\\n' ");
	quoted(s, p->nonce);
	(void)buf_puts(s, "\nprintf '\\nairlock %s\\n' ");
	quoted(s, p->nonce);
	(void)buf_puts(s, " >&2\n");
}

/* The names that are true on that machine alone stay (guest/front.c, add_own). */
#define SCRUB                                                                                                            \
	"for v in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do case $v in "                            \
	"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|XDG_*_HOME|XDG_RUNTIME_DIR|PWD|_|UID|EUID|PPID|SHELLOPTS|BASHOPTS|IFS) ;; " \
	"*) unset \"$v\" ;; esac; done\n"

int plain_put_command(struct buf *b, const struct plain_place *p, unsigned number,
		      const struct exec_spec *x)
{
	_cleanup_buf_ struct buf s = BUF_INIT(SCRIPT_MAX);

	/* Whoever waited for it has given up, or its session is over: nobody would hear of it, or end it. */
	(void)buf_puts(&s, "v=");
	quoted(&s, p->run);
	(void)buf_putf(&s,
		       "/" LATE "%s\ntest -e \"$v\" && exit 97\ntest -e \"${v}%u.\" && exit 97\n",
		       p->name, number);
	begin(&s, p);
	(void)buf_puts(&s, "exec 3<&0\n(\n" SCRUB);
	exports(&s, x->env);
	(void)buf_putf(&s, "export " PLAIN_MARK "=%s%u.\n", p->name, number);
	(void)buf_puts(&s, "cd ");
	quoted(&s, x->cwd);
	(void)buf_puts(&s, " || exit 126\nexec");
	for (char *const *v = x->argv; *v; v++) {
		(void)buf_puts(&s, " ");
		quoted(&s, *v);
	}
	/* Nothing of the shell's own is to be in the command's output, and nothing of ours holds that open. */
	(void)buf_puts(&s, "\n) <&3 3<&- &\nexec </dev/null >/dev/null 2>&1 3<&-\nwait $!\nr=$?\n");
	(void)buf_putf(
	    &s,
	    "m=%s%u.\nl=$(f $m)\nif test -n \"$l\"; then kill -15 $l; sleep 0.2 || sleep 1; "
	    "i=0; while l=$(f $m); test -n \"$l\" && test $i -lt 9; do kill -9 $l; i=$((i+1)); sleep 0.1 || sleep 1; done; fi\n"
	    "exit $r\n",
	    p->name, number);
	return put_line(b, &s);
}

int plain_put_watch(struct buf *b, const struct plain_place *p)
{
	_cleanup_buf_ struct buf s = BUF_INIT(SCRIPT_MAX);

	begin(&s, p);
	(void)buf_puts(&s, "v=");
	quoted(&s, p->run);
	(void)buf_putf(
	    &s,
	    "\n" KILL "\nm=%s\nt() { echo >\"$v/" LATE "$m$1\"; }\n"
	    "(n=0; trap 'n=0' USR1; trap 'kill $z; exit' TERM; while test $n -lt %d; do echo >\"$v/" REMOTE_PLAIN_ALIVE
	    "\"; sleep 5 & z=$!; wait $z; kill $z; "
	    "n=$((n+1)); done; t; k $m) </dev/null >/dev/null 2>&1 &\nw=$!\n"
	    "while read -r a b c; do kill -USR1 $w; case $a in "
	    "k) l=$(f $m$b); test -z \"$l\" || kill -$c $l;; l) t $b; k $m$b;; p) echo pong $b;; q) break;; esac; done 2>/dev/null\n"
	    "kill -TERM $w 2>/dev/null; t 2>/dev/null; k $m; echo ended\n",
	    p->name, REMOTE_SILENT_MS / 5000);
	return put_line(b, &s);
}

char *plain_mark(const char *nonce)
{
	char *text = NULL;

	return asprintf(&text, "\nairlock %s\n", nonce) < 0 ? NULL : text;
}
