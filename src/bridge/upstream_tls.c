/*
 * The forwarder of airlock-bridge-tls, with libcurl.
 *
 * Policy of door 2 here: bytes go to one origin, which was fixed before the first foreign byte came in, over
 * verified TLS where it is https; no answer of the upstream makes this process connect elsewhere, send a
 * request twice, or remember anything. Not done here: what may be sent (guard.h).
 */
#include "bridge/upstream.h"

#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "bridge/upstream_resolve.h"

#define HANDLES_KEPT 32 /* idle easy handles, each some 10 KiB */
#define HEADERS_LEN_MAX 256

struct upstream {
	struct loop *loop;
	struct origin origin;
	CURLM *multi;
	char *url;
	struct curl_slist *resolve;
	X509_STORE *store;
	int64_t due_ns; /* libcurl's timer */
	bool
	    resume; /* a call is to go on; apart from due_ns, which libcurl sets anew at any time */
	struct upstream_call *calls; /* under way */
	CURL *idle[HANDLES_KEPT];
	size_t idle_len;
};

struct upstream_call {
	struct upstream *u;
	struct upstream_call *next, **prev;
	struct upstream_request q;
	CURL *easy;
	struct curl_slist *headers;
	char *target;
	struct buf lines; /* header lines of the answer */
	size_t lines_len;
	int64_t started_ns, moved_ns;
	bool sent, headed, paused, resume, timed_out, bad;
};

struct upstream_sock {
	struct loop_watch w;
	struct upstream *u;
};

/* Sockets. --------------------------------------------------------------------------------- */

static void finish_calls(struct upstream *u);

static void on_socket(struct loop_watch *w, uint32_t events)
{
	struct upstream_sock *s = (struct upstream_sock *)(void *)w;
	struct upstream *u = s->u;
	int running, mask = 0;

	if (events & (EPOLLIN | EPOLLHUP))
		mask |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		mask |= CURL_CSELECT_OUT;
	if (events & EPOLLERR)
		mask |= CURL_CSELECT_ERR;
	(void)curl_multi_socket_action(u->multi, w->fd, mask, &running);
	finish_calls(u);
}

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *arg, void *slot)
{
	struct upstream *u = arg;
	struct upstream_sock *s = slot;
	uint32_t ev = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (s)
			loop_del(u->loop, &s->w);
		free(s);
		(void)curl_multi_assign(u->multi, fd, NULL);
		return 0;
	}
	if (s) {
		loop_mod(u->loop, &s->w, ev);
		return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return -1;
	s->u = u;
	if (loop_add(u->loop, &s->w, fd, ev, on_socket) < 0) {
		free(s);
		return -1;
	}
	(void)curl_multi_assign(u->multi, fd, s);
	return 0;
}

static int timer_changed(CURLM *m, long ms, void *arg)
{
	struct upstream *u = arg;

	(void)m;
	u->due_ns = ms < 0 ? INT64_MAX : clock_mono_ns() + ms * NS_PER_MS;
	return 0;
}

static int tune_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
	int on = 1;

	(void)arg;
	(void)purpose;
	/* Fails on a unix socket, which needs it as little. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return CURL_SOCKOPT_OK;
}

/* Calls. ----------------------------------------------------------------------------------- */

static void unlink_call(struct upstream_call *c)
{
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

static void free_call(struct upstream_call *c)
{
	struct upstream *u = c->u;

	if (c->easy) {
		(void)curl_multi_remove_handle(u->multi, c->easy);
		(void)curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, NULL);
		(void)curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, NULL);
		(void)curl_easy_setopt(c->easy, CURLOPT_PRIVATE, NULL);
		if (u->idle_len < HANDLES_KEPT)
			u->idle[u->idle_len++] = c->easy;
		else
			curl_easy_cleanup(c->easy);
	}
	unlink_call(c);
	curl_slist_free_all(c->headers);
	free(c->target);
	buf_done(&c->lines);
	free(c);
}

static enum upstream_end end_of(const struct upstream_call *c, CURLcode r)
{
	if (c->timed_out)
		return UP_TIME;
	if (c->bad)
		return UP_BAD;
	if (r == CURLE_OK && c->headed)
		return UP_OK;
	if (!c->sent)
		return UP_UNREACHABLE;
	if (r == CURLE_WEIRD_SERVER_REPLY || r == CURLE_UNSUPPORTED_PROTOCOL ||
	    r == CURLE_BAD_CONTENT_ENCODING || r == CURLE_OK)
		return UP_BAD;
	return UP_LOST;
}

static void finish_call(struct upstream_call *c, CURLcode r)
{
	struct upstream_request q = c->q;
	enum upstream_end end = end_of(c, r);
	bool sent = c->sent;

	free_call(c);
	q.end(q.arg, end, sent);
}

static void finish_calls(struct upstream *u)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(u->multi, &left))) {
		struct upstream_call *c = NULL;
		CURLcode r = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&c);
		if (c)
			finish_call(c, r);
	}
}

/* Called with a connection in hand, before the first byte; again if libcurl wants to send once more. */
static int before_send(void *arg, char *rip, char *lip, int rport, int lport)
{
	struct upstream_call *c = arg;

	(void)rip;
	(void)lip;
	(void)rport;
	(void)lport;
	if (c->sent && !c->q.safe)
		return CURL_PREREQFUNC_ABORT;
	c->sent = true;
	return CURL_PREREQFUNC_OK;
}

/* One "name: value" line of c->lines becomes a header. */
static bool split_line(const char *line, size_t n, struct header *h)
{
	const char *colon = memchr(line, ':', n), *v, *end = line + n;

	if (!colon || colon == line)
		return false;
	for (v = colon + 1; v < end && (*v == ' ' || *v == '\t'); v++)
		;
	while (end > v && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r' || end[-1] == '\n'))
		end--;
	h->name = (struct view){line, (size_t)(colon - line)};
	h->value = (struct view){v, (size_t)(end - v)};
	return true;
}

static bool give_head(struct upstream_call *c)
{
	struct header h[HEADERS_LEN_MAX];
	const char *p = buf_text(&c->lines), *end = p + c->lines.len;
	size_t n = 0;
	long status = 0;

	(void)curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200)
		return true;
	while (p < end && n < HEADERS_LEN_MAX) {
		const char *lf = memchr(p, '\n', (size_t)(end - p));
		size_t len = lf ? (size_t)(lf - p) : (size_t)(end - p);

		if (split_line(p, len, &h[n]))
			n++;
		p += len + 1;
	}
	c->headed = true;
	c->moved_ns = clock_mono_ns();
	return c->q.head(c->q.arg, (int)status, h, n);
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
	struct upstream_call *c = arg;

	n *= size;
	/* Trailers carry nothing that an answer needs. */
	if (c->headed)
		return n;
	if (n > 5 && memcmp(p, "HTTP/", 5) == 0) {
		buf_reset(&c->lines);
		return n;
	}
	if (n <= 2 && (p[0] == '\r' || p[0] == '\n'))
		return give_head(c) ? n : 0;
	if (buf_put(&c->lines, p, n) < 0 || (p[n - 1] != '\n' && buf_putc(&c->lines, '\n') < 0)) {
		c->bad = true;
		return 0;
	}
	return n;
}

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
	struct upstream_call *c = arg;

	n *= size;
	/* libcurl takes what follows a 101 that nobody asked for as a body: no answer has begun. */
	if (!c->headed) {
		c->bad = true;
		return 0;
	}
	c->moved_ns = clock_mono_ns();
	switch (c->q.data(c->q.arg, p, n)) {
	case UPSTREAM_TAKEN:
		return n;
	case UPSTREAM_WAIT:
		c->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	default:
		return 0;
	}
}

/* Requests. -------------------------------------------------------------------------------- */

static CURLcode use_store(CURL *easy, void *ctx, void *arg)
{
	struct upstream *u = arg;

	(void)easy;
	SSL_CTX_set1_cert_store(ctx, u->store);
	return CURLE_OK;
}

/* What is the same for every request. */
static CURL *new_handle(struct upstream *u)
{
	CURL *h = curl_easy_init();

	if (!h)
		return NULL;
	(void)curl_easy_setopt(h, CURLOPT_URL, u->url);
	(void)curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR,
			       u->origin.scheme == ORIGIN_HTTPS ? "https" : "http");
	(void)curl_easy_setopt(h, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
	(void)curl_easy_setopt(h, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
	(void)curl_easy_setopt(h, CURLOPT_NETRC, CURL_NETRC_IGNORED);
	(void)curl_easy_setopt(h, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
	(void)curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)BRIDGE_CONNECT_MS);
	(void)curl_easy_setopt(h, CURLOPT_MAXAGE_CONN, (long)(BRIDGE_KEEPALIVE_MS / 1000));
	(void)curl_easy_setopt(h, CURLOPT_DNS_CACHE_TIMEOUT, -1L);
	(void)curl_easy_setopt(h, CURLOPT_SOCKOPTFUNCTION, tune_socket);
	(void)curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(h, CURLOPT_PREREQFUNCTION, before_send);
	(void)curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 1L);
	(void)curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 2L);
	(void)curl_easy_setopt(h, CURLOPT_CAINFO, NULL);
	(void)curl_easy_setopt(h, CURLOPT_CAPATH, NULL);
	if (u->resolve)
		(void)curl_easy_setopt(h, CURLOPT_RESOLVE, u->resolve);
	if (u->origin.scheme == ORIGIN_UNIX)
		(void)curl_easy_setopt(h, CURLOPT_UNIX_SOCKET_PATH, u->origin.path);
	if (u->store) {
		(void)curl_easy_setopt(h, CURLOPT_SSL_CTX_FUNCTION, use_store);
		(void)curl_easy_setopt(h, CURLOPT_SSL_CTX_DATA, u);
	}
	return h;
}

static int add_header(struct upstream_call *c, struct buf *b, struct view name, struct view value)
{
	struct curl_slist *l;

	buf_reset(b);
	(void)buf_put(b, name.p, name.n);
	/* libcurl's own spelling of a header with an empty value. */
	if (value.n == 0) {
		(void)buf_putc(b, ';');
	} else {
		(void)buf_puts(b, ": ");
		(void)buf_put(b, value.p, value.n);
	}
	l = b->err ? NULL : curl_slist_append(c->headers, buf_text(b));
	if (!l)
		return -ENOMEM;
	c->headers = l;
	return 0;
}

/* Headers that libcurl would add by itself are switched off unless the request has them. */
static int fill_headers(struct upstream_call *c, const struct upstream_request *q)
{
	_cleanup_buf_ struct buf b =
	    BUF_INIT(BRIDGE_CREDENTIAL_MAX + BRIDGE_HEADER_VALUE_MAX + BRIDGE_HEADER_NAME_MAX);
	static const char *const own[] = {"accept", "content-type", "expect", "user-agent"};
	int r = 0;

	for (size_t i = 0; r == 0 && i < q->headers_len; i++)
		r = add_header(c, &b, q->headers[i].name, q->headers[i].value);
	for (size_t k = 0; r == 0 && k < ARRAY_LEN(own); k++) {
		struct curl_slist *l = NULL;
		bool given = false;
		char line[32];

		for (size_t i = 0; i < q->headers_len; i++)
			given = given || header_name_is(q->headers[i].name, own[k]);
		if (given)
			continue;
		(void)snprintf(line, sizeof(line), "%s:", own[k]);
		l = curl_slist_append(c->headers, line);
		if (!l)
			return -ENOMEM;
		c->headers = l;
	}
	return r;
}

static int fill_handle(struct upstream_call *c)
{
	CURL *h = c->easy;
	bool ok;

	/* HTTPGET clears what a body of an earlier request had set. */
	ok = curl_easy_setopt(h, CURLOPT_HTTPGET, 1L) == CURLE_OK;
	if (c->q.has_body) {
		ok = ok && curl_easy_setopt(h, CURLOPT_POST, 1L) == CURLE_OK;
		ok = ok && curl_easy_setopt(h, CURLOPT_POSTFIELDS,
					    c->q.body.n ? c->q.body.p : "") == CURLE_OK;
		ok = ok && curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE,
					    (curl_off_t)c->q.body.n) == CURLE_OK;
	}
	ok = ok && curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->q.method) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_NOBODY,
				    strcmp(c->q.method, "HEAD") == 0 ? 1L : 0L) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_REQUEST_TARGET, c->target) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_HTTPHEADER, c->headers) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_HEADERDATA, c) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_WRITEDATA, c) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_PREREQDATA, c) == CURLE_OK;
	ok = ok && curl_easy_setopt(h, CURLOPT_PRIVATE, c) == CURLE_OK;
	return ok ? 0 : -ENOMEM;
}

struct upstream_call *upstream_start(struct upstream *u, const struct upstream_request *q)
{
	struct upstream_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->u = u;
	c->q = *q;
	c->lines = BUF_INIT(BRIDGE_UPSTREAM_HEADERS_MAX);
	c->started_ns = c->moved_ns = clock_mono_ns();
	c->next = u->calls;
	c->prev = &u->calls;
	if (c->next)
		c->next->prev = &c->next;
	u->calls = c;
	c->easy = u->idle_len ? u->idle[--u->idle_len] : new_handle(u);
	c->target = strndup(q->target.p, q->target.n);
	/* What points into the caller's request was copied or is not looked at again. */
	c->q.headers = NULL;
	c->q.target = (struct view){0};
	if (!c->easy || !c->target || fill_headers(c, q) < 0 || fill_handle(c) < 0 ||
	    curl_multi_add_handle(u->multi, c->easy) != CURLM_OK) {
		free_call(c);
		return NULL;
	}
	return c;
}

void upstream_resume(struct upstream_call *c)
{
	if (!c->paused)
		return;
	/* libcurl would call data() from here: not while the caller is in the middle of something. */
	c->resume = c->u->resume = true;
}

bool upstream_cancel(struct upstream_call *c)
{
	bool sent = c->sent;

	free_call(c);
	return sent;
}

static int64_t call_due(const struct upstream_call *c)
{
	const struct bridge_limits *l = &c->q.limits;
	int64_t due = INT64_MAX;

	if (!l->stream || !c->headed)
		due = c->started_ns + l->request_ns;
	/* A reader that is slow is not the upstream's fault. */
	if (c->headed && !c->paused && !l->stream && c->moved_ns + l->idle_ns < due)
		due = c->moved_ns + l->idle_ns;
	return due;
}

static void resume_calls(struct upstream *u, int64_t now)
{
	u->resume = false;
	for (struct upstream_call *c = u->calls; c; c = c->next) {
		if (!c->resume)
			continue;
		c->resume = c->paused = false;
		c->moved_ns = now;
		(void)curl_easy_pause(c->easy, CURLPAUSE_CONT);
	}
}

int64_t upstream_tick(struct upstream *u, int64_t now)
{
	int64_t next;
	int running;

	if (u->resume) {
		resume_calls(u, now);
		(void)curl_multi_socket_action(u->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		finish_calls(u);
	}
	while (u->due_ns <= now) {
		u->due_ns = INT64_MAX;
		(void)curl_multi_socket_action(u->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		finish_calls(u);
	}
	next = u->due_ns;
	for (struct upstream_call *c = u->calls, *following; c; c = following) {
		int64_t due = call_due(c);

		following = c->next;
		if (due <= now) {
			c->timed_out = true;
			finish_call(c, CURLE_OPERATION_TIMEDOUT);
			/* end() may have ended others. */
			following = u->calls;
			next = now;
		} else if (due < next) {
			next = due;
		}
	}
	return u->resume ? now : next;
}

/* Start and end. --------------------------------------------------------------------------- */

static int resolve(struct upstream *u, struct err *e)
{
	struct addrinfo *list = NULL;
	_cleanup_buf_ struct buf b = BUF_INIT(8192);
	char host[NI_MAXHOST];
	int r = upstream_resolve(&u->origin, &list, e), n = 0;

	if (r < 0)
		return r;
	(void)buf_putf(&b, "%s:%u:", u->origin.host, u->origin.port);
	for (struct addrinfo *a = list; a && n < UPSTREAM_ADDRESSES_MAX; a = a->ai_next) {
		if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0,
				NI_NUMERICHOST) != 0)
			continue;
		(void)buf_putf(&b, a->ai_family == AF_INET6 ? "%s[%s]" : "%s%s", n ? "," : "",
			       host);
		n++;
	}
	freeaddrinfo(list);
	u->resolve = b.err ? NULL : curl_slist_append(NULL, buf_text(&b));
	return u->resolve ? 0 : err_set(e, ERR_NOMEM, "upstream: out of memory");
}

static int load_store(struct upstream *u, struct view ca, struct err *e)
{
	BIO *bio = ca.n <= INT32_MAX ? BIO_new_mem_buf(ca.p, (int)ca.n) : NULL;
	unsigned n = 0;
	X509 *x;

	u->store = X509_STORE_new();
	while (bio && u->store && (x = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL))) {
		n += X509_STORE_add_cert(u->store, x) == 1;
		X509_free(x);
	}
	BIO_free(bio);
	if (n)
		return 0;
	return err_set(e, ERR_UNAVAILABLE,
		       "upstream %s: no certificate authorities to verify it with: install "
		       "ca-certificates, or name a PEM file with SSL_CERT_FILE",
		       u->origin.text);
}

static int make_multi(struct upstream *u, struct err *e)
{
	/*
	 * OpenSSL's configuration could load modules; nothing here needs one. libcurl initialises what is
	 * left, and reads its environment for the last time.
	 */
	(void)OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	if (curl_global_init(CURL_GLOBAL_SSL) != CURLE_OK)
		return err_set(e, ERR_UNAVAILABLE, "libcurl does not start");
	u->multi = curl_multi_init();
	if (!u->multi)
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	(void)curl_multi_setopt(u->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
	(void)curl_multi_setopt(u->multi, CURLMOPT_SOCKETDATA, u);
	(void)curl_multi_setopt(u->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
	(void)curl_multi_setopt(u->multi, CURLMOPT_TIMERDATA, u);
	(void)curl_multi_setopt(u->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	(void)curl_multi_setopt(u->multi, CURLMOPT_MAXCONNECTS, (long)BRIDGE_STREAMS_MAX);
	return 0;
}

static int make_url(struct upstream *u)
{
	const struct origin *o = &u->origin;
	int n =
	    o->scheme == ORIGIN_UNIX
		? asprintf(&u->url, "http://localhost/")
		: asprintf(&u->url, "%s://%s%s%s:%u/", o->scheme == ORIGIN_HTTPS ? "https" : "http",
			   o->ipv6 ? "[" : "", o->host, o->ipv6 ? "]" : "", o->port);

	if (n < 0)
		u->url = NULL;
	return n < 0 ? -ENOMEM : 0;
}

int upstream_new(struct loop *l, const struct origin *o, struct view ca, struct upstream **ret,
		 struct err *e)
{
	struct upstream *u = calloc(1, sizeof(*u));
	int r = 0;

	if (!u)
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	u->loop = l;
	u->origin = *o;
	u->due_ns = INT64_MAX;
	if (make_url(u) < 0)
		r = err_set(e, ERR_NOMEM, "upstream: out of memory");
	if (r == 0)
		r = make_multi(u, e);
	if (r == 0 && o->scheme != ORIGIN_UNIX)
		r = resolve(u, e);
	if (r == 0 && o->scheme == ORIGIN_HTTPS)
		r = load_store(u, ca, e);
	/* The first handle now: what libcurl sets up with it is done before confinement. */
	if (r == 0 && (u->idle[0] = new_handle(u)))
		u->idle_len = 1;
	if (r < 0) {
		upstream_free(u);
		return r;
	}
	*ret = u;
	return 0;
}

void upstream_free(struct upstream *u)
{
	if (!u)
		return;
	while (u->calls)
		free_call(u->calls);
	while (u->idle_len)
		curl_easy_cleanup(u->idle[--u->idle_len]);
	if (u->multi)
		(void)curl_multi_cleanup(u->multi);
	curl_slist_free_all(u->resolve);
	X509_STORE_free(u->store);
	free(u->url);
	free(u);
}

uint16_t upstream_port(const struct upstream *u)
{
	return u->origin.scheme == ORIGIN_UNIX ? 0 : u->origin.port;
}
