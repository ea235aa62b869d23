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

#endif
