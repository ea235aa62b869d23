#include "base/relro.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

/* The program's own header, wherever it was loaded; the linker makes the name. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

void relro_protect(void)
{
	uintptr_t base = (uintptr_t)&__ehdr_start, page = (uintptr_t)getauxval(AT_PAGESZ);
	const ElfW(Phdr) *p = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
	uintptr_t bias = base;
	bool first = true;

	for (unsigned i = 0; i < __ehdr_start.e_phnum; i++) {
		uintptr_t from, to;

		/* They lie in order, and the first one begins with the header. */
		if (p[i].p_type == PT_LOAD && first) {
			bias = base - p[i].p_vaddr;
			first = false;
		}
		if (p[i].p_type != PT_GNU_RELRO)
			continue;
		/* Whole pages only: the linker lets the part that is protected end at one (of the usual size). */
		from = (bias + p[i].p_vaddr) & ~(page - 1);
		to = (bias + p[i].p_vaddr + p[i].p_memsz) & ~(page - 1);
		if (from < to && mprotect((void *)from, to - from, PROT_READ) < 0)
			__builtin_trap();
	}
}
