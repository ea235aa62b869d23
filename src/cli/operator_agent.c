/* agent, project: what a company has. */
#include <stdio.h>
#include <string.h>

#include "api/adapters.h"
#include "base/cleanup.h"
#include "cli/operator_internal.h"
#include "cli/ui.h"

/* --- agents, projects --------------------------------------------------------------------- */

static int agent_new(struct operator_place *p, char **names, const struct operator_opts *o,
		     struct err *e)
{
	struct agent_row a = {.status = "active", .configure = o->configure};
	const char *adapter = o->adapter ? o->adapter : "claude_local";
	struct company_row c;
	struct user_row u;
	int r = operator_need("company", o->company, e);

	if (r == 0)
		r = tenant_check_name("agent", names[0], e);
	if (r == 0 && !adapter_known(adapter))
		r = err_set(e, ERR_INVALID, "the adapter %.40s is not known", adapter);
	if (r == 0)
		r = company_find(p->db, o->company, &c, e);
	if (r == 0 && o->user) {
		r = user_find(p->db, o->user, &u, e);
		if (r == 0)
			memcpy(a.user_id, u.id, sizeof(a.user_id));
	}
	if (r < 0)
		return r;
	memcpy(a.company_id, c.id, sizeof(a.company_id));
	(void)snprintf(a.name, sizeof(a.name), "%s", names[0]);
	(void)snprintf(a.adapter, sizeof(a.adapter), "%s", adapter);
	r = agent_add(p->db, &a, e);
	if (r == 0)
		(void)printf("%s\n", a.id);
	return r;
}

static int print_agent(void *arg, const struct agent_row *a)
{
	(void)arg;
	(void)printf("%s  %s  %-16s %-16s ", a->id, a->company_id, a->adapter, a->status);
	ui_print_name(a->name);
	(void)putchar('\n');
	return 0;
}

int operator_company(struct operator_place *p, const struct operator_opts *o, struct company_row *c,
		     const char **ret, struct err *e)
{
	int r = o->company ? company_find(p->db, o->company, c, e) : 0;

	*ret = o->company ? c->id : NULL;
	return r;
}

static int agent_ls(struct operator_place *p, char **names, const struct operator_opts *o,
		    struct err *e)
{
	struct company_row c;
	const char *id;
	int r = operator_company(p, o, &c, &id, e);

	(void)names;
	return r < 0 ? r : agent_each(p->db, id, print_agent, NULL, e);
}

static int agent_set(struct operator_place *p, char **names, const struct operator_opts *o,
		     struct err *e)
{
	static const char *const all[] = {"active", "paused", "pending_approval", "terminated"};
	struct agent_row a;
	struct company_row c;
	const char *id;
	bool known = false;
	int r = operator_need("status", o->status, e);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(all); i++)
		known = known || strcmp(all[i], o->status) == 0;
	if (r == 0 && !known)
		r = err_set(e, ERR_USAGE,
			    "--status is active, paused, pending_approval or terminated, not %.40s",
			    o->status);
	if (r == 0)
		r = operator_company(p, o, &c, &id, e);
	if (r == 0)
		r = agent_find(p->db, id, names[0], &a, e);
	return r < 0 ? r : agent_set_status(p->db, a.id, o->status, e);
}

int cmd_agent(int argc, char **argv)
{
	static const struct operator_command commands[] = {
	    {"add", 1, agent_new}, {"list", 0, agent_ls}, {"set", 1, agent_set}, {0}};

	return operator_run("agent", opts_agent, commands, argc, argv);
}

static int project_new(struct operator_place *p, char **names, const struct operator_opts *o,
		       struct err *e)
{
	struct project_row row = {0};
	struct company_row c;
	int r = operator_need("company", o->company, e);

	if (r == 0)
		r = tenant_check_name("project", names[0], e);
	if (r == 0)
		r = company_find(p->db, o->company, &c, e);
	if (r < 0)
		return r;
	memcpy(row.company_id, c.id, sizeof(row.company_id));
	(void)snprintf(row.name, sizeof(row.name), "%s", names[0]);
	r = project_add(p->db, &row, e);
	if (r == 0)
		(void)printf("%s\n", row.id);
	return r;
}

static int print_project(void *arg, const struct project_row *row)
{
	(void)arg;
	(void)printf("%s  %s  ", row->id, row->company_id);
	ui_print_name(row->name);
	(void)putchar('\n');
	return 0;
}

static int project_ls(struct operator_place *p, char **names, const struct operator_opts *o,
		      struct err *e)
{
	struct company_row c;
	const char *id;
	int r = operator_company(p, o, &c, &id, e);

	(void)names;
	return r < 0 ? r : project_each(p->db, id, print_project, NULL, e);
}

int cmd_project(int argc, char **argv)
{
	static const struct operator_command commands[] = {
	    {"add", 1, project_new}, {"list", 0, project_ls}, {0}};

	return operator_run("project", opts_project, commands, argc, argv);
}
