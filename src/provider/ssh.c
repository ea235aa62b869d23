/*
 * The ssh provider: commands run on another machine, as the account that ssh logs in to.
 *
 * Policy: there is NO isolation there, and it says so, unless it is asked for by name (provider ssh-sandbox, ssh/box.h): then there is no less than all of
 * it, or no start. What comes back is foreign: it passes through airlock-remote
 * (confined, provider/ssh/link.h), then through the same doors as a sandbox's. What goes there is what a sandbox would get; the
 * environment of a command travels in the stream, never in a command line. Whatever needs isolation is refused, not ignored.
 *
 * A lease's work lies there in DIRECTORY/.airlock-runtime/runs/<lease>, and stays until it is here: acquire on a lease whose
 * workspace is there starts from it, which is how a run is recovered; forget removes it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "provider/ssh/acquire.h"
#include "provider/ssh/plain.h"
#include "provider/ssh/places.h"
#include "provider/ssh/reach.h"
#include "provider/ssh/session.h"
#include "provider/ssh/unreached.h"

static struct ssh_session *session_of(struct sandbox *sb)
{
	return (struct ssh_session *)sb;
}

static int no(struct err *e, const char *what)
{
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "%s: provider ssh isolates nothing on the other machine, so this cannot be had there: leave it "
	    "out, or use --provider native",
	    what);
}

static int validate(const struct sandbox_spec *s, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	int r = ssh_target_parse(s->remote, &t, e);

	if (r < 0)
		return r;
	if (s->net != NET_HOST)
		return no(e, "--net");
	if (s->binds_len)
		return no(e, "--bind-ro");
	if (s->image)
		return no(e, "--image");
	if (s->limits.memory_bytes || s->limits.pids || s->limits.cpu_milli)
		return no(e, "--memory, --pids and --cpus");
	if (s->without & ~WITHOUT_LANDLOCK)
		return no(e, "--without");
	return ssh_target_files(&t, e);
}

static int not_boxed(struct err *e, const char *what, const char *why)
{
	return err_set(e, ERR_UNAVAILABLE, "%s: cannot be had with --remote-sandbox: %s", what,
		       why);
}

/* What the launcher there could not do, or nothing here serves. The layers themselves it tries itself. */
static int validate_sandbox(const struct sandbox_spec *s, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	int r = ssh_target_parse(s->remote, &t, e);

	if (r < 0)
		return r;
	if (s->binds_len)
		return not_boxed(e, "--bind-ro", "it shows paths of this machine");
	if (s->image)
		return not_boxed(e, "--image", "images lie on this machine");
	if (s->keep)
		return not_boxed(e, "--keep", "a sandbox there ends with its session");
	if (t.guest == GUEST_NEVER)
		return not_boxed(e, "--ssh-guest never", "the sandbox is our program's");
	return ssh_target_files(&t, e);
}

static void owner(uid_t *uid, gid_t *gid)
{
	*uid = (uid_t)-1;
	*gid = (gid_t)-1;
}

static int acquire(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	int r = validate(s, e);

	return r < 0 ? r : ssh_acquire(s, ret, e);
}

static int acquire_in_place(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	int r = validate(s, e);

	return r < 0 ? r : ssh_acquire_in_place(s, ret, e);
}

static int acquire_sandbox(const struct sandbox_spec *s, struct sandbox **ret, struct err *e)
{
	int r = validate_sandbox(s, e);

	return r < 0 ? r : ssh_acquire_sandbox(s, ret, e);
}

static int event_fd(struct sandbox *sb)
{
	return session_of(sb)->link.ch.fd;
}

static int next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	return guestlink_next_event(&session_of(sb)->link, ret, e);
}

static int exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	return guestlink_exec(&session_of(sb)->link, x, ret_id, e);
}

static int signal_command(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	return guestlink_signal(&session_of(sb)->link, id, signo, e);
}

static int winsize(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols)
{
	return guestlink_winsize(&session_of(sb)->link, id, rows, cols);
}

static int pack(struct sandbox *sb, int out_fd, uint32_t *ret_id, struct err *e)
{
	return guestlink_pack(&session_of(sb)->link, out_fd, ret_id, e);
}

/*
 * Always an end here. Where the other side could not be told, or did not answer, its guest ends everything by itself, and whoever
 * comes next (recover, forget) takes its lock, which is the proof.
 */
static int release(struct sandbox *sb, struct err *e)
{
	(void)e;
	session_end(session_of(sb));
	return 0;
}

static void detach(struct sandbox *sb)
{
	session_end(session_of(sb));
}

static int destroy_storage(const char *lease_dir, struct err *e)
{
	(void)lease_dir;
	(void)e;
	return 0;
}

static int remove_there(const struct sandbox_spec *s, bool sandbox, bool give_up, struct err *e)
{
	_cleanup_free_ char *path = path_join(s->lease_dir, "there");
	struct ssh_session *x = NULL;
	int r;

	if (give_up && path)
		return unlink(path) < 0 ? err_sys(e, errno, "%s", path) : 0;
	if (ssh_plain_is(s->lease_dir))
		return ssh_plain_forget(s, e);
	r = session_start(s, true, &x, e);
	if (r == 0) {
		x->sandbox = sandbox;
		r = session_open_run(x, s, RO_REMOVE, RM_REMOVED, e);
	}
	if (r == -ENOENT && x)
		r = err_set(
		    e, ERR_UNAVAILABLE,
		    "the directory %s is not there on %s: not mounted now, or another machine answers; what the "
		    "run left stays until it is there again ('airlock rm --force' gives it up)",
		    x->target.path, x->target.label);
	if (x)
		session_end(x);
	return r;
}

static int forget_there(const struct sandbox_spec *s, bool sandbox, bool give_up, struct err *e)
{
	int r = reach_mark(s, NULL, e);
	bool there = r > 0;

	if (there)
		r = remove_there(s, sandbox, give_up, e);
	return r == 0 && there && !give_up && s->places ? ssh_places_sweep(s, e) : r;
}

static int forget(const struct sandbox_spec *s, bool give_up, struct err *e)
{
	return unreached_remember(s, forget_there(s, false, give_up, e), e);
}

static int forget_sandbox(const struct sandbox_spec *s, bool give_up, struct err *e)
{
	return unreached_remember(s, forget_there(s, true, give_up, e), e);
}

int ssh_clean(char *const *remote, const char *lease_dir, struct rm_cleaned *ret, char **ret_label,
	      struct err *e)
{
	char *places[] = {(char *)(uintptr_t) "/tmp", NULL};
	const struct sandbox_spec s = {
	    .remote = remote, .lease_id = "clean", .lease_dir = lease_dir, .places = places};
	struct ssh_session *x = NULL;
	int r = session_start(&s, false, &x, e);

	if (r < 0)
		return r;
	r = session_open_run(x, &s, RO_REMOVE | RO_CLEAN, RM_REMOVED, e);
	if (r == 0 && rm_cleaned_get(x->answer, ret) < 0)
		r = err_set(e, ERR_PROTOCOL, "%s: malformed answer", x->target.label);
	*ret_label = strdup(x->target.label);
	session_end(x);
	return r < 0 ? r : ssh_places_sweep(&s, e);
}

/* What all three do through the session with the guest there. */
#define OVER_A_SESSION                                                                     \
	.elsewhere = true, .owner = owner, .event_fd = event_fd, .next_event = next_event, \
	.exec = exec, .signal = signal_command, .winsize = winsize, .release = release,    \
	.detach = detach, .destroy_storage = destroy_storage

const struct provider_ops provider_ssh = {
    OVER_A_SESSION,
    .name = "ssh",
    .isolates = false,
    .in_place = false,
    .statement =
	"NO ISOLATION ON THE REMOTE: the command ran as the account that ssh logs in to, on that "
	"machine, in a copy of the workspace",
    .validate = validate,
    .acquire = acquire,
    .attach = ssh_attach,
    .pack = pack,
    .forget = forget,
};

const struct provider_ops provider_ssh_in_place = {
    OVER_A_SESSION,
    .name = "ssh-in-place",
    .isolates = false,
    .in_place = true,
    .statement =
	"IN PLACE ON THE REMOTE: the command ran as the account that ssh logs in to, in the directory itself: nothing was copied, nothing "
	"was validated, and there is no isolation",
    .validate = validate,
    .acquire = acquire_in_place,
    .forget = forget,
};

const struct provider_ops provider_ssh_sandbox = {
    OVER_A_SESSION,
    .name = "ssh-sandbox",
    .isolates = true,
    .in_place = false,
    .statement =
	"Sandbox of the other machine's kernel: own namespaces, system call filter, no capabilities, read-only system, private "
	"home; whoever owns that machine owns the sandbox.",
    .validate = validate_sandbox,
    .acquire = acquire_sandbox,
    .pack = pack,
    .forget = forget_sandbox,
};
