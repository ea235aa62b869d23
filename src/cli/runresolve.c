/* What the options of a run mean here and now: workspace, variables, binds, preset, remote machine, provider. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "cli/runopts_internal.h"
#include "engine/images.h"
#include "engine/maps.h"
#include "engine/preset.h"
#include "policy/envvars.h"
#include "provider/ssh/target.h"

static bool has_git(const char *dir)
{
	_cleanup_free_ char *p = path_join(dir, ".git");

	return p && access(p, F_OK) == 0;
}

void runopts_here(struct request *q)
{
	_cleanup_free_ char *cwd = realpath(".", NULL);

	if (cwd && q->workspace[0] == '/' && path_is_within(cwd, q->workspace) &&
	    strlen(cwd) > strlen(q->workspace))
		(void)snprintf(q->subdir, sizeof(q->subdir), "%s", cwd + strlen(q->workspace) + 1);
}

int runopts_workspace(struct runopts *o, struct err *e)
{
	struct request *q = &o->req;
	_cleanup_free_ char *cwd = realpath(".", NULL);
	int why = cwd ? 0 : errno;
	_cleanup_free_ char *home = getenv("HOME") ? realpath(getenv("HOME"), NULL) : NULL;
	_cleanup_free_ char *given = NULL;
	struct stat st;

	if (o->workspace) {
		given = realpath(o->workspace, NULL);
		if (!given)
			return err_sys(
			    e, errno,
			    "workspace %s cannot be entered; give --workspace an existing directory that is yours to enter",
			    o->workspace);
		if (stat(given, &st) < 0 || !S_ISDIR(st.st_mode))
			return err_set(e, ERR_INVALID, "workspace %s is not a directory",
				       o->workspace);
		(void)snprintf(q->workspace, sizeof(q->workspace), "%s", given);
		(void)snprintf(q->workspace_why, sizeof(q->workspace_why), "option --workspace");
	} else if (!cwd) {
		return err_sys(e, why,
			       "the current directory cannot be resolved: give --workspace DIR");
	} else {
		(void)snprintf(q->workspace, sizeof(q->workspace), "%s", cwd);
		while (!has_git(q->workspace) && strcmp(q->workspace, "/") != 0) {
			char *slash = strrchr(q->workspace, '/');

			slash[slash == q->workspace] = '\0';
		}
		if (has_git(q->workspace)) {
			(void)snprintf(q->workspace_why, sizeof(q->workspace_why),
				       "the enclosing git work tree");
		} else {
			(void)snprintf(q->workspace, sizeof(q->workspace), "%s", cwd);
			(void)snprintf(q->workspace_why, sizeof(q->workspace_why),
				       "the current directory; no git work tree encloses it");
		}
		if (strcmp(q->workspace, "/") == 0 || str_eq(q->workspace, home))
			return err_set(
			    e, ERR_INVALID,
			    "%s is too much to take as a workspace by default: change into a project, or name it with "
			    "--workspace",
			    q->workspace);
	}
	if (strcmp(q->workspace, "/") == 0)
		return err_set(e, ERR_INVALID, "the root directory cannot be a workspace");
	runopts_here(q);
	return 0;
}

static int read_env_file(struct runopts *o, const char *path, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_buf_ struct buf b = BUF_INIT(CONFIG_MAX);
	ssize_t k = 1;

	if (fd < 0)
		return err_sys(e, errno, "environment file %s", path);
	while (k > 0) {
		char *to = buf_room(&b, 4096);

		if (!to)
			return err_set(e, ERR_LIMIT, "environment file %s is larger than %d bytes",
				       path, CONFIG_MAX);
		k = read(fd, to, 4096);
		if (k < 0)
			return err_sys(e, errno, "read environment file %s", path);
		buf_add(&b, (size_t)k);
	}
	return envvars_parse(path, buf_text(&b), b.len, &o->req.vars, e);
}

int runopts_vars(struct runopts *o, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < strv_len(o->env_files); i++)
		r = read_env_file(o, o->env_files[i], e);
	for (size_t i = 0; r == 0 && i < strv_len(o->vars); i++) {
		_cleanup_free_ char *word = strdup(o->vars[i]);

		if (word && !strchr(word, '=')) {
			const char *v = getenv(word);

			if (!v)
				return err_set(e, ERR_USAGE,
					       "--setenv %.80s: the variable is not set here",
					       word);
			free(word);
			if (asprintf(&word, "%s=%s", o->vars[i], v) < 0)
				word = NULL;
		}
		if (word && !envvars_name_ok(word))
			return err_set(
			    e, ERR_USAGE,
			    "--setenv %.*s: a name has letters, digits and '_' and does not "
			    "begin with a digit",
			    (int)strnlen(word, 80) < (int)strcspn(word, "=")
				? 80
				: (int)strcspn(word, "="),
			    word);
		if (!word || envvars_set(&o->req.vars, word) < 0)
			return err_set(e, ERR_NOMEM, "options: out of memory");
	}
	for (size_t i = 0; r == 0 && i < strv_len(o->req.vars); i++)
		r = envvars_check(o->req.vars[i], o->req.provider->isolates, e);
	return r;
}

/* PATH or PATH:INSIDE; a colon in the host path is only possible with INSIDE given. */
static int add_bind(struct request *q, const char *word, struct err *e)
{
	const char *colon = strrchr(word, ':');
	_cleanup_free_ char *src = colon ? strndup(word, (size_t)(colon - word)) : strdup(word);
	_cleanup_free_ char *real = NULL, *dst = NULL;

	if (!src)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	real = realpath(src, NULL);
	if (!real)
		return err_sys(e, errno, "--bind-ro %s", word);
	if (q->binds_len == ARRAY_LEN(q->binds))
		return err_set(e, ERR_LIMIT, "--bind-ro: more than %zu", ARRAY_LEN(q->binds));
	/* Shown under the name it was given, so that a link farm such as ~/.local/bin keeps working. */
	if (colon)
		dst = strdup(colon + 1);
	else if (src[0] == '/')
		dst = path_normalize(src);
	else
		dst = strdup(real);
	if (!dst)
		return err_set(e, ERR_NOMEM, "options: out of memory");
	if (!path_is_absolute_normal(dst))
		return err_set(e, ERR_USAGE,
			       "--bind-ro %s: the place inside must be an absolute path", word);
	q->binds[q->binds_len++] = (struct bind_ro){TAKE_PTR(real), TAKE_PTR(dst)};
	return 0;
}

/* A command that is named as a preset is an agent; --agent says so of any other. */
static int use_preset(struct runopts *o, struct err *e)
{
	_cleanup_preset_ struct preset a = {0};
	struct request *q = &o->req;
	struct err none = ERR_INIT;
	int r;

	if (o->no_preset || !q->argv || (!o->agent && strpbrk(q->argv[0], " /")))
		return 0;
	if (!q->provider->isolates && !q->provider->elsewhere)
		return o->agent ? err_set(e, ERR_USAGE,
					  "--agent: provider %s runs what is on this host as it is",
					  q->provider->name)
				: 0;
	r = preset_load(o->agent ? o->agent : q->argv[0], &a, &none);
	if (r < 0 && !o->agent && none.code == ERR_NOT_FOUND)
		return 0;
	if (r < 0) {
		*e = none;
		return r;
	}
	r = preset_apply(&a, q, NULL, &o->grants, e);
	runopts_follow_transport(q);
	return r;
}

static bool was_given(const struct runopts *o, const char *name)
{
	for (char *const *v = o->given; v && *v; v++)
		if (strcmp(*v, name) == 0)
			return true;
	return false;
}

/* Nothing is copied and nothing comes back: what is about that would be a promise that is not kept. */
static int refuse_in_place(const struct runopts *o, const struct ssh_target *t, struct err *e)
{
	static const char *const roots[] = {"/bin",   "/boot", "/dev", "/etc",	"/home", "/lib",
					    "/media", "/mnt",  "/opt", "/proc", "/root", "/run",
					    "/sbin",  "/srv",  "/sys", "/tmp",	"/usr",	 "/var"};
	const struct request *q = &o->req;
	const struct {
		bool given;
		const char *what;
	} no[] = {
	    {o->remote_sandbox, "--remote-sandbox"},
	    {q->review, "--review"},
	    {q->strict, "--strict"},
	    {q->keep, "--keep"},
	    {o->map_words != NULL, "--map"},
	    {q->include != NULL, "--include"},
	    {q->exclude != NULL, "--exclude"},
	    {q->by_tar, "--sync-out tar"},
	    {was_given(o, "git"), "--git"},
	    {was_given(o, "on-conflict"), "--on-conflict"},
	    {o->workspace != NULL, "--workspace"},
	    {t->no_base, "--no-remote-base"},
	    {t->guest == GUEST_NEVER, "--ssh-guest never"},
	};

	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		if (no[i].given)
			return err_set(
			    e, ERR_USAGE,
			    "%s does not go with --in-place: the command works in %s there itself, through the guest "
			    "program, nothing is copied there or back and nothing is judged: leave one of them out",
			    no[i].what, t->path);
	for (size_t i = 0; i < ARRAY_LEN(roots); i++)
		if (strcmp(t->path, roots[i]) == 0)
			return err_set(
			    e, ERR_USAGE,
			    "--in-place: %s is a directory of the system: name a checkout",
			    t->path);
	return 0;
}

/* --ssh names the provider too. */
int runopts_remote(struct runopts *o, struct err *e)
{
	_cleanup_ssh_target_ struct ssh_target t = {0};
	struct request *q = &o->req;
	int r = 0;

	if (o->ssh_words && !o->ssh)
		return err_set(
		    e, ERR_USAGE,
		    "--ssh-key, --ssh-known-hosts, --ssh-config, --ssh-jump, --ssh-guest, --ssh-max-runs, --ssh-grace, --ssh-compress and --no-remote-base belong to --ssh");
	if (o->remote_sandbox && !o->ssh)
		return err_set(
		    e, ERR_USAGE,
		    "--remote-sandbox belongs to --ssh; on this machine the default provider is one");
	if (o->in_place && !o->ssh)
		return err_set(
		    e, ERR_USAGE,
		    "--in-place belongs to --ssh; on this machine '--provider local' works in the workspace itself");
	if (str_eq(o->provider, provider_ssh_sandbox.name))
		o->remote_sandbox = true;
	if (str_eq(o->provider, provider_ssh_in_place.name))
		o->in_place = true;
	if (!o->ssh && (str_eq(o->provider, "ssh") || o->remote_sandbox))
		return err_set(
		    e, ERR_USAGE,
		    "--provider ssh: name the machine with --ssh [USER@]HOST[:PORT]:/DIR");
	if (!o->ssh)
		return 0;
	if (o->provider && strcmp(o->provider, "ssh") != 0 &&
	    strcmp(o->provider, provider_ssh_sandbox.name) != 0 &&
	    strcmp(o->provider, provider_ssh_in_place.name) != 0)
		return err_set(
		    e, ERR_USAGE,
		    "--provider %.60s: it runs on this machine, --ssh on another: leave one out",
		    o->provider);
	r = runopts_add(&q->remote, o->ssh, e);
	for (size_t i = 0; r == 0 && i < strv_len(o->ssh_words); i++)
		r = runopts_add(&q->remote, o->ssh_words[i], e);
	if (r == 0)
		r = ssh_target_parse(q->remote, &t, e);
	if (r == 0)
		r = ssh_target_files(&t, e);
	if (r == 0 && o->in_place)
		r = refuse_in_place(o, &t, e);
	return r < 0 ? r
		     : runopts_replace(&o->provider,
				       o->remote_sandbox ? provider_ssh_sandbox.name
				       : o->in_place	 ? provider_ssh_in_place.name
							 : "ssh",
				       e);
}

/* A name is looked up once: what the run and its lease keep is the image that it stands for now. */
static int use_image(struct runopts *o, const struct state *st, struct err *e)
{
	struct request *q = &o->req;
	char digest[IMAGE_HEX + 1];
	int r;

	if (!o->image)
		return 0;
	if (q->provider != &provider_native)
		return err_set(e, ERR_USAGE,
			       "--image: provider %s cannot use one: use --provider native",
			       q->provider->name);
	r = images_find(st, o->image, digest, e);
	if (r < 0)
		return r;
	(void)snprintf(q->image_digest, sizeof(q->image_digest), IMAGE_WORD "%s", digest);
	q->image = images_tree(st, digest);
	return q->image ? 0 : err_set(e, ERR_NOMEM, "options: out of memory");
}

/* What only isolation could do is refused, never ignored. */
static int refuse_remote(const struct runopts *o, struct err *e)
{
	const struct request *q = &o->req;
	const bool boxed = q->provider->isolates;
	const struct {
		bool given;
		const char *what;
	} not_there[] = {
	    {!boxed && q->net == NET_NONE, "--net none and --net allow"},
	    {!boxed && o->binds, "--bind-ro"},
	    {!boxed && (q->memory.v || q->cpu.v || q->pids.v), "--memory, --pids and --cpus"},
	    {!boxed && (q->without & ~WITHOUT_LANDLOCK), "--without, but for landlock,"},
	};
	const struct {
		bool given;
		const char *what;
	} not_yet[] = {
	    {o->map_words && q->keep, "--map with --keep"},
	    {q->api.transport == API_QUEUE, "--api-transport queue"},
	    {q->api.transport == API_DIRECT, "--api-transport direct"},
	    {boxed && q->net_allow, "--net allow"},
	    {boxed && o->binds, "--bind-ro"},
	    {boxed && q->keep, "--keep"},
	};

	for (size_t i = 0; i < ARRAY_LEN(not_there); i++)
		if (not_there[i].given)
			return err_set(
			    e, ERR_USAGE,
			    "%s: provider ssh isolates nothing on the other machine, so this cannot be "
			    "had there: leave it out, give --remote-sandbox, or use --provider native",
			    not_there[i].what);
	for (size_t i = 0; i < ARRAY_LEN(not_yet); i++)
		if (not_yet[i].given)
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "%s: not there yet with provider %s: leave it out, or use --provider native",
			    not_yet[i].what, q->provider->name);
	return 0;
}

int runopts_resolve(struct runopts *o, const struct state *st, struct err *e)
{
	_cleanup_free_ char *own = NULL;
	struct request *q = &o->req;
	int r = runopts_remote(o, e);

	if (r < 0)
		return r;
	q->provider = provider_find(o->provider ? o->provider : "native");
	if (!q->provider) {
		if (str_eq(o->provider, "native") || !o->provider)
			return err_set(
			    e, ERR_UNAVAILABLE,
			    "this build has no native provider; '--provider local --net host' runs without isolation, if "
			    "that is what you mean");
		return err_set(e, ERR_USAGE, "--provider %.80s: give native, local or ssh",
			       o->provider);
	}
	(void)snprintf(q->env_name, sizeof(q->env_name), "%s",
		       o->env_name ? o->env_name : q->provider->name);
	if (!q->provider->isolates && !o->net_given) {
		q->net = NET_HOST;
		(void)snprintf(q->net_source, sizeof(q->net_source), "provider %s has no other",
			       q->provider->name);
	}
	if (q->provider->elsewhere) {
		r = refuse_remote(o, e);
		if (r < 0)
			return r;
	}
	if (!q->provider->isolates && q->net_allow)
		return err_set(
		    e, ERR_USAGE,
		    "--net allow: provider %s uses the network of this host, which nothing limits: use "
		    "another one",
		    q->provider->name);
	if (q->net_pins && !q->net_allow)
		return err_set(e, ERR_USAGE, "--resolve belongs to --net allow=HOST");
	if (q->review && q->provider->in_place)
		return err_set(
		    e, ERR_USAGE,
		    "--review: provider %s works in the workspace itself, so nothing can wait: use "
		    "another one",
		    q->provider->name);
	r = use_image(o, st, e);
	if (r == 0 && q->provider->in_place && q->provider->elsewhere) {
		/* No directory of this machine has a part in it. */
		(void)snprintf(q->workspace, sizeof(q->workspace), "%s", strchr(q->remote[0], '/'));
		(void)snprintf(q->workspace_why, sizeof(q->workspace_why),
			       "--in-place: on the other machine");
	} else if (r == 0) {
		r = runopts_workspace(o, e);
	}
	if (r == 0)
		r = runopts_vars(o, e);
	for (size_t i = 0; r == 0 && i < strv_len(o->binds); i++)
		r = add_bind(q, o->binds[i], e);
	if (r == 0 && o->presets)
		r = use_preset(o, e);
	else if (r == 0 && o->agent)
		r = err_set(
		    e, ERR_USAGE,
		    "--agent %.60s: a preset wraps the command of 'airlock run'; in a shell "
		    "'--upstream' and '--bind-ro' do by hand what it would do",
		    o->agent);
	for (size_t i = 0; r == 0 && i < strv_len(o->map_words); i++)
		r = maps_add(&q->maps, o->map_words[i], e);
	if (r == 0 && !q->provider->in_place)
		r = state_apart(st, q->workspace, "workspace", e);
	if (r == 0 && q->maps)
		own = realpath(st->dir, NULL);
	return r == 0 ? maps_check(q, own, e) : r;
}
