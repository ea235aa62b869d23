/*
 * image_server.h: the life of airlock-image: takes source and directory from airlock, confines itself, fills the
 * directory, answers (image_proto.h).
 */
#ifndef AIRLOCK_SYNC_IMAGE_SERVER_H
#define AIRLOCK_SYNC_IMAGE_SERVER_H

/* fd: the channel. 0 or a negative errno, told to the other end already. */
int image_serve(int fd);

#endif
