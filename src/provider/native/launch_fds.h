/* launch_fds.h: how airlock starts airlock-launch. */
#ifndef AIRLOCK_PROVIDER_NATIVE_LAUNCH_FDS_H
#define AIRLOCK_PROVIDER_NATIVE_LAUNCH_FDS_H

#define LAUNCH_FD_OWNER 3  /* the owner's socket; GM_PLAN is the first frame on it */
#define LAUNCH_FD_LISTEN 4 /* optional: listening unix socket of a kept lease */

#endif
