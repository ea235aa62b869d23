#include "provider/ssh/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define KEY_MAX 65536
#define HEAD 48 /* bytes of an OpenSSH key that are looked at: magic, cipher's name */

static const char openssh_begin[] = "-----BEGIN OPENSSH PRIVATE KEY-----";

/* "openssh-key-v1\0", then u32 and the name of the cipher. */
static bool openssh_sealed(const char *body)
{
	static const char magic[] = "openssh-key-v1";
	unsigned char raw[HEAD];
	char text[HEAD / 3 * 4 + 1];
	size_t n = 0, len;

	for (; *body && n < sizeof(text) - 1; body++)
		if (*body != '\n' && *body != '\r')
			text[n++] = *body;
	if (sodium_base642bin(raw, sizeof(raw), text, n, NULL, &len, NULL,
			      sodium_base64_VARIANT_ORIGINAL) < 0 ||
	    len < sizeof(magic) + 8 || memcmp(raw, magic, sizeof(magic)) != 0)
		return false;
	return memcmp(raw + sizeof(magic), "\0\0\0\4none", 8) != 0;
}

static int judge(const char *key, struct err *e)
{
	const char *p = strstr(key, openssh_begin);

	if (strlen(key) > KEY_MAX || !strstr(key, "PRIVATE KEY-----"))
		return err_set(
		    e, ERR_INVALID,
		    "the private key is none that ssh knows: it begins with -----BEGIN ... PRIVATE KEY-----");
	if (strstr(key, "ENCRYPTED") || (p && openssh_sealed(p + sizeof(openssh_begin) - 1)))
		return err_set(
		    e, ERR_INVALID,
		    "the private key has a passphrase, and nobody is asked for it here: store a key without one "
		    "(ssh-keygen -p), made for this use alone");
	return 0;
}

/* Its standard output is the key; it writes nothing. */
static int keep(int fd, struct ssh_identity *ret, struct err *e)
{
	static const char *const argv[] = {"cat", NULL}, *const env[] = {NULL};
	struct process_opts o = PROCESS_OPTS_INIT;
	_cleanup_fd_ int rd = -1, wr = -1;
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "keep the private key in memory");
	rd = p[0];
	wr = p[1];
	o.argv = argv;
	o.envp = env;
	o.in_fd = rd;
	o.out_fd = fd;
	o.session = true;
	r = process_start(&ret->keeper, &o, e);
	if (r < 0)
		return r;
	ret->life = TAKE_FD(wr);
	(void)snprintf(ret->path, sizeof(ret->path), "/proc/%d/fd/1", (int)ret->keeper.pid);
	return 0;
}

int ssh_identity_open(const char *key, struct ssh_identity *ret, struct err *e)
{
	char text[KEY_MAX + 2];
	_cleanup_fd_ int fd = -1;
	size_t n = 0;
	int r;

	*ret = SSH_IDENTITY_INIT;
	r = judge(key, e);
	if (r < 0)
		return r;
	for (; *key; key++)
		if (*key != '\r')
			text[n++] = *key;
	if (n && text[n - 1] != '\n')
		text[n++] = '\n';
	fd = memfd_create("airlock-key", MFD_CLOEXEC);
	/* ssh refuses a key that others may read, and a memfd begins as 0777. */
	if (fd < 0 || fchmod(fd, 0600) < 0 || pwrite(fd, text, n, 0) != (ssize_t)n)
		r = err_sys(e, errno ? errno : EIO, "keep the private key in memory");
	sodium_memzero(text, sizeof(text));
	return r < 0 ? r : keep(fd, ret, e);
}

void ssh_identity_done(struct ssh_identity *i)
{
	process_kill(&i->keeper);
	cleanup_fd(&i->life);
	*i = SSH_IDENTITY_INIT;
}
