#include "engine/leasespec.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/runenv.h"
#include "wire/jsonmember.h"

static int copy_vector(char ***to, char *const *from)
{
	int r = 0;

	for (size_t i = 0; r == 0 && from && from[i]; i++)
		r = strv_add(to, from[i]);
	return r;
}

static int add_bind(struct lease_spec *s, const char *src, const char *dst)
{
	struct bind_ro *b = &s->binds[s->binds_len];

	if (s->binds_len == ARRAY_LEN(s->binds))
		return -E2BIG;
	b->src = strdup(src);
	b->dst = strdup(dst);
	s->binds_len++;
	return b->src && b->dst ? 0 : -ENOMEM;
}

int leasespec_from_request(struct lease_spec *s, const struct request *q, struct err *e)
{
	int r;

	*s = (struct lease_spec){
	    .net = q->net,
	    .without = q->without,
	    .limits = {.memory_bytes = q->memory.v, .pids = q->pids.v, .cpu_milli = q->cpu.v},
	    .keep = q->keep,
	    .gateway = q->api.url || q->keep || q->net_allow || q->upstreams_len,
	    .strict = q->strict,
	    .by_tar = q->by_tar,
	    .review = q->review,
	    .bash = q->bash,
	    .on_conflict = q->on_conflict,
	    .git = q->git,
	};
	r = copy_vector(&s->include, q->include);
	if (r == 0)
		r = copy_vector(&s->exclude, q->exclude);
	if (r == 0)
		r = copy_vector(&s->maps, q->maps);
	if (r == 0)
		r = copy_vector(&s->net_allow, q->net_allow);
	if (r == 0)
		r = copy_vector(&s->net_pins, q->net_pins);
	if (r == 0)
		r = copy_vector(&s->remote, q->remote);
	if (r == 0 && q->image && !(s->image = strdup(q->image)))
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < q->binds_len; i++)
		r = add_bind(s, q->binds[i].src, q->binds[i].dst);
	if (r < 0)
		leasespec_done(s);
	return r < 0 ? err_set(e, ERR_NOMEM, "lease: out of memory") : 0;
}

void leasespec_done(struct lease_spec *s)
{
	strv_free(s->layers);
	strv_free(s->include);
	strv_free(s->exclude);
	strv_free(s->maps);
	strv_free(s->map_roots);
	strv_free(s->net_allow);
	strv_free(s->net_pins);
	strv_free(s->remote);
	free(s->manifest);
	free(s->image);
	free(s->head);
	free(s->branch);
	for (size_t i = 0; i < s->binds_len; i++) {
		free(s->binds[i].src);
		free(s->binds[i].dst);
	}
	*s = (struct lease_spec){0};
}

/* Paths are bytes, JSON is UTF-8: one character of U+0000..U+00FF a byte. */
static json_t *bytes_json(const char *s)
{
	struct buf b = BUF_INIT((size_t)1 << 20);
	json_t *j;

	if (!s)
		return json_null();
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c < 0x80) {
			(void)buf_putc(&b, *s);
		} else {
			(void)buf_putc(&b, (char)(0xc0 | (c >> 6)));
			(void)buf_putc(&b, (char)(0x80 | (c & 0x3f)));
		}
	}
	j = b.err ? NULL : json_string(buf_text(&b));
	buf_done(&b);
	return j;
}

static char *json_bytes(const json_t *j)
{
	const unsigned char *s = (const unsigned char *)json_string_value(j);
	struct buf b = BUF_INIT((size_t)1 << 20);

	if (!s)
		return NULL;
	(void)buf_puts(&b, "");
	for (; *s; s++) {
		if (*s < 0x80)
			(void)buf_putc(&b, (char)*s);
		else if (s[1])
			(void)buf_putc(&b, (char)(((s[0] & 3) << 6) | (s[1] & 0x3f))), s++;
	}
	return buf_take(&b);
}

static json_t *vector_json(char *const *v)
{
	json_t *a = json_array();

	for (size_t i = 0; v && v[i]; i++)
		(void)json_array_append_new(a, bytes_json(v[i]));
	return a;
}

static int json_vector(const json_t *a, char ***ret)
{
	size_t i;
	json_t *j;
	int r = 0;

	json_array_foreach(a, i, j)
	{
		_cleanup_free_ char *s = json_bytes(j);

		if (!s)
			return -EINVAL;
		r = strv_add(ret, s);
		if (r < 0)
			return r;
	}
	return r;
}

int leasespec_put(const struct lease_spec *s, char **ret, struct err *e)
{
	json_t *binds = json_array(), *j;

	for (size_t i = 0; i < s->binds_len; i++)
		(void)json_array_append_new(binds, json_pack("[o,o]", bytes_json(s->binds[i].src),
							     bytes_json(s->binds[i].dst)));
	j = json_pack(
	    "{s:i,s:o,s:o,s:o,s:i,s:i,s:I,s:I,s:I,s:b,s:b,s:b,s:b,s:b,s:i,s:i,s:o,s:o,s:o,s:b,s:o,s:o,s:I,s:I,s:s}",
	    "version", 1, "layers", vector_json(s->layers), "manifest", bytes_json(s->manifest),
	    "binds", binds, "net", (int)s->net, "without", (int)s->without, "memory",
	    (json_int_t)s->limits.memory_bytes, "pids", (json_int_t)s->limits.pids, "cpu_milli",
	    (json_int_t)s->limits.cpu_milli, "keep", s->keep, "strict", s->strict, "by_tar",
	    s->by_tar, "bash", s->bash, "executed", s->executed, "on_conflict", (int)s->on_conflict,
	    "git", (int)s->git, "include", vector_json(s->include), "exclude",
	    vector_json(s->exclude), "maps", vector_json(s->maps), "repo", s->repo, "head",
	    bytes_json(s->head), "branch", bytes_json(s->branch), "root_dev",
	    (json_int_t)s->root_dev, "root_ino", (json_int_t)s->root_ino, "root_boot",
	    s->root_boot);
	if (j)
		(void)json_object_set_new(j, "gateway", json_boolean(s->gateway));
	if (j && s->map_roots)
		(void)json_object_set_new(j, "map_roots", vector_json(s->map_roots));
	if (j && s->net_allow)
		(void)json_object_set_new(j, "net_allow", vector_json(s->net_allow));
	if (j && s->net_pins)
		(void)json_object_set_new(j, "net_pins", vector_json(s->net_pins));
	if (j && s->remote)
		(void)json_object_set_new(j, "remote", vector_json(s->remote));
	if (j && s->image)
		(void)json_object_set_new(j, "image", bytes_json(s->image));
	if (j && s->review)
		(void)json_object_set_new(j, "review", json_true());
	*ret = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(j);
	return *ret ? 0 : err_set(e, ERR_NOMEM, "lease: out of memory");
}

static uint64_t number(const json_t *j, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(j, key));
}

static bool flag(const json_t *j, const char *key)
{
	return json_is_true(json_object_get(j, key));
}

int leasespec_get(const char *text, struct lease_spec *s, struct err *e)
{
	json_t *j = json_loads(text ? text : "{}", 0, NULL), *b;
	size_t i;
	int r = j ? 0 : -EINVAL;

	*s = (struct lease_spec){0};
	if (r == 0)
		r = json_vector(json_object_get(j, "layers"), &s->layers);
	if (r == 0)
		r = json_vector(json_object_get(j, "include"), &s->include);
	if (r == 0)
		r = json_vector(json_object_get(j, "exclude"), &s->exclude);
	if (r == 0)
		r = json_vector(json_object_get(j, "maps"), &s->maps);
	if (r == 0)
		r = json_vector(json_object_get(j, "map_roots"), &s->map_roots);
	if (r == 0)
		r = json_vector(json_object_get(j, "net_allow"), &s->net_allow);
	if (r == 0)
		r = json_vector(json_object_get(j, "net_pins"), &s->net_pins);
	if (r == 0)
		r = json_vector(json_object_get(j, "remote"), &s->remote);
	if (r == 0 && strv_len(s->maps) % 3)
		r = -EINVAL;
	s->manifest = json_bytes(json_object_get(j, "manifest"));
	s->image = json_bytes(json_object_get(j, "image"));
	s->head = json_bytes(json_object_get(j, "head"));
	s->branch = json_bytes(json_object_get(j, "branch"));
	s->repo = flag(j, "repo");
	s->root_dev = number(j, "root_dev");
	s->root_ino = number(j, "root_ino");
	(void)snprintf(s->root_boot, sizeof(s->root_boot), "%s", json_member_text(j, "root_boot"));
	json_array_foreach(json_object_get(j, "binds"), i, b)
	{
		_cleanup_free_ char *src = json_bytes(json_array_get(b, 0));
		_cleanup_free_ char *dst = json_bytes(json_array_get(b, 1));

		if (r == 0)
			r = src && dst ? add_bind(s, src, dst) : -EINVAL;
	}
	s->net = (enum net_mode)number(j, "net");
	s->without = (unsigned)number(j, "without");
	s->limits =
	    (struct sandbox_limits){number(j, "memory"), number(j, "pids"), number(j, "cpu_milli")};
	s->keep = flag(j, "keep");
	s->gateway = flag(j, "gateway");
	s->strict = flag(j, "strict");
	s->by_tar = flag(j, "by_tar");
	s->review = flag(j, "review");
	s->bash = flag(j, "bash");
	s->executed = flag(j, "executed");
	s->on_conflict = (enum on_conflict)number(j, "on_conflict");
	s->git = (enum git_policy)number(j, "git");
	json_decref(j);
	if (r < 0)
		leasespec_done(s);
	return r < 0 ? err_set(e, ERR_INTERNAL,
			       "the row of a lease in the state database cannot be read")
		     : 0;
}

void leasespec_sandbox(const struct lease_spec *s, const struct lease_row *l, const char *dir,
		       struct sandbox_spec *ret)
{
	*ret = (struct sandbox_spec){
	    .lease_id = l->id,
	    .lease_dir = dir,
	    .workspace = l->workspace,
	    .layers = s->layers,
	    .manifest = s->manifest,
	    .remote = s->remote,
	    .image = s->image,
	    .inside = INSIDE_WORKSPACE,
	    .hostname = "airlock",
	    .net = s->net,
	    .binds = s->binds,
	    .binds_len = s->binds_len,
	    .limits = s->limits,
	    .without = s->without,
	    .keep = s->keep,
	    .gateway = s->gateway,
	    .resume = s->executed,
	};
}
