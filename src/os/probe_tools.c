/* Programs and files of the host that a run uses: helpers, guest, git, ssh, names, certificates. */
#include "os/probe.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/version.h"
#include "os/self.h"

#define GIT_MAJOR \
	2 /* 2.31: GIT_CONFIG_COUNT, with which the wrapper overrides a repository's settings */
#define GIT_MINOR 31

/* Text of a program for a table cell: foreign, so made printable. */
static void say(char *out, size_t n, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PROBE_TEXT_MAX);

	(void)str_printable(&b, text, strnlen(text, 60));
	(void)snprintf(out, n, "%s", buf_text(&b));
}

/* Why probe_capture did not end with 0, in words. */
static void outcome(int code, const char *text, char *out, size_t n)
{
	char said[PROBE_TEXT_MAX];

	say(said, sizeof(said), text);
	if (code == -ETIMEDOUT)
		(void)snprintf(out, n, "no answer in time");
	else if (code < 0)
		(void)snprintf(out, n, "%s", strerror(-code));
	else
		(void)snprintf(out, n, "exit status %d%s%.160s", code, said[0] ? ", " : "", said);
}

void probe_helpers(const struct probe_env *env, struct probe_result *r)
{
	static const char *const names[] = {"airlock-launch", "airlock-unpack", "airlock-proxy",
					    "airlock-remote"};
	char out[PROBE_TEXT_MAX], text[PROBE_TEXT_MAX], why[PROBE_TEXT_MAX];
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		_cleanup_free_ char *path = NULL;
		int code;

		if (self_helper(names[i], &path, &e) < 0) {
			probe_missing(r, CAUSE_HELPER_MISSING, 0, "find", names[i]);
			return;
		}
		code = probe_capture(env, path, "--version", out, sizeof(out));
		outcome(code, out, why, sizeof(why));
		if (code != 0 || !strstr(out, env->version)) {
			(void)snprintf(text, sizeof(text), "%s (%.160s)", names[i],
				       code ? why : out);
			probe_missing(r, CAUSE_HELPER_VERSION, 0, "ask its version", text);
			return;
		}
		if (strstr(out, VERSION_NOTE_UNCONFINED)) {
			probe_missing(r, CAUSE_HELPER_UNCONFINED, 0, "ask its version", names[i]);
			return;
		}
	}
	(void)snprintf(r->detail, sizeof(r->detail), "version %s", env->version);
}

/* True if the program asks for no dynamic linker: inside there may be none. */
static bool is_static(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr eh;
	Elf64_Phdr ph;

	if (fd < 0 || pread(fd, &eh, sizeof(eh), 0) != (ssize_t)sizeof(eh) ||
	    memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_phentsize != sizeof(ph))
		return false;
	for (unsigned i = 0; i < eh.e_phnum; i++)
		if (pread(fd, &ph, sizeof(ph), (off_t)(eh.e_phoff + i * sizeof(ph))) ==
			(ssize_t)sizeof(ph) &&
		    ph.p_type == PT_INTERP)
			return false;
	return true;
}

void probe_guest(const struct probe_env *env, struct probe_result *r)
{
	_cleanup_free_ char *path = NULL;
	char out[PROBE_TEXT_MAX], why[PROBE_TEXT_MAX];
	struct err e = ERR_INIT;
	int code;

	if (self_helper("airlock-guest", &path, &e) < 0) {
		probe_missing(r, CAUSE_HELPER_MISSING, 0, "find", "airlock-guest");
		return;
	}
	if (!is_static(path)) {
		probe_missing(r, CAUSE_GUEST_DYNAMIC, 0, "read its header", path);
		return;
	}
	code = probe_capture(env, path, "--version", out, sizeof(out));
	outcome(code, out, why, sizeof(why));
	if (code != 0)
		probe_missing(r, CAUSE_GUEST_BROKEN, code < 0 ? -code : 0, "start it", why);
	else if (!strstr(out, env->version))
		probe_missing(r, CAUSE_HELPER_VERSION, 0, "ask its version", out);
	else
		(void)snprintf(r->detail, sizeof(r->detail), "static, version %s", env->version);
}

/* Runs "program flag"; 0 with its first line in out, else r is filled. */
static int ask_program(const struct probe_env *env, struct probe_result *r, const char *program,
		       const char *flag, char *out)
{
	char why[PROBE_TEXT_MAX];
	int code = probe_capture(env, program, flag, out, PROBE_TEXT_MAX);

	if (code == -ENOENT) {
		probe_missing(r, CAUSE_PROGRAM_ABSENT, ENOENT, "find", program);
		return -ENOENT;
	}
	outcome(code, out, why, sizeof(why));
	if (code != 0) {
		probe_missing(r, CAUSE_PROGRAM_BROKEN, code < 0 ? -code : 0, "ask its version",
			      why);
		return -EIO;
	}
	say(r->detail, sizeof(r->detail), out);
	return 0;
}

void probe_git(const struct probe_env *env, struct probe_result *r)
{
	char out[PROBE_TEXT_MAX];
	unsigned major = 0, minor = 0;

	if (ask_program(env, r, env->programs[0] ? env->programs[0] : "git", "--version", out) < 0)
		return;
	/* An unreadable version is no reason to refuse (FR-B048). */
	if (sscanf(out, "git version %u.%u", &major, &minor) == 2 &&
	    (major < GIT_MAJOR || (major == GIT_MAJOR && minor < GIT_MINOR)))
		probe_limited(r, CAUSE_PROGRAM_OLD, r->detail);
}

void probe_ssh(const struct probe_env *env, struct probe_result *r)
{
	char out[PROBE_TEXT_MAX];

	(void)ask_program(env, r, env->programs[1] ? env->programs[1] : "ssh", "-V", out);
	/* The program and Debian's package have different names. */
	if (r->cause == CAUSE_PROGRAM_ABSENT && !env->programs[1])
		(void)snprintf(r->object, sizeof(r->object), "openssh-client");
}

void probe_names(const struct probe_env *env, struct probe_result *r)
{
	_cleanup_file_ FILE *f = fopen("/etc/resolv.conf", "re");
	char line[1024], target[PROBE_TEXT_MAX];
	unsigned servers = 0;
	ssize_t n;

	(void)env;
	if (!f) {
		int err = errno;

		n = readlink("/etc/resolv.conf", target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		probe_missing(r, CAUSE_RESOLV_ABSENT, err, "open", n > 0 ? target : strerror(err));
		return;
	}
	while (fgets(line, sizeof(line), f))
		servers += str_starts(line, "nameserver ") || str_starts(line, "nameserver\t");
	if (servers == 0)
		probe_limited(r, CAUSE_RESOLV_EMPTY, NULL);
	else
		(void)snprintf(r->detail, sizeof(r->detail), "%u name server%s", servers,
			       servers == 1 ? "" : "s");
}

void probe_certs(const struct probe_env *env, struct probe_result *r)
{
	static const char *const bundles[] = {
	    "/etc/ssl/certs/ca-certificates.crt",
	    "/etc/pki/tls/certs/ca-bundle.crt",
	    "/etc/ssl/ca-bundle.pem",
	    "/etc/ssl/cert.pem",
	    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	};
	struct stat st;

	(void)env;
	for (size_t i = 0; i < ARRAY_LEN(bundles); i++) {
		_cleanup_fd_ int fd = open(bundles[i], O_RDONLY | O_CLOEXEC);

		if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
			(void)snprintf(r->detail, sizeof(r->detail), "%s", bundles[i]);
			return;
		}
	}
	probe_missing(r, CAUSE_CERTS_ABSENT, ENOENT, "find", NULL);
}
