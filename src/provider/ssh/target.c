#include "provider/ssh/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/path.h"
#include "base/str.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define HOST_MAX 255
#define REMOTE_RUNS_MAX 1000

static int bad(struct err *e, const char *word, const char *what)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);

	(void)str_printable(&b, word, strnlen(word, 200));
	return err_set(e, ERR_USAGE, "--ssh %s: %s", buf_text(&b), what);
}

static bool name_fits(const char *s, const char *letters)
{
	size_t n = strlen(s);

	return n > 0 && n <= HOST_MAX && s[0] != '-' && strspn(s, letters) == n;
}

/* [USER@]HOST, HOST perhaps an address in brackets, perhaps :PORT; `at` is the caller's own copy. */
static int parse_host(const char *word, char *at, struct ssh_target *t, struct err *e)
{
	char *user = NULL, *host = at, *port = NULL, *sign = strchr(at, '@');
	uint64_t n = 0;

	if (sign) {
		user = at;
		host = sign + 1;
		*sign = '\0';
	}
	if (host[0] == '[') {
		char *end = strchr(++host, ']');

		if (!end || (end[1] && end[1] != ':'))
			return bad(e, word, "an address in brackets ends with ']'");
		port = end[1] ? end + 2 : NULL;
		*end = '\0';
	} else {
		port = strchr(host, ':');
		if (port)
			*port++ = '\0';
	}
	if (user && !name_fits(user, NAME_LETTERS))
		return bad(
		    e, word,
		    "the user has letters, digits, '.', '_' and '-', and does not begin with '-'");
	if (!name_fits(host, NAME_LETTERS ":%"))
		return bad(
		    e, word,
		    "the host has letters, digits, '.', '_' and '-' (an IPv6 address stands in "
		    "brackets), and does not begin with '-'");
	if (port && (str_to_u64(port, 65535, &n) < 0 || n == 0))
		return bad(e, word, "the port is a number from 1 to 65535");
	t->port = (uint16_t)n;
	t->user = user ? strdup(user) : NULL;
	t->host = strdup(host);
	return (user && !t->user) || !t->host ? err_set(e, ERR_NOMEM, "--ssh: out of memory") : 0;
}

static int parse_place(const char *word, struct ssh_target *t, struct err *e)
{
	const char *from = strchr(word, ']'), *slash = strstr(from ? from : word, ":/");
	_cleanup_free_ char *at = slash ? strndup(word, (size_t)(slash - word)) : NULL;
	int r;

	if (!slash)
		return bad(e, word, "give [USER@]HOST[:PORT]:/DIRECTORY");
	if (!at)
		return err_set(e, ERR_NOMEM, "--ssh: out of memory");
	r = parse_host(word, at, t, e);
	if (r < 0)
		return r;
	t->path = strdup(slash + 1);
	if (!t->path ||
	    asprintf(&t->label, "%s%s%s", t->user ? t->user : "", t->user ? "@" : "", t->host) < 0)
		return err_set(e, ERR_NOMEM, "--ssh: out of memory");
	if (!path_is_absolute_normal(t->path) || strlen(t->path) > PATH_MEMBER_MAX / 2)
		return bad(
		    e, word,
		    "the directory there is an absolute path without '.', '..' or a '/' at its end");
	return strcmp(t->path, "/") == 0
		   ? bad(e, word, "the root directory there is not for this: name one of its own")
		   : 0;
}

/* "A,B": each as the target's own, but for the directory. */
static int check_jump(const char *word, const char *hops, struct err *e)
{
	for (const char *p = hops;; p++) {
		size_t n = strcspn(p, ",");
		_cleanup_free_ char *hop = strndup(p, n);
		_cleanup_ssh_target_ struct ssh_target j = {0};
		int r = hop ? parse_host(word, hop, &j, e)
			    : err_set(e, ERR_NOMEM, "--ssh: out of memory");

		p += n;
		if (r < 0 || !*p)
			return r;
	}
}

static int parse_more(const char *word, struct ssh_target *t, struct err *e)
{
	struct {
		const char *name;
		char **to;
		bool file;
	} more[] = {{"secret=", &t->secret, false},
		    {"key=", &t->key, true},
		    {"known-hosts=", &t->known_hosts, true},
		    {"config=", &t->config, true},
		    {"jump=", &t->jump, false}};

	static const char *const guests[] = {[GUEST_AUTO] = "guest=auto",
					     [GUEST_NEVER] = "guest=never",
					     [GUEST_ALWAYS] = "guest=always"};

	if (strcmp(word, "host-keys=any") == 0) {
		t->any_host = true;
		return 0;
	}
	if (strcmp(word, "compress=yes") == 0) {
		t->compress = true;
		return 0;
	}
	if (str_starts(word, "max-runs=")) {
		uint64_t n;

		if (str_to_u64(word + strlen("max-runs="), REMOTE_RUNS_MAX, &n) < 0 || n == 0)
			return bad(e, word, "a number from 1 to 1000");
		t->max_runs = (unsigned)n;
		return 0;
	}
	if (str_starts(word, "grace=")) {
		uint64_t n;

		if (str_to_u64(word + strlen("grace="), REMOTE_GRACE_MAX_S, &n) < 0)
			return bad(e, word, "seconds, 0 to 86400");
		t->grace_s = (unsigned)n;
		return 0;
	}
	if (strcmp(word, "base=none") == 0) {
		t->no_base = true;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(guests); i++)
		if (strcmp(word, guests[i]) == 0) {
			t->guest = (enum ssh_guest)i;
			return 0;
		}
	for (size_t i = 0; i < ARRAY_LEN(more); i++) {
		const char *v = word + strlen(more[i].name);

		if (!str_starts(word, more[i].name))
			continue;
		if (more[i].file && v[0] != '/')
			return bad(e, word, "not an absolute path");
		/* Quotes and '%' have a meaning for ssh in these. */
		if (more[i].file && strpbrk(v, "\"%\n"))
			return bad(e, word, "a file name without '\"', '%' and line breaks");
		if (more[i].to == &t->jump && check_jump(word, v, e) < 0)
			return -EINVAL;
		if (more[i].to == &t->secret && !name_fits(v, NAME_LETTERS))
			return bad(e, word, "not a name");
		free(*more[i].to);
		*more[i].to = strdup(v);
		return *more[i].to ? 0 : err_set(e, ERR_NOMEM, "--ssh: out of memory");
	}
	return bad(e, word, "unknown word");
}

int ssh_target_parse(char *const *words, struct ssh_target *ret, struct err *e)
{
	int r;

	*ret = (struct ssh_target){.grace_s = REMOTE_GRACE_S};
	if (!words || !words[0])
		return err_set(e, ERR_USAGE,
			       "provider ssh needs a machine: --ssh [USER@]HOST[:PORT]:/DIRECTORY");
	r = parse_place(words[0], ret, e);
	for (size_t i = 1; r == 0 && words[i]; i++)
		r = parse_more(words[i], ret, e);
	if (r < 0)
		ssh_target_done(ret);
	return r;
}

void ssh_target_done(struct ssh_target *t)
{
	free(t->user);
	free(t->host);
	free(t->path);
	free(t->key);
	free(t->known_hosts);
	free(t->config);
	free(t->jump);
	free(t->secret);
	free(t->label);
	*t = (struct ssh_target){0};
}

static int look(const char *file, const char *what, bool secret, struct err *e)
{
	struct stat st;

	if (!file || strcmp(file, "/dev/null") == 0)
		return 0;
	if (stat(file, &st) < 0 || access(file, R_OK) < 0)
		return err_sys(e, errno, "--ssh-%s %s cannot be read", what, file);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, "--ssh-%s %s is not a file", what, file);
	if (secret && (st.st_mode & 077))
		return err_set(
		    e, ERR_PERMISSION,
		    "--ssh-%s %s has mode %04o, so others may read it, and ssh refuses it: chmod "
		    "600 %s",
		    what, file, (unsigned)(st.st_mode & 07777), file);
	return 0;
}

int ssh_target_identity(struct ssh_target *t, char *const *identities, struct err *e)
{
	size_t n = t->secret ? strlen(t->secret) : 0;

	if (!t->secret || t->key)
		return 0;
	for (; identities && *identities; identities++) {
		if (strncmp(*identities, t->secret, n) != 0 || (*identities)[n] != '=')
			continue;
		t->key = strdup(*identities + n + 1);
		return t->key ? 0 : err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "the key for %s is a secret of airlockd's environment %s, and only airlockd can open it: what is left to "
	    "do there is done by its sweep",
	    t->label, t->secret);
}

int ssh_target_files(const struct ssh_target *t, struct err *e)
{
	int r = look(t->key, "key", true, e);

	if (r == 0)
		r = look(t->known_hosts, "known-hosts", false, e);
	return r < 0 ? r : look(t->config, "config", false, e);
}

struct words {
	char **v;
	int r;
};

static void word(struct words *w, const char *text)
{
	if (w->r == 0)
		w->r = strv_add(&w->v, text);
}

static void option(struct words *w, const char *name, const char *value)
{
	_cleanup_free_ char *text = NULL;

	if (asprintf(&text, "-o%s=%s", name, value) < 0) {
		text = NULL;
		w->r = -ENOMEM;
		return;
	}
	word(w, text);
}

static void number(struct words *w, const char *name, unsigned v)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", v);
	option(w, name, text);
}

/* ssh takes the first value that it gets (FR-B197), and options come before files: these hold whatever those say. */
static void fixed(struct words *w)
{
	static const char *const names[][2] = {
	    {"IgnoreUnknown",
	     "ForkAfterAuthentication,SessionType,StdinNull,PermitRemoteOpen,GSSAPIDelegateCredentials"},
	    {"BatchMode", "yes"},
	    {"LogLevel", "ERROR"},
	    {"RequestTTY", "no"},
	    {"RemoteCommand", "none"},
	    {"ForkAfterAuthentication", "no"},
	    {"SessionType", "default"},
	    {"StdinNull", "no"},
	    {"ForwardAgent", "no"},
	    {"GSSAPIDelegateCredentials", "no"},
	    {"ForwardX11", "no"},
	    {"ClearAllForwardings", "yes"},
	    {"Tunnel", "no"},
	    {"PermitLocalCommand", "no"},
	    {"UpdateHostKeys", "no"},
	    {"EscapeChar", "none"},
	    {"ConnectionAttempts", "1"},
	    {"TCPKeepAlive", "yes"},
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		option(w, names[i][0], names[i][1]);
	number(w, "ConnectTimeout", REMOTE_CONNECT_S);
	number(w, "ServerAliveInterval", REMOTE_ALIVE_S);
	number(w, "ServerAliveCountMax", REMOTE_ALIVE_COUNT);
}

/* A file name with spaces is one word for ssh only in quotes. */
static void file_option(struct words *w, const char *name, const char *file)
{
	_cleanup_free_ char *quoted = NULL;

	if (!file)
		return;
	if (asprintf(&quoted, "\"%s\"", file) < 0) {
		quoted = NULL;
		w->r = -ENOMEM;
		return;
	}
	option(w, name, quoted);
}

/* What holds for every machine on the way. */
static void common(struct words *w, const struct ssh_target *t)
{
	word(w, "ssh");
	if (t->config) {
		word(w, "-F");
		word(w, t->config);
	}
	fixed(w);
	option(w, "StrictHostKeyChecking", t->any_host ? "no" : "yes");
	file_option(w, "UserKnownHostsFile", t->any_host ? "/dev/null" : t->known_hosts);
	if (t->known_hosts || t->any_host)
		option(w, "GlobalKnownHostsFile", "/dev/null");
	file_option(w, "IdentityFile", t->key);
	if (t->key)
		option(w, "IdentitiesOnly", "yes");
}

/* For the shell that ssh starts: in single quotes, and no '%' means anything to ssh. */
static void put_quoted(struct buf *b, const char *text)
{
	(void)buf_puts(b, "'");
	for (; *text; text++)
		(void)buf_puts(b, *text == '\''	 ? "'\\''"
				  : *text == '%' ? "%%"
						 : (char[]){*text, 0});
	(void)buf_puts(b, "'");
}

/*
 * The jump hosts of "A,B", the last one nearest to the target. Not ProxyJump: ssh would start the ssh for it with the options
 * of its configuration alone, which may ask, and take keys that nobody knows. *ret: heap, in the words of ProxyCommand.
 */
static int jump_command(const struct ssh_target *t, const char *hops, size_t n, char **ret)
{
	const char *comma = memrchr(hops, ',', n), *hop = comma ? comma + 1 : hops;
	struct buf b = BUF_INIT((size_t)1 << 20);
	_cleanup_free_ char *before = NULL, *name = strndup(hop, n - (size_t)(hop - hops));
	struct ssh_target j = {0};
	struct words w = {0};
	int r = name ? parse_host(hops, name, &j, NULL) : -ENOMEM;

	if (r == 0 && comma)
		r = jump_command(t, hops, (size_t)(comma - hops), &before);
	common(&w, t);
	if (before)
		option(&w, "ProxyCommand", before);
	option(&w, "ControlMaster", "no");
	option(&w, "ControlPath", "none");
	if (j.port)
		number(&w, "Port", j.port);
	if (j.user)
		option(&w, "User", j.user);
	for (char **v = w.v; r == 0 && w.r == 0 && v && *v; v++) {
		put_quoted(&b, *v);
		(void)buf_puts(&b, " ");
	}
	(void)buf_puts(&b, "-W '[%h]:%p' -- ");
	if (j.host)
		put_quoted(&b, j.host);
	r = r < 0 ? r : w.r < 0 ? w.r : b.err;
	strv_free(w.v);
	ssh_target_done(&j);
	if (r < 0)
		buf_done(&b);
	else
		*ret = buf_take(&b);
	return r;
}

int ssh_target_argv(const struct ssh_target *t, const char *control, const char *command,
		    char ***ret, struct err *e)
{
	_cleanup_free_ char *jump = NULL;
	struct words w = {0};

	common(&w, t);
	/* Once, whatever is on the way. */
	if (t->compress)
		option(&w, "Compression", "yes");
	if (t->jump)
		w.r = w.r < 0 ? w.r : jump_command(t, t->jump, strlen(t->jump), &jump);
	if (jump)
		option(&w, "ProxyCommand", jump);
	if (control) {
		option(&w, "ControlMaster", "auto");
		file_option(&w, "ControlPath", control);
		number(&w, "ControlPersist", REMOTE_PERSIST_S);
	} else {
		option(&w, "ControlMaster", "no");
		option(&w, "ControlPath", "none");
	}
	if (t->port)
		number(&w, "Port", t->port);
	if (t->user)
		option(&w, "User", t->user);
	word(&w, "--");
	word(&w, t->host);
	word(&w, command);
	if (w.r < 0) {
		strv_free(w.v);
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	*ret = w.v;
	return 0;
}

int ssh_target_env(char ***ret, struct err *e)
{
	static const char *const names[] = {
	    "PATH",	  "HOME",  "USER", "LOGNAME", "SHELL", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR",
	    "KRB5CCNAME", "TMPDIR"};
	struct words w = {0};

	word(&w, "LC_ALL=C");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *v = getenv(names[i]);
		_cleanup_free_ char *text = NULL;

		if (!v)
			continue;
		if (asprintf(&text, "%s=%s", names[i], v) < 0) {
			text = NULL;
			w.r = -ENOMEM;
			continue;
		}
		word(&w, text);
	}
	if (w.r < 0) {
		strv_free(w.v);
		return err_set(e, ERR_NOMEM, "ssh: out of memory");
	}
	*ret = w.v;
	return 0;
}
