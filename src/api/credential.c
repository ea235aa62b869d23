#include "api/credential.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#define SECRET_BYTES 32
#define SECRET_TEXT 43 /* base64url of SECRET_BYTES, no padding */

static const char *const prefixes[TOKEN_KIND_COUNT] = {"abk_", "ask_", "aak_"};

static void digest(const void *p, size_t n, char out[TOKEN_DIGEST_LEN + 1])
{
	unsigned char h[crypto_hash_sha256_BYTES];

	(void)crypto_hash_sha256(h, p, n);
	(void)sodium_bin2hex(out, TOKEN_DIGEST_LEN + 1, h, sizeof(h));
}

int credential_new(enum token_kind kind, struct token_row *t, char out[TOKEN_TEXT_MAX],
		   struct err *e)
{
	unsigned char secret[SECRET_BYTES];
	char text[SECRET_TEXT + 1];
	int r;

	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "libsodium does not start");
	r = id_new(t->id);
	if (r < 0)
		return err_sys(e, -r, "make a token");
	randombytes_buf(secret, sizeof(secret));
	(void)sodium_bin2base64(text, sizeof(text), secret, sizeof(secret),
				sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	(void)snprintf(out, TOKEN_TEXT_MAX, "%s%s_%s", prefixes[kind], t->id, text);
	sodium_memzero(secret, sizeof(secret));
	sodium_memzero(text, sizeof(text));
	digest(out, strlen(out), t->digest);
	t->kind = kind;
	t->created_ns = clock_real_ns();
	return 0;
}

bool credential_parse(struct view token, enum token_kind *ret_kind, char id[ID_LEN + 1])
{
	if (token.n != 4 + ID_LEN + 1 + SECRET_TEXT || token.p[4 + ID_LEN] != '_')
		return false;
	for (int k = 0; k < TOKEN_KIND_COUNT; k++) {
		if (memcmp(token.p, prefixes[k], 4) != 0)
			continue;
		memcpy(id, token.p + 4, ID_LEN);
		id[ID_LEN] = '\0';
		*ret_kind = (enum token_kind)k;
		return id_is_prefix(id);
	}
	return false;
}

bool credential_matches(struct view token, const struct token_row *t)
{
	char d[TOKEN_DIGEST_LEN + 1];

	digest(token.p, token.n, d);
	return strlen(t->digest) == TOKEN_DIGEST_LEN &&
	       sodium_memcmp(d, t->digest, TOKEN_DIGEST_LEN) == 0;
}

/* --- run JWTs ----------------------------------------------------------------------------- */

static void hmac(const void *key, size_t key_len, struct view text,
		 unsigned char out[crypto_auth_hmacsha256_BYTES])
{
	crypto_auth_hmacsha256_state h;

	(void)crypto_auth_hmacsha256_init(&h, key, key_len);
	(void)crypto_auth_hmacsha256_update(&h, (const unsigned char *)text.p, text.n);
	(void)crypto_auth_hmacsha256_final(&h, out);
}

/* The company's key is the *text* of the digest, as the peer's servers use it. */
static void sign(const struct jwt_keys *k, const char *company, struct view signed_part,
		 unsigned char out[crypto_auth_hmacsha256_BYTES])
{
	unsigned char h[crypto_auth_hmacsha256_BYTES];
	char key[sizeof(h) * 2 + 1], name[160];

	(void)snprintf(name, sizeof(name), "jwt:%s:%s", k->instance_id, company);
	hmac(k->master, strlen(k->master), (struct view){name, strlen(name)}, h);
	(void)sodium_bin2hex(key, sizeof(key), h, sizeof(h));
	hmac(key, strlen(key), signed_part, out);
	sodium_memzero(key, sizeof(key));
}

/* A heap JSON object from base64url, or NULL. */
static json_t *decode(struct view part)
{
	_cleanup_free_ unsigned char *raw = malloc(part.n + 1);
	json_t *j = NULL;
	size_t n = 0;

	if (raw && sodium_base642bin(raw, part.n + 1, part.p, part.n, NULL, &n, NULL,
				     sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0)
		j = json_loadb((const char *)raw, n, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(j))
		return j;
	json_decref(j);
	return NULL;
}

static bool text_is(json_t *j, const char *name, const char *want)
{
	json_t *v = json_object_get(j, name);

	return !v || (json_is_string(v) && strcmp(json_string_value(v), want) == 0);
}

static bool claims(json_t *j, struct jwt_claims *c, const struct jwt_keys *k)
{
	json_t *sub = json_object_get(j, "sub"), *company = json_object_get(j, "company_id"),
	       *adapter = json_object_get(j, "adapter_type"), *run = json_object_get(j, "run_id"),
	       *iat = json_object_get(j, "iat"), *exp = json_object_get(j, "exp"),
	       *user = json_object_get(j, "responsible_user_id");
	const char *r = json_string_value(run);

	if (!json_is_integer(iat) || !json_is_integer(exp) || !json_is_string(adapter) || !r ||
	    json_string_length(run) == 0 || json_string_length(run) > ACTOR_RUN_MAX ||
	    !json_is_string(sub) || !json_is_string(company) ||
	    !uuid_parse(json_string_value(sub), json_string_length(sub), c->agent_id) ||
	    !uuid_parse(json_string_value(company), json_string_length(company), c->company_id))
		return false;
	for (const char *p = r; *p; p++)
		if (*p <= ' ' || *p > '~')
			return false;
	if (json_is_string(user) &&
	    !uuid_parse(json_string_value(user), json_string_length(user), c->responsible))
		return false;
	(void)snprintf(c->run_id, sizeof(c->run_id), "%s", r);
	(void)snprintf(c->adapter, sizeof(c->adapter), "%s", json_string_value(adapter));
	c->issued_s = json_integer_value(iat);
	c->expires_s = json_integer_value(exp);
	return text_is(j, "iss", "paperclip") && text_is(j, "aud", "paperclip-api") &&
	       text_is(j, "instance_id", k->instance_id);
}

enum jwt_verdict jwt_verify(const struct jwt_keys *k, struct view token, int64_t now_s,
			    struct jwt_claims *ret)
{
	unsigned char want[crypto_auth_hmacsha256_BYTES], got[crypto_auth_hmacsha256_BYTES];
	const char *dot1 = memchr(token.p, '.', token.n), *dot2;
	json_t *head, *body = NULL;
	bool ok = false;
	size_t n = 0;

	*ret = (struct jwt_claims){0};
	if (!dot1 || token.n > CREDENTIAL_MAX)
		return JWT_BAD;
	dot2 = memchr(dot1 + 1, '.', token.n - (size_t)(dot1 + 1 - token.p));
	if (!dot2)
		return JWT_BAD;
	head = decode((struct view){token.p, (size_t)(dot1 - token.p)});
	/* The algorithm is ours, not the token's: "none" and everything else is refused here. */
	if (head && json_object_get(head, "alg") && text_is(head, "alg", "HS256") &&
	    text_is(head, "typ", "JWT"))
		body = decode((struct view){dot1 + 1, (size_t)(dot2 - dot1 - 1)});
	if (body && claims(body, ret, k) &&
	    sodium_base642bin(got, sizeof(got), dot2 + 1, token.n - (size_t)(dot2 + 1 - token.p),
			      NULL, &n, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0 &&
	    n == sizeof(got)) {
		sign(k, ret->company_id, (struct view){token.p, (size_t)(dot2 - token.p)}, want);
		ok = sodium_memcmp(want, got, sizeof(got)) == 0;
	}
	json_decref(head);
	json_decref(body);
	if (!ok)
		return JWT_BAD;
	return ret->expires_s < now_s ? JWT_EXPIRED : JWT_OK;
}

static void put_part(struct buf *b, const char *text)
{
	size_t n = strlen(text);
	char *room =
	    buf_room(b, sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING));

	if (!room)
		return;
	(void)sodium_bin2base64(
	    room, sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
	    (const unsigned char *)text, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	buf_add(b, strlen(room));
}

int jwt_sign(const struct jwt_keys *k, const struct jwt_claims *c, char **ret, struct err *e)
{
	unsigned char mac[crypto_auth_hmacsha256_BYTES];
	char sig[sodium_base64_ENCODED_LEN(sizeof(mac), sodium_base64_VARIANT_URLSAFE_NO_PADDING)];
	struct buf b = BUF_INIT(CREDENTIAL_MAX);
	json_t *j =
	    json_pack("{s:s,s:s,s:s,s:s,s:s?,s:I,s:I,s:s,s:s,s:s}", "sub", c->agent_id,
		      "company_id", c->company_id, "adapter_type", c->adapter, "run_id", c->run_id,
		      "responsible_user_id", c->responsible[0] ? c->responsible : NULL, "iat",
		      (json_int_t)c->issued_s, "exp", (json_int_t)c->expires_s, "iss", "paperclip",
		      "aud", "paperclip-api", "instance_id", k->instance_id);
	_cleanup_free_ char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	if (!text)
		return err_set(e, ERR_NOMEM, "sign a token: out of memory");
	put_part(&b, "{\"alg\":\"HS256\",\"typ\":\"JWT\"}");
	(void)buf_putc(&b, '.');
	put_part(&b, text);
	sign(k, c->company_id, (struct view){b.data, b.len}, mac);
	(void)sodium_bin2base64(sig, sizeof(sig), mac, sizeof(mac),
				sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	(void)buf_putc(&b, '.');
	(void)buf_puts(&b, sig);
	*ret = buf_take(&b);
	return *ret ? 0 : err_set(e, ERR_LIMIT, "the claims of a token are too long");
}
