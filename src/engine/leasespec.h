/*
 * leasespec.h: what a later process must know of a lease: to attach to its sandbox, to start one on the
 * same storage, to bring its work back. Stored as JSON in the lease's row; holds no secrets.
 */
#ifndef AIRLOCK_ENGINE_LEASESPEC_H
#define AIRLOCK_ENGINE_LEASESPEC_H

#include "engine/request.h"
#include "engine/state.h"
#include "store/lease.h"

struct lease_spec {
	char **layers;			 /* owned, top first; NULL before sync_in */
	char *manifest;			 /* owned, NULL before sync_in */
	uint64_t root_dev, root_ino;	 /* the directory that was copied in; ino 0: not known */
	char root_boot[BOOT_ID_LEN + 1]; /* boot in which root_dev is its device number */
	struct bind_ro binds[32];
	size_t binds_len;
	enum net_mode net;
	unsigned without;
	struct sandbox_limits limits;
	bool keep, strict, bash, review;
	bool gateway;  /* the sandbox has the gateway program */
	bool by_tar;   /* results come by plain tar (tarout.h) */
	bool executed; /* a command was started: there may be work inside */
	enum on_conflict on_conflict;
	enum git_policy git;
	bool repo;	     /* a repository went in: */
	char *head, *branch; /* owned: commit that was sent, "" unborn; its branch, NULL detached */
	char **include, **exclude; /* owned */
	char **maps;		   /* owned: maps.h */
	char **map_roots;	   /* owned: "DEV:INO" of each mapping's root, once it was sent */
	char **net_allow, **net_pins; /* owned: as in the request */
	char **remote;		      /* owned: as in the request; holds no secret */
	char *image; /* owned: path of the tree of its system image; NULL: the host's */
};

int leasespec_from_request(struct lease_spec *s, const struct request *q, struct err *e);
void leasespec_done(struct lease_spec *s);
#define _cleanup_leasespec_ __attribute__((cleanup(leasespec_done)))
/* Heap JSON. */
int leasespec_put(const struct lease_spec *s, char **ret, struct err *e);
int leasespec_get(const char *json, struct lease_spec *ret, struct err *e);
/* Fills a sandbox_spec that borrows from s, l and dir. */
void leasespec_sandbox(const struct lease_spec *s, const struct lease_row *l, const char *dir,
		       struct sandbox_spec *ret);

#endif
