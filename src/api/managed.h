/*
 * managed.h: what a platform that provisions this instance says of its sandboxes (api.md 6.4, PR-07).
 *
 * The document (airlockd --managed-config FILE) is JSON: {"version": 1, "sandbox": {"provider": "native", "image":
 * "sha256:..."}}; image may be left out: whatever the platform's row says. It is read anew each time it is asked for, so that it
 * counts from the moment it is there and not a moment longer. A marker in a row's metadata alone covers nothing.
 *
 * What it gives: discovery takes the platform's row for what it says without a recorded measurement. What it does not
 * give: a probe to anybody, a row of a tenant, an image that was captured, or access of a company.
 */
#ifndef AIRLOCK_API_MANAGED_H
#define AIRLOCK_API_MANAGED_H

#include "api/api.h"
#include "store/environment.h"

#define MANAGED_CONFIG_MAX ((size_t)64 << 10) /* bytes; a longer document covers nothing */

/* The path is absolute and the file a document now; what it says later is judged later. */
int managed_check(const char *path, struct err *e);
/* row is the platform's own (view_is_platform_row), and the document that is in force names its provider and image. */
bool managed_covers(const struct call *c, const struct environment_row *row);

#endif
