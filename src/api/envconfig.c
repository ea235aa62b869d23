#include "api/envconfig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "engine/images.h"

/* --- issues ------------------------------------------------------------------------------- */

static json_t *refuse(struct call *c, const char *member, const char *text)
{
	json_t *issue =
	    json_pack("{s:s,s:[s],s:s}", "code", "invalid_config", "path", member, "message", text);

	(void)reply_json(c, 422,
			 json_pack("{s:s,s:{s:[o]}}", "error", text, "details", "issues", issue));
	return NULL;
}

/* --- members ------------------------------------------------------------------------------ */

enum kind { TRIMMED, BOOLEAN, COUNT, WORD, REF, NULL_ONLY };

struct member {
	const char *name;
	enum kind kind;
	int64_t min, max;
	const char *const *words;
	const char *missing; /* text when it is required and not there */
};

static const char *const lifecycles[] = {"inherit", "per_turn", "warm", NULL};
static const char *const networks[] = {"none", "host", NULL};

#define DAY_MS 86400000

static const struct member ssh_members[] = {
    {"host", TRIMMED, 0, 0, NULL, "SSH environments require a host."},
    {"port", COUNT, 1, 65535, NULL, NULL},
    {"username", TRIMMED, 0, 0, NULL, "SSH environments require a username."},
    {"remoteWorkspacePath", TRIMMED, 0, 0, NULL,
     "SSH environments require a remote workspace path."},
    {"privateKey", TRIMMED, 0, 0, NULL, NULL},
    {"privateKeySecretRef", REF, 0, 0, NULL, NULL},
    {"knownHosts", TRIMMED, 0, 0, NULL, NULL},
    {"strictHostKeyChecking", BOOLEAN, 0, 0, NULL, NULL},
    {"keepRemoteBase", BOOLEAN, 0, 0, NULL, NULL},
    {"maxConcurrentRuns", COUNT, 1, 1000, NULL, NULL},
    {"connectionGraceSec", COUNT, 0, REMOTE_GRACE_MAX_S, NULL, NULL},
    {0},
};

static const struct member native_members[] = {
    {"provider", TRIMMED, 0, 0, NULL, NULL},
    {"timeoutMs", COUNT, 1, DAY_MS, NULL, NULL},
    {"reuseLease", BOOLEAN, 0, 0, NULL, NULL},
    {"streamRunLogs", BOOLEAN, 0, 0, NULL, NULL},
    {"runnerLifecycleMode", WORD, 0, 0, lifecycles, NULL},
    {"runnerIdleTimeoutMs", COUNT, 1000, DAY_MS, NULL, NULL},
    {"archiveOnRelease", BOOLEAN, 0, 0, NULL, NULL},
    {"image", TRIMMED, 0, 0, NULL, NULL},
    {"network", WORD, 0, 0, networks, NULL},
    {"memoryBytes", COUNT, INT64_C(4) << 20, INT64_MAX, NULL, NULL},
    {"pids", COUNT, 1, INT32_MAX, NULL, NULL},
    {"cpuMillis", COUNT, 1, 1000000, NULL, NULL},
    {0},
};

static json_t *trimmed(const char *text)
{
	size_t n;

	text += strspn(text, " \t\r\n\f\v");
	n = strlen(text);
	while (n && strchr(" \t\r\n\f\v", text[n - 1]))
		n--;
	return json_stringn(text, n);
}

/* A whole number, or a text that is one; nothing else becomes a number. */
static bool as_count(json_t *v, const struct member *m, json_int_t *ret)
{
	uint64_t n;

	if (json_is_integer(v))
		*ret = json_integer_value(v);
	else if (json_is_string(v) && str_to_u64(json_string_value(v), INT64_MAX, &n) == 0)
		*ret = (json_int_t)n;
	else
		return false;
	return *ret >= m->min && *ret <= m->max;
}

json_t *envconfig_secret_ref(struct call *c, const char *member, json_t *v)
{
	json_t *id = json_object_get(v, "secretId"), *type = json_object_get(v, "type"),
	       *version = json_object_get(v, "version");
	char uuid[UUID_LEN + 1];

	if (!json_is_object(v) || !json_is_string(type) ||
	    strcmp(json_string_value(type), "secret_ref") != 0 || !json_is_string(id) ||
	    !uuid_parse(json_string_value(id), json_string_length(id), uuid) ||
	    (version && !(json_is_integer(version) && json_integer_value(version) > 0) &&
	     !(json_is_string(version) && strcmp(json_string_value(version), "latest") == 0)) ||
	    json_object_size(v) != (size_t)(version ? 3 : 2))
		return refuse(c, member,
			      "A secret reference is {type: secret_ref, secretId, version?}.");
	return json_pack("{s:s,s:s,s:o}", "type", "secret_ref", "secretId", uuid, "version",
			 version ? json_incref(version) : json_string("latest"));
}

/* The value as it is kept, or NULL: answered. */
static json_t *judge(struct call *c, const struct member *m, json_t *v)
{
	char text[160];
	json_int_t n;

	switch (m->kind) {
	case TRIMMED:
		if (json_is_string(v))
			return trimmed(json_string_value(v));
		(void)snprintf(text, sizeof(text), "%s is a text.", m->name);
		break;
	case BOOLEAN:
		if (json_is_boolean(v))
			return json_incref(v);
		(void)snprintf(text, sizeof(text), "%s is true or false.", m->name);
		break;
	case COUNT:
		if (as_count(v, m, &n))
			return json_integer(n);
		(void)snprintf(text, sizeof(text), "%s is a whole number %lld to %lld.", m->name,
			       (long long)m->min, (long long)m->max);
		break;
	case WORD:
		for (size_t i = 0; json_is_string(v) && m->words[i]; i++)
			if (strcmp(m->words[i], json_string_value(v)) == 0)
				return json_incref(v);
		(void)snprintf(text, sizeof(text), "%s is none of its words.", m->name);
		break;
	default:
		return envconfig_secret_ref(c, m->name, v);
	}
	return refuse(c, m->name, text);
}

/* Strict: what the table does not have is refused. Null is absent. */
static json_t *by_table(struct call *c, const struct member *table, json_t *config)
{
	json_t *out = json_object(), *v;
	const char *key;
	char text[160];

	json_object_foreach(config, key, v)
	{
		const struct member *m = table;

		while (m->name && strcmp(m->name, key) != 0)
			m++;
		if (!m->name) {
			(void)snprintf(text, sizeof(text),
				       "\"%.*s\" is not known in this configuration.",
				       str_fit(key, 80), key);
			json_decref(out);
			return refuse(c, "config", text);
		}
		if (json_is_null(v))
			continue;
		v = judge(c, m, v);
		if (!v) {
			json_decref(out);
			return NULL;
		}
		(void)json_object_set_new(out, m->name, v);
	}
	for (const struct member *m = table; m->name; m++) {
		json_t *got = json_object_get(out, m->name);

		if (m->missing && (!got || json_string_length(got) == 0)) {
			json_decref(out);
			return refuse(c, m->name, m->missing);
		}
	}
	return out;
}

/* --- drivers ------------------------------------------------------------------------------ */

static void set_default(json_t *j, const char *name, json_t *v)
{
	json_t *have = json_object_get(j, name);

	if (!have || (json_is_string(have) && json_string_length(have) == 0))
		(void)json_object_set_new(j, name, v);
	else
		json_decref(v);
}

static json_t *ssh(struct call *c, json_t *config, char **ret_key)
{
	json_t *j = by_table(c, ssh_members, config), *key;
	const char *path, *host, *user;

	if (!j)
		return NULL;
	path = json_string_value(json_object_get(j, "remoteWorkspacePath"));
	host = json_string_value(json_object_get(j, "host"));
	user = json_string_value(json_object_get(j, "username"));
	if (path[0] != '/') {
		json_decref(j);
		return refuse(c, "remoteWorkspacePath",
			      "SSH remote workspace path must be absolute.");
	}
	/* They become words of a command line one day: none may look like an option of it. */
	if (host[0] == '-' || user[0] == '-' || strpbrk(host, " \t\r\n@/") ||
	    strpbrk(user, " \t\r\n@/:")) {
		json_decref(j);
		return refuse(c, "host",
			      "The SSH host or user name has a character that it cannot have.");
	}
	if (strpbrk(path, "\r\n")) {
		json_decref(j);
		return refuse(c, "remoteWorkspacePath",
			      "The SSH remote workspace path has a line break in it.");
	}
	set_default(j, "port", json_integer(22));
	set_default(j, "strictHostKeyChecking", json_true());
	set_default(j, "knownHosts", json_null());
	set_default(j, "privateKeySecretRef", json_null());
	key = json_object_get(j, "privateKey");
	if (json_string_length(key)) {
		*ret_key = strdup(json_string_value(key));
		if (!*ret_key) {
			json_decref(j);
			(void)reply_error(c, 503, "Out of memory, try again");
			return NULL;
		}
	}
	(void)json_object_set_new(j, "privateKey", json_null());
	return j;
}

static json_t *plain_refusal(struct call *c, const char *text)
{
	(void)reply_error(c, 422, text);
	return NULL;
}

static bool provider_key(const char *p)
{
	if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')))
		return false;
	return strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(p) && strlen(p) <= 64;
}

/* A name is looked up once: what is kept is the image that it stands for now, by its contents. j is taken over. */
static json_t *pin_image(struct call *c, json_t *j)
{
	const char *word = json_string_value(json_object_get(j, "image"));
	char digest[IMAGE_HEX + 1], text[sizeof(IMAGE_WORD) + IMAGE_HEX];

	if (!word)
		return j;
	if (!*word) {
		(void)json_object_del(j, "image");
		return j;
	}
	if (images_find(&c->api->st, word, digest, NULL) < 0) {
		json_decref(j);
		return refuse(
		    c, "image",
		    "There is no such image: 'airlock image list' shows those that were imported.");
	}
	(void)snprintf(text, sizeof(text), IMAGE_WORD "%s", digest);
	(void)json_object_set_new(j, "image", json_string(text));
	return j;
}

static json_t *sandbox(struct call *c, json_t *config)
{
	json_t *p = json_object_get(config, "provider"), *name, *j;
	char text[200];

	if (p && !json_is_string(p))
		return refuse(c, "provider", "provider is a text.");
	name = p ? trimmed(json_string_value(p)) : json_string("fake");
	if (strcmp(json_string_value(name), "fake") == 0) {
		json_decref(name);
		return plain_refusal(
		    c,
		    "Built-in fake sandbox environments are reserved for internal probes and cannot be saved.");
	}
	if (!provider_key(json_string_value(name))) {
		json_decref(name);
		return refuse(
		    c, "provider",
		    "A sandbox provider is lower-case letters, digits, '.', '_' and '-'.");
	}
	if (strcmp(json_string_value(name), "native") != 0) {
		(void)snprintf(
		    text, sizeof(text),
		    "Sandbox provider \"%s\" is not installed or its plugin worker is not running.",
		    json_string_value(name));
		json_decref(name);
		return plain_refusal(c, text);
	}
	/* A retired member that old clients still send. */
	(void)json_object_del(config, "streamAgentSessionOutput");
	j = by_table(c, native_members, config);
	if (j)
		(void)json_object_set(j, "provider", name);
	json_decref(name);
	return j ? pin_image(c, j) : NULL;
}

static json_t *plugin(struct call *c, json_t *config)
{
	json_t *k = json_object_get(config, "pluginKey"), *d = json_object_get(config, "driverKey");

	if (!json_is_string(k) || json_string_length(k) == 0)
		return refuse(c, "pluginKey", "Plugin environments require a pluginKey.");
	if (!json_is_string(d) || !provider_key(json_string_value(d)))
		return refuse(c, "driverKey", "Plugin environments require a driverKey.");
	return plain_refusal(
	    c, "Plugin environment config validation requires a running plugin worker manager.");
}

json_t *envconfig_normalise(struct call *c, const char *driver, json_t *config, enum config_use use,
			    char **ret_key)
{
	(void)use;
	*ret_key = NULL;
	if (strcmp(driver, "local") == 0)
		return json_incref(config);
	if (strcmp(driver, "ssh") == 0)
		return ssh(c, config, ret_key);
	if (strcmp(driver, "sandbox") == 0)
		return sandbox(c, config);
	return plugin(c, config);
}

const char *envconfig_provider(const char *driver, json_t *config)
{
	const char *p = json_string_value(json_object_get(config, "provider"));

	return strcmp(driver, "sandbox") == 0 && p ? p : driver;
}
