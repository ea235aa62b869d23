/*
 * tls.h: the certificate and key with which the daemon itself speaks TLS (libmicrohttpd with GnuTLS).
 *
 * Policy: TLS 1.2 and 1.3 only. An address that is not loopback wants TLS and mode authenticated, both; nothing lowers that. The key's
 * file is a regular one that nobody but its owner and group can read. Both are read at the start and on SIGHUP (server_renew).
 *
 * What it does not do: certificates of clients. Who asks is proved by a key, a session or a run token.
 */
#ifndef AIRLOCK_API_TLS_H
#define AIRLOCK_API_TLS_H

#include "base/err.h"

#define TLS_FILE_MAX ((size_t)256 << 10) /* bytes; a chain of some certificates is a few KiB */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct tls_pair {
	char *cert, *key; /* owned, PEM; NULL: no TLS. The key is wiped by tls_done */
};

int tls_read(const char *cert, const char *key, struct tls_pair *ret, struct err *e);
void tls_done(struct tls_pair *p);
#define _cleanup_tls_ __attribute__((cleanup(tls_done)))

#endif
