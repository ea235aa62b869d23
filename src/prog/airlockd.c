/*
 * airlockd: the API for operators. Options, signals, the loop; everything else is in api/.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "api/access.h"
#include "api/api.h"
#include "api/jobs.h"
#include "api/server.h"
#include "api/sweeper.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/nodump.h"
#include "base/version.h"
#include "os/proc.h"
#include "prog/airlockd_options.h"

#define FILES_WANTED (API_CONNECTIONS_MAX + API_CONNECTIONS_OWN + 128)

/* What the loop's callbacks need: one daemon a process. */
struct daemon {
	struct loop_watch signals; /* first, so that a watch is its daemon */
	struct api api;
	struct listen_at at, own; /* where it is asked; and by the command line of its state */
	int64_t stop_by_ns;	  /* INT64_MAX: not stopping */
};

/* Where we listen, for people, and for `airlock run --env` of the same state: who we are. */
static char *where_file(const struct api *a, struct proc_id *ret_self, char text[96])
{
	if (proc_self(ret_self, NULL) < 0)
		return NULL;
	(void)snprintf(text, 96, "%d %" PRIu64 " %s\n", (int)ret_self->pid, ret_self->start,
		       ret_self->boot);
	return api_path(a, DAEMON_FILE);
}

static void tell_where(const struct api *a, const char *where)
{
	_cleanup_free_ char *tmp = api_path(a, DAEMON_FILE ".new");
	_cleanup_fd_ int fd = -1;
	struct proc_id self;
	char who[96];
	_cleanup_free_ char *path = where_file(a, &self, who);

	if (!path || !tmp)
		return;
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || dprintf(fd, "%s\n%s", where, who) < 0 || rename(tmp, path) < 0)
		(void)fprintf(stderr, "airlockd: %s: %s\n", path, strerror(errno));
}

/* Not the word of a daemon that took over meanwhile. */
static void tell_gone(const struct api *a)
{
	char who[96], text[512] = "";
	struct proc_id self;
	_cleanup_free_ char *path = where_file(a, &self, who);
	_cleanup_fd_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;

	if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, who))
		(void)unlink(path);
}

/* SIGHUP: the certificate was renewed. What is wrong with it is told, and the old one goes on. */
static void renew(struct daemon *d)
{
	const struct api_config *cfg = &d->api.cfg;
	_cleanup_tls_ struct tls_pair tls = {0};
	struct err e = ERR_INIT;
	int r = tls_read(cfg->tls_cert, cfg->tls_key, &tls, &e);

	if (r == 0)
		r = server_renew(&d->api, &tls, &e);
	if (r < 0)
		(void)fprintf(stderr, "airlockd: SIGHUP changes nothing: %s\n", e.text);
	else
		(void)fprintf(stderr, "airlockd: new connections get the certificate of %s\n",
			      cfg->tls_cert);
}

static void on_signal(struct loop_watch *w, uint32_t events)
{
	struct daemon *d = (struct daemon *)w;
	struct signalfd_siginfo si;

	(void)events;
	if (read(w->fd, &si, sizeof(si)) != (ssize_t)sizeof(si) || d->api.stopping)
		return;
	if (si.ssi_signo == SIGHUP) {
		renew(d);
		return;
	}
	(void)fprintf(stderr, "airlockd: stopping: %zu requests under way\n",
		      server_active(&d->api));
	d->api.stopping = true;
	d->stop_by_ns = clock_mono_ns() + API_STOP_MS * NS_PER_MS;
	/* Before the port is anybody's: whoever asks from now on finds no daemon, and tells its key to none. */
	tell_gone(&d->api);
	server_quiesce(&d->api);
	listen_done(&d->at);
	listen_done(&d->own);
}

static void tick(void *arg, int64_t now_ns)
{
	struct daemon *d = arg;
	struct api *a = &d->api;
	int64_t next, other;

	jobs_tick(a, now_ns);
	next = sweeper_tick(a, now_ns);
	other = server_tick(a, now_ns);
	next = other < next ? other : next;
	other = jobs_deadline(a);
	next = other < next ? other : next;
	if (a->stopping) {
		next = d->stop_by_ns < next ? d->stop_by_ns : next;
		a->loop.stop =
		    (server_active(a) == 0 && jobs_awaited(a) == 0) || now_ns >= d->stop_by_ns;
	}
	a->loop.wake_ns = next;
}

static int watch_signals(struct daemon *d, struct err *e)
{
	sigset_t set;
	int fd, r;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)signal(SIGPIPE, SIG_IGN);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(e, errno, "block signals");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_sys(e, errno, "watch signals");
	r = loop_add(&d->api.loop, &d->signals, fd, EPOLLIN, on_signal);
	return r < 0 ? err_sys(e, -r, "watch signals") : 0;
}

/* systemd's readiness protocol: one datagram. */
static void notify_ready(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");

	if (path)
		listen_notify(path, text);
}

static int serve(struct daemon *d, struct tls_pair *tls, struct err *e)
{
	struct listen_at *at = &d->at;
	struct api *a = &d->api;
	int r = loop_init(&a->loop, e);

	if (r == 0)
		r = watch_signals(d, e);
	if (r == 0)
		r = jobs_new(a, "/proc/self/exe", e);
	if (r == 0) {
		jobs_adopt(a);
		jobs_adopt_others(a);
	}
	if (r == 0)
		r = server_start(a, TAKE_FD(at->fd), TAKE_FD(d->own.fd), tls, e);
	tls_done(tls);
	if (r < 0)
		return r;
	a->ready = true;
	(void)fprintf(stderr, "airlockd %s: listening at %s, %s mode, ready after %.1f ms\n",
		      AIRLOCK_VERSION, at->text,
		      a->cfg.mode == MODE_LOCAL_TRUSTED ? "local_trusted" : "authenticated",
		      (double)(clock_mono_ns() - a->started_ns) / 1e6);
	notify_ready("READY=1\n");
	tell_where(a, at->text);
	r = loop_run(&a->loop, tick, d, e);
	tell_gone(a);
	notify_ready("STOPPING=1\n");
	return r;
}

static int run(struct options *o, struct err *e)
{
	struct daemon d = {.at.fd = -1, .own.fd = -1, .stop_by_ns = INT64_MAX};
	struct rlimit l;
	_cleanup_tls_ struct tls_pair tls;
	int r = tls_read(o->cfg.tls_cert, o->cfg.tls_key, &tls, e);
	enum listen_how how = !tls.cert				  ? LISTEN_PLAIN
			      : o->cfg.mode == MODE_AUTHENTICATED ? LISTEN_FAR
								  : LISTEN_TLS;

	if (r == 0)
		r = listen_inherited(how, &d.at, e);
	if (r == 1 && !d.at.tcp && o->cfg.mode == MODE_LOCAL_TRUSTED &&
	    listen_private(d.at.fd, e) < 0)
		return -EACCES;

	/* Fixed: else glibc takes the size of the first large body as a hint to keep that much for ever. */
	(void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
	(void)mallopt(M_TRIM_THRESHOLD, 512 << 10);
	if (r == 0)
		r = listen_open(o->listen ? o->listen : DEFAULT_LISTEN, how, &d.at, e);
	if (r < 0)
		return r;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < FILES_WANTED) {
		l.rlim_cur = l.rlim_max < FILES_WANTED ? l.rlim_max : FILES_WANTED;
		(void)setrlimit(RLIMIT_NOFILE, &l);
	}
	o->cfg.hosts = o->hosts;
	o->cfg.tcp = d.at.tcp;
	r = api_open(&d.api, &o->cfg, e);
	if (r == 0) {
		r = listen_state(d.api.st.dir, &d.own, e);
		if (r == 0)
			r = serve(&d, &tls, e);
		d.api.stopping = true; /* what jobs leave begins nothing more */
		jobs_free(&d.api);
		server_stop(&d.api);
		listen_done(&d.own);
		api_done(&d.api);
		loop_done(&d.api.loop);
	}
	listen_done(&d.at);
	return r;
}

static int print_openapi(struct err *e)
{
	_cleanup_free_ char *text = NULL;
	size_t n;
	int r = openapi_build(&text, &n, e);

	if (r == 0)
		(void)printf("%s\n", text);
	return r;
}

static int print_access_map(bool as_json, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT((size_t)4 << 20);
	_cleanup_free_ char *json = NULL;
	json_t *j = access_map(e);
	int r = j ? 0 : -ENOMEM;

	if (r == 0 && as_json)
		json = json_dumps(j, JSON_INDENT(2));
	if (r == 0 && (as_json ? !json : access_text(j, &text) < 0))
		r = err_set(e, ERR_NOMEM, "agent-access map: out of memory");
	json_decref(j);
	if (r == 0 && (fputs(as_json ? json : buf_text(&text), stdout) < 0 ||
		       (as_json && putchar('\n') < 0) || fflush(stdout) < 0))
		r = err_sys(e, errno, "write the agent-access map");
	return r;
}

int main(int argc, char **argv)
{
	struct options o = {0};
	struct err e = ERR_INIT;
	int r;

	nodump();
	if (version_asked(argc, argv, "airlockd", AIRLOCK_VERSION))
		return 0;
	r = options_parse(&o, argc, argv, &e);
	if (r == 0 && o.help) {
		(void)fputs(options_usage, stdout);
		return 0;
	}
	if (r == 0 && o.job)
		return job_main();
	if (r == 0 && o.json && !o.access_map)
		r = err_set(&e, ERR_USAGE, "--json goes with --access-map");
	if (r == 0)
		r = o.openapi	   ? print_openapi(&e)
		    : o.access_map ? print_access_map(o.json, &e)
				   : run(&o, &e);
	if (r < 0)
		(void)fprintf(stderr, "airlockd: %s\n", e.text);
	return r < 0 ? err_exit_status(e.code) : 0;
}
