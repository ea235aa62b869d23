/*
 * native_box.h: real sandboxes for tests, through the provider interface.
 *
 * A box has a temporary directory with a base layer, storage and the user's programs. Needs
 * namespaces; runs as root and as an ordinary user alike.
 */
#ifndef AIRLOCK_TESTS_NATIVE_BOX_H
#define AIRLOCK_TESTS_NATIVE_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "provider/provider.h"

struct nbox {
	char *dir;   /* temporary directory */
	char *base;  /* dir/state/base: the layer below the workspace */
	char *lease; /* dir/state/leases/1 */
	char *work;  /* dir/work: stands for the host workspace */
	char *layers[2];
	struct bind_ro binds[4];
	struct sandbox_spec spec; /* may be changed before nbox_start */
	struct sandbox *sb;
	struct buf out; /* what the last command wrote */
	struct sandbox_event last;
};

/* Makes the directories and a base of a few files. Aborts the test on failure. */
void nbox_init(struct nbox *b);
/* Starts; asserts success. */
void nbox_start(struct nbox *b);
/* Ends the sandbox, removes the storage, asserts both. */
void nbox_done(struct nbox *b);
/* For a child that started nothing: only its directory goes. */
void nbox_drop(struct nbox *b);
/* Runs `sh -c script`, collects stdout and stderr in b->out; exit code, or 128 + signal. */
int nbox_sh(struct nbox *b, const char *script);
int nbox_exec(struct nbox *b, char *const *argv);
/* Starts without waiting; the id. Output goes to /dev/null. */
uint32_t nbox_spawn(struct nbox *b, char *const *argv);
/* Next event within ms, or a failed assertion. */
struct sandbox_event nbox_event(struct nbox *b, int ms);

#endif
