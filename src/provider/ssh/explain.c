#include "provider/ssh/explain.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "provider/ssh/hostkey.h"

#define SAID_SHOWN 300

/*
 * What ssh prints (LC_ALL=C), and what it means. In this order: a changed key also fails the verification. A shell over
 * there may print the same: so they count only where ssh has ended without one of our lines, and no text here tells to
 * lower a guard without asking who runs the machine.
 */
static const struct {
	const char *said;
	enum err_code code;
	const char *text; /* behind "ssh LABEL: " */
} causes[] = {
    {"REVOKED HOST KEY", ERR_PERMISSION,
     "the host key is marked as revoked in known_hosts: this machine must not be trusted; nothing was sent"},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", ERR_PERMISSION,
     "the host key is NOT the one in known_hosts: another machine answers, or this one was installed anew; nothing "
     "was sent. Ask who runs it. Only if its key was changed: remove the old one with ssh-keygen -R HOST and accept the new one"},
    {"has changed and you have requested strict checking", ERR_PERMISSION,
     "the host key is NOT the one in known_hosts: another machine answers, or this one was installed anew; nothing "
     "was sent. Ask who runs it, and only if its key was changed put the new one in its place"},
    {"requested strict checking", ERR_PERMISSION,
     "the host key is not known yet, and it is not accepted unseen; nothing was sent. Compare its fingerprint "
     "with what who runs the machine tells you, and accept it by connecting once with ssh in a "
     "terminal, or put it (ssh-keyscan HOST) into the file given with --ssh-known-hosts"},
    {"Host key verification failed", ERR_PERMISSION,
     "the host key could not be verified; nothing was sent. See known_hosts, or the file given with --ssh-known-hosts"},
    {"UNPROTECTED PRIVATE KEY", ERR_PERMISSION,
     "the key file may be read by others, so ssh does not use it: chmod 600 it"},
    {"Too many authentication failures", ERR_PERMISSION,
     "the machine ended the login after too many keys: name the right one with --ssh-key"},
    {"Permission denied", ERR_PERMISSION,
     "the login was refused: wrong user, or none of the keys is accepted there. No password is asked for here: name the key "
     "with --ssh-key, or load it into ssh-agent; 'ssh -v' shows what was tried"},
    {"Could not resolve hostname", ERR_NOT_FOUND,
     "the host name cannot be resolved: check its spelling"},
    {"Connection refused", ERR_UNAVAILABLE,
     "connection refused: no ssh server listens there; check the port, and that the machine runs sshd"},
    {"No route to host", ERR_UNAVAILABLE,
     "no route to the host: the machine is off, or a firewall is in between"},
    {"Network is unreachable", ERR_UNAVAILABLE, "the network is unreachable from here"},
    {"timed out during banner exchange", ERR_TIMEOUT,
     "something accepts the connection but does not answer as an ssh server in time: a slow login, or not an ssh server"},
    {"Connection timed out", ERR_TIMEOUT,
     "no answer to the connection in time: the machine is off, the address is wrong, or a firewall drops it"},
    {"Operation timed out", ERR_TIMEOUT, "no answer to the connection in time"},
    {"Bad configuration option", ERR_INVALID, "ssh does not accept its configuration"},
    {"kex_exchange_identification", ERR_UNAVAILABLE,
     "the machine closed the connection before the login: it limits connections (MaxStartups), or is no ssh server"},
};

static void put_said(struct buf *b, const char *said)
{
	size_t n = strlen(said);

	while (n && (said[n - 1] == '\n' || said[n - 1] == '\r'))
		n--;
	if (!n)
		return;
	(void)buf_puts(b, " (it said: ");
	(void)str_printable(b, said, n < SAID_SHOWN ? n : SAID_SHOWN);
	(void)buf_puts(b, ")");
}

enum ssh_refused ssh_refusal(const char *said)
{
	static const struct {
		const char *word;
		enum ssh_refused why;
	} words[] = {{"machine", REFUSED_MACHINE}, {"noexec", REFUSED_NOEXEC},
		     {"write", REFUSED_ROOM},	   {"home", REFUSED_PLACE},
		     {"link", REFUSED_PLACE},	   {"cache", REFUSED_PLACE},
		     {"tool", REFUSED_TOOL}};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (str_starts(said, words[i].word))
			return words[i].why;
	return REFUSED_NOT;
}

static int refused(const struct ssh_target *t, const char *said, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	const char *detail = strchr(said, ' ');

	(void)str_printable(&b, detail ? detail + 1 : "",
			    detail ? strnlen(detail + 1, SAID_SHOWN) : 0);
	if (str_starts(said, "machine"))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s is a %s machine, and this Airlock has no guest program for that: leave --ssh-guest "
		    "always out, and its shell and tar do",
		    t->label, buf_text(&b));
	if (str_starts(said, "tool"))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s has no program %s, with which the guest program gets there: install it",
		    t->label, buf_text(&b));
	if (str_starts(said, "noexec"))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "%s does not run the guest program %s: a file system without execution (noexec), or a policy; set "
		    "XDG_CACHE_HOME there to a place that runs programs, or leave --ssh-guest always out",
		    t->label, buf_text(&b));
	if (str_starts(said, "write"))
		return err_set(
		    e, ERR_NO_SPACE,
		    "%s cannot take the guest program: %s could not be written whole: disk or quota full, or read-only",
		    t->label, buf_text(&b));
	if (str_starts(said, "gone"))
		return err_set(
		    e, ERR_CONFLICT,
		    "%s: the guest program %s is removed there again and again: end the 'airlock env clean' that does it",
		    t->label, buf_text(&b));
	if (str_starts(said, "hash"))
		return err_set(e, ERR_IO,
			       "%s: the guest program did not arrive as it was sent (%s)", t->label,
			       buf_text(&b));
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "%s has no place for the guest program: %s must be a directory that the account owns and can write, not a "
	    "link; set HOME or XDG_CACHE_HOME there",
	    t->label, b.len ? buf_text(&b) : "~/.cache/airlock");
}

/* A key that is not accepted is named: who decides over it has something to compare. */
static int told(const struct ssh_target *t, size_t i, struct err *e)
{
	char key[SSH_HOSTKEY_MAX] = "";

	if (strstr(causes[i].text, "host key is"))
		ssh_hostkey(t, key);
	return err_set(e, causes[i].code, "ssh %s: %s%s%s", t->label, causes[i].text,
		       key[0] ? "; the key shown now is " : "", key);
}

int ssh_explain(const struct ssh_target *t, uint32_t how, const char *said, bool up, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	if (how == LINK_REFUSED)
		return refused(t, said, e);
	/* What the ssh of a jump host says is lost where connections are shared: ssh gives it no place. */
	if (!up && t->jump && how != LINK_REFUSED && strstr(said, "kex_exchange_identification"))
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "ssh %s: there is no way through the jump host %s: its host key is not known, its login was refused, or it does "
		    "not reach the target; nothing was sent. 'ssh -J %s %s' in a terminal shows which",
		    t->label, t->jump, t->jump, t->host);
	for (size_t i = 0; !up && how == LINK_NO_SHELL && i < ARRAY_LEN(causes); i++)
		if (strstr(said, causes[i].said))
			return told(t, i, e);
	put_said(&b, said);
	switch (how) {
	case LINK_NO_SHELL:
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "ssh %s: the login shell did not give control: the account's start files end or replace it, or "
		    "the key is bound to another command (ForceCommand)%s",
		    t->label, buf_text(&b));
	case LINK_NOISE:
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "ssh %s: the login shell printed more than %d KiB and did not give control: another program "
		    "runs in its place%s",
		    t->label, REMOTE_NOISE_MAX >> 10, buf_text(&b));
	case LINK_SILENT:
		return err_set(
		    e, ERR_TIMEOUT,
		    up ? "ssh %s: the guest there did not end in time; who connects again ends what it runs%s"
		       : "ssh %s: connected, but the login shell did not start our script in time (limit 60 s): a slow "
			 "login, or start files that wait for something%s",
		    t->label, buf_text(&b));
	case LINK_LATE:
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the connection to %s was lost, and there was none again within %u s (--ssh-grace); the guest there ends what it ran%s",
		    t->label, t->grace_s, buf_text(&b));
	case LINK_GONE:
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "the connection to %s was lost, and the guest there, reached again, has no session that waited: its time was over there, that machine was "
		    "started anew, or somebody ended it%s",
		    t->label, buf_text(&b));
	case LINK_BROKEN:
		return err_set(e, ERR_PROTOCOL,
			       "ssh %s: what came is not what the guest program says%s", t->label,
			       buf_text(&b));
	default:
		return err_set(
		    e, ERR_UNAVAILABLE,
		    up ? "the connection to %s was lost; the guest there ends what it ran within %d s%s"
		       : "ssh %s: the connection ended before the guest program spoke (%d s were left)%s",
		    t->label, REMOTE_SILENT_MS / 1000, buf_text(&b));
	}
}

bool ssh_fault_unmade(const struct rm_fault *f)
{
	/* Somebody else's directory, a file or a link in the place of ours: a full disk may have ours already. */
	bool foreign = f->error == EPERM || f->error == ENOTDIR || f->error == ELOOP;

	return str_starts(f->what, REMOTE_OPEN_ROOT) ||
	       (foreign && str_starts(f->what, REMOTE_MAKE_RUNS));
}

int ssh_explain_fault(const struct ssh_target *t, const struct rm_fault *f, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	int n = f->error ? (int)f->error : EIO;

	(void)str_printable(&b, f->what, strlen(f->what));
	if (n == ENOENT && str_starts(f->what, REMOTE_OPEN_ROOT))
		return err_set(
		    e, ERR_NOT_FOUND,
		    "the directory %s is not there on %s: make it there first; nothing was made here or there",
		    t->path, t->label);
	if (n == ENOTDIR && str_starts(f->what, REMOTE_OPEN_ROOT))
		return err_set(
		    e, ERR_INVALID,
		    "%s on %s is not a directory: name one that is there; nothing was made here or there",
		    t->path, t->label);
	if (n == EAGAIN && str_starts(f->what, REMOTE_NO_PROGRAMS))
		return err_set(
		    e, ERR_CONFLICT,
		    "%s: 'airlock env clean' of another session has just removed Airlock's programs there; nothing was run: begin the run again",
		    t->label);
	if (n == EBUSY && str_starts(f->what, "work in place"))
		return err_set(
		    e, ERR_CONFLICT,
		    "%s: another run works in place in %s: one at a time does; wait for it, or run without --in-place, in a copy",
		    t->label, t->path);
	if (n == EBUSY && !str_starts(f->what, "remove"))
		return err_set(
		    e, ERR_CONFLICT,
		    "%s: the run's directory is still in use there by another session, which does not end",
		    t->label);
	if (n == ENOSPC || n == EDQUOT || (n == EAGAIN && str_starts(f->what, REMOTE_MADE_ROOM)))
		return err_set(
		    e, ERR_NO_SPACE,
		    "%s: %s: %s: no room in %s there, also without the trees that next runs would start from: free some; 'airlock env clean' with "
		    "the same --ssh removes what is Airlock's",
		    t->label, buf_text(&b), strerror(n == EAGAIN ? ENOSPC : n), t->path);
	return err_sys(e, n, "%s: %s", t->label, buf_text(&b));
}
