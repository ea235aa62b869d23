/* maps_internal.h: between maps.c (in), maps_words.c and maps_out.c; no one else's business. */
#ifndef AIRLOCK_ENGINE_MAPS_INTERNAL_H
#define AIRLOCK_ENGINE_MAPS_INTERNAL_H

#include "engine/maps.h"

#define MAP_PLACE_MAX (2 * PATH_MAX) /* <lease>/map-<n> and what lies beside it */

/* The mapping as its three words say it: nothing is known of the directory that was sent. i < maps_count(maps). */
struct map maps_word(char *const *maps, size_t i);

/* Places of another machine without a sandbox: everybody's there, and not gone with it. */
static inline bool shared_places(const struct sandbox *sb)
{
	return sb->ops->elsewhere && !sb->ops->isolates;
}

/*
 * Whose a place of everybody's is: a link `.airlock-map.NAME` beside it, with the place's inode (0: not made yet) and the run's directory. A
 * mark of ours whose run's directory is gone is left over, and the place with it if it is that inode. What clears old files away takes the
 * mark, which nobody reads, no later than the first file of the place.
 */
#define MARK_OF "m=${d%/*}/.airlock-map.${d##*/}; "

#endif
