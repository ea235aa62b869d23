#include "bridge/upstream_store.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define BYTES_MAX (2 << 20)
#define CERTIFICATES_MAX 4096

struct place {
	uint32_t at, len, name_at, name_len; /* in the bytes: a certificate, its subject */
};

struct authorities {
	struct buf der; /* one after the other */
	struct place *p;
	size_t n, cap;
	X509_LOOKUP_METHOD *method;
};

/* Steps over one element, or into it. False: there is none of that kind. */
static bool step(const unsigned char **p, const unsigned char *end, int tag, bool into)
{
	const unsigned char *q = *p;
	int got, cls;
	long len;

	if (q >= end || (ASN1_get_object(&q, &len, &got, &cls, end - q) & 0x80) || got != tag ||
	    len < 0 || len > end - q)
		return false;
	*p = into ? q : q + len;
	return true;
}

/* Certificate ::= { { [0] version, serial, algorithm, issuer, validity, subject, ... }, ... } */
static bool find_subject(const unsigned char *der, long len, struct place *ret)
{
	const unsigned char *p = der, *end = der + len, *subject;

	if (!step(&p, end, V_ASN1_SEQUENCE, true))
		return false;
	if (!step(&p, end, V_ASN1_SEQUENCE, true))
		return false;
	(void)step(&p, end, 0, false);
	if (!step(&p, end, V_ASN1_INTEGER, false) || !step(&p, end, V_ASN1_SEQUENCE, false) ||
	    !step(&p, end, V_ASN1_SEQUENCE, false) || !step(&p, end, V_ASN1_SEQUENCE, false))
		return false;
	subject = p;
	if (!step(&p, end, V_ASN1_SEQUENCE, false))
		return false;
	ret->name_at = (uint32_t)(subject - der);
	ret->name_len = (uint32_t)(p - subject);
	return true;
}

static int add(struct authorities *a, const unsigned char *der, long len)
{
	struct place k = {.at = (uint32_t)a->der.len, .len = (uint32_t)len};

	if (!find_subject(der, len, &k) || a->n == CERTIFICATES_MAX)
		return 0;
	if (a->n == a->cap) {
		size_t cap = a->cap ? 2 * a->cap : 64;
		struct place *p = realloc(a->p, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		a->p = p;
		a->cap = cap;
	}
	k.name_at += k.at;
	if (buf_put(&a->der, der, (size_t)len) < 0)
		return a->der.err == -ENOMEM ? -ENOMEM : 0;
	a->p[a->n++] = k;
	return 0;
}

static bool is_certificate(const char *name)
{
	return strcmp(name, PEM_STRING_X509) == 0 || strcmp(name, PEM_STRING_X509_OLD) == 0 ||
	       strcmp(name, PEM_STRING_X509_TRUSTED) == 0;
}

static int read_all(struct authorities *a, struct view pem)
{
	BIO *bio = pem.n <= INT_MAX ? BIO_new_mem_buf(pem.p, (int)pem.n) : NULL;
	unsigned char *der;
	char *name, *header;
	long len;
	int r = bio ? 0 : -ENOMEM;

	while (r == 0 && PEM_read_bio(bio, &name, &header, &der, &len) == 1) {
		if (is_certificate(name))
			r = add(a, der, len);
		OPENSSL_free(name);
		OPENSSL_free(header);
		OPENSSL_free(der);
	}
	BIO_free(bio);
	ERR_clear_error();
	return r;
}

int authorities_new(struct view pem, struct authorities **ret)
{
	struct authorities *a = calloc(1, sizeof(*a));
	int r;

	*ret = NULL;
	if (!a)
		return -ENOMEM;
	a->der = BUF_INIT(BYTES_MAX);
	/* Base64 is a third longer, and this is not to grow by doublings. */
	r = buf_room(&a->der, pem.n / 4 * 3 < BYTES_MAX ? pem.n / 4 * 3 + 1 : BYTES_MAX) ? 0
											 : -ENOMEM;
	if (r == 0)
		r = read_all(a, pem);
	if (r < 0) {
		authorities_free(a);
		return r;
	}
	*ret = a;
	return (int)a->n;
}

static X509 *parse(const struct authorities *a, const struct place *k)
{
	const unsigned char *p = (const unsigned char *)a->der.data + k->at;

	return d2i_X509_AUX(NULL, &p, k->len);
}

static bool has_name(const struct authorities *a, const struct place *k, const X509_NAME *name)
{
	const unsigned char *p = (const unsigned char *)a->der.data + k->name_at;
	X509_NAME *mine = d2i_X509_NAME(NULL, &p, k->name_len);
	bool same = mine && X509_NAME_cmp(mine, name) == 0;

	X509_NAME_free(mine);
	return same;
}

/*
 * All that have the name go into the store, which then finds them itself. What is returned belongs to the store: that is how
 * OpenSSL's own lookups do it.
 */
static int by_subject(X509_LOOKUP *l, X509_LOOKUP_TYPE type, const X509_NAME *name,
		      X509_OBJECT *ret)
{
	const struct authorities *a = X509_LOOKUP_get_method_data(l);
	X509_STORE *store = X509_LOOKUP_get_store(l);
	int found = 0;

	for (size_t i = 0; type == X509_LU_X509 && i < a->n; i++) {
		X509 *x = has_name(a, &a->p[i], name) ? parse(a, &a->p[i]) : NULL;

		if (x && X509_STORE_add_cert(store, x) == 1 && !found &&
		    X509_OBJECT_set1_X509(ret, x) == 1) {
			found = 1;
			X509_free(x); /* the reference that ret does not have */
		}
		X509_free(x);
	}
	ERR_clear_error();
	return found;
}

int authorities_serve(struct authorities *a, X509_STORE *s)
{
	X509_LOOKUP *l;

	a->method = X509_LOOKUP_meth_new("a bundle's bytes");
	if (!a->method || X509_LOOKUP_meth_set_get_by_subject(a->method, by_subject) != 1)
		return -ENOMEM;
	l = X509_STORE_add_lookup(s, a->method);
	return l && X509_LOOKUP_set_method_data(l, a) == 1 ? 0 : -ENOMEM;
}

void authorities_free(struct authorities *a)
{
	if (!a)
		return;
	X509_LOOKUP_meth_free(a->method);
	buf_done(&a->der);
	free(a->p);
	free(a);
}
