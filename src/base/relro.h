/*
 * relro.h: what a dynamic loader or glibc's start-up would do, for the static programs of musl.
 *
 * The linker asks (PT_GNU_RELRO) that constants with addresses in them, and the table of addresses, become read-only
 * once they are relocated. musl leaves that to its dynamic loader, so in a static program nobody does it.
 */
#ifndef AIRLOCK_BASE_RELRO_H
#define AIRLOCK_BASE_RELRO_H

/* First thing in main, before there is anything foreign. Ends the program if the kernel refuses. Harmless if done already. */
void relro_protect(void);

#endif
