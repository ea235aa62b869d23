#include "provider/ssh/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/str.h"

#define LOOK_MS 100
#define SAID_MAX 300
/* Whole pages: a write that would grow the file is refused page by page, so a short word is never lost to a long one. */
#define SAID_ROOM (64 << 10)

#define PLACE "${XDG_CACHE_HOME:-$HOME/.cache}/airlock"

/* $0: the hash, $1: the size, $2: the kind, $3: a name of this time alone, for the home may be shared by machines. The directory is as the guest's script has left it: ours alone. */
#define SCRIPT                                                                                                   \
	"umask 077; d=" PLACE "; g=$d/$2-$0; "                                                                   \
	"x=$(sha256sum <\"$g\" 2>/dev/null) && test \"${x%% *}\" = \"$0\" && test -x \"$g\" && exit 0; "         \
	"f() { rm -f \"$t\"; echo \"$*\"; exit 98; }; "                                                          \
	"t=$d/.new-$3; rm -f \"$t\"; { head -c \"$1\" >\"$t\"; } 2>/dev/null; "                                  \
	"test \"$(($(wc -c <\"$t\")))\" -eq \"$1\" || f \"$t could not be written whole: disk or quota full\"; " \
	"if x=$(sha256sum <\"$t\" 2>/dev/null); then "                                                           \
	"test \"${x%% *}\" = \"$0\" || f \"it did not arrive as it was sent\"; fi; "                             \
	"chmod 700 \"$t\" && mv -f \"$t\" \"$g\" || f \"$g cannot be put in place\"; "                           \
	"\"$g\" --version >/dev/null 2>&1 || f \"$g does not run: a file system without execution, or a policy\""

static const char *called(const char *kind)
{
	return strcmp(kind, "gateway") == 0 ? "gateway program of the bridge"
					    : "launcher of the sandbox";
}

static int failed(const struct ssh_session *x, const char *kind, int out, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	char said[SAID_MAX];
	ssize_t n = pread(out, said, sizeof(said), 0);

	n = n > 0 ? (ssize_t)strnlen(said, (size_t)n) : 0;
	while (n > 0 && said[n - 1] == '\n')
		n--;
	(void)str_printable(&b, said, (size_t)n);
	return err_set(e, ERR_UNAVAILABLE, "%s cannot take the %s: %s", x->target.label,
		       called(kind), b.len ? buf_text(&b) : "its shell did not say why");
}

int ssh_tool_said(void)
{
	_cleanup_fd_ int fd = memfd_create("airlock-said", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, SAID_ROOM) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)
		return -1;
	return TAKE_FD(fd);
}

/* Until the command has ended: 0, or why not. Time and cancel are judged on every turn: other events do not put them off. */
static int wait_for(struct ssh_session *x, uint32_t id, const char *kind, int out,
		    const volatile int *cancel, struct err *e)
{
	int64_t until = clock_mono_ns() + REMOTE_UPLOAD_MS * NS_PER_MS;
	struct pollfd p = {.fd = x->link.ch.fd, .events = POLLIN};
	struct sandbox_event ev;
	int r;

	for (;;) {
		r = guestlink_next_event(&x->link, &ev, e);
		if (r < 0)
			return r;
		if (r > 0 && ev.type == SE_ENDED)
			return err_set(e, ERR_UNAVAILABLE, "%s",
				       x->sb.why[0] ? x->sb.why : "the session ended too early");
		if (r > 0 && ev.id == id && ev.type == SE_EXITED)
			return ev.code || ev.signo ? failed(x, kind, out, e) : 0;
		if (r > 0 && ev.id == id && ev.type == SE_FAILED)
			return err_sys(e, ev.sys, "%s: start /bin/sh", x->target.label);
		if (cancel && *cancel)
			return err_set(e, ERR_CANCELLED, "stopped while the %s was sent to %s",
				       called(kind), x->target.label);
		if (clock_mono_ns() > until)
			return err_set(e, ERR_TIMEOUT,
				       "ssh %s: sending the %s took longer than %d s",
				       x->target.label, called(kind), REMOTE_UPLOAD_MS / 1000);
		if (r == 0)
			(void)poll(&p, 1, LOOK_MS);
	}
}

/* Words of a vector are not written to. */
static char *word(const char *s)
{
	return (char *)(uintptr_t)s;
}

int ssh_tool_put(struct ssh_session *x, const char *kind, const volatile int *cancel,
		 char hash[SSH_HASH_LEN + 1], struct err *e)
{
	_cleanup_fd_ int out = ssh_tool_said(), in = -1;
	struct ssh_program p;
	char size[24], name[32], once[ID_LEN + 1];
	char *const argv[] = {word("/bin/sh"), word("-c"), word(SCRIPT), p.hash, size,
			      word(kind),      once,	   NULL};
	char *const env[] = {NULL};
	struct exec_spec s = {.argv = argv, .env = env, .cwd = "/", .out = out, .err = out};
	uint32_t id;
	int r;

	if (out < 0)
		return err_sys(e, errno, "send the %s", called(kind));
	r = id_new(once);
	if (r < 0)
		return err_sys(e, -r, "no random number");
	(void)snprintf(name, sizeof(name), "airlock-%s", kind);
	r = ssh_program_open(name, x->machine, &p, e);
	if (r < 0)
		return r;
	in = p.fd;
	s.in = in;
	(void)snprintf(size, sizeof(size), "%llu", (unsigned long long)p.size);
	r = guestlink_exec(&x->link, &s, &id, e);
	if (r == 0)
		r = wait_for(x, id, kind, out, cancel, e);
	(void)memcpy(hash, p.hash, sizeof(p.hash));
	return r;
}

int ssh_tool_gateway(struct ssh_session *x, const volatile int *cancel, struct err *e)
{
	char hash[SSH_HASH_LEN + 1];
	int r = ssh_tool_put(x, "gateway", cancel, hash, e);

	if (r < 0)
		return r;
	r = strv_add(&x->gateway, "/bin/sh");
	if (r == 0)
		r = strv_add(&x->gateway, "-c");
	if (r == 0)
		r = strv_add(&x->gateway, "exec \"" PLACE "/gateway-$0\"");
	if (r == 0)
		r = strv_add(&x->gateway, hash);
	x->sb.gateway = x->gateway;
	return r < 0 ? err_set(e, ERR_NOMEM, "ssh: out of memory") : 0;
}
