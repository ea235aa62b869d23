#include "api/environments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/view.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "store/tenant.h"

#define LIST_ROOM 16384

static const char not_found[] = "Environment not found";

int env_find(struct call *c, struct environment_row *ret)
{
	char id[UUID_LEN + 1];
	struct err e = ERR_INIT;
	int r = 0;

	*ret = (struct environment_row){0};
	if (call_uuid(c, 0, id))
		r = environment_get(c->api->db, id, ret, &e);
	if (r > 0)
		return 0;
	(void)(r < 0 ? reply_failed(c, &e) : reply_error(c, 404, not_found));
	return 1;
}

int env_company(struct call *c, const char *env_id, char ret[UUID_LEN + 1])
{
	const char *asked = call_query(c, "companyId");
	bool several = false, there = false;
	struct err e = ERR_INIT;
	int r = 0;

	ret[0] = '\0';
	if (asked && asked[0]) {
		if (uuid_parse(asked, strlen(asked), ret))
			r = company_exists(c->api->db, ret, &there, &e);
		if (r < 0)
			return (void)reply_failed(c, &e), 1;
		return there ? 0 : ((void)reply_error(c, 404, "Company not found"), 1);
	}
	if (env_id)
		r = binding_company(c->api->db, env_id, ret, &several, &e);
	/* Not the actor's own instead: those whose secrets it uses are asked for by name. */
	if (r == 0 && several)
		return (void)reply_error(
			   c, 409,
			   "The environment's secrets belong to several companies: give "
			   "companyId."),
		       1;
	if (r == 0 && !ret[0] && c->actor.companies_len == 1)
		memcpy(ret, c->actor.companies[0].id, UUID_LEN + 1);
	if (r == 0 && !ret[0])
		r = company_only(c->api->db, ret, &e);
	return r < 0 ? ((void)reply_failed(c, &e), 1) : 0;
}

/* --- reads -------------------------------------------------------------------------------- */

static int put_one(void *arg, const struct environment_row *row)
{
	struct call *c = arg;

	(void)buf_putc(&c->out, c->out.len ? ',' : '[');
	view_environment(c, row);
	return c->out.err;
}

static bool list_kept(const struct api_list *l, const struct call *c,
		      const struct environment_filter *f, const struct db_mark *now)
{
	return l->there && l->admin == actor_is_admin(&c->actor) && l->limit == f->limit &&
	       l->offset == f->offset && l->mark.own == now->own && l->mark.others == now->others;
}

/* What an answer shows depends on the rows, the page, and on whether an administrator asks: nothing else is compared. */
static void list_keep(struct api_list *l, const struct call *c, const struct environment_filter *f,
		      const struct db_mark *mark)
{
	l->there = false;
	buf_reset(&l->text);
	if (c->out.err || c->out.len > API_LIST_KEPT ||
	    buf_put(&l->text, c->out.data, c->out.len) < 0)
		return;
	l->there = true;
	l->admin = actor_is_admin(&c->actor);
	l->limit = f->limit;
	l->offset = f->offset;
	l->total = c->total;
	l->mark = *mark;
}

int h_env_list(struct call *c)
{
	struct api_list *kept = &c->api->list;
	struct environment_filter f = {.status = call_query(c, "status"),
				       .driver = call_query(c, "driver")};
	bool whole = !f.status && !f.driver;
	struct db_mark mark = {0};
	struct err e = ERR_INIT;

	if (!call_page(c, &f.limit, &f.offset))
		return 0;
	/* Before the rows are read: what changes meanwhile makes what is kept old, not wrong. */
	if (whole && db_mark(c->api->db, &mark, &e) < 0)
		return reply_failed(c, &e);
	if (whole && list_kept(kept, c, &f, &mark)) {
		c->total = kept->total;
		(void)buf_put(&c->out, kept->text.data, kept->text.len);
		return reply_out(c, 200);
	}
	if (whole && environment_count(c->api->db, &c->total, &e) < 0)
		return reply_failed(c, &e);
	/* A page grows by copies only when it is larger than most. */
	(void)buf_room(&c->out, LIST_ROOM);
	if (environment_each(c->api->db, &f, put_one, c, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, c->out.len ? "]" : "[]");
	if (whole)
		list_keep(kept, c, &f, &mark);
	return reply_out(c, 200);
}

int h_env_get(struct call *c)
{
	_cleanup_environment_ struct environment_row row;

	if (env_find(c, &row))
		return 0;
	view_environment(c, &row);
	return reply_out(c, 200);
}

static int put_ref(void *arg, const struct binding_row *b)
{
	struct call *c = arg;

	(void)buf_puts(&c->out, c->out.data[c->out.len - 1] == '[' ? "{" : ",{");
	view_text(&c->out, "\"configPath\":", b->path);
	view_text(&c->out, ",\"secretId\":", b->secret_id);
	view_text(&c->out, ",\"name\":", b->name);
	view_text(&c->out, ",\"status\":", b->status);
	view_text(&c->out, ",\"companyId\":", b->company_id);
	view_text(&c->out, ",\"companyName\":", b->company_name);
	return buf_putc(&c->out, '}');
}

int h_env_secret_refs(struct call *c)
{
	_cleanup_environment_ struct environment_row row;
	struct err e = ERR_INIT;

	if (env_find(c, &row))
		return 0;
	(void)buf_puts(&c->out, "{\"refs\":[");
	if (binding_each(c->api->db, row.id, put_ref, c, &e) < 0 && !c->out.err)
		return reply_failed(c, &e);
	(void)buf_puts(&c->out, "]}");
	return reply_out(c, 200);
}
