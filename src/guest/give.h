/* give.h: a tree becomes another user's, before anything runs in it. */
#ifndef AIRLOCK_GUEST_GIVE_H
#define AIRLOCK_GUEST_GIVE_H

#include <stdint.h>

/* tree and all below it, both ids, through descriptors and of links the link itself. As root. 0 or negative errno. */
int give_tree(int tree, uint32_t owner);

#endif
