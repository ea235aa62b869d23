/*
 * gateway.h: starting the gateway program inside a sandbox, for a bridge or for the network proxy.
 */
#ifndef AIRLOCK_ENGINE_GATEWAY_H
#define AIRLOCK_ENGINE_GATEWAY_H

#include "provider/provider.h"

struct gateway_spec {
	const char *mode, *nonce;      /* as PAPERCLIP_API_BRIDGE_MODE; nonce may be NULL */
	const char *queue_dir, *token; /* of a file queue, or NULL */
	uint16_t port;
	bool control; /* channels come over its standard input, one after the other */
	int channel;  /* borrowed: its standard input and output */
	int errors;   /* borrowed: its standard error */
};

/* A port that is free here. In a sandbox with a network of its own nearly every port is. */
int gateway_port(uint16_t *ret, struct err *e);
int gateway_start(struct sandbox *sb, const struct gateway_spec *s, uint32_t *ret_id,
		  struct err *e);
/* Appends to e what it had to say before it ended. fd: read end of its standard error. */
void gateway_errors(int fd, struct err *e);
/* Sets a variable of a command; the copy that was made on the way is wiped. 0 or a negative errno. */
int gateway_setvar(char ***env, const char *name, const char *value);

#endif
