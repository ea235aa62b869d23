#include "provider/ssh/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/blake2b.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "os/self.h"
#include "provider/native/fill.h"
#include "provider/ssh/again.h"
#include "provider/ssh/base.h"
#include "provider/ssh/reach.h"

#define LOOK_MS 100
#define END_MS 8000 /* airlock-remote gives up by itself after 6 s */
#define SSH_END_MS 2000
/* sun_path, less what ssh appends while it makes the socket (".", 16 letters) and the end. */
#define CONTROL_MAX (108 - 17 - 1)
#define KEY_DIGITS 16
/* From a request to its answer. Silence of the whole session is airlock-remote's to notice. */
#define ANSWER_MS (REMOTE_TAKE_MS + 60000)

/* Where the connection's socket lies. -------------------------------------------------------- */

static bool private_dir(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return false;
	return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 077);
}

static void target_key(char *const *words, char out[KEY_DIGITS + 1])
{
	uint8_t sum[BLAKE2B_OUT];
	struct blake2b b;

	blake2b_init(&b);
	for (; *words; words++)
		blake2b_update(&b, *words, strlen(*words) + 1);
	blake2b_final(&b, sum);
	str_hex(out, sum, KEY_DIGITS / 2);
}

char *session_control(const struct sandbox_spec *s)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	_cleanup_free_ char *a =
	    runtime && runtime[0] == '/' ? path_join(runtime, "airlock-ssh") : NULL;
	_cleanup_free_ char *up = path_join(s->lease_dir, "../../ssh");
	_cleanup_free_ char *b = up ? path_normalize(up) : NULL, *c = NULL;
	char key[KEY_DIGITS + 1];

	if (asprintf(&c, "/tmp/airlock-ssh.%u", (unsigned)geteuid()) < 0)
		c = NULL;
	target_key(s->remote, key);
	for (size_t i = 0; i < 3; i++) {
		const char *dir = (const char *[]){a, b, c}[i];

		if (dir && strlen(dir) + 1 + KEY_DIGITS <= CONTROL_MAX && !strpbrk(dir, "%\"\n") &&
		    private_dir(dir))
			return path_join(dir, key);
	}
	return NULL;
}

/* The guest program. ------------------------------------------------------------------------- */

/* RM_SETUP; the descriptors but the program's are the caller's. */
static int send_setup(struct ssh_session *x, int in, int out, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	struct ssh_program p;
	char here[SSH_MACHINE_MAX + 1];
	struct rm_setup m = {.hash = p.hash,
			     .machine = x->machine[0] ? x->machine : here,
			     .shell_ms = REMOTE_CONNECT_S * 1000 + REMOTE_SHELL_MS,
			     .upload_ms = REMOTE_UPLOAD_MS,
			     .silent_ms = REMOTE_SILENT_MS};
	int r = ssh_program_open("airlock-guest", x->machine, &p, e);

	if (r < 0)
		return r;
	m.size = p.size;
	ssh_machine_here(here);
	(void)rm_setup_put(&b, &m);
	r = guestlink_request(&x->link, RM_SETUP, &b, (int[]){in, out, x->ssh.err, p.fd},
			      RM_SETUP_FDS, e);
	cleanup_fd(&p.fd);
	return r;
}

/* Start. ------------------------------------------------------------------------------------- */

/* RM_LINK in words. */
static int explain(struct ssh_session *x, const struct frame *f, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct view said;
	struct cursor c;
	uint32_t how;

	cursor_init(&c, f->payload.p, f->payload.n);
	how = cursor_u32(&c);
	said = cursor_bytes(&c, FRAME_MAX);
	/* Bytes of a foreign machine: a NUL ends what is looked at. */
	text = said.n ? strndup(said.p, said.n) : NULL;
	x->refused = how == LINK_REFUSED ? ssh_refusal(text ? text : "") : REFUSED_NOT;
	if (x->refused == REFUSED_MACHINE && strchr(text, ' '))
		(void)snprintf(x->is, sizeof(x->is), "%.*s",
			       (int)strcspn(strchr(text, ' ') + 1, "\r\n"), strchr(text, ' ') + 1);
	return ssh_explain(&x->target, how, text ? text : "", x->up, e);
}

/* The session was cut while commands may run, for now or for ever. */
static int hear_link(struct guestlink *g, const struct frame *f)
{
	struct ssh_session *x =
	    (struct ssh_session *)((char *)g - offsetof(struct ssh_session, link));
	struct err e = ERR_INIT;
	struct cursor c;

	if (f->type != RM_LINK)
		return ssh_again_hear(x, f) > 0 ? 0 : -EPROTO;
	(void)explain(x, f, &e);
	(void)snprintf(x->sb.why, sizeof(x->sb.why), "%s", e.text);
	cursor_init(&c, f->payload.p, f->payload.n);
	ssh_again_over(x, cursor_u32(&c));
	return 1;
}

/* How long an answer may take; what copies or removes a tree takes as long as that is, with signs of life. */
static const struct awaited {
	uint8_t type;
	int64_t ms;
	const char *what;
} awaited[] = {
    {RM_HELLO, REMOTE_CONNECT_S * 1000 + REMOTE_SHELL_MS + REMOTE_UPLOAD_MS + ANSWER_MS,
     "the connection, the login and the guest program"},
    {RM_OPENED, ANSWER_MS, "opening the run's directory"},
    {GM_READY, ANSWER_MS, "starting the guest's server"},
    {RM_BOXED, REMOTE_TREE_MS, "starting the sandbox there"},
    {RM_LANDED, REMOTE_TREE_MS, "writing the workspace"},
    {RM_REMOVED, REMOTE_TREE_MS, "removing the run's directory"},
};

static const struct awaited *awaited_of(uint8_t type)
{
	size_t i = 0;

	while (i + 1 < ARRAY_LEN(awaited) && awaited[i].type != type)
		i++;
	return &awaited[i];
}

static int overdue(const struct ssh_session *x, const struct awaited *w, struct err *e)
{
	return err_set(e, ERR_TIMEOUT,
		       "ssh %s: %s took longer than %d s: that machine is too slow, or it hangs",
		       x->target.label, w->what, (int)(w->ms / 1000));
}

int session_await(struct ssh_session *x, uint8_t type, const volatile int *cancel, struct err *e)
{
	const struct awaited *w = awaited_of(type);
	int64_t until = clock_mono_ns() + w->ms * NS_PER_MS;
	bool hurry = x->until_ns && x->until_ns < until;
	bool reach = x->reach_ns && type == RM_HELLO;
	struct rm_fault fault;
	struct frame f;
	int r;

	if (hurry)
		until = x->until_ns;
	if (reach)
		until = clock_mono_ns() + x->reach_ns;
	do {
		r = chan_recv(&x->link.ch, clock_mono_ns() + LOOK_MS * NS_PER_MS, &f, NULL, e);
		if (r == -EAGAIN && cancel && *cancel)
			return err_set(e, ERR_CANCELLED, "stopped while %s was being waited for",
				       x->target.label);
		if (r == -EAGAIN && clock_mono_ns() > until)
			return reach ? reach_failed(x->target.label, x->reach_ns, e)
			       : hurry
				   ? err_set(e, ERR_TIMEOUT,
					     "ssh %s: %s is not done yet; it is gone on with later",
					     x->target.label, w->what)
				   : overdue(x, w, e);
	} while (r == -EAGAIN);
	if (r < 0)
		return r;
	if (r == 0 || f.type == GM_ENDED) {
		x->link.ended = true;
		return err_set(e, ERR_UNAVAILABLE, "ssh %s: the session ended too early",
			       x->target.label);
	}
	if (f.type == RM_LINK) {
		x->link.ended = true;
		return explain(x, &f, e);
	}
	if (f.type == RM_FAULT && rm_fault_get(f.payload, &fault) == 0) {
		x->unmade = type == RM_OPENED && ssh_fault_unmade(&fault);
		return ssh_explain_fault(&x->target, &fault, e);
	}
	x->answer = f.payload;
	if (f.type == RM_NOT_BOXED && type == RM_BOXED)
		return 1;
	return f.type == type
		   ? 0
		   : err_set(e, ERR_PROTOCOL, "ssh %s: the guest there answers out of order",
			     x->target.label);
}

static int start(struct ssh_session *x, const struct sandbox_spec *s, struct err *e)
{
	_cleanup_fd_ int in = -1, out = -1;
	struct chan ch;
	int r;

	x->control = session_control(s);
	r = ssh_again_start(x, &in, &out, e);
	if (r < 0)
		return r;
	r = helper_start(&x->helper, "airlock-remote", &ch, e);
	if (r < 0)
		return r;
	guestlink_init(&x->link, ch.fd, "airlock-remote");
	x->link.other = hear_link;
	r = send_setup(x, in, out, e);
	cleanup_fd(&x->ssh.err);
	if (r < 0)
		return r;
	cleanup_fd(&in);
	cleanup_fd(&out);
	r = session_await(x, RM_HELLO, s->cancel, e);
	x->up = r == 0;
	return r;
}

/* machine: "": as this one; else what it turned out to be. */
static int try_as(const struct sandbox_spec *s, bool reach, char machine[SSH_MACHINE_MAX + 1],
		  struct ssh_session **ret, enum ssh_refused *ret_refused, struct err *e)
{
	int64_t began = clock_mono_ns();
	struct ssh_session *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	x->link.ch.fd = -1;
	x->out = -1;
	memcpy(x->machine, machine, sizeof(x->machine));
	x->link.ended = true;
	x->reach_ns = reach ? reach_ns(s) : 0;
	/* Of who has little time, what is slow there takes nothing of it. */
	x->until_ns = s->until_ns && reach ? s->until_ns + x->reach_ns : s->until_ns;
	x->ssh = (struct process){.pid = -1, .pidfd = -1, .in = -1, .out = -1, .err = -1};
	r = ssh_target_parse(s->remote, &x->target, e);
	if (r == 0)
		r = ssh_target_identity(&x->target, s->identities, e);
	if (r == 0 && asprintf(&x->inside, "%s/" REMOTE_RUNS "/%s/workspace", x->target.path,
			       s->lease_id) < 0) {
		x->inside = NULL;
		r = err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	if (r == 0)
		r = start(x, s, e);
	*ret_refused = r < 0 ? x->refused : REFUSED_NOT;
	memcpy(machine, x->is, sizeof(x->is));
	if (r < 0) {
		session_end(x);
		return r;
	}
	x->took_ns = clock_mono_ns() - began;
	*ret = x;
	return 0;
}

/* A second time for a machine of another kind, if there are programs for it: also that of the bridge, where there is one. */
static int try_once(const struct sandbox_spec *s, bool reach, struct ssh_session **ret,
		    enum ssh_refused *ret_refused, struct err *e)
{
	char machine[SSH_MACHINE_MAX + 1] = "";
	int r = try_as(s, reach, machine, ret, ret_refused, e);

	if (r == 0 || *ret_refused != REFUSED_MACHINE ||
	    !ssh_program_is_for("airlock-guest", machine) ||
	    (s->gateway && !ssh_program_is_for("airlock-gateway", machine)))
		return r;
	if (e)
		*e = (struct err)ERR_INIT;
	return try_as(s, reach, machine, ret, ret_refused, e);
}

int session_try(const struct sandbox_spec *s, struct ssh_session **ret,
		enum ssh_refused *ret_refused, struct err *e)
{
	return try_once(s, false, ret, ret_refused, e);
}

int session_start(const struct sandbox_spec *s, bool reach, struct ssh_session **ret, struct err *e)
{
	enum ssh_refused refused;

	return try_once(s, reach, ret, &refused, e);
}

int session_open_run(struct ssh_session *x, const struct sandbox_spec *s, unsigned flags,
		     uint8_t answer, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * PATH_MEMBER_MAX);
	_cleanup_free_ char *lease = strdup(s->lease_id);
	bool keep = flags == RO_REMOVE && !x->target.no_base && !s->nothing_stays;
	_cleanup_free_ char *base = keep ? ssh_base_name(s, x->sandbox) : strdup("");
	const struct rm_open m = {.flags = flags,
				  .root = x->target.path,
				  .lease = lease,
				  .base = base,
				  .owner = x->sandbox ? SANDBOX_UID : 0};
	int r = lease && base ? rm_open_put(&b, &m) : -ENOMEM;

	if (r < 0)
		return err_sys(e, -r, "open the directory of lease %s on %s", s->lease_id,
			       x->target.label);
	r = guestlink_request(&x->link, RM_OPEN, &b, NULL, 0, e);
	if (r == 0)
		r = session_await(x, answer, s->cancel, e);
	if (r == 0 && base[0])
		ssh_base_kept(s, x->sandbox);
	return r;
}

void session_end(struct ssh_session *x)
{
	struct pollfd p = {.fd = x->ssh.pidfd, .events = POLLIN};

	ssh_again_give_up(x);
	/* Without a word from the guest, or a connection, there is nobody to tell: the connection is cut. */
	if (x->up && !x->sb.away)
		guestlink_shutdown(&x->link, clock_mono_ns() + END_MS * NS_PER_MS);
	chan_done(&x->link.ch);
	helper_kill(&x->helper);
	if (p.fd >= 0 && x->up)
		(void)poll(&p, 1, SSH_END_MS);
	cleanup_fd(&x->out);
	/* Its group has the way through a jump host in it, and that belongs to the shared connection: other sessions need it. */
	process_kill_one(&x->ssh);
	ssh_target_done(&x->target);
	strv_free(x->gateway);
	free(x->inside);
	free(x->control);
	free(x->lease_dir);
	free(x);
}
