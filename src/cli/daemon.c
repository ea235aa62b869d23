#include "cli/daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/daemonpeer.h"
#include "engine/state.h"
#include "os/proc.h"

#define WAIT_MS 60000
#define ANSWER_MAX ((size_t)64 << 20)
#define HEAD_MAX 65536
#define WORD_MAX 1024 /* of a file that names a daemon, or holds a key */

void daemon_done(struct daemon *d)
{
	if (d->token)
		sodium_memzero(d->token, strlen(d->token));
	free(d->token);
	d->token = NULL;
	free(d->dir);
	d->dir = NULL;
}

/* A short file: 1, 0 there is no such file, negative. */
static int short_file(const char *path, bool secret, char out[WORD_MAX], struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "open %s", path);
	if (secret && (st.st_mode & 077))
		return err_set(e, ERR_PERMISSION, "others can read %s: chmod 600 %s", path, path);
	n = read(fd, out, WORD_MAX - 1);
	if (n < 0)
		return err_sys(e, errno, "read %s", path);
	out[n] = '\0';
	return 1;
}

static int first_line(const char *path, bool secret, char out[WORD_MAX], struct err *e)
{
	int r = short_file(path, secret, out, e);

	if (r > 0)
		out[strcspn(out, "\r\n")] = '\0';
	return r;
}

/*
 * The file that airlockd leaves in its state: a line that says where, a line that says who. 1, 0, negative.
 * The file of one that was killed stays, and by then its port may be anybody's: nobody but that very
 * process is asked, for whoever is asked hears the key.
 */
static int where_it_listens(const char *path, char out[WORD_MAX], struct err *e)
{
	struct proc_id id = {0};
	char *rest = out, *word;
	uint64_t pid = 0;
	int r = short_file(path, false, out, e);

	if (r <= 0)
		return r;
	(void)strsep(&rest, "\n");
	if (!(word = strsep(&rest, " ")) || str_to_u64(word, INT_MAX, &pid) < 0 || pid == 0)
		return 0;
	id.pid = (pid_t)pid;
	if (!(word = strsep(&rest, " ")) || str_to_u64(word, UINT64_MAX, &id.start) < 0)
		return 0;
	if (!(word = strsep(&rest, "\n")) || strlen(word) != BOOT_ID_LEN)
		return 0;
	memcpy(id.boot, word, BOOT_ID_LEN + 1);
	return proc_alive(&id);
}

static int get_token(struct daemon *d, struct err *e)
{
	const char *word = getenv("AIRLOCK_TOKEN"), *file = getenv("AIRLOCK_TOKEN_FILE");
	char line[WORD_MAX] = "";
	int r = 1;

	if (!word && file) {
		r = first_line(file, true, line, e);
		if (r == 0)
			r = err_set(e, ERR_NOT_FOUND, "AIRLOCK_TOKEN_FILE: there is no %s", file);
		word = line;
	}
	for (const char *p = word; r > 0 && p && *p; p++)
		if (*p < '!' || *p > '~')
			r = err_set(e, ERR_INVALID,
				    "the key for the daemon has a character that no key has");
	if (r > 0 && word && word[0]) {
		d->token = strdup(word);
		if (!d->token)
			r = err_set(e, ERR_NOMEM, "daemon: out of memory");
	}
	sodium_memzero(line, sizeof(line));
	return r < 0 ? r : 0;
}

/* --- connection --------------------------------------------------------------------------- */

/* A listener that accepts nobody has a queue that is full some day. */
static int in_time(int fd)
{
	const struct timeval tv = {.tv_sec = WAIT_MS / 1000};

	return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

static int dial_own(const struct daemon *d, struct err *e)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	_cleanup_fd_ int dir = open(d->dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
			 fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* The directory's own name may be longer than an address. */
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "/proc/self/fd/%d/" DAEMON_SOCKET, dir);
	if (dir < 0 || fd < 0 || in_time(fd) < 0 ||
	    connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0)
		return err_sys(e, errno, "reach the daemon of %s", d->dir);
	return TAKE_FD(fd);
}

static int dial_named(const struct daemon *d, struct err *e)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(d->at.port)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(d->at.port)};
	const struct sockaddr *sa = (struct sockaddr *)&a4;
	socklen_t len = sizeof(a4);
	_cleanup_fd_ int fd = -1;

	if (d->at.scheme == ORIGIN_UNIX) {
		(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", d->at.path);
		sa = (struct sockaddr *)&un;
		len = sizeof(un);
	} else if (d->at.ipv6) {
		a6.sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
		sa = (struct sockaddr *)&a6;
		len = sizeof(a6);
	} else {
		a4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || in_time(fd) < 0 || connect(fd, sa, len) < 0)
		return err_sys(e, errno, "reach the daemon at %s", d->at.text);
	return TAKE_FD(fd);
}

static int dial(const struct daemon *d, struct err *e)
{
	_cleanup_fd_ int fd = d->dir ? dial_own(d, e) : dial_named(d, e);
	int r = fd < 0 ? fd
		       : daemonpeer_check(fd, d->at.text, clock_mono_ns() + WAIT_MS * NS_PER_MS, e);

	if (r >= 0 && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		r = err_sys(e, errno, "reach the daemon at %s", d->at.text);
	return r < 0 ? r : TAKE_FD(fd);
}

static int wait_for(int fd, short events, int64_t until_ns, const struct daemon *d, struct err *e)
{
	struct pollfd p = {.fd = fd, .events = events};
	int r;

	do
		r = poll(&p, 1, clock_poll_ms(until_ns, clock_mono_ns()));
	while (r < 0 && errno == EINTR && clock_mono_ns() < until_ns);
	if (r > 0)
		return 0;
	return err_set(e, ERR_TIMEOUT, "the daemon at %s does not answer", d->at.text);
}

static int send_request(const struct daemon *d, int fd, const char *method, const char *path,
			const char *body, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HEAD_MAX + (body ? strlen(body) : 0));
	int64_t until = clock_mono_ns() + WAIT_MS * NS_PER_MS;
	size_t at = 0;
	int r = 0;

	(void)buf_putf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, path,
		       d->dir || d->at.scheme == ORIGIN_UNIX ? "localhost" : d->at.authority);
	if (d->token)
		(void)buf_putf(&b, "Authorization: Bearer %s\r\n", d->token);
	if (body)
		(void)buf_putf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			       strlen(body));
	(void)buf_puts(&b, "\r\n");
	(void)buf_puts(&b, body ? body : "");
	if (b.err)
		return err_set(e, ERR_NOMEM, "daemon: out of memory");
	while (r == 0 && at < b.len) {
		ssize_t n = send(fd, b.data + at, b.len - at, MSG_NOSIGNAL);

		if (n >= 0)
			at += (size_t)n;
		else if (errno == EAGAIN)
			r = wait_for(fd, POLLOUT, until, d, e);
		else if (errno != EINTR)
			r = err_sys(e, errno, "ask the daemon at %s", d->at.text);
	}
	sodium_memzero(b.data, b.len);
	return r;
}

/* --- one answer --------------------------------------------------------------------------- */

/* What came so far into `out`; 1 it is whole, 0 more is to come, negative. */
static int parse(struct http1 *h, const char *p, size_t n, struct buf *out)
{
	while (n) {
		struct view piece;
		size_t used = 0;
		enum http1_event ev = http1_feed(h, p, n, &used, &piece);

		p += used;
		n -= used;
		if (ev == HTTP1_BODY && buf_put(out, piece.p, piece.n) < 0)
			return -EFBIG;
		if (ev == HTTP1_ERROR)
			return -EPROTO;
		if (ev == HTTP1_END)
			return 1;
		if (ev == HTTP1_MORE && !n)
			break;
	}
	return 0;
}

static int take_answer(const struct daemon *d, int fd, struct http1 *h, struct buf *out,
		       struct err *e)
{
	int64_t until = clock_mono_ns() + (d->wait_ms ? d->wait_ms : WAIT_MS) * NS_PER_MS;
	char piece[16384];
	int r = 0;

	while (r == 0) {
		ssize_t n;

		r = wait_for(fd, POLLIN, until, d, e);
		if (r < 0)
			return r;
		n = recv(fd, piece, sizeof(piece), 0);
		if (n > 0)
			r = parse(h, piece, (size_t)n, out);
		else if (n == 0)
			r = http1_eof(h) == HTTP1_END ? 1 : -EPIPE;
		else if (errno != EAGAIN && errno != EINTR)
			r = -errno;
	}
	return r > 0 ? 0 : err_sys(e, -r, "read the answer of the daemon at %s", d->at.text);
}

int daemon_ask(const struct daemon *d, const char *method, const char *path, const json_t *body,
	       int *ret_status, json_t **ret, struct err *e)
{
	_cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	_cleanup_free_ struct http1 *h = malloc(sizeof(*h));
	_cleanup_buf_ struct buf out = BUF_INIT(ANSWER_MAX);
	_cleanup_fd_ int fd = -1;
	int r;

	*ret = NULL;
	if (!h || (body && !text))
		return err_set(e, ERR_NOMEM, "daemon: out of memory");
	fd = dial(d, e);
	if (fd < 0)
		return fd;
	http1_init_answer(h, HEAD_MAX);
	http1_next_answer(h, false);
	r = send_request(d, fd, method, path, text, e);
	if (r == 0)
		r = take_answer(d, fd, h, &out, e);
	if (r == 0) {
		*ret_status = h->code;
		*ret = json_loadb(out.data ? out.data : "", out.len, JSON_DECODE_ANY, NULL);
	}
	http1_done(h);
	return r;
}

int daemon_refused(int status, json_t *j, const char *what, struct err *e)
{
	const char *why = json_string_value(json_object_get(j, "error"));
	enum err_code code = status == 401 || status == 403 ? ERR_PERMISSION
			     : status == 404		    ? ERR_NOT_FOUND
			     : status == 409		    ? ERR_CONFLICT
			     : status == 503		    ? ERR_LIMIT
			     : status >= 500		    ? ERR_UNAVAILABLE
							    : ERR_INVALID;
	const char *more = status == 401 || status == 403
			       ? " (the key is that of AIRLOCK_TOKEN or AIRLOCK_TOKEN_FILE)"
			       : "";
	int r = err_set(e, code, "the daemon refuses %s: %s (%d)%s", what, why ? why : "no reason",
			status, more);

	json_decref(j);
	return r;
}

/* --- stream ------------------------------------------------------------------------------- */

int daemon_stream_open(const struct daemon *d, const char *path, struct daemon_stream *ret,
		       struct err *e)
{
	_cleanup_fd_ int fd = dial(d, e);
	int r = fd < 0 ? fd : send_request(d, fd, "GET", path, NULL, e);

	if (r < 0)
		return r;
	ret->at = ret->len = 0;
	ret->head = false;
	http1_init_answer(&ret->http, HEAD_MAX);
	http1_next_answer(&ret->http, false);
	ret->fd = TAKE_FD(fd);
	return 0;
}

void daemon_stream_done(struct daemon_stream *s)
{
	if (s->fd < 0)
		return;
	cleanup_fd(&s->fd);
	s->fd = -1;
	http1_done(&s->http);
}

int daemon_stream_next(struct daemon_stream *s, struct view *ret, struct err *e)
{
	for (;;) {
		size_t used = 0;
		enum http1_event ev;

		if (s->at == s->len) {
			ssize_t n = recv(s->fd, s->buf, sizeof(s->buf), 0);

			if (n < 0)
				return errno == EAGAIN || errno == EINTR ? 0 : -EPIPE;
			if (n == 0)
				return -EPIPE;
			s->at = 0;
			s->len = (size_t)n;
		}
		ev = http1_feed(&s->http, s->buf + s->at, s->len - s->at, &used, ret);
		s->at += used;
		if (ev == HTTP1_ERROR || ev == HTTP1_END)
			return ev == HTTP1_END ? -ENODATA : -EPIPE;
		if (ev == HTTP1_HEAD && s->http.code == 503)
			return -EAGAIN;
		if (ev == HTTP1_HEAD && s->http.code != 200)
			return err_set(e, ERR_UNAVAILABLE,
				       "the daemon refuses the log of the run (%d)", s->http.code),
			       -EPERM;
		if (ev == HTTP1_BODY)
			return 1;
	}
}

/* --- where it is -------------------------------------------------------------------------- */

/* Its own socket, where that is what is asked for: named by nobody, or by the same address. */
static int find_own(const char *state_dir, const char *word, struct daemon *ret, struct err *e)
{
	_cleanup_free_ char *path = path_join(state_dir, DAEMON_FILE);
	char line[WORD_MAX];
	struct origin at;
	int r =
	    path ? where_it_listens(path, line, e) : err_set(e, ERR_NOMEM, "daemon: out of memory");

	if (r > 0 && word)
		r = origin_parse(line, &at, NULL) == 0 && strcmp(at.text, ret->at.text) == 0;
	if (r <= 0)
		return word ? 0 : r;
	if (!word)
		(void)snprintf(ret->at.text, sizeof(ret->at.text), "%.280s", line);
	ret->dir = strdup(state_dir);
	return ret->dir ? 1 : err_set(e, ERR_NOMEM, "daemon: out of memory");
}

static int named(const char *word, struct origin *at, struct err *e)
{
	int r = origin_parse(word, at, e);

	if (r < 0)
		return err_wrap(e, r, "AIRLOCK_DAEMON");
	if (at->scheme != ORIGIN_UNIX && strcmp(at->host, "127.0.0.1") != 0 &&
	    strcmp(at->host, "localhost") != 0 && strcmp(at->host, "::1") != 0)
		return err_set(
		    e, ERR_INVALID,
		    "AIRLOCK_DAEMON %.80s: a daemon is reached at http://127.0.0.1:PORT, "
		    "http://[::1]:PORT or unix:/PATH",
		    word);
	return 0;
}

int daemon_find(const char *state_dir, struct daemon *ret, struct err *e)
{
	const char *word = getenv("AIRLOCK_DAEMON");
	struct err none = ERR_INIT;
	_cleanup_fd_ int fd = -1;
	int r = 0;

	*ret = (struct daemon){.explicit = word != NULL};
	if (word && (!word[0] || strcmp(word, "none") == 0))
		return 0;
	if (word)
		r = named(word, &ret->at, e);
	if (r == 0)
		r = find_own(state_dir, word, ret, e);
	if (r == 0 && word && ret->at.scheme == ORIGIN_HTTPS)
		r = err_set(
		    e, ERR_UNAVAILABLE,
		    "AIRLOCK_DAEMON %.80s: that is not the daemon of this state directory, and only such a one is "
		    "reached without TLS, by its socket there",
		    word);
	if (r < 0 || (r == 0 && !word))
		return r;
	fd = dial(ret, &none);
	if (fd < 0 && ret->explicit && e)
		*e = none;
	if (fd < 0)
		daemon_done(ret);
	if (fd < 0)
		return ret->explicit ? fd : 0;
	r = get_token(ret, e);
	if (r < 0)
		daemon_done(ret);
	return r < 0 ? r : 1;
}
