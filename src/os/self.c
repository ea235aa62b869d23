#include "os/self.h"

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"

/* 1 and *ret; 0 there is none, and exe is where it was looked for. */
static int find(const char *name, int mode, char exe[PATH_MAX], char **ret, struct err *e)
{
	static const char *const places[] = {".", "../libexec/airlock"};
	ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);

	if (n <= 0)
		return err_sys(e, errno, "find own program: read /proc/self/exe");
	exe[n] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT((size_t)3 * PATH_MAX);
		_cleanup_free_ char *p = NULL;

		(void)buf_putf(&b, "%.*s/%s/%s", (int)(path_base(exe) - exe - 1), exe, places[i],
			       name);
		if (b.err)
			return err_set(e, ERR_NOMEM, "find %s: out of memory", name);
		p = path_normalize(buf_text(&b));
		if (!p)
			return err_set(e, ERR_NOMEM, "find %s: out of memory", name);
		if (access(p, mode) == 0) {
			*ret = TAKE_PTR(p);
			return 1;
		}
	}
	return 0;
}

int self_helper(const char *name, char **ret, struct err *e)
{
	char exe[PATH_MAX];
	int r = find(name, X_OK, exe, ret, e);

	if (r)
		return r < 0 ? r : 0;
	return err_set(e, ERR_UNAVAILABLE,
		       "helper program %s is missing beside %s and in ../libexec/airlock: "
		       "install Airlock again",
		       name, exe);
}

int self_file(const char *name, char **ret, struct err *e)
{
	char exe[PATH_MAX];
	int r = find(name, R_OK, exe, ret, e);

	if (r)
		return r < 0 ? r : 0;
	return err_set(e, ERR_NOT_FOUND, "there is no %s beside %s", name, exe);
}

/* Notes of one segment: length of the name, of the description, type; each padded to four bytes. */
static bool find_note(const unsigned char *p, size_t n, char out[BUILD_ID_MAX + 1])
{
	while (n >= sizeof(ElfW(Nhdr))) {
		ElfW(Nhdr) h;
		size_t name, desc, whole;

		memcpy(&h, p, sizeof(h));
		name = ((size_t)h.n_namesz + 3) & ~(size_t)3;
		desc = ((size_t)h.n_descsz + 3) & ~(size_t)3;
		whole = sizeof(h) + name + desc;
		if (whole > n)
			return false;
		if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 &&
		    memcmp(p + sizeof(h), "GNU", 4) == 0 && h.n_descsz <= BUILD_ID_MAX / 2) {
			str_hex(out, p + sizeof(h) + name, h.n_descsz);
			return true;
		}
		p += whole;
		n -= whole;
	}
	return false;
}

/* The first object is the program itself; the others are its libraries. */
static int first_object(struct dl_phdr_info *o, size_t size, void *arg)
{
	(void)size;
	for (int i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &o->dlpi_phdr[i];
		const unsigned char *at =
		    (const unsigned char *)(uintptr_t)(o->dlpi_addr + h->p_vaddr);

		if (h->p_type == PT_NOTE && find_note(at, h->p_memsz, arg))
			break;
	}
	return 1;
}

void self_build_id(char out[BUILD_ID_MAX + 1])
{
	out[0] = '\0';
	(void)dl_iterate_phdr(first_object, out);
}
