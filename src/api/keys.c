#include <string.h>

#include "api/credential.h"
#include "api/seal.h"
#include "store/activity.h"

/* Which instance this is: part of each run token, so that one of another instance is none here. */
static int instance_id(struct db *db, char ret[64], struct err *e)
{
	int r = setting_get(db, SETTING_INSTANCE_ID, ret, 64, e);

	if (r < 0 || ret[0])
		return r;
	r = uuid_new(ret);
	return r < 0 ? err_sys(e, -r, "make an id") : setting_put(db, SETTING_INSTANCE_ID, ret, e);
}

int api_token_key(const char *dir, struct db *db, char **ret_master, char ret_instance[64],
		  struct err *e)
{
	int r = keyfile_read(dir, "airlock-jwt-key", "jwt.key", ret_master, e);

	if (r == 0 && strlen(*ret_master) < MASTER_MIN)
		r = err_set(e, ERR_INVALID, "the key of run tokens has less than %d bytes",
			    MASTER_MIN);
	return r < 0 ? r : instance_id(db, ret_instance, e);
}
