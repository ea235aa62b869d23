/*
 * limits.h: every length, count and wait that foreign input or a user can push.
 *
 * tools/gen-limits turns this file into docs/limits.md: keep one macro per line
 * with its comment: unit, what happens beyond it, where the figure comes from.
 */
#ifndef AIRLOCK_BASE_LIMITS_H
#define AIRLOCK_BASE_LIMITS_H

#include <stdint.h>

/* clang-format off */

/* Door 1: members of an outbound stream */
#define PATH_MEMBER_MAX 4096	  /* bytes; longer member path: hostile (Linux PATH_MAX) */
#define PATH_SEGMENT_MAX 255	  /* bytes; longer segment: hostile (Linux NAME_MAX) */
#define PATH_DEPTH_MAX 128	  /* segments; deeper: hostile */
#define LINK_TARGET_MAX 4095	  /* bytes; longer link target: hostile */
#define LINK_HOPS_MAX 40	  /* links followed when a target is judged (Linux MAXSYMLINKS) */
#define TAR_HEADERS_MAX (1 << 20) /* bytes of extended headers before one member: hostile */
#define TAR_HEADERS_FREE (64 << 20)  /* bytes of extended headers of one stream, plus TAR_HEADERS_EACH a member: hostile */
#define TAR_HEADERS_EACH (16 << 10)  /* bytes; two of the longest names and their headers */
#define TAR_SPARSE_MAX (1 << 20)  /* extents of one sparse member: hostile */
#define MEMBERS_MAX 2000000	  /* members of one stream; paths of the last commit that comes back: hostile */
#define MEMBER_PATHS_MAX 3000000	     /* members and the directories they imply: hostile */
#define MEMBER_LINK_BYTES_MAX (16 << 20) /* bytes of paths and targets of one stream's symlinks: hostile */
#define MEMBER_LINK_STEPS_MAX 20000000 /* segments (long paths count more) walked to judge one stream's symlinks: hostile */
#define MEMBER_SIZE_MAX (UINT64_C(1) << 53)	/* bytes of one member: hostile (exact in JSON) */
#define OUT_BYTES_DEFAULT (UINT64_C(64) << 30)	/* logical bytes of one stream unless configured */
#define DISK_RESERVE_BYTES (UINT64_C(64) << 20) /* free space that a publish leaves alone */
#define MERGE_TEXT_MAX (1 << 20)		/* bytes; larger files are not merged as text */
#define MERGE_LINES_MAX 65536	      /* lines; texts with more are not merged: conflict */
#define MERGE_EDITS_MAX 8192	      /* changed lines on a side; more are not merged (bounds time) */
#define BASELINE_CONTENTS_MAX (UINT64_C(256) << 20) /* bytes that a kept sandbox's earlier versions take for text merges; beyond: conflicts */
#define CHANGES_BYTES_MAX (512 << 20) /* bytes of the change list of one stream: hostile */
#define RAW_KEEP_MAX (16 << 20)	      /* bytes of a rejected stream that are kept for inspection */
#define MASS_DELETE_MIN 100    /* files; with MASS_DELETE_PERCENT flags a mass deletion */
#define MASS_DELETE_PERCENT 50 /* percent of the manifest */
#define UNPACKS_KEEP_S (30 * 86400) /* seconds; what an older airlock unpack kept (losers, trash) is removed */
#define PRUNE_OLDER_S (30 * 86400)  /* seconds; what was used or ended since then is left alone by airlock prune, unless --older-than is given */

#define DIFF_TEXT_MAX (8 << 20)	      /* bytes; of a larger file 'airlock diff' says only that it differs */
#define DIFF_LINES_MAX 400000	      /* lines; of a text with more 'airlock diff' says only that it differs */
#define DIFF_WORK_MAX 200000000	      /* lines compared for one file; beyond that the rest is shown as changed as a whole */
#define DIFF_RENAMES_MAX 50	      /* deleted and added files each; with more only files of equal bytes are shown as renamed */
#define DIFF_RENAME_TEXT_MAX (256 << 10) /* bytes; larger files are shown as renamed only when their bytes are equal */

/* Commits made in a sandbox */
#define BUNDLE_HEADER_MAX (1 << 20) /* bytes before the pack of a bundle: history refused */
#define BUNDLE_PREREQ_MAX 1024	    /* commits that a bundle builds on: history refused */
#define BUNDLE_BYTES_MAX (UINT64_C(4) << 30) /* bytes of one run's bundle, and of its pack once indexed: history refused */
#define BUNDLE_GIT_MEMORY (UINT64_C(4) << 30) /* bytes of address space of each host git that reads one: history refused */
#define COMMIT_PATHS_MAX 10000000 /* paths that a run's commits change, each time anew: history refused */
#define COMMIT_LIST_MEMORY (UINT64_C(2) << 30) /* bytes of address space of the git that lists them: history refused */
#define COMMIT_LINES_MAX 200 /* commits, and files that only they have, of a set that 'airlock diff' names; more are counted */
#define COMMIT_DIRS_BYTES_MAX (32 << 20) /* bytes of directories that have a name of git's own layout in a run's commits: history refused */
#define COMMIT_LINK_STEPS_MAX 2000000 /* segments of targets (8 more for each) of the symlinks in a run's commits: no branch moves */
#define GITBACK_PATHS_BYTES_MAX (256 << 20) /* bytes of names of paths that history changed: index left alone */

/* Frames between our own programs and the guest */
#define FRAME_MAX (4 << 20)  /* bytes of one frame's payload: protocol error */
#define FRAME_FDS_MAX 6	     /* descriptors with one frame */
#define ARGV_MAX 65536	     /* words of one command */
#define ENV_MAX 4096	     /* variables of one command */
#define ENV_VALUE_MAX 131071 /* bytes of one NAME=VALUE word (Linux MAX_ARG_STRLEN - 1) */
#define EXECS_MAX 256	     /* commands at once in one sandbox: refused */

/* Waits, in milliseconds */
#define START_TIMEOUT_MS 10000	  /* sandbox start until the guest is ready */
#define KILL_GRACE_MS 5000	  /* TERM until KILL, at a time-out or stop */
#define LEFTOVER_SETTLE_MS 25	     /* what a finished command left behind may end by itself before TERM */
#define LEFTOVER_GRACE_MS 200	  /* TERM until KILL for what a finished command left behind */
#define DRAIN_GRACE_MS 500	  /* reading output after the command has ended */
#define PROBE_TIMEOUT_MS 15000	  /* one `command -v` */
#define INSTALL_TIMEOUT_MS 600000 /* one configured install command */
#define GIT_TIMEOUT_MS 120000	  /* one host git command */
#define STREAM_IDLE_MS 30000	  /* a sandbox that sends nothing of its results for so long is given up */
#define STREAM_SLOW_MS 300000	  /* a sandbox that sends less than STREAM_SLOW_BYTES of its results in so long is given up */
#define STREAM_SLOW_BYTES (64 << 10) /* bytes of an outbound stream in each STREAM_SLOW_MS */
#define STREAM_TAIL_MAX (1u << 20) /* bytes after the end mark of an outbound stream; tar pads to 10 KiB */
#define LOCK_WAIT_MS 600000	  /* another run's publish to the same workspace */
#define INDEX_LOCK_WAIT_MS 5000	  /* another git that holds index.lock: no branch moves */

/* Another machine (ssh) */
#define REMOTE_CONNECT_S 15	  /* connecting and authenticating; longer: given up (ssh's ConnectTimeout) */
#define REMOTE_SHELL_MS 45000	  /* from then until the login shell there has started our script and it has answered */
#define REMOTE_UPLOAD_MS 120000	  /* the guest program on its way there, once for each of its versions */
#define REMOTE_ALIVE_S 5	  /* silence after which ssh asks the other end for a sign of life; REMOTE_ALIVE_COUNT times, then the connection is lost */
#define REMOTE_ALIVE_COUNT 4	  /* ... so that a connection on which nothing comes through is given up after 25 s */
#define REMOTE_BEGIN_MS 25000	  /* without a guest there: from a later session of ssh until its login shell has started our script, and twice what the first login took; below STREAM_IDLE_MS */
#define REMOTE_SILENT_MS 60000	  /* nothing heard from here: the guest there ends its commands; their work stays. Nothing heard from there: the session is given up */
#define REMOTE_SAY_MS 10000	  /* between two signs of life of ours */
#define REMOTE_REACH_MS 10000	  /* getting there to remove what a run left, beside twice what it took at the run's begin; longer: a later sweep does it */
#define INPLACE_MS 60000	  /* recording, or comparing, what git would execute in a checkout there */
#define INPLACE_GIT_MAX (8 << 20) /* bytes of all of that in base64: refused */
#define REMOTE_TAKE_MS 15000	  /* who connects again waits for the end of the one before; in the middle of that it is killed */
#define REMOTE_TREE_MS 1800000	  /* writing what arrived of a workspace, or removing a run's directory; longer: given up */
#define REMOTE_PLAIN_ALIVE_S 180  /* a run's directory there that a session without a guest has renewed so lately is no left-over: 'env clean' leaves it */
#define REMOTE_GRACE_S 120	  /* a command there goes on so long without its connection, unless --ssh-grace says otherwise; then it is ended and its work kept */
#define REMOTE_GRACE_MAX_S 86400  /* the longest that it may say */
#define REMOTE_AGAIN_MS 20000	  /* one try to reach it again; the next one follows after a pause */
#define REMOTE_PERSIST_S 60	  /* an idle connection is kept so long for the next session */
#define REMOTE_NOISE_MAX (64 << 10) /* bytes that a login shell may print before our script speaks: given up */

/* Sandbox defaults */
#define PIDS_DEFAULT 4096   /* processes and threads in one sandbox */
#define NOFILE_DEFAULT 4096 /* open files of one process, capped by the hard limit */
#define LOG_BYTES_DEFAULT (UINT64_C(1) << 30) /* bytes of one run log; the rest is streamed, not kept */
#define DELTA_LAYERS_MAX 12 /* layers of a workspace base before it is rebuilt */

/* Memory that grows with a workspace */
#define SYNC_ENTRY_MEMORY 192 /* bytes of airlock beside its path for each new or changed entry of sync in; unchanged ones take none */
#define MANIFEST_PASS_BYTES (4 << 20) /* bytes of a manifest (about 145 an entry, on disk) that a pass over it keeps in memory */

/* System images */
#define IMAGE_BYTES_MAX (UINT64_C(32) << 30) /* bytes of all archives of one import, unpacked: refused */
#define IMAGE_MEMBERS_MAX 2000000  /* members of all of them: refused */
#define IMAGE_LAYERS_MAX 128	  /* layers of an OCI image: refused */
#define IMAGE_MANIFESTS_MAX 1024  /* entries of an index of an OCI image: refused */
#define IMAGE_JSON_MAX (4 << 20)  /* bytes of an index, manifest or configuration: refused (the OCI distribution spec's own bound) */
#define IMAGE_MOUNTS_MAX 4096	  /* names in /, /etc, /opt and /var of an image together, as each is a mount of its own: refused */
#define IMAGE_ZSTD_WINDOW_LOG 27  /* 2^27 bytes of memory to decompress: what wants more is refused (zstd's own default) */

/* Words a user gives */
#define NAME_MAX_LEN 64		  /* bytes of an environment name */
#define CONFIG_MAX (1 << 20)	  /* bytes of one configuration or environment file */
#define IGNORE_FILE_MAX (1 << 20) /* bytes of one ignore file */
#define PATTERNS_MAX 10000	  /* patterns of one selection */
#define SANDBOX_LISTENERS_MAX 16  /* bridges at once that listen in a kept sandbox themselves: further ones take a gateway */
#define MAPS_MAX 16		  /* --map of one run: refused */

/* What airlockd takes from its clients */
#define API_BODY_MAX 10485760	  /* bytes of a request body: 413 */
#define API_BODY_SMALL 16384	  /* bytes of a body that are read before a refusal is answered; larger ones are not read. Most of one where none is needed: 413 */
#define API_HELD_MAX (40 << 20)	  /* bytes of larger bodies and of answers not yet taken, of all connections at once: 503 */
#define API_HELD_OWN_MAX (10 << 20) /* of it, larger bodies of one user that are on their way, or with answers that wait: 503 */
#define API_HEADER_MAX 32768	  /* bytes of a connection for the head of a request: 431, 414 */
#define API_ACTIVITY_KEPT 20000	  /* newest lines of the activity log of each actor in a company; older ones go */
#define API_SECRET_EVENTS_KEPT 10000 /* newest notes of the use of one secret; older ones go */
#define API_SECRET_EVENTS_ALL 1000000 /* newest notes of the use of all secrets, those that are gone included; older ones go */
#define API_CONNECTIONS_MAX 512	  /* connections at once: a further one takes the place of who has been idle longest */
#define API_CONNECTIONS_OWN 64	  /* of the command line of the same state, besides those */
#define API_REQUEST_MS 30000	  /* from a connection, or the answer before, to the last byte of a request: cut off */
#define API_SILENT_S 60		  /* seconds without a byte in either direction: cut off */
#define API_STOP_MS 10000	  /* requests under way when the daemon stops; then they are cut off */
#define API_JSON_DEPTH_MAX 64	  /* nested objects and arrays of a body: 400 */
#define API_JSON_VALUES_MAX 20000 /* values of a body, counted before it is parsed: 400 */
#define API_ISSUES_MAX 100	  /* faults of a body that its 400 lists */
#define API_ANSWER_MS 120000	  /* until a client has taken its answer: cut off */
#define API_STALE_MS 2000	  /* a body that came this long after its head: who sent it is asked for again */
#define API_RESPONSE_MAX (64 << 20) /* bytes of one answer: 500 */
#define API_SESSIONS_MAX 16	  /* sessions of one board key: a further one ends the oldest */
#define API_STREAMS_MAX 32	  /* clients that watch the event stream: 503 */
#define API_STREAMS_OWN_MAX 8	  /* of them, of one user: 503 */
#define API_LIST_MAX 1000	  /* rows of a list unless the query says limit=N; the header X-Total-Count says how many there are */
#define API_LIST_KEPT 65536	  /* bytes of a list of environments that is kept for who asks for it again; larger ones are made each time */
#define API_LIST_CEILING 10000	  /* most that limit=N gives */
#define API_NAME_MAX 200	  /* bytes of an environment's name: 400 */
#define API_TEXT_MAX 65536	  /* bytes of any other text in a body: 400 */
#define API_ENV_VARS_MAX 256	  /* variables of an environment: 400 */
#define API_CONFIG_MAX (256 << 10) /* bytes of one of config, envVars and metadata as stored: 400 */
#define API_JOBS_MAX 8		  /* sandboxes that are made or ended at once; further ones wait */
#define API_JOBS_WAITING_MAX 64	  /* further ones that wait for their turn; of one actor half as many: 503 */
#define API_JOB_MS 90000	  /* one of them: given up, the sweep cleans up */
#define API_RUNS_MAX 8		  /* runs through the API that go on at once; further ones wait */
#define API_RUNS_WAITING_MAX 64	  /* further ones that wait for their turn; of one user half as many: 503 */
#define API_RUN_PATTERNS_MAX 1000 /* patterns of what a run, or its recovery, leaves out: 400 */
#define API_RUN_COMMAND_MAX 16384 /* bytes of the command of a run: 400 */
#define API_RUN_SECONDS 3600	  /* a run without a limit of its own */
#define API_RUN_SECONDS_MAX 86400 /* and most that it may ask for: 400 */
#define API_APPLY_PATHS_MAX 1000  /* paths that one apply of results names: 400 */
#define API_RECOVER_MAX 256	  /* runs whose work a daemon that starts brings back by itself; that of older ones waits */
#define API_APPLY_MS 900000	  /* one apply: ended; the next one goes on */
#define API_ROOTS_MAX 16	  /* options --workspace-root */
#define API_LEASES_MAX 256	  /* active leases of the native provider: 409 */
#define API_SWEEP_MS 30000	  /* between two sweeps of leases */
#define API_SWEEP_BACKOFF_S 300	  /* seconds before a failed clean-up is tried again */
#define API_SWEEP_ATTEMPTS 5	  /* clean-ups of one lease; then an operator is needed */

/* Door 2: requests through the bridge */
#define BRIDGE_BODY_MAX (10485760 + 65536)    /* bytes of one request or response body unless a policy says otherwise: 413, 502 (the API's own limit and room for a form around it) */
#define BRIDGE_BODY_CEILING (UINT64_C(1) << 30) /* bytes; most that a policy may set for a body */
#define BRIDGE_PATH_MAX 2048		      /* bytes of a request path: 414 */
#define BRIDGE_QUERY_MAX 8192		      /* bytes of a query: 414 */
#define BRIDGE_SEGMENTS_MAX 64		      /* segments of a request path: 400 */
#define BRIDGE_SEGMENT_MAX 200		      /* bytes that a route parameter takes: no route matches, 403 */
#define BRIDGE_HEADERS_MAX 128		      /* headers of one request: 431 */
#define BRIDGE_HEADER_BLOCK_MAX 16384	      /* bytes of all names and values of a request: 431 */
#define BRIDGE_HEADER_NAME_MAX 128	      /* bytes of a header name: 400 */
#define BRIDGE_HEADER_VALUE_MAX 4096	      /* bytes of a header value: 431; from upstream: dropped */
#define BRIDGE_TOKEN_MIN 32		      /* bytes of a bridge token; shorter is refused at start */
#define BRIDGE_TOKEN_MAX 256		      /* bytes of a bridge token; longer is refused at start */
#define BRIDGE_CREDENTIAL_MAX 8192	      /* bytes of a host-side credential; longer is refused at start */
#define BRIDGE_IDENTITY_MAX 256		      /* bytes of a run, agent, company or task id: refused at start */
#define BRIDGE_QUEUE_MAX 64		      /* requests that wait at once in a file queue unless a policy says otherwise: 503 */
#define BRIDGE_STREAMS_MAX 64		      /* requests under way at once on one channel unless a policy says otherwise: refused, may be tried again */
#define BRIDGE_PENDING_CEILING 1024	      /* most that a policy may set for the two above */
#define BRIDGE_PACE 2000		      /* requests a second of one run while another run of the same user is being served, unless a policy says otherwise: held back, not refused */
#define BRIDGE_PACE_CEILING 1000000	      /* most that a policy may set for that */
#define PACE_BURST 64			      /* requests that a run may be ahead of its pace */
#define PACE_BESIDE_MS 5000		      /* another run counts as being served so long after a request of its own */
#define PACE_REQUEST_BYTES 65536	      /* bytes of a body that count as one request more */
#define PACE_PARTS 1024			      /* parts that a request is counted in: bodies take less than a whole one */
#define PACE_DEBT_MS 2000		      /* a run that is this far ahead of its pace is not held back any longer for more */
#define BRIDGE_REQUEST_MS 30000		      /* one upstream request unless a policy says otherwise: 504, unsafe methods 409 */
#define BRIDGE_IDLE_MS 30000		      /* between two pieces of a body unless a policy says otherwise: 408 */
#define BRIDGE_UPLOAD_MS 480000		      /* a whole request body unless a policy says otherwise: 408 */
#define BRIDGE_MS_CEILING 86400000	      /* most that a policy may set for the three above */
#define POLICY_ROUTES_MAX 1024		      /* routes of one policy: refused when it is read */
#define POLICY_HEADERS_MAX 32		      /* names of one header list of a policy: refused when it is read */
#define POLICY_IDENTITY_MAX 16		      /* headers that a policy sets on each request: refused when it is read */
#define UPSTREAM_NAME_MAX 32		      /* bytes of the name of a run's upstream: refused */
#define RUN_UPSTREAMS_MAX 8		      /* named upstreams of one run: refused */
#define POLICY_UPSTREAMS_MAX 16		      /* named origins of a policy: refused when it is read */
#define HTTP1_LINE_MAX 12288		      /* bytes of a request line inside a sandbox: 414 */
#define HTTP1_HEAD_MAX 20480		      /* bytes of the header lines behind it: 431 */
#define HTTP1_TRAILER_MAX 4096		      /* bytes of trailers after a chunked body, dropped: 431 */
#define BRIDGE_QUEUE_BODY_MAX (16 << 20)      /* bytes of a body that a file queue carries at most, whatever a policy says: 413, 502 */
#define QUEUE_WINDOW 4096		      /* newest request numbers of a file queue that are told apart; older ones count as run */
#define AUDIT_LINE_MAX 4096		      /* bytes of one audit line: fields are cut */
#define AUDIT_FILE_MAX (64 << 20)	      /* bytes of the audit file of one run; when it is full, no request is forwarded: 503 */
#define AUDIT_REFUSED_MAX (16 << 20)	      /* bytes of it for refused requests; what does not fit is counted, and the count written at the end */
#define AUDIT_CLOSE_ROOM (256 << 10)	      /* bytes of it for the counts that are written at the end */
#define AUDIT_BURST 5000		      /* audit lines at once, of refused requests and of others; what comes faster shares lines */
#define AUDIT_RATE 100			      /* audit lines in a second, in the long run */


/* Door 2: the channel */
#define BRIDGE_READY_MS 10000	  /* a gateway's READY line and the HTTP/2 preface after it: the bridge is given up */
#define BRIDGE_CONNECT_MS 10000	  /* one connection to the upstream: 503 */
#define BRIDGE_STOP_MS 2000	  /* requests under way when the bridge ends; then they are cut off */
#define BRIDGE_KEEPALIVE_MS 3000  /* an idle connection to the upstream is not used again after that (servers close at 5 s) */
#define BRIDGE_HELD_MAX (33 << 20) /* bytes of request bodies of one bridge at once; further ones wait in the sandbox */
#define BRIDGE_DROP_MS 5000	  /* what is left of an upload that was refused; then its stream is reset */
#define BRIDGE_OUT_MAX 131072	  /* bytes of one answer that wait for the sandbox; then the upstream is not read */
#define BRIDGE_UPSTREAM_HEADERS_MAX 65536 /* bytes of header lines of one upstream answer: 502 */
#define H2_WINDOW 65535		  /* bytes of one request body before it is given room (RFC 9113's default) */
#define H2_CONN_WINDOW (16 << 20) /* bytes under way at once on a channel, each direction; a round trip carries that much */
#define H2_PING_MS 5000		  /* silence after which the other end is asked for a sign of life */
#define H2_STALL_MS 20000	  /* silence after which a channel is given up */
#define H2_NOISE_BURST 1000	  /* cheap frames (resets count tenfold) at once: GOAWAY */
#define QUEUE_ALIVE_MS 1000	  /* between two signs of life of the host in a file queue, while requests wait */
#define QUEUE_STALL_MS 20000	  /* no sign of life about a request for so long: it is given up */
#define QUEUE_POLL_MIN_MS 10	  /* looks into a file queue where nothing notifies: after something came, */
#define QUEUE_POLL_MAX_MS 500	  /* and after a long time without, each look half as often as the one before */
#define H2_NOISE_RATE 100	  /* cheap frames in a second, in the long run */

/* Door 2: HTTP/1.1 of the sandbox's clients */
#define GATE_CONNS_MAX 256	  /* connections at once; further ones wait to be accepted */
#define GATE_WAITING_MAX 64	  /* requests that wait for their turn, beyond those under way: 503 */
#define GATE_HEAD_MS 30000	  /* a request head, once begun: cut */
#define GATE_KEEP_MS 75000	  /* an idle connection: closed; longer than the pools of common clients */
#define GATE_IDLE_MS 30000	  /* a client that neither sends its body nor reads its answer: cut */
#define GATE_LINGER_MS 10000	  /* what still comes behind a refusal is read and dropped for so long, so that the answer is read */
#define GATE_DROP_MAX (2 * BRIDGE_BODY_MAX) /* bytes of that; then it is cut */
#define GATE_LINGER_LOST_MS 60000 /* how long a gateway without a channel answers 503; then it ends */
#define GATE_RECONNECT_MS 15000	  /* how long requests wait in a gateway for another channel: 503, 502 */
#define GATE_UP_MAX 131072	  /* bytes of a request body that wait in a gateway for the channel; then its client waits */
#define GATE_WINDOW (1 << 20)	  /* bytes of an answer that wait in a gateway for a client; then the channel waits */
#define GATE_NOISE_BURST 1000	  /* connections at once, and reads of a few bytes, beyond those that requests earn; further ones wait */
#define GATE_NOISE_RATE 100	  /* of each in a second, in the long run */

/* Network of a sandbox: --net allow= */
#define PROXY_CONNS_MAX 256	  /* connections of one run at once; further ones are closed */
#define PROXY_LOOKUPS_MAX 8	  /* names of one run asked for at once; further ones: 503 */
#define PROXY_HEAD_MS 30000	  /* a request head, and the first message of a TLS client */
#define PROXY_CONNECT_MS 8000	  /* one address of a server; then the next */
#define PROXY_IDLE_MS 900000	  /* a connection on which nothing moves */
#define PROXY_HALF_MS 60000	  /* ... of which one side has ended */

/* clang-format on */

#endif
