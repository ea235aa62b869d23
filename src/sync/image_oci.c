/*
 * Policy: an OCI image layout (image-spec 1.1) is followed from its index over manifest and configuration to layers. Every
 * blob is a regular file below blobs/sha256, is named by 64 hexadecimal digits, and is hashed whole before a byte of it is
 * read for its meaning. Other algorithms, foreign layers (URLs) and encrypted ones are refused: nothing is fetched.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/image_internal.h"
#include "wire/jsonmember.h"

#define NESTED_MAX 3 /* indexes in indexes */
#define READ_SIZE (256 << 10)

#if defined(__x86_64__)
#define ARCH "amd64"
#elif defined(__aarch64__)
#define ARCH "arm64"
#else
#define ARCH "unknown"
#endif

struct oci {
	struct beneath *layout;
	const char *ref;
	struct image_tree *t;
	struct err *e;
	unsigned char *buf;
};

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && strcmp(s + n - k, end) == 0;
}

/* --- blobs -------------------------------------------------------------------------------- */

static int check_sum(struct oci *o, int fd, uint64_t size, const char *hex)
{
	unsigned char sum[crypto_hash_sha256_BYTES];
	char got[IMAGE_HEX + 1];
	crypto_hash_sha256_state h;
	uint64_t total = 0;
	ssize_t n;

	(void)crypto_hash_sha256_init(&h);
	while ((n = read(fd, o->buf, READ_SIZE)) > 0) {
		(void)crypto_hash_sha256_update(&h, o->buf, (size_t)n);
		total += (uint64_t)n;
	}
	if (n < 0)
		return err_sys(o->e, errno, "read blob %.12s", hex);
	(void)crypto_hash_sha256_final(&h, sum);
	(void)sodium_bin2hex(got, sizeof(got), sum, sizeof(sum));
	if (strcmp(got, hex) != 0 || total != size)
		return err_set(
		    o->e, ERR_HOSTILE,
		    "blob %.12s has other contents than its digest and size say: fetch the image again",
		    hex);
	return lseek(fd, 0, SEEK_SET) < 0 ? err_sys(o->e, errno, "read blob %.12s", hex) : 0;
}

/* Descriptor of the blob that d describes, checked whole. ret_hex: IMAGE_HEX + 1 bytes or NULL. */
static int open_blob(struct oci *o, const json_t *d, char *ret_hex)
{
	static const char algorithm[] = "sha256:";
	const char *digest = json_member_text(d, "digest"), *hex = digest + sizeof(algorithm) - 1;
	json_int_t size = json_integer_value(json_object_get(d, "size"));
	_cleanup_fd_ int fd = -1;
	char path[sizeof("blobs/sha256/") + IMAGE_HEX];
	struct stat st;
	int r;

	if (strncmp(digest, algorithm, sizeof(algorithm) - 1) != 0 || !image_is_hex(hex))
		return err_set(
		    o->e, ERR_INVALID,
		    "the image names a blob by something else than sha256: and 64 hexadecimal digits");
	if (json_array_size(json_object_get(d, "urls")))
		return err_set(o->e, ERR_INVALID,
			       "blob %.12s is to be fetched from elsewhere: nothing is fetched",
			       hex);
	(void)snprintf(path, sizeof(path), "blobs/sha256/%s", hex);
	fd = beneath_open(o->layout, path, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(o->e, -fd, "open %s of the image", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || size < 0)
		return err_set(o->e, ERR_INVALID, "%s of the image is no regular file", path);
	if (ret_hex)
		memcpy(ret_hex, hex, IMAGE_HEX + 1);
	r = check_sum(o, fd, (uint64_t)size, hex);
	return r < 0 ? r : TAKE_FD(fd);
}

static json_t *read_json(struct oci *o, int fd, const char *what)
{
	_cleanup_buf_ struct buf b = BUF_INIT(IMAGE_JSON_MAX);
	json_error_t je;
	json_t *j;
	ssize_t n = 1;

	while (n > 0 && !b.err) {
		char *to = buf_room(&b, 65536);

		n = to ? read(fd, to, 65536) : 0;
		if (n > 0)
			buf_add(&b, (size_t)n);
	}
	if (n < 0 || b.err) {
		(void)err_sys(o->e, n < 0 ? errno : -b.err, "%s of the image (limit %d bytes)",
			      what, IMAGE_JSON_MAX);
		return NULL;
	}
	j = json_loadb(b.data ? b.data : "", b.len, JSON_REJECT_DUPLICATES, &je);
	if (!json_is_object(j)) {
		json_decref(j);
		j = NULL;
		(void)err_set(o->e, ERR_INVALID, "%s of the image is not a JSON object", what);
	}
	return j;
}

static json_t *blob_json(struct oci *o, const json_t *d, const char *what, char *ret_hex)
{
	_cleanup_fd_ int fd = -1;

	if (json_integer_value(json_object_get(d, "size")) > IMAGE_JSON_MAX) {
		(void)err_set(o->e, ERR_LIMIT, "%s of the image has over %d bytes", what,
			      IMAGE_JSON_MAX);
		return NULL;
	}
	fd = open_blob(o, d, ret_hex);
	return fd < 0 ? NULL : read_json(o, fd, what);
}

/* --- choosing ----------------------------------------------------------------------------- */

/* What is for another machine, or an attestation about an image, is not meant. */
static bool fits(const json_t *d)
{
	const json_t *p = json_object_get(d, "platform");

	return !json_is_object(p) || (strcmp(json_member_text(p, "os"), "linux") == 0 &&
				      strcmp(json_member_text(p, "architecture"), ARCH) == 0);
}

static bool named(const struct oci *o, const json_t *d)
{
	const char *name = json_member_text(json_object_get(d, "annotations"),
					    "org.opencontainers.image.ref.name");

	return !o->ref || strcmp(name, o->ref) == 0;
}

/* The one entry of an index that is meant; borrowed. */
static const json_t *choose(struct oci *o, const json_t *index, bool top)
{
	const json_t *list = json_object_get(index, "manifests"), *found = NULL, *d;
	size_t i, n = 0;

	if (json_array_size(list) > IMAGE_MANIFESTS_MAX) {
		(void)err_set(o->e, ERR_LIMIT, "an index of the image has over %d entries",
			      IMAGE_MANIFESTS_MAX);
		return NULL;
	}
	json_array_foreach(list, i, d)
	{
		if (!fits(d) || (top && !named(o, d)))
			continue;
		n++;
		found = found ? found : d;
	}
	if (n == 1)
		return found;
	if (n == 0)
		(void)err_set(o->e, ERR_NOT_FOUND, "there is no image for linux/%s in it%s%.100s",
			      ARCH, top && o->ref ? " with the name " : "",
			      top && o->ref ? o->ref : "");
	else
		(void)err_set(o->e, ERR_INVALID,
			      "there are %zu images for linux/%s in it: say which with --ref", n,
			      ARCH);
	return NULL;
}

static bool is_index(const json_t *d)
{
	const char *type = json_member_text(d, "mediaType");

	return ends_with(type, ".image.index.v1+json") || ends_with(type, ".manifest.list.v2+json");
}

/* The manifest, over as many indexes as there are. */
static json_t *find_manifest(struct oci *o, json_t *index, char *ret_hex)
{
	for (int depth = 0; index; depth++) {
		const json_t *d = choose(o, index, depth == 0);
		bool more = d && is_index(d);
		json_t *next = NULL;

		if (more && depth == NESTED_MAX)
			(void)err_set(o->e, ERR_LIMIT, "over %d indexes in one another",
				      NESTED_MAX);
		else if (d)
			next = blob_json(o, d, more ? "an index" : "the manifest", ret_hex);
		json_decref(index);
		if (!more)
			return next;
		index = next;
	}
	return NULL;
}

/* --- layers ------------------------------------------------------------------------------- */

static int check_config(struct oci *o, const json_t *manifest)
{
	json_t *c = blob_json(o, json_object_get(manifest, "config"), "the configuration", NULL);
	const char *arch = json_member_text(c, "architecture"), *os = json_member_text(c, "os");
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	int r = 0;

	if (!c)
		return -EINVAL;
	if ((*os && strcmp(os, "linux") != 0) || (*arch && strcmp(arch, ARCH) != 0)) {
		(void)str_printable(&b, *os ? os : "?", *os ? strnlen(os, 32) : 1);
		(void)buf_puts(&b, "/");
		(void)str_printable(&b, *arch ? arch : "?", *arch ? strnlen(arch, 32) : 1);
		r = err_set(o->e, ERR_INVALID, "the image is for %s, this machine is linux/%s",
			    buf_text(&b), ARCH);
	} else {
		(void)snprintf(o->t->facts->arch, sizeof(o->t->facts->arch), "%s", arch);
	}
	json_decref(c);
	return r;
}

static int apply_layer(struct oci *o, const json_t *d, bool first)
{
	_cleanup_fd_ int fd = -1;
	int r;

	if (strstr(json_member_text(d, "mediaType"), "encrypted"))
		return err_set(o->e, ERR_INVALID,
			       "a layer of the image is encrypted: decrypt it first");
	fd = open_blob(o, d, NULL);
	if (fd < 0)
		return fd;
	/* Taken away is what lies below: before anything of the layer itself is there, in whatever order it comes. */
	r = first ? 0 : image_layer_apply(o->t, fd, LAYER_WHITEOUTS, o->e);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = err_sys(o->e, errno, "read a layer");
	return r < 0 ? r : image_layer_apply(o->t, fd, LAYER_CONTENTS, o->e);
}

static int apply_layers(struct oci *o, const json_t *manifest)
{
	const json_t *layers = json_object_get(manifest, "layers"), *d;
	size_t i, n = json_array_size(layers);
	int r = 0;

	if (n == 0 || n > IMAGE_LAYERS_MAX)
		return err_set(o->e, n ? ERR_LIMIT : ERR_INVALID,
			       "the image has %zu layers, 1 to %d are read", n, IMAGE_LAYERS_MAX);
	json_array_foreach(layers, i, d)
	{
		r = apply_layer(o, d, i == 0);
		if (r < 0)
			return err_wrap(o->e, r, "layer %zu", i + 1);
		o->t->facts->layers++;
	}
	return r;
}

int image_oci_is(struct beneath *layout, struct err *e)
{
	struct stat st;

	if (beneath_stat(layout, "oci-layout", &st) == 0 && S_ISREG(st.st_mode) &&
	    beneath_stat(layout, "index.json", &st) == 0 && S_ISREG(st.st_mode))
		return 1;
	if (beneath_stat(layout, "manifest.json", &st) == 0 && S_ISREG(st.st_mode) &&
	    beneath_stat(layout, "usr", &st) < 0 && beneath_stat(layout, "bin", &st) < 0)
		return err_set(
		    e, ERR_INVALID,
		    "that is what 'docker save' of Docker 24 and older writes: make an OCI archive of it, 'skopeo copy docker-archive:IN oci-archive:OUT'");
	return 0;
}

int image_oci_apply(struct beneath *layout, const char *ref, struct image_tree *t, struct err *e)
{
	_cleanup_fd_ int fd = beneath_open(layout, "index.json", O_RDONLY | O_NONBLOCK, 0);
	struct oci o = {.layout = layout, .ref = ref, .t = t, .e = e, .buf = malloc(READ_SIZE)};
	json_t *manifest = NULL;
	int r = 0;

	if (fd < 0)
		r = err_sys(e, -fd, "open index.json of the image");
	else if (!o.buf)
		r = err_set(e, ERR_NOMEM, "read the image: out of memory");
	if (r == 0) {
		manifest = find_manifest(&o, read_json(&o, fd, "index.json"), t->facts->source);
		r = manifest ? check_config(&o, manifest) : -EINVAL;
	}
	if (r == 0)
		r = apply_layers(&o, manifest);
	json_decref(manifest);
	free(o.buf);
	return r;
}
