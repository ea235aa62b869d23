/*
 * upstream_store.h: the certificate authorities of a bundle, kept as their bytes until one is asked for.
 *
 * A bundle has some 150, a connection needs one: parsed, all of them take six times the memory of their bytes, and touch most of
 * libcrypto. Whether one may vouch for anything is OpenSSL's to say.
 */
#ifndef AIRLOCK_BRIDGE_UPSTREAM_STORE_H
#define AIRLOCK_BRIDGE_UPSTREAM_STORE_H

#include <openssl/ssl.h>

#include "base/cursor.h"

struct authorities;

/* pem is copied. Their number, which may be 0, or -ENOMEM; then *ret is NULL. */
int authorities_new(struct view pem, struct authorities **ret);
/* From now on s finds them; they must outlive it. 0 or -ENOMEM. */
int authorities_serve(struct authorities *a, X509_STORE *s);
void authorities_free(struct authorities *a);

#endif
