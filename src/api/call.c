#include "api/call.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"

void call_done(struct call *c)
{
	for (size_t i = 0; i < c->query_len; i++) {
		free(c->query[i].name);
		free(c->query[i].value);
	}
	c->query_len = 0;
	json_decref(c->body);
	c->body = NULL;
	buf_done(&c->out);
	free(c->actor.companies);
	c->actor.companies = NULL;
}

const char *call_query(const struct call *c, const char *name)
{
	for (size_t i = 0; i < c->query_len; i++)
		if (strcmp(c->query[i].name, name) == 0)
			return c->query[i].value;
	return NULL;
}

bool call_uuid(const struct call *c, size_t i, char out[UUID_LEN + 1])
{
	return uuid_parse(c->param[i].p, c->param[i].n, out);
}

bool call_page(struct call *c, int64_t *ret_limit, int64_t *ret_offset)
{
	const char *limit = call_query(c, "limit"), *offset = call_query(c, "offset");
	uint64_t n = API_LIST_MAX, at = 0;

	if ((limit && (str_to_u64(limit, API_LIST_CEILING, &n) < 0 || n == 0)) ||
	    (offset && str_to_u64(offset, INT32_MAX, &at) < 0)) {
		(void)reply_errorf(c, 400, "limit is 1 to %d, offset 0 to %d", API_LIST_CEILING,
				   INT32_MAX);
		return false;
	}
	*ret_limit = (int64_t)n;
	*ret_offset = (int64_t)at;
	return true;
}

/* --- answers ------------------------------------------------------------------------------ */

int reply_out(struct call *c, unsigned status)
{
	if (c->out.err) {
		int why = c->out.err;

		/* Not reset: what was too large would wait for a slow reader in spite of that. */
		buf_done(&c->out);
		return reply_error(c, why == -E2BIG ? 500 : 503,
				   why == -E2BIG ? "The answer is too large: use limit and offset"
						 : "Out of memory, try again");
	}
	c->status = status;
	c->type = "application/json; charset=utf-8";
	return 0;
}

int reply_json(struct call *c, unsigned status, json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	json_decref(j);
	buf_reset(&c->out);
	if (text)
		(void)buf_puts(&c->out, text);
	else
		c->out.err = -ENOMEM;
	free(text);
	return reply_out(c, status);
}

int reply_error(struct call *c, unsigned status, const char *text)
{
	return reply_json(c, status, json_pack("{s:s}", "error", text));
}

int reply_errorf(struct call *c, unsigned status, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A character that was cut at the end is no UTF-8 any more, and no JSON could hold it. */
	if (n >= (int)sizeof(text)) {
		n = (int)sizeof(text) - 1;
		while (((unsigned char)text[n - 1] & 0xc0) == 0x80)
			n--;
		text[n - ((unsigned char)text[n - 1] >= 0xc0)] = '\0';
	}
	return reply_error(c, status, text);
}

int reply_coded(struct call *c, unsigned status, const char *code, const char *text,
		json_t *details)
{
	if (!details)
		details = json_object();
	if (code)
		(void)json_object_set_new(details, "code", json_string(code));
	return reply_json(c, status,
			  code ? json_pack("{s:s,s:s,s:o}", "error", text, "code", code, "details",
					   details)
			       : json_pack("{s:s,s:o}", "error", text, "details", details));
}

int reply_failed(struct call *c, const struct err *e)
{
	(void)fprintf(stderr, "airlockd: %s %s: %s\n", method_name(c->method),
		      c->route ? c->route->pattern : "?", e->text);
	if (e->code == ERR_CONFLICT || e->code == ERR_NOMEM || e->code == ERR_NO_SPACE)
		return reply_error(c, 503, "The server is busy or short of resources, try again");
	return reply_error(c, 500, "Internal server error");
}

/* --- bodies ------------------------------------------------------------------------------- */

#define STR_(x) #x
#define STR(x) STR_(x)

const char *json_too_much(const char *p, size_t n)
{
	size_t depth = 0, values = 1;
	bool in_text = false;

	for (size_t i = 0; i < n; i++) {
		if (in_text) {
			if (p[i] == '\\')
				i++;
			else if (p[i] == '"')
				in_text = false;
		} else if (p[i] == '"') {
			in_text = true;
		} else if (p[i] == '{' || p[i] == '[') {
			if (++depth > API_JSON_DEPTH_MAX)
				return "nested at most " STR(API_JSON_DEPTH_MAX) " deep";
			values++;
		} else if (p[i] == '}' || p[i] == ']') {
			depth -= depth > 0;
		} else if (p[i] == ',') {
			values++;
		}
		if (values > API_JSON_VALUES_MAX)
			return "of at most " STR(API_JSON_VALUES_MAX) " values";
	}
	return NULL;
}

__attribute__((format(printf, 4, 5))) static void issue(json_t *issues, const char *code,
							const char *member, const char *fmt, ...)
{
	char text[300];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (json_array_size(issues) == API_ISSUES_MAX)
		return;
	(void)json_array_append_new(issues, json_pack("{s:s,s:[s*],s:s}", "code", code, "path",
						      member, "message", text));
}

static bool is_word(const char *const *words, const char *v)
{
	for (; *words; words++)
		if (strcmp(*words, v) == 0)
			return true;
	return false;
}

static void check_text(const struct field *f, json_t *v, json_t *issues)
{
	size_t n = json_string_length(v), max = f->max ? (size_t)f->max : API_TEXT_MAX;
	char id[UUID_LEN + 1];

	if (!json_is_string(v))
		issue(issues, "invalid_type", f->name, "%s is a text", f->name);
	else if (f->type == FIELD_UUID && !uuid_parse(json_string_value(v), n, id))
		issue(issues, "invalid_format", f->name, "%s is a UUID", f->name);
	else if (f->type == FIELD_WORD && !is_word(f->words, json_string_value(v)))
		issue(issues, "invalid_value", f->name, "%s is none of its words", f->name);
	else if (n < (size_t)f->min)
		issue(issues, "too_small", f->name, "%s has at least %lld bytes", f->name,
		      (long long)f->min);
	else if (n > max)
		issue(issues, "too_big", f->name, "%s has at most %zu bytes", f->name, max);
}

static void check_object(const struct field *f, json_t *v, json_t *issues)
{
	if (!json_is_object(v))
		issue(issues, "invalid_type", f->name, "%s is an object", f->name);
	else if (json_dumpb(v, NULL, 0, JSON_COMPACT) > API_CONFIG_MAX)
		issue(issues, "too_big", f->name, "%s has at most %d bytes", f->name,
		      API_CONFIG_MAX);
	else if (f->type == FIELD_ENV && json_object_size(v) > API_ENV_VARS_MAX)
		issue(issues, "too_big", f->name, "%s has at most %d variables", f->name,
		      API_ENV_VARS_MAX);
}

static void check_texts(const struct field *f, json_t *v, json_t *issues)
{
	size_t n = json_array_size(v);

	if (!json_is_array(v))
		issue(issues, "invalid_type", f->name, "%s is an array of texts", f->name);
	else if (n < (size_t)f->min || n > (size_t)f->max)
		issue(issues, "too_big", f->name, "%s has %lld to %lld texts", f->name,
		      (long long)f->min, (long long)f->max);
	for (size_t i = 0; i < n && i < (size_t)f->max; i++)
		if (!json_is_string(json_array_get(v, i)))
			issue(issues, "invalid_type", f->name, "%s[%zu] is a text", f->name, i);
}

static void check_field(const struct field *f, json_t *v, json_t *issues)
{
	json_int_t i = json_integer_value(v);

	if (!v) {
		if (f->flags & FIELD_REQUIRED)
			issue(issues, "invalid_type", f->name, "%s is required", f->name);
		return;
	}
	if (json_is_null(v) && (f->flags & FIELD_NULL))
		return;
	switch (f->type) {
	case FIELD_OBJECT:
	case FIELD_ENV:
		check_object(f, v, issues);
		return;
	case FIELD_TEXTS:
		check_texts(f, v, issues);
		return;
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			issue(issues, "invalid_type", f->name, "%s is true or false", f->name);
		return;
	case FIELD_INT:
		if (!json_is_integer(v) || i < f->min || i > f->max)
			issue(issues, "invalid_type", f->name, "%s is a whole number %lld to %lld",
			      f->name, (long long)f->min, (long long)f->max);
		return;
	default:
		check_text(f, v, issues);
	}
}

size_t schema_check(const struct schema *s, json_t *body, json_t **ret_issues)
{
	static const struct field none[] = {{.name = NULL}};
	const struct field *fields = s ? s->fields : none;
	json_t *issues = json_array(), *v;
	const char *key;
	size_t n;

	json_object_foreach(body, key, v)
	{
		const struct field *f = fields;

		while (f->name && strcmp(f->name, key) != 0)
			f++;
		if (!f->name && json_array_size(issues) < API_ISSUES_MAX)
			(void)json_array_append_new(
			    issues,
			    json_pack("{s:s,s:[s],s:[],s:s}", "code", "unrecognized_keys", "keys",
				      key, "path", "message", "this member is not known here"));
	}
	for (const struct field *f = fields; f->name; f++)
		check_field(f, json_object_get(body, f->name), issues);
	n = json_array_size(issues);
	if (n)
		*ret_issues = issues;
	else
		json_decref(issues);
	return n;
}
