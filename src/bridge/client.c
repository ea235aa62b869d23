#include "bridge/client.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "bridge/hear.h"
#include "bridge/policy_load.h"
#include "policy/bridge_policy.h"

#define START_MS 30000 /* names may be slow to resolve */
#define STOP_MS (BRIDGE_STOP_MS + 1000)
#define CA_MAX (2 << 20)
#define POLL_MAX 256 /* frames of one look: who sends without end is looked at again */

static const char *const ca_places[] = {
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
};

/* A regular file of at most max bytes, whole. Heap, NUL-terminated. */
static int read_file(const char *what, const char *path, size_t max, char **ret, size_t *ret_n,
		     struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct buf b = BUF_INIT(max);
	struct stat st;
	ssize_t k = 1;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "%s %s", what, path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "%s %s is not a regular file", what, path);
	while (k > 0) {
		char *to = buf_room(&b, 4096);

		k = to ? read(fd, to, 4096) : -1;
		if (!to || k < 0) {
			int r = to ? err_sys(e, errno, "read %s %s", what, path)
				   : err_set(e, ERR_LIMIT, "%s %s is larger than %zu bytes", what,
					     path, max - 4096);
			if (b.data)
				sodium_memzero(b.data, b.cap);
			buf_done(&b);
			return r;
		}
		buf_add(&b, (size_t)k);
	}
	*ret_n = b.len;
	*ret = buf_take(&b);
	if (!*ret)
		*ret = calloc(1, 1);
	return *ret ? 0 : err_set(e, ERR_NOMEM, "%s %s: out of memory", what, path);
}

int bridge_read_secret(const char *path, size_t max, char **ret, struct err *e)
{
	char *text = NULL;
	size_t n = 0;
	int r = read_file("file", path, max + 4096, &text, &n, e);

	if (r < 0)
		return r;
	while (n && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
		text[--n] = '\0';
	if (n == 0)
		r = err_set(e, ERR_INVALID, "file %s is empty", path);
	else if (n > max)
		r = err_set(e, ERR_LIMIT, "file %s holds over %zu bytes", path, max);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (text[i] < 0x21 || text[i] > 0x7e)
			r = err_set(
			    e, ERR_INVALID,
			    "file %s must hold one word of printable ASCII (byte %zu is not)", path,
			    i);
	if (r < 0) {
		sodium_memzero(text, n);
		free(text);
		return r;
	}
	*ret = text;
	return 0;
}

static int read_policy(struct bridge_inputs *in, const char *policy, struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	struct buf text = BUF_INIT(CONFIG_MAX);
	int r;

	in->policy_name = strdup(policy);
	if (!in->policy_name)
		return err_set(e, ERR_NOMEM, "policy: out of memory");
	if (!policy_word_is_file(policy))
		return bridge_policy_builtin(policy, &p, e);
	r = policy_read(policy, &text, e);
	if (r == 0)
		r = bridge_policy_parse(policy, text.data, text.len, &p, e);
	in->policy_len = text.len;
	if (r == 0)
		in->policy_text = buf_take(&text);
	buf_done(&text);
	return r;
}

static int read_ca(struct bridge_inputs *in, struct err *e)
{
	const char *given = getenv("SSL_CERT_FILE");

	if (given && *given)
		return read_file("SSL_CERT_FILE", given, CA_MAX, &in->ca, &in->ca_len, e);
	for (size_t i = 0; i < ARRAY_LEN(ca_places); i++)
		if (access(ca_places[i], R_OK) == 0)
			return read_file("certificates", ca_places[i], CA_MAX, &in->ca, &in->ca_len,
					 e);
	return 0; /* the helper says what is missing */
}

int bridge_inputs_read(struct bridge_inputs *in, const char *upstream, const char *credential_file,
		       const char *policy, struct err *e)
{
	unsigned char raw[BRIDGE_TOKEN_BYTES], nonce[BRIDGE_NONCE_LEN / 2];
	struct origin o;
	int r = origin_parse(upstream, &o, e);

	if (r == 0 && sodium_init() < 0)
		r = err_set(e, ERR_UNAVAILABLE, "libsodium does not start");
	if (r < 0)
		return r;
	in->upstream = strdup(upstream);
	if (!in->upstream)
		return err_set(e, ERR_NOMEM, "bridge: out of memory");
	randombytes_buf(raw, sizeof(raw));
	randombytes_buf(nonce, sizeof(nonce));
	(void)sodium_bin2base64(in->token, sizeof(in->token), raw, sizeof(raw),
				sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	(void)sodium_bin2hex(in->nonce, sizeof(in->nonce), nonce, sizeof(nonce));
	sodium_memzero(raw, sizeof(raw));
	if (credential_file)
		r = bridge_read_secret(credential_file, BRIDGE_CREDENTIAL_MAX, &in->credential, e);
	if (r == 0)
		r = read_policy(in, policy, e);
	if (r == 0 && o.scheme == ORIGIN_HTTPS)
		r = read_ca(in, e);
	return r;
}

void bridge_inputs_done(struct bridge_inputs *in)
{
	if (in->credential)
		sodium_memzero(in->credential, strlen(in->credential));
	free(in->credential);
	free(in->upstream);
	free(in->policy_name);
	free(in->policy_text);
	free(in->ca);
	sodium_memzero(in, sizeof(*in));
}

/* The helper. ------------------------------------------------------------------------------ */

static void lose(void *client, const char *why)
{
	struct bridge_client *c = client;

	if (c->lost)
		return;
	c->lost = true;
	(void)snprintf(c->why, sizeof(c->why), "%s", why);
}

static void take_text(struct bridge_client *c, struct view v, bool code)
{
	_cleanup_free_ char *text = NULL;
	struct cursor cur;

	cursor_init(&cur, v.p, v.n);
	if (code)
		(void)cursor_u32(&cur);
	text = cursor_strdup(&cur, 4096);
	lose(c, text ? text : "airlock-bridge sent a malformed message");
}

static void take_policy_text(struct bridge_client *c, struct view v)
{
	_cleanup_free_ char *text = NULL;
	struct cursor cur;

	cursor_init(&cur, v.p, v.n);
	text = cursor_strdup(&cur, 4096);
	c->policy_answer = -1;
	(void)snprintf(c->policy_why, sizeof(c->policy_why), "%s", text ? text : "it was refused");
}

static void take(void *client, const struct frame *f)
{
	struct bridge_client *c = client;
	switch (f->type) {
	case BF_CONFINED:
		c->confined = true;
		break;
	case BF_READY:
		c->ready = true;
		break;
	case BF_PONG:
		c->pong = true;
		break;
	case BF_POLICY_SET:
		c->policy_answer = 1;
		break;
	case BF_POLICY_BAD:
		take_policy_text(c, f->payload);
		break;
	case BF_LOST:
		take_text(c, f->payload, false);
		break;
	case BF_ERROR:
		take_text(c, f->payload, true);
		break;
	case BF_DONE:
		c->done = bridge_get_counts(f->payload, &c->counts) == 0;
		lose(c, "stopped");
		break;
	default:
		break;
	}
}

static struct hear ear(struct bridge_client *c)
{
	return (struct hear){&c->ch, "airlock-bridge", c, take, lose, &c->ready, &c->lost};
}

/* The one for https alone carries a TLS library. */
static const char *program(const struct bridge_setup *s)
{
	static const char https[] = "https:";

	return s->upstream.n >= sizeof(https) - 1 &&
		       memcmp(s->upstream.p, https, sizeof(https) - 1) == 0
		   ? "airlock-bridge-tls"
		   : "airlock-bridge";
}

int bridge_client_spawn(struct bridge_client *c, const struct bridge_setup *setup,
			const struct bridge_fds *f, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(FRAME_MAX);
	const int all[] = {f->in, f->out, f->dir, f->audit, f->shared, f->board, f->listener};
	struct bridge_setup s = *setup;
	int fds[ARRAY_LEN(all)], r;
	size_t n = 0;

	*c = (struct bridge_client){0};
	chan_init(&c->ch, -1, false);
	s.has_channel = f->in >= 0;
	s.has_dir = f->dir >= 0;
	s.has_audit = f->audit >= 0;
	s.has_shared = f->shared >= 0;
	s.has_board = f->board >= 0;
	s.has_listener = f->listener >= 0;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i] >= 0)
			fds[n++] = all[i];
	r = helper_start(&c->helper, program(&s), &c->ch, e);
	if (r == 0)
		r = bridge_put_setup(&b, &s);
	if (r == 0)
		r = chan_send(&c->ch, BF_SETUP, b.data, b.len, fds, n,
			      clock_mono_ns() + START_MS * NS_PER_MS, e);
	if (b.data)
		sodium_memzero(b.data, b.len);
	return r;
}

int bridge_client_confined(struct bridge_client *c, struct err *e)
{
	int64_t deadline = clock_mono_ns() + START_MS * NS_PER_MS;
	const struct hear ears = ear(c);
	struct frame f;

	if (!hear_frame(&ears, deadline, &f) && !c->lost)
		return err_set(e, ERR_TIMEOUT, "airlock-bridge was not ready within %d ms",
			       START_MS);
	if (c->lost)
		return err_set(e, ERR_UNAVAILABLE, "%s", c->why);
	return c->confined
		   ? 0
		   : err_set(e, ERR_PROTOCOL,
			     "airlock-bridge speaks another version: install Airlock again");
}

int bridge_client_ready(struct bridge_client *c, struct err *e)
{
	int64_t deadline = clock_mono_ns() + (BRIDGE_READY_MS + 5000) * NS_PER_MS;
	const struct hear ears = ear(c);

	return hear_ready(&ears, deadline, "the gateway was not ready in time")
		   ? 0
		   : err_set(e, ERR_UNAVAILABLE, "bridge: %s", c->why);
}

int bridge_client_fd(const struct bridge_client *c)
{
	return c->ch.fd;
}

void bridge_client_poll(struct bridge_client *c)
{
	const struct hear ears = ear(c);
	struct frame f;

	for (int i = 0; i < POLL_MAX && c->helper.started && hear_frame(&ears, 0, &f); i++)
		;
}

int bridge_client_policy(struct bridge_client *c, const char *text, size_t n, struct err *e)
{
	_cleanup_policy_ struct bridge_policy *p = NULL;
	int r = bridge_policy_parse("policy", text, n, &p, e);

	return r < 0 ? r
		     : chan_send(&c->ch, BF_POLICY, text, n, NULL, 0,
				 clock_mono_ns() + STOP_MS * NS_PER_MS, e);
}

void bridge_client_ping(struct bridge_client *c)
{
	c->pong = false;
	/* One that cannot be sent is one that is not answered. */
	if (c->helper.started)
		(void)chan_send(&c->ch, BF_PING, NULL, 0, NULL, 0, clock_mono_ns(), NULL);
}

void bridge_client_kill(struct bridge_client *c)
{
	if (!c->helper.started)
		return;
	chan_done(&c->ch);
	helper_kill(&c->helper);
	c->lost = true;
}

void bridge_client_stop(struct bridge_client *c)
{
	int64_t deadline = clock_mono_ns() + STOP_MS * NS_PER_MS;
	const struct hear ears = ear(c);
	struct frame f;

	if (!c->helper.started)
		return;
	if (chan_send(&c->ch, BF_STOP, NULL, 0, NULL, 0, deadline, NULL) == 0)
		while (!c->done && clock_mono_ns() < deadline && hear_frame(&ears, deadline, &f))
			;
	bridge_client_kill(c);
}
