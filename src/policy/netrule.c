#include "policy/netrule.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "policy/origin.h"

static bool labels_ok(const char *host)
{
	for (;;) {
		size_t n = strcspn(host, ".");

		if (n == 0 || n > NET_LABEL_MAX)
			return false;
		if (host[n] == '\0')
			return true;
		host += n + 1;
	}
}

/* One trailing dot makes a name absolute; it is the same name. Not behind an address. */
static bool drop_dot(char *text)
{
	size_t n = strlen(text);
	const char *colon = text[0] == '[' ? NULL : strchr(text, ':');
	size_t end = colon ? (size_t)(colon - text) : n;

	if (text[0] == '[' || end < 2 || text[end - 1] != '.')
		return true;
	if (text[end - 2] >= '0' && text[end - 2] <= '9') {
		const char *label = text + end - 1;

		while (label > text && label[-1] != '.')
			label--;
		if (strspn(label, "0123456789") == (size_t)(text + end - 1 - label))
			return false;
	}
	memmove(text + end - 1, text + end, n - end + 1);
	return true;
}

static bool has_port(const char *text)
{
	const char *from = text[0] == '[' ? strchr(text, ']') : text;

	return from && strchr(from, ':');
}

int net_target_parse(struct view v, uint16_t default_port, struct net_target *ret,
		     const char **ret_why)
{
	char text[NET_HOST_MAX + 16], url[NET_HOST_MAX + 32];
	struct err e = ERR_INIT;
	struct origin o;

	*ret = (struct net_target){0};
	*ret_why = "it is not HOST:PORT";
	if (v.n == 0 || v.n >= sizeof(text))
		return -EINVAL;
	for (size_t i = 0; i < v.n; i++)
		if (v.p[i] <= 0x20 || v.p[i] >= 0x7f || strchr("/?#\\@%*", v.p[i]))
			return -EINVAL;
	memcpy(text, v.p, v.n);
	text[v.n] = '\0';
	if (!drop_dot(text))
		return -EINVAL;
	if (!has_port(text) && default_port == 0) {
		*ret_why = "the port is missing";
		return -EINVAL;
	}
	/* One reading of host and port for the whole program. */
	(void)snprintf(url, sizeof(url), "http://%s", text);
	if (origin_parse(url, &o, &e) < 0) {
		*ret_why = "the host or the port is not in its usual form";
		return -EINVAL;
	}
	ret->port = has_port(text) ? o.port : default_port;
	if (strlen(o.host) > NET_HOST_MAX)
		return -EINVAL;
	memcpy(ret->host, o.host, strlen(o.host) + 1);
	ret->literal = netaddr_parse(o.host, &ret->addr) == 0;
	if (!ret->literal && !labels_ok(ret->host)) {
		*ret_why = "a label of the name is empty or longer than 63 bytes";
		return -EINVAL;
	}
	return 0;
}

int net_rule_parse(const char *word, struct net_rule *ret, struct err *e)
{
	bool wild = str_starts(word, "*.");
	const char *rest = wild ? word + 2 : word, *why;

	*ret = (struct net_rule){.wildcard = wild};
	if (strcmp(word, "*") == 0 || strcmp(word, "*:443") == 0)
		return err_set(
		    e, ERR_USAGE,
		    "network rule %s: that is every host; if you mean it, give --net host", word);
	if (net_target_parse((struct view){rest, strlen(rest)}, NET_DEFAULT_PORT, &ret->to, &why) <
	    0)
		return err_set(
		    e, ERR_USAGE,
		    "network rule %.200s: %s; give HOST[:PORT], *.DOMAIN[:PORT] or ADDRESS[:PORT]",
		    word, strchr(rest, '*') ? "'*' stands only for whole labels on the left" : why);
	if (wild && (ret->to.literal || !strchr(ret->to.host, '.')))
		return err_set(
		    e, ERR_USAGE,
		    "network rule %.200s: a wildcard needs a domain of two labels or more", word);
	return 0;
}

int net_pin_parse(const char *word, struct net_pin *ret, struct err *e)
{
	const char *colon = strchr(word, ':'), *second = colon ? strchr(colon + 1, ':') : NULL,
		   *why = "it has two colons at least";

	*ret = (struct net_pin){0};
	if (second && net_target_parse((struct view){word, (size_t)(second - word)}, 0, &ret->from,
				       &why) == 0) {
		why = "the last part is no address";
		if (netaddr_parse(second + 1, &ret->addr) == 0 && !ret->from.literal)
			return 0;
	}
	return err_set(e, ERR_USAGE, "--resolve %.200s: %s; give HOST:PORT:ADDRESS", word, why);
}

bool net_rule_matches(const struct net_rule *r, const struct net_target *t)
{
	size_t n = strlen(t->host), k = strlen(r->to.host);

	if (r->to.port != t->port || r->to.literal != t->literal)
		return false;
	if (t->literal)
		return netaddr_equal(&r->to.addr, &t->addr);
	if (!r->wildcard)
		return strcmp(r->to.host, t->host) == 0;
	return n > k + 1 && t->host[n - k - 1] == '.' && strcmp(t->host + n - k, r->to.host) == 0;
}

void net_target_text(const struct net_target *t, char out[NET_TARGET_TEXT])
{
	bool v6 = t->literal && t->addr.v6;

	if (t->port == NET_DEFAULT_PORT)
		(void)snprintf(out, NET_TARGET_TEXT, "%s%s%s", v6 ? "[" : "", t->host,
			       v6 ? "]" : "");
	else
		(void)snprintf(out, NET_TARGET_TEXT, "%s%s%s:%u", v6 ? "[" : "", t->host,
			       v6 ? "]" : "", t->port);
}
