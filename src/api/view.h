/*
 * view.h: rows as the API shows them.
 *
 * Environments have three views (api.md 3): full for administrators; restricted for members (config {}, envVars {},
 * metadata null); and, on a managed instance, the floor view of the platform's own rows, for everybody. What the server measured
 * (`proof`) is in none of them (CF-04).
 */
#ifndef AIRLOCK_API_VIEW_H
#define AIRLOCK_API_VIEW_H

#include "api/call.h"
#include "store/environment.h"
#include "store/envlease.h"

/* `lead` and then the text quoted, or null for NULL. */
void view_text(struct buf *b, const char *lead, const char *text);
/* ... for "". */
void view_text_or_null(struct buf *b, const char *lead, const char *text);
/* ISO-8601 with milliseconds; null for 0. */
void view_time(struct buf *b, const char *lead, int64_t ns);

/* The platform provisioned it, on an instance that the platform manages. */
bool view_is_platform_row(const struct call *c, const struct environment_row *r);
/* Without the closing brace, so that a handler can add members. */
void view_environment_open(struct call *c, const struct environment_row *r);
void view_environment(struct call *c, const struct environment_row *r);
/* Metadata is an administrator's. */
void view_lease(struct call *c, const struct envlease_row *l);

#endif
