/*
 * places.h: what mappings (--map) left among everybody's files of a machine without a sandbox.
 *
 * Whose such a place is: a link `.airlock-map.NAME` beside it, with the place's inode (0: not made yet) and the run's directory. A mark of ours
 * whose run's directory is gone is left over, and the place with it if it is that inode. What clears old files away takes the mark, which
 * nobody reads, no later than the first file of the place. Who makes and reads places is engine/maps.c.
 */
#ifndef AIRLOCK_PROVIDER_SSH_PLACES_H
#define AIRLOCK_PROVIDER_SSH_PLACES_H

#include "provider/provider.h"

/* For /bin/sh: m is the mark of the place d. */
#define PLACES_MARK_OF "m=${d%/*}/.airlock-map.${d##*/}; "
/*
 * look FILE: its inode and owner. left: removes what is left over in the directory p, which is /tmp or the account's own. Without a single
 * quote, backslash, exclamation mark or newline, and it leaves n alone (look.h).
 */
#define PLACES_LEFT                                                                                          \
	"look() { ls -ldin -- \"$1\" 2>/dev/null | { read -r i x l u y; echo \"$i:$u\"; }; }; me=$(id -u); " \
	"left() { for k in \"$p\"/.airlock-map.*; do "                                                       \
	"test -L \"$k\" || continue; o=$(look \"$k\"); test \"${o#*:}\" = \"$me\" || continue; "             \
	"t=$(readlink \"$k\"); test -e \"${t#*:}\" && continue; "                                            \
	"q=${k##*/.airlock-map.}; o=$(look \"$p/$q\"); "                                                     \
	"if test \"$o\" = \"${t%%:*}:$me\"; then "                                                           \
	"test -L \"$p/$q\" || chmod -R u+rwx -- \"$p/$q\" 2>/dev/null; rm -rf -- \"$p/$q\"; "                \
	"elif test \"${t%%:*}\" = 0; then test -L \"$p/$q\" || rmdir -- \"$p/$q\" 2>/dev/null; fi; "         \
	"rm -rf -- \"$p/.airlock-put.$q\" \"$k\"; done; }; "

/* Does so in s->places, each a directory; the runs' own directories are gone already. */
int ssh_places_sweep(const struct sandbox_spec *s, struct err *e);

#endif
