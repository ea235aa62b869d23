#include "engine/apibridge.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/gateway.h"
#include "os/listen.h"

#define TRIES 3 /* ports that somebody else may have taken */

static struct view view_of(const char *s)
{
	return s ? (struct view){s, strlen(s)} : (struct view){0};
}

/* Value of a variable of the command; empty if it has none. prefix ends with '='. */
static struct view variable(char *const *env, const char *prefix)
{
	for (; env && *env; env++)
		if (str_starts(*env, prefix))
			return view_of(*env + strlen(prefix));
	return (struct view){0};
}

static int make_queue(struct apibridge *b, const struct sandbox *sb, const char *lease_dir,
		      struct err *e)
{
	_cleanup_free_ char *host = path_join(lease_dir, sb->ops->isolates ? "tmp" : "");
	int fd;

	if (!host)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	/* The sandbox's own /tmp: a mount of it, so that its names mean the same on both sides, and nothing leads out of it. */
	b->queue_parent = open(host, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b->queue_parent < 0)
		return err_sys(e, errno, "queue in %s", host);
	fd = queuemake_new(b->queue_parent, b->queue_name, e);
	if (fd < 0)
		return fd;
	b->queue_inside = path_join(sb->ops->isolates ? "/tmp" : lease_dir, b->queue_name);
	if (!b->queue_inside) {
		cleanup_fd(&fd);
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	}
	return fd;
}

/* Safe because: what travels into the sandbox is its own end of a socket pair, and a pipe to write into. */
static int start_gateway(struct apibridge *b, int control, int *ret_errors, struct err *e)
{
	_cleanup_fd_ int rd = -1, wr = -1;
	int pair[2], r;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_sys(e, errno, "bridge channel");
	rd = pair[0];
	wr = pair[1];
	r = gateway_start(b->sb,
			  &(struct gateway_spec){
			      .mode = bridge_transport_mode(b->link.o.transport),
			      .control = !b->link.o.paired,
			      .queue_dir = b->queue_inside,
			      .token = b->queue_inside ? b->in.token : NULL,
			      .nonce = b->in.nonce,
			      .port = b->port,
			      .channel = control,
			      .errors = wr,
			  },
			  &b->gateway, e);
	if (r == 0 && ret_errors)
		*ret_errors = TAKE_FD(rd);
	return r;
}

/* From the link: the one before ended, or is of no use. Clients find this one at the same port. */
static int gateway_again(void *arg, int control, struct err *e)
{
	struct apibridge *b = arg;

	/* Without a channel it would go on for a while, and hold the port. */
	if (b->link.o.paired)
		(void)b->sb->ops->signal(b->sb, b->gateway, SIGKILL, NULL);
	return start_gateway(b, control, NULL, e);
}

/* The bridge itself listens inside, where the sandbox's network was made for that. 1: it does not. */
static int listen_inside(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
			 struct err *e)
{
	enum api_transport t = o->api->transport;
	int r;

	if (t == API_HTTP2 || t == API_QUEUE)
		return 1;
	b->listener = sb->ops->socket ? sb->ops->socket(sb) : -1;
	if (b->listener < 0) {
		b->listener = 0;
		return t != API_DIRECT
			   ? 1
			   : err_set(e, ERR_UNAVAILABLE,
				     "--api-transport direct: this sandbox has no network of its "
				     "own (--net host), or its %d bridges at once are taken by "
				     "other commands: wait for one of them to end, or leave "
				     "--api-transport out and take a gateway",
				     SANDBOX_LISTENERS_MAX);
	}
	r = listen_on(b->listener, "127.0.0.1", 0, &b->port);
	if (r < 0)
		return err_sys(e, -r, "listen on the sandbox's loopback");
	return sb->ops->publish ? sb->ops->publish(sb, b->port, &b->port, o->cancel, e) : 0;
}

static int open_link(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
		     char *const *env, int *ret_gateway, struct err *e)
{
	_cleanup_fd_ int dir = -1;
	struct bridge_link_opts l = {
	    .in = &b->in,
	    .transport = b->listener			  ? BRIDGE_DIRECT
			 : o->api->transport == API_QUEUE ? BRIDGE_QUEUE
							  : BRIDGE_HTTP2,
	    .without_landlock = o->q->without & WITHOUT_LANDLOCK,
	    .without_seccomp = o->q->without & WITHOUT_SECCOMP,
	    .run_id = view_of(o->run_id),
	    .agent_id = variable(env, "PAPERCLIP_AGENT_ID="),
	    .company_id = variable(env, "PAPERCLIP_COMPANY_ID="),
	    .task_id = variable(env, "PAPERCLIP_TASK_ID="),
	    .dir = -1,
	    .audit = o->audit,
	    .listener = b->listener,
	    .paired = sb->ops->elsewhere,
	    .gateway = gateway_again,
	    .gateway_arg = b,
	    .note = o->note,
	    .arg = o->arg,
	    .name = view_of(o->api->name),
	    .credential_header = view_of(o->api->header),
	};

	if (l.transport == BRIDGE_QUEUE && sb->ops->elsewhere)
		return err_set(
		    e, ERR_UNAVAILABLE,
		    "--api-transport queue: files cannot be shared with another machine; leave it out");
	if (l.transport == BRIDGE_QUEUE) {
		dir = make_queue(b, sb, o->lease_dir, e);
		if (dir < 0)
			return dir;
		l.dir = dir;
	}
	return link_open(&b->link, &l, ret_gateway, e);
}

static int try_start(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
		     char *const *env, struct err *e)
{
	_cleanup_fd_ int theirs = -1, errors = -1;
	int r = listen_inside(b, sb, o, e);

	b->sb = sb;
	if (r > 0)
		r = gateway_port(&b->port, e);
	if (r == 0)
		r = open_link(b, sb, o, env, &theirs, e);
	if (r == 0 && !b->listener)
		r = start_gateway(b, theirs, &errors, e);
	cleanup_fd(&theirs);
	if (r < 0)
		return r;
	r = link_ready(&b->link, e);
	if (r < 0 && !b->listener)
		gateway_errors(errors, e);
	return r;
}

static int tell_api(const struct apibridge *b, const struct apibridge_opts *o, const char *url,
		    char ***env)
{
	int r = gateway_setvar(env, "PAPERCLIP_API_URL", url);

	if (r == 0)
		r = gateway_setvar(env, "PAPERCLIP_API_KEY", b->in.token);
	if (r == 0)
		r = gateway_setvar(env, "PAPERCLIP_API_BRIDGE_MODE",
				   bridge_transport_mode(b->link.o.transport));
	if (r == 0)
		r = gateway_setvar(env, "PAPERCLIP_RUN_ID", o->run_id);
	return r;
}

static int tell_named(const struct apibridge *b, const struct api_request *api, const char *url,
		      char ***env)
{
	char name[UPSTREAM_NAME_MAX + 32], value[1024], upper[UPSTREAM_NAME_MAX + 1] = "";
	int r;

	for (size_t i = 0; i < UPSTREAM_NAME_MAX && api->name[i]; i++)
		upper[i] = api->name[i] == '-' ? '_' : (char)toupper((unsigned char)api->name[i]);
	(void)snprintf(name, sizeof(name), "AIRLOCK_UPSTREAM_%s_URL", upper);
	r = gateway_setvar(env, name, url);
	(void)snprintf(name, sizeof(name), "AIRLOCK_UPSTREAM_%s_TOKEN", upper);
	if (r == 0)
		r = gateway_setvar(env, name, b->in.token);
	for (char *const *v = api->url_vars; r == 0 && v && *v; v++) {
		_cleanup_free_ char *var = strdup(*v);
		char *path = var ? strchr(var, '=') : NULL;

		if (!var)
			return -ENOMEM;
		if (path)
			*path++ = '\0';
		(void)snprintf(value, sizeof(value), "%s%s", url, path ? path : "");
		r = gateway_setvar(env, var, value);
	}
	for (char *const *v = api->token_vars; r == 0 && v && *v; v++)
		r = gateway_setvar(env, *v, b->in.token);
	return r;
}

int apibridge_start(struct apibridge *b, struct sandbox *sb, const struct apibridge_opts *o,
		    char ***env, struct err *e)
{
	const struct api_request *api = o->api;
	char url[48];
	int r;

	*b = (struct apibridge){0};
	r = bridge_inputs_read(&b->in, api->url, api->key_file,
			       api->policy ? api->policy : "paperclip", e);
	if (r == 0 && api->key) {
		b->in.credential = strdup(api->key);
		if (!b->in.credential)
			r = err_set(e, ERR_NOMEM, "bridge: out of memory");
	}
	for (int i = 0; r == 0 && i < TRIES; i++) {
		r = try_start(b, sb, o, *env, e);
		if (r == 0)
			break;
		apibridge_stop(b, sb);
		/* Only a gateway that could not listen is worth another port. */
		if (!e || !strstr(e->text, "listen on") || i + 1 == TRIES)
			break;
		r = 0;
	}
	if (r < 0) {
		bridge_inputs_done(&b->in);
		return r;
	}
	b->up = true;
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", b->port);
	r = api->name ? tell_named(b, api, url, env) : tell_api(b, o, url, env);
	return r < 0 ? err_set(e, ERR_NOMEM, "bridge: out of memory") : 0;
}

bool apibridge_lost(struct apibridge *b)
{
	if (!b->up || b->told)
		return false;
	b->told = !link_poll(&b->link);
	return b->told;
}

void apibridge_stop(struct apibridge *b, struct sandbox *sb)
{
	link_stop(&b->link, &b->counts);
	if (b->listener > 0)
		cleanup_fd(&b->listener);
	b->listener = 0;
	if (b->gateway && sb)
		(void)sb->ops->signal(sb, b->gateway, SIGTERM, NULL);
	b->gateway = 0;
	if (b->queue_inside)
		queuemake_remove(b->queue_parent, b->queue_name);
	if (b->queue_parent > 0)
		cleanup_fd(&b->queue_parent);
	b->queue_parent = 0;
	free(b->queue_inside);
	b->queue_inside = NULL;
	if (b->up)
		bridge_inputs_done(&b->in);
}
