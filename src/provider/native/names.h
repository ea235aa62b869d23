/*
 * names.h: the names of a sandbox's root, before anything is mounted on them.
 */
#ifndef AIRLOCK_PROVIDER_NATIVE_NAMES_H
#define AIRLOCK_PROVIDER_NATIVE_NAMES_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "provider/native/step.h"
#include "provider/plan.h"

/*
 * Of the host, as absolute paths, each list with a NULL behind it: what is mounted whole if it is there; what is a link on
 * some hosts, and then is one inside; nodes of /dev.
 */
extern const char *const names_paths[], *const names_tops[], *const names_dev[];

/* True for an entry of the host's /etc that is there inside. */
bool names_of_etc(const char *name);
/* DT_* of an entry of dir, itself, also where the file system lists no types; DT_UNKNOWN: it is gone. */
unsigned char names_type(int dir, const struct dirent *ent);
/* What the host has there, perhaps behind a link: one of these, or a negative errno. */
enum { NAMES_ABSENT, NAMES_FILE, NAMES_DIR };
int names_kind(const char *host);
/* Bit i: the source of bind i is a directory, perhaps behind a link. To be asked with the ids that open it. */
uint64_t names_bind_dirs(const struct plan *p);
/*
 * Makes all names below root, an empty directory, with the caller's ids and a umask of 022, and the files of etc.c. For an
 * imported image (plan) without the host's. 0, or -1 with the failure.
 */
int names_make(int root, const struct plan *p, struct failure *f);
/*
 * The places of what comes by descriptor: guest, gateway, binds; otherwise made when they are mounted.
 * bind_dirs: of names_bind_dirs.
 */
int names_points(int root, const struct plan *p, uint64_t bind_dirs, struct failure *f);

#endif
