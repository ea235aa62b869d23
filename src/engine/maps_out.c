/* The way back of mappings: the sandbox's archiver, then airlock-unpack with the host's place as its root. */
#include "engine/maps_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "engine/interrupt.h"
#include "engine/tarout.h"
#include "os/copy.h"
#include "provider/ssh/places.h"

/* Where it cannot be linked (another disk, a file system without links): whole or not at all, as a name. */
static int copy_manifest(const char *from, const char *to, struct err *e)
{
	_cleanup_fd_ int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), out = -1;
	_cleanup_free_ char *tmp = NULL;
	int r;

	if (in < 0)
		return err_sys(e, errno, "%s", from);
	if (asprintf(&tmp, "%s.new", to) < 0)
		return err_set(e, ERR_NOMEM, "out of memory");
	out = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	r = out < 0 ? -errno : copy_file(in, out);
	if (r == 0 && (fsync(out) < 0 || rename(tmp, to) < 0))
		r = -errno;
	if (r < 0)
		(void)unlink(tmp);
	return r < 0 ? err_sys(e, -r, "copy %s to %s", from, to) : 0;
}

/* The run's own directory for it, with what was sent: the lease and its manifest may go before the run's results. */
static int make_place(const struct transfer_job *j, const char *manifest, const char *dir,
		      struct err *e)
{
	_cleanup_free_ char *up = path_join(j->run_dir, "maps"),
			    *copy = path_join(dir, MAP_MANIFEST);

	if (!up || !copy)
		return err_set(e, ERR_NOMEM, "out of memory");
	if (mkdir(up, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", up);
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", dir);
	/* It is never written again. */
	if (link(manifest, copy) == 0 || errno == EEXIST)
		return 0;
	return copy_manifest(manifest, copy, e);
}

/* A link would bring back what it leads to in the name of what was mapped. Trying again would end here again. */
#define STILL(is, kind)                                                                                   \
	"[ -" is " \"$1\" ] && ! [ -L \"$1\" ] || { echo \"$1 is not a " kind                             \
	" any more; the host's stays as it is, and 'airlock rm --force' of the run gives this up\" >&2; " \
	"exit 1; }; "
#define STILL_FILE STILL("f", "file")
#define STILL_DIR STILL("d", "directory")

/* The sandbox's archiver into a pipe, airlock-unpack at its other end. */
static int carry(const struct transfer_job *j, const struct map *m, struct unpack_opts *o,
		 struct unpack_report *rep, struct tarout_end *b, struct err *e)
{
	/* Under its host name, from a directory of its own. Nothing but a file: cp would wait in a FIFO for a writer. */
	static const char one[] = STILL_FILE
	    "d=$(mktemp -d) && cp -p -- \"$1\" \"$d/$2\" && tar -C \"$d\" -cf - -- \"$2\"; r=$?; "
	    "rm -rf -- \"$d\"; exit $r";
	static const char all[] = STILL_DIR "exec tar -C \"$1\" -cf - .";
	/* Where old files are cleared away, what is missing was not deleted by the run: then no deletion counts. */
	static const char shared[] = STILL_DIR
	    "d=$1; " PLACES_MARK_OF "tar -C \"$d\" -cf - .; r=$?; "
	    "[ -L \"$m\" ] || { echo \"$m is gone: files there may have been cleared away\" >&2; exit 1; }; exit $r";
	const char *dir_argv[] = {"sh",		 "-c",	 shared_places(j->sb) ? shared : all,
				  "airlock-map", m->dst, NULL};
	const char *file_argv[] = {"sh", "-c", one, "airlock-map", m->dst, path_base(m->src), NULL};
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(e, errno, "create a pipe");
	r = tarout_exec(&b->t, j->sb, m->file ? file_argv : dir_argv, -1, p[1], e);
	(void)close(p[1]);
	o->stream_fd = p[0];
	if (r < 0) {
		(void)close(p[0]);
		return r;
	}
	r = unpack_run(o, rep, e);
	(void)close(p[0]);
	(void)tarout_wait(&b->t, NULL);
	/* What was cut off is the archiver's failure, and its reason says more. */
	if (r == -EBADMSG && strcmp(rep->rule, "truncated") == 0 && !tarout_whole(&b->t, e))
		r = -EIO;
	return r;
}

static int one_back(const struct transfer_job *j, size_t i, struct map_result *res, bool *ret_kept,
		    struct err *e)
{
	struct map m = maps_at(j->spec, i);
	_cleanup_free_ char *lease = state_path(j->st, "leases", j->lease->id, NULL);
	char manifest[MAP_PLACE_MAX], turn[32];
	_cleanup_fd_ int moving = -1;
	struct tarout_end b = {.t = TAROUT_INIT, .ui = j->ui};
	struct unpack_opts o = {
	    .root = m.root,
	    .root_dev = transfer_device(j->spec, m.dev),
	    .root_ino = m.ino,
	    .only = m.file ? path_base(m.src) : NULL,
	    .run_dir = res->dir,
	    .state_dir = j->st->dir,
	    .manifest_path = manifest,
	    .strict = j->spec->strict,
	    .without_landlock = j->spec->without & WITHOUT_LANDLOCK,
	    .review = j->spec->review,
	    .on_conflict = j->spec->on_conflict,
	    .full_tree = true,
	    .keep_trash = true,
	    .complete = tarout_complete,
	    .complete_arg = &b,
	    .cancel = interrupt_second(),
	};
	int r;

	if (!lease)
		return err_set(e, ERR_NOMEM, "out of memory");
	(void)snprintf(manifest, sizeof(manifest), "%s/map-%zu", lease, i);
	(void)snprintf(turn, sizeof(turn), "map-%zu.baseline", i);
	r = make_place(j, manifest, res->dir, e);
	if (r == 0 && j->baseline >= 0)
		r = transfer_turn(j, turn, &moving, e);
	o.baseline_fd = moving;
	if (r == 0)
		r = carry(j, &m, &o, &res->rep, &b, e);
	*ret_kept |= b.partial;
	res->done = r == 0 || r == -EBADMSG;
	if (!res->done) {
		unpack_report_done(&res->rep);
		res->rep = (struct unpack_report){0};
	}
	tarout_done(&b.t);
	return r < 0 ? err_wrap(e, r, "bring %s back", m.src) : 0;
}

int maps_out(const struct transfer_job *j, struct transfer *t, bool *ret_kept, struct err *e)
{
	int first = maps_results(j->spec, j->run_dir, t, e);

	*ret_kept = false;
	for (size_t i = 0; first != -ENOMEM && i < t->maps_len; i++) {
		struct err *why = &t->maps[i].err;
		int r;

		/* Never there whole, so no command ran: what is missing of it was not deleted. */
		if (i >= strv_len(j->spec->map_roots)) {
			(void)err_set(
			    why, ERR_NOT_FOUND,
			    "%s had not gone into the sandbox whole: nothing of it is taken back",
			    t->maps[i].src);
			if (j->ui->note)
				j->ui->note(j->ui->arg, true, why->text);
			continue;
		}
		r = one_back(j, i, &t->maps[i], ret_kept, why);
		if (r < 0 && first == 0) {
			first = r;
			*e = *why;
		} else if (r < 0 && j->ui->note) {
			j->ui->note(j->ui->arg, true, why->text);
		}
	}
	return first;
}
