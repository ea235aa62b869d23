/*
 * request.h: what a person asked for, as one value; the CLI fills it, the engine only reads it.
 *
 * Every limit carries where it was set, so that log, summary and error can say so (FR-B036).
 */
#ifndef AIRLOCK_ENGINE_REQUEST_H
#define AIRLOCK_ENGINE_REQUEST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/str.h"
#include "provider/provider.h"
#include "sync/unpack.h"

/* Where a value comes from: "built-in default", "option --timeout", "environment ci". */
#define SOURCE_MAX 160

struct setting {
	uint64_t v; /* unit of the setting; 0: none */
	char source[SOURCE_MAX];
};

/*
 * An API that the command may call through a bridge of its own. All owned. The one of --api has no name, and url NULL if
 * there is none; it is told by the PAPERCLIP_* variables. A named one is told by AIRLOCK_UPSTREAM_<NAME>_URL and _TOKEN, and
 * by those that url_vars ("NAME" or "NAME=/path behind the origin") and token_vars name.
 */
struct api_request {
	char *url, *key_file, *policy, *run_id;
	char *key; /* instead of key_file; wiped */
	char *name, *header;
	char **url_vars, **token_vars;
	/* API_BEST: the bridge listens inside itself where the sandbox's network can be had, else a gateway's stream. */
	enum api_transport { API_BEST = 0, API_HTTP2, API_QUEUE, API_DIRECT } transport;
};

struct request {
	char **argv; /* owned: the words after -- */
	char workspace[PATH_MAX];
	char subdir[PATH_MAX];	 /* of the workspace, where the command starts; "" */
	char workspace_why[128]; /* "the enclosing git work tree", ... */
	char env_name[NAME_MAX_LEN + 1];
	char run_id[ID_LEN + 1]; /* that the run shall have; "": a new one */
	const struct provider_ops *provider;
	enum net_mode net;
	char net_source[SOURCE_MAX];
	char **net_allow; /* owned: rules of policy/netrule.h; with them net is NET_NONE */
	char **net_pins;  /* owned: HOST:PORT:ADDRESS */
	bool bash;
	char **vars; /* owned: NAME=VALUE, checked */
	struct bind_ro binds[32];
	size_t binds_len;
	char *install;			  /* owned, may be NULL */
	char **clis;			  /* owned */
	struct setting timeout;		  /* ns */
	struct setting memory, pids, cpu; /* bytes, count, 1/1000 CPU */
	struct setting log_limit;	  /* bytes */
	bool tty, keep, strict, interactive;
	bool by_tar; /* bring results back by plain tar */
	bool review; /* results wait for 'airlock apply' */
	enum git_policy git;
	char **include, **exclude; /* owned */
	char **maps;		   /* owned: engine/maps.h */
	char *
	    image; /* owned: path of the tree of a system image (engine/images.h); NULL: the host's system */
	char image_digest[80]; /* of it, "sha256:..." */
	char **remote;	       /* owned: the words of provider/ssh/target.h; NULL: here */
	unsigned without;
	enum on_conflict on_conflict;
	struct api_request api;
	struct api_request upstreams[RUN_UPSTREAMS_MAX];
	size_t upstreams_len;
};

void api_request_done(struct api_request *a);
/* Defaults of everything. */
void request_init(struct request *q);
void request_done(struct request *q);
#define _cleanup_request_ __attribute__((cleanup(request_done)))
/* One line per limit in force: name, value, source, how to change. Appends to *v. */
int request_limits(const struct request *q, char ***v);

#endif
