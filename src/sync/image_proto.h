/*
 * image_proto.h: what the engine's client and airlock-image say to each other.
 *
 *   client -> helper   SETUP [source, directory to fill]
 *   helper             confines itself
 *   helper -> client   DONE, or ERROR
 */
#ifndef AIRLOCK_SYNC_IMAGE_PROTO_H
#define AIRLOCK_SYNC_IMAGE_PROTO_H

#define IMAGE_REF_MAX 255

enum image_frame {
	IF_SETUP = 1, /* u8 directory, u8 without Landlock, str ref */
	IF_DONE =
	    32, /* str digest, source, arch; u64 files, dirs, links, bytes; u32 layers; u64 specials, privileged */
	IF_ERROR, /* u32 code, str text */
};

#endif
