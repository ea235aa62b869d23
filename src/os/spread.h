/*
 * spread.h: where the file system puts what is made in a directory.
 *
 * ext4 puts a new directory near its parent, and looks for a free inode from the beginning of that place on. Without a
 * journal it steps over each one that anybody has deleted there within the last minutes, with a look at the disk's copy:
 * beside a busy /tmp a new file takes 40 to 70 us instead of 13, and a start of a sandbox makes
 * thirteen.
 */
#ifndef AIRLOCK_OS_SPREAD_H
#define AIRLOCK_OS_SPREAD_H

/*
 * Asks that each directory made in `dir` from now on gets a place of its own, away from what others make and
 * delete, as ext2 to ext4 do for the directories of the root. Where that means nothing, nothing happens: it is a wish.
 */
void spread_below(const char *dir);
/*
 * Makes dir/name with mode 0700; one that is there is left alone. The file system chooses the place by the name in
 * the call that makes it, among those with the fewest directories: under one name that many make and remove, tests do,
 * it would be the place where most has just been deleted. So it is made under another. 0 or negative errno.
 */
int spread_mkdir(const char *dir, const char *name);

#endif
