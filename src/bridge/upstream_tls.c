/*
 * The wire of airlock-bridge-tls, with OpenSSL.
 *
 * Policy of door 2 here: not a byte of a request goes out before the other end has proved, with a certificate of an authority
 * from the given bundle that is valid now, that it has the origin's name or address; TLS 1.2 at least, HTTP/1.1 only, no
 * renegotiation, nothing remembered from one connection to the next; an end without TLS's own mark is a broken connection,
 * not the end of an answer. Not done here: what may be sent (guard.h), HTTP (upstream_http.c).
 *
 * Without libcurl: that brings thirty shared objects with it, which are most of this process's memory.
 */
#include "bridge/upstream_wire.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "bridge/upstream_store.h"

#define RECORD 16384 /* bytes: the most that one record holds */

struct wire {
	SSL_CTX *ctx;
	struct authorities *authorities; /* owned */
	struct origin origin;
	bool address; /* the host is one, not a name */
	char *chunk;  /* head and beginning of a body go out in one record */
};

struct wire_end {
	SSL *ssl;
	struct wire *w;
};

/* Start. ----------------------------------------------------------------------------------- */

static int load_store(struct wire *w, struct view ca, struct err *e)
{
	int n = authorities_new(ca, &w->authorities);

	if (n > 0 && authorities_serve(w->authorities, SSL_CTX_get_cert_store(w->ctx)) < 0)
		n = -ENOMEM;
	if (n > 0)
		return 0;
	if (n < 0)
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	return err_set(e, ERR_UNAVAILABLE,
		       "upstream %s: no certificate authorities to verify it with: install "
		       "ca-certificates, or name a PEM file with SSL_CERT_FILE",
		       w->origin.text);
}

static SSL *new_ssl(struct wire *w)
{
	SSL *s = SSL_new(w->ctx);
	bool ok;

	if (!s)
		return NULL;
	SSL_set_hostflags(s, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	if (w->address)
		ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s), w->origin.host) == 1;
	else
		ok = SSL_set1_host(s, w->origin.host) == 1 &&
		     SSL_set_tlsext_host_name(s, w->origin.host) == 1;
	SSL_set_connect_state(s);
	if (ok)
		return s;
	SSL_free(s);
	return NULL;
}

static bool is_address(const struct origin *o)
{
	ASN1_OCTET_STRING *a = a2i_IPADDRESS(o->host);

	ASN1_OCTET_STRING_free(a);
	ERR_clear_error();
	return a != NULL;
}

static int set_up(struct wire *w, struct err *e)
{
	static const unsigned char http1[] = "\x08http/1.1";
	SSL *first;

	/* OpenSSL's configuration could load modules; nothing here needs one. */
	(void)OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
	w->ctx = SSL_CTX_new(TLS_client_method());
	w->chunk = malloc(RECORD);
	w->address = is_address(&w->origin);
	if (!w->ctx || !w->chunk || SSL_CTX_set_min_proto_version(w->ctx, TLS1_2_VERSION) != 1 ||
	    SSL_CTX_set_alpn_protos(w->ctx, http1, sizeof(http1) - 1) != 0)
		return err_set(e, ERR_UNAVAILABLE, "OpenSSL does not start");
	SSL_CTX_set_verify(w->ctx, SSL_VERIFY_PEER, NULL);
	(void)SSL_CTX_set_session_cache_mode(w->ctx, SSL_SESS_CACHE_OFF);
	(void)SSL_CTX_set_options(w->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	(void)SSL_CTX_set_mode(w->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
					   SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					   SSL_MODE_RELEASE_BUFFERS);
	/* What the library sets up with its first connection, it does before confinement. */
	first = new_ssl(w);
	if (!first)
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	SSL_free(first);
	return 0;
}

int wire_new(const struct origin *o, struct view ca, struct wire **ret, struct err *e)
{
	struct wire *w;
	int r;

	*ret = NULL;
	if (o->scheme != ORIGIN_HTTPS)
		return err_set(e, ERR_INVALID, "upstream %s: without https it is airlock-bridge's",
			       o->text);
	w = calloc(1, sizeof(*w));
	if (!w)
		return err_set(e, ERR_NOMEM, "upstream: out of memory");
	w->origin = *o;
	r = set_up(w, e);
	if (r == 0)
		r = load_store(w, ca, e);
	if (r < 0) {
		wire_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

void wire_free(struct wire *w)
{
	if (!w)
		return;
	SSL_CTX_free(w->ctx);
	authorities_free(w->authorities);
	free(w->chunk);
	free(w);
}

/* Connections. ----------------------------------------------------------------------------- */

int wire_begin(struct wire *w, int fd, struct wire_end **ret)
{
	struct wire_end *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->w = w;
	t->ssl = new_ssl(w);
	if (!t->ssl || SSL_set_fd(t->ssl, fd) != 1) {
		wire_end_free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void wire_end_free(struct wire_end *t)
{
	if (!t)
		return;
	SSL_free(t->ssl);
	free(t);
}

/* What a call that did not go through means. */
static int why(struct wire_end *t, int r, uint32_t *ret_events)
{
	int code = SSL_get_error(t->ssl, r), sys = errno;

	ERR_clear_error();
	switch (code) {
	case SSL_ERROR_WANT_READ:
		*ret_events = EPOLLIN;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		*ret_events = EPOLLOUT;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SYSCALL:
		return sys == EPIPE ? -EPIPE : -ECONNRESET;
	default:
		return -ECONNRESET;
	}
}

int wire_greet(struct wire_end *t, uint32_t *ret_events)
{
	int r;

	ERR_clear_error();
	errno = 0;
	r = SSL_do_handshake(t->ssl);
	if (r == 1)
		return SSL_get_verify_result(t->ssl) == X509_V_OK ? 0 : -EPERM;
	r = why(t, r, ret_events);
	return r < 0 ? r : -ECONNRESET;
}

ssize_t wire_send(struct wire_end *t, int fd, const struct iovec *v, size_t n, uint32_t *ret_events)
{
	const char *p = v[0].iov_base;
	size_t len = v[0].iov_len;
	int r;

	(void)fd;
	if (n > 1 && len < RECORD) {
		size_t more = v[1].iov_len < RECORD - len ? v[1].iov_len : RECORD - len;

		/* What is tried again after -EAGAIN is the same bytes, as it must be. */
		memcpy(t->w->chunk, p, len);
		memcpy(t->w->chunk + len, v[1].iov_base, more);
		p = t->w->chunk;
		len += more;
	}
	ERR_clear_error();
	errno = 0;
	r = SSL_write(t->ssl, p, len < INT_MAX ? (int)len : INT_MAX);
	if (r > 0)
		return r;
	r = why(t, r, ret_events);
	return r < 0 ? r : -EPIPE;
}

ssize_t wire_recv(struct wire_end *t, int fd, char *p, size_t n, uint32_t *ret_events)
{
	int r;

	(void)fd;
	ERR_clear_error();
	errno = 0;
	r = SSL_read(t->ssl, p, n < INT_MAX ? (int)n : INT_MAX);
	return r > 0 ? r : why(t, r, ret_events);
}

/* Tickets and the like come at any time, and are TLS's own. */
bool wire_quiet(struct wire_end *t, int fd)
{
	uint32_t events;
	char byte;
	int r;

	(void)fd;
	ERR_clear_error();
	errno = 0;
	r = SSL_peek(t->ssl, &byte, 1);
	/* The beginning of a record that nobody asked for would end as the answer to the next request. */
	return r <= 0 && why(t, r, &events) == -EAGAIN && !SSL_has_pending(t->ssl);
}
