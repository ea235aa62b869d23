/*
 * The native provider: sandboxes of this machine's kernel.
 *
 * Each sandbox is one airlock-launch process, which is trusted, and below it a guest, which is not. This
 * side speaks only to airlock-launch; the one descriptor it takes from there is the pidfd of the
 * guest, with which a release proves that every process has ended.
 */
#include "provider/native.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "provider/native_storage.h"
#include "wire/guest.h"

#define END_WAIT_MS 4000   /* airlock-launch kills after 1.5 s by itself */
#define SWEEP_BUDGET 20000 /* entries removed from the trash by one destroy */

static struct native *native_of(struct sandbox *sb)
{
	return (struct native *)sb;
}

int64_t native_after(int64_t ms)
{
	return clock_mono_ns() + ms * NS_PER_MS;
}

static int validate(const struct sandbox_spec *s, struct err *e)
{
	struct plan p;
	int r = native_plan(s, &p, e);

	plan_done(&p);
	return r;
}

static void owner(uid_t *uid, gid_t *gid)
{
	*uid = geteuid() == 0 ? SANDBOX_UID : (uid_t)-1;
	*gid = geteuid() == 0 ? SANDBOX_UID : (gid_t)-1;
}

static int event_fd(struct sandbox *sb)
{
	return native_of(sb)->link.ch.fd;
}

static int next_event(struct sandbox *sb, struct sandbox_event *ret, struct err *e)
{
	return guestlink_next_event(&native_of(sb)->link, ret, e);
}

static int exec(struct sandbox *sb, const struct exec_spec *x, uint32_t *ret_id, struct err *e)
{
	return guestlink_exec(&native_of(sb)->link, x, ret_id, e);
}

static int take_socket(struct sandbox *sb)
{
	struct native *n = native_of(sb);

	return n->sockets ? n->socket[--n->sockets] : -1;
}

static int signal_command(struct sandbox *sb, uint32_t id, int signo, struct err *e)
{
	return guestlink_signal(&native_of(sb)->link, id, signo, e);
}

static int winsize(struct sandbox *sb, uint32_t id, unsigned rows, unsigned cols)
{
	return guestlink_winsize(&native_of(sb)->link, id, rows, cols);
}

static int pack(struct sandbox *sb, int out_fd, uint32_t *ret_id, struct err *e)
{
	return guestlink_pack(&native_of(sb)->link, out_fd, ret_id, e);
}

/* Readable: pid 1 and with it every process of the sandbox has ended. */
static bool guest_ended(const struct native *n, int64_t deadline_ns)
{
	struct pollfd p = {.fd = n->guest_pidfd, .events = POLLIN};
	int r;

	do {
		r = poll(&p, 1, clock_poll_ms(deadline_ns, clock_mono_ns()));
	} while (r < 0 && errno == EINTR);
	return r > 0;
}

static int release(struct sandbox *sb, struct err *e)
{
	struct native *n = native_of(sb);
	bool gone;

	guestlink_shutdown(&n->link, native_after(END_WAIT_MS));
	gone = guest_ended(n, clock_mono_ns());
	if (!gone) {
		/* launch hangs or was killed. As its parent, or as the sandbox's owner, we end it ourselves. */
		native_reap(n, true);
		(void)syscall(SYS_pidfd_send_signal, n->guest_pidfd, SIGKILL, NULL, 0);
		gone = guest_ended(n, native_after(END_WAIT_MS));
	}
	chan_done(&n->link.ch);
	native_reap(n, false);
	native_free(n);
	return gone
		   ? 0
		   : err_set(e, ERR_INTERNAL,
			     "a sandbox did not end within %d ms after KILL: a process of it hangs "
			     "in the kernel",
			     END_WAIT_MS);
}

static void detach(struct sandbox *sb)
{
	native_free(native_of(sb));
}

static int destroy_storage(const char *lease_dir, struct err *e)
{
	_cleanup_free_ char *trash = path_join(lease_dir, "../../trash");

	return storage_destroy(lease_dir, trash, SWEEP_BUDGET, e);
}

const struct provider_ops provider_native = {
    .name = "native",
    .isolates = true,
    .in_place = false,
    .statement = "Sandbox of this machine's kernel: own namespaces, system call filter, no "
		 "capabilities, read-only system, private home.",
    .validate = validate,
    .owner = owner,
    .acquire = native_acquire,
    .attach = native_attach,
    .event_fd = event_fd,
    .next_event = next_event,
    .exec = exec,
    .socket = take_socket,
    .signal = signal_command,
    .winsize = winsize,
    .pack = pack,
    .release = release,
    .detach = detach,
    .destroy_storage = destroy_storage,
};
