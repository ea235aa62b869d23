/* company, user: who there is, and who belongs where. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/operator_internal.h"
#include "cli/ui.h"
#include "engine/sweep.h"
#include "store/environment.h"
#include "store/vault.h"

/* --- companies ---------------------------------------------------------------------------- */

static int company_new(struct operator_place *p, char **names, const struct operator_opts *o,
		       struct err *e)
{
	struct company_row c = {0};
	int r = tenant_check_name("company", names[0], e);

	(void)o;
	(void)snprintf(c.name, sizeof(c.name), "%s", names[0]);
	if (r == 0)
		r = company_add(p->db, &c, e);
	if (r == 0)
		r = environment_ensure_local(p->db, e);
	if (r == 0)
		(void)printf("%s\n", c.id);
	return r;
}

static int print_company(void *arg, const struct company_row *c)
{
	(void)arg;
	(void)printf("%s  ", c->id);
	ui_print_name(c->name);
	(void)putchar('\n');
	return 0;
}

static int company_ls(struct operator_place *p, char **names, const struct operator_opts *o,
		      struct err *e)
{
	(void)names;
	(void)o;
	return company_each(p->db, print_company, NULL, e);
}

struct owner {
	const char *company;
	bool is;
};

static int is_owner(void *arg, const struct binding_row *b)
{
	struct owner *o = arg;

	o->is |=
	    strcmp(b->path, "privateKeySecretRef") == 0 && strcmp(b->company_id, o->company) == 0;
	return 0;
}

/* Its secrets go with it: none of them may be the only key to what runs left on another machine. */
static int keys_idle(struct operator_place *p, const char *company, struct err *e)
{
	struct owner o = {company, false};
	char **names = NULL;
	int r = sweep_owed(&p->st, &names, e);

	for (size_t i = 0; r >= 0 && i < strv_len(names); i++)
		r = binding_each(p->db, names[i], is_owner, &o, e);
	strv_free(names);
	if (r >= 0 && o.is)
		r = err_set(
		    e, ERR_CONFLICT,
		    "runs of the company have left work, or something to remove, on a machine that its key alone "
		    "reaches: recover them, or wait for the daemon's sweep");
	return r < 0 ? r : 0;
}

static int company_rm(struct operator_place *p, char **names, const struct operator_opts *o,
		      struct err *e)
{
	struct company_row c;
	int r = company_find(p->db, names[0], &c, e);

	(void)o;
	if (r == 0)
		r = keys_idle(p, c.id, e);
	return r < 0 ? r : company_remove(p->db, c.id, e);
}

int cmd_company(int argc, char **argv)
{
	static const struct operator_command commands[] = {
	    {"add", 1, company_new}, {"list", 0, company_ls}, {"rm", 1, company_rm}, {0}};
	static const struct opt none[] = {{NULL, 0, NULL, NULL, 0}};

	return operator_run("company", none, commands, argc, argv);
}

/* --- users -------------------------------------------------------------------------------- */

static int check_role(const char *role, struct err *e)
{
	static const char *const roles[] = {"owner", "member", "viewer"};

	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (strcmp(roles[i], role) == 0)
			return 0;
	return err_set(e, ERR_USAGE, "--role is owner, member or viewer, not %.40s", role);
}

static int join(struct operator_place *p, const char *user_id, const struct operator_opts *o,
		struct err *e)
{
	const char *role = o->role ? o->role : "member";
	struct company_row c;
	int r = company_find(p->db, o->company, &c, e);

	if (r == 0)
		r = check_role(role, e);
	return r < 0 ? r : membership_put(p->db, c.id, user_id, role, e);
}

static int user_new(struct operator_place *p, char **names, const struct operator_opts *o,
		    struct err *e)
{
	struct user_row u = {.admin = o->admin};
	int r = tenant_check_name("user", names[0], e);

	(void)snprintf(u.name, sizeof(u.name), "%s", names[0]);
	if (r == 0)
		r = db_begin(p->db, e);
	if (r < 0)
		return r;
	r = user_add(p->db, &u, e);
	if (r == 0 && o->company)
		r = join(p, u.id, o, e);
	r = db_end(p->db, r, e);
	if (r == 0)
		(void)printf("%s\n", u.id);
	return r;
}

static int print_user(void *arg, const struct user_row *u)
{
	(void)arg;
	(void)printf("%s  %-5s  ", u->id, u->admin ? "admin" : "-");
	ui_print_name(u->name);
	(void)putchar('\n');
	return 0;
}

static int user_ls(struct operator_place *p, char **names, const struct operator_opts *o,
		   struct err *e)
{
	(void)names;
	(void)o;
	return user_each(p->db, print_user, NULL, e);
}

static int user_join(struct operator_place *p, char **names, const struct operator_opts *o,
		     struct err *e)
{
	struct user_row u;
	int r = operator_need("company", o->company, e);

	if (r == 0)
		r = user_find(p->db, names[0], &u, e);
	return r < 0 ? r : join(p, u.id, o, e);
}

static int user_leave(struct operator_place *p, char **names, const struct operator_opts *o,
		      struct err *e)
{
	struct company_row c;
	struct user_row u;
	int r = operator_need("company", o->company, e);

	if (r == 0)
		r = user_find(p->db, names[0], &u, e);
	if (r == 0)
		r = company_find(p->db, o->company, &c, e);
	return r < 0 ? r : membership_put(p->db, c.id, u.id, "", e);
}

static int promote(struct operator_place *p, const char *name, bool admin, struct err *e)
{
	struct user_row u;
	int r = user_find(p->db, name, &u, e);

	return r < 0 ? r : user_set_admin(p->db, u.id, admin, e);
}

static int user_promote(struct operator_place *p, char **names, const struct operator_opts *o,
			struct err *e)
{
	(void)o;
	return promote(p, names[0], true, e);
}

static int user_demote(struct operator_place *p, char **names, const struct operator_opts *o,
		       struct err *e)
{
	(void)o;
	return promote(p, names[0], false, e);
}

static int user_rm(struct operator_place *p, char **names, const struct operator_opts *o,
		   struct err *e)
{
	struct user_row u;
	int r = user_find(p->db, names[0], &u, e);

	(void)o;
	return r < 0 ? r : user_remove(p->db, u.id, e);
}

int cmd_user(int argc, char **argv)
{
	static const struct operator_command commands[] = {
	    {"add", 1, user_new},	  {"list", 0, user_ls},
	    {"join", 1, user_join},	  {"leave", 1, user_leave},
	    {"promote", 1, user_promote}, {"demote", 1, user_demote},
	    {"rm", 1, user_rm},		  {0}};

	return operator_run("user", opts_user, commands, argc, argv);
}
