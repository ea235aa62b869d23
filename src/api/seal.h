/*
 * seal.h: secrets at rest (libsodium secretbox: XSalsa20-Poly1305).
 *
 * Keys: 32 bytes each, as hexadecimal lines of a file; the first line seals, every line opens. The file is
 * $CREDENTIALS_DIRECTORY/airlock-seal-key where systemd gives one (the lines of airlock-seal-key-old there open as well), else
 * STATE/seal.key, mode 0600, made at the first start. Rotation: `airlock token rotate-seal` puts a new line in front, seals
 * every version anew in one transaction, and drops the old lines after the commit; of a credential see reseal.h. The id of a key
 * is the start of its BLAKE2b hash.
 * Who has keys open holds a lock on the file seal.lock: no key is dropped under it.
 * A sealed value carries the secret's id and version, so that one row's value cannot be put into another's.
 */
#ifndef AIRLOCK_API_SEAL_H
#define AIRLOCK_API_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "store/vault.h"

#define SEAL_KEYS_MAX 8
#define SEAL_CREDENTIAL "airlock-seal-key"
#define SEAL_CREDENTIAL_OLD "airlock-seal-key-old"
#define SECRET_VALUE_MAX 65536

struct seal_key {
	unsigned char key[32];
	char id[SECRET_KEY_ID_LEN + 1];
};

struct seal {
	struct seal_key *v; /* owned, locked memory */
	size_t n;
	int lock; /* owned: shared while the keys are used, exclusive while they are changed */
};

/* path NULL: the credential or the state file below dir. Makes the state file if there is none. */
int seal_open(struct seal *s, const char *dir, struct err *e);
void seal_done(struct seal *s);
/* Whether the keys are a credential of systemd's; whether the state directory has some. */
bool seal_of_systemd(void);
bool seal_has_file(const char *dir);
/*
 * Nobody else has keys of this state open, until seal_shared. -EBUSY: somebody has, and would seal with one that is about to go. The
 * keys are always those that were read under the lock that is held: both read them again.
 */
int seal_alone(struct seal *s, const char *dir, struct err *e);
int seal_shared(struct seal *s, const char *dir, struct err *e);
/*
 * A fresh key in front, written to the file of the state directory before it is used; those that seal nothing, of tries that were cut,
 * go with the same write. -EBUSY as of seal_alone.
 */
int seal_add_key(struct seal *s, const char *dir, bool (*used)(void *arg, const char *key_id),
		 void *arg, struct err *e);
/* Only the first key stays, in the file too. */
int seal_drop_old(struct seal *s, const char *dir, struct err *e);
/* Heap base64. */
int seal_put(const struct seal *s, const char *secret_id, int64_t version, const char *value,
	     char **ret, struct err *e);
/* Heap text that the caller wipes with seal_wipe. ERR_UNAVAILABLE: no key opens it. */
int seal_get(const struct seal *s, const char *secret_id, int64_t version, const char *sealed,
	     char **ret, struct err *e);
void seal_wipe(char **value);
#define _cleanup_secret_ __attribute__((cleanup(seal_wipe)))

/*
 * A file of key material: read if it is there (regular, ours, nobody else can read it), else made with `fresh`.
 * Heap text without the last newline. name: of the systemd credential.
 */
int keyfile_read(const char *dir, const char *name, const char *leaf, char **ret, struct err *e);

#endif
