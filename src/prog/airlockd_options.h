/* airlockd_options.h: what the daemon is told on its command line. */
#ifndef AIRLOCK_PROG_AIRLOCKD_OPTIONS_H
#define AIRLOCK_PROG_AIRLOCKD_OPTIONS_H

#include "api/api.h"

#define DEFAULT_LISTEN "127.0.0.1:3100"
#define HOSTS_MAX 16

struct options {
	const char *listen;
	const char *hosts[HOSTS_MAX + 1];
	size_t hosts_len;
	struct api_config cfg;
	bool openapi, access_map, json, job, help;
};

extern const char options_usage[];
/* ERR_USAGE, or what is wrong with a value. */
int options_parse(struct options *o, int argc, char **argv, struct err *e);

#endif
