/*
 * What others do between the open of a file and its lock: flock(2) of a test that links this calls it first.
 */
#pragma once

/* Once, at the next lock; NULL: nothing happens. */
extern void (*before_lock)(void);
