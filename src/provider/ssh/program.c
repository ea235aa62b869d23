#include "provider/ssh/program.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "os/self.h"

#define SYSTEM "Linux-"
#define NAME_MAX_HERE 64

static int hash_program(int fd, char hex[2 * crypto_hash_sha256_BYTES + 1], uint64_t *ret_size)
{
	crypto_hash_sha256_state st;
	uint8_t chunk[16384], sum[crypto_hash_sha256_BYTES];
	ssize_t k;

	*ret_size = 0;
	(void)crypto_hash_sha256_init(&st);
	while ((k = pread(fd, chunk, sizeof(chunk), (off_t)*ret_size)) > 0) {
		(void)crypto_hash_sha256_update(&st, chunk, (size_t)k);
		*ret_size += (uint64_t)k;
	}
	if (k < 0)
		return -errno;
	(void)crypto_hash_sha256_final(&st, sum);
	(void)sodium_bin2hex(hex, 2 * sizeof(sum) + 1, sum, sizeof(sum));
	return 0;
}

void ssh_machine_here(char out[SSH_MACHINE_MAX + 1])
{
	struct utsname u = {0};

	(void)uname(&u);
	(void)snprintf(out, SSH_MACHINE_MAX + 1, "%s-%s", u.sysname, u.machine);
}

/* False: a word that is in no name of ours. */
static bool name_for(const char *name, const char *machine, char out[NAME_MAX_HERE])
{
	const char *kind = machine + strlen(SYSTEM);
	int n;

	if (!machine[0])
		return snprintf(out, NAME_MAX_HERE, "%s", name) < NAME_MAX_HERE;
	if (!str_starts(machine, SYSTEM) || !kind[0])
		return false;
	for (const char *p = kind; *p; p++)
		if (!isalnum((unsigned char)*p) && *p != '_')
			return false;
	n = snprintf(out, NAME_MAX_HERE, "%s-%s", name, kind);
	return n < NAME_MAX_HERE;
}

bool ssh_program_is_for(const char *name, const char *machine)
{
	_cleanup_free_ char *path = NULL;
	char full[NAME_MAX_HERE];

	return machine[0] && name_for(name, machine, full) && self_file(full, &path, NULL) == 0;
}

static int not_for(const char *name, const char *machine, struct err *e)
{
	return err_set(
	    e, ERR_UNAVAILABLE,
	    "this Airlock has no %s for a %s machine: install one that was built with it, or leave out what "
	    "needs it",
	    name, machine);
}

int ssh_program_open(const char *name, const char *machine, struct ssh_program *ret, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	char full[NAME_MAX_HERE];
	int r;

	*ret = (struct ssh_program){.fd = -1};
	if (!name_for(name, machine, full) || (machine[0] && !ssh_program_is_for(name, machine)))
		return not_for(name, machine, e);
	/* What runs elsewhere need not run here. */
	r = machine[0] ? self_file(full, &path, e) : self_helper(full, &path, e);
	if (r < 0)
		return r;
	ret->fd = open(path, O_RDONLY | O_CLOEXEC);
	r = ret->fd < 0 ? -errno : hash_program(ret->fd, ret->hash, &ret->size);
	if (r < 0)
		cleanup_fd(&ret->fd);
	return r < 0 ? err_sys(e, -r, "read %s", path) : 0;
}
