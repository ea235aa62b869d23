#include "policy/headers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

const char *header_list_find(const struct header_list *l, struct view name)
{
	size_t lo = 0, hi = l->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int d = header_name_compare(name, l->v[mid]);

		if (d == 0)
			return l->v[mid];
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

int header_list_add(struct header_list *l, const char *name)
{
	char **v, *copy;
	size_t at = 0;

	if (header_list_find(l, (struct view){name, strlen(name)}))
		return -EEXIST;
	v = reallocarray(l->v, l->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	l->v = v;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	while (at < l->n && strcmp(v[at], name) < 0)
		at++;
	memmove(v + at + 1, v + at, (l->n - at) * sizeof(*v));
	v[at] = copy;
	l->n++;
	return 0;
}

void header_list_done(struct header_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
	*l = (struct header_list){0};
}

const char *header_forbidden(const char *name)
{
	static const struct {
		const char *name, *why; /* '*' at the end: any rest */
	} t[] = {
	    {"authorization", "the bridge sets the credential itself"},
	    {"proxy-*", "it speaks to a proxy, not to the upstream"},
	    {"connection", "it belongs to one connection"},
	    {"keep-alive", "it belongs to one connection"},
	    {"upgrade", "it belongs to one connection"},
	    {"te", "it belongs to one connection"},
	    {"trailer", "it frames the message"},
	    {"transfer-encoding", "it frames the message"},
	    {"content-length", "it frames the message"},
	    {"expect", "it frames the message"},
	    {"host", "the upstream is fixed by configuration"},
	    {"forwarded", "it claims where a request comes from"},
	    {"x-forwarded-*", "it claims where a request comes from"},
	    {"x-real-ip", "it claims where a request comes from"},
	    {"cookie", "a session would be a second credential"},
	    {"cookie2", "a session would be a second credential"},
	    {"set-cookie", "a session would be a second credential"},
	    {"set-cookie2", "a session would be a second credential"},
	    {"x-http-method*", "it names another method than the one that is judged"},
	    {"x-method-override", "it names another method than the one that is judged"},
	    {"x-original-url", "it names another path than the one that is judged"},
	    {"x-rewrite-url", "it names another path than the one that is judged"},
	    {"x-airlock-*", "it is the bridge's own"},
	    {"x-paperclip-bridge-*", "it is the bridge's own"},
	};

	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		size_t n = strlen(t[i].name);
		bool prefix = t[i].name[n - 1] == '*';

		if (prefix ? strncmp(name, t[i].name, n - 1) == 0 : strcmp(name, t[i].name) == 0)
			return t[i].why;
	}
	return NULL;
}
