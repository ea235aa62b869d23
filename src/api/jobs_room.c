/*
 * jobs_room.c: a run that would wait for others on its machine (maxConcurrentRuns of its environment) waits in the queue, where it
 * holds no place.
 *
 * The engine counts again, with whatever else goes on there (engine/runner_room.c): this one spares places, it is no limit. Both
 * count by place, not by environment: two environments may name one directory.
 */
#include <sodium.h>
#include <string.h>

#include "api/jobs_internal.h"
#include "api/sshenv.h"
#include "base/cleanup.h"
#include "store/environment.h"
#include "store/envrun.h"

/* The environment as it is now. *ret_max 0: no limit. */
static void look(struct api *a, const char *environment_id, uint8_t room[JOBS_ROOM],
		 json_int_t *ret_max)
{
	_cleanup_environment_ struct environment_row env = {0};
	_cleanup_free_ char *place = NULL;
	json_t *config;

	memset(room, 0, JOBS_ROOM);
	*ret_max = 0;
	/* One that is gone, or cannot be used: the job says so, at once. */
	if (!environment_id[0] || environment_get(a->db, environment_id, &env, NULL) <= 0 ||
	    strcmp(env.driver, "ssh") != 0)
		return;
	config = json_loads(env.config, 0, NULL);
	place = config ? sshenv_place(config, NULL) : NULL;
	if (place)
		(void)crypto_generichash(room, JOBS_ROOM, (const unsigned char *)place,
					 strlen(place), NULL, 0);
	if (place && strcmp(env.status, "active") == 0)
		*ret_max = json_integer_value(json_object_get(config, "maxConcurrentRuns"));
	json_decref(config);
}

void jobs_room_of(struct api *a, const char *environment_id, uint8_t ret[JOBS_ROOM])
{
	json_int_t max;

	look(a, environment_id, ret, &max);
}

/* Whether it is still to be done: a job of one that was cancelled meanwhile ends as it begins. */
static bool is_queued(struct api *a, const char *run_id)
{
	_cleanup_envrun_ struct envrun_row r = {0};

	return envrun_get(a->db, run_id, &r, NULL) > 0 && r.status == ER_QUEUED;
}

bool jobs_has_room(struct api *a, const struct waiting *w)
{
	uint8_t room[JOBS_ROOM];
	json_int_t max, n = 0;

	if (!w->run)
		return true;
	look(a, w->environment_id, room, &max);
	if (max <= 0)
		return true;
	for (size_t i = API_JOBS_MAX; i < PLACES; i++)
		n += a->jobs->v[i].fd >= 0 && memcmp(a->jobs->v[i].room, room, JOBS_ROOM) == 0;
	return n < max || !is_queued(a, w->run_id);
}
