#include "store/leasemove.h"

#define BIT(s) (1u << (s))

/* From each of these states, for this reason, to that one. */
static const struct {
	unsigned from;
	enum envlease_status to;
} table[MOVED_COUNT] = {
    [MOVED_ACQUIRED] = {BIT(EL_PENDING), EL_ACTIVE},
    [MOVED_RESUMED] = {BIT(EL_ACTIVE) | BIT(EL_RELEASED) | BIT(EL_RETAINED), EL_ACTIVE},
    [MOVED_RELEASED] = {BIT(EL_ACTIVE), EL_RELEASED},
    [MOVED_RUN_FAILED] = {BIT(EL_ACTIVE), EL_FAILED},
    [MOVED_RUN_CANCELLED] = {BIT(EL_ACTIVE), EL_EXPIRED},
    [MOVED_KEEP_RUNNING] = {BIT(EL_ACTIVE), EL_RETAINED},
    [MOVED_CLEANUP_FAILED] = {BIT(EL_ACTIVE) | BIT(EL_RELEASED) | BIT(EL_RETAINED) |
				  BIT(EL_PENDING),
			      EL_PENDING},
    [MOVED_DELETE_CLAIMED] = {BIT(EL_ACTIVE) | BIT(EL_RELEASED) | BIT(EL_RETAINED), EL_PENDING},
    [MOVED_SUPERSEDED] = {BIT(EL_RELEASED) | BIT(EL_RETAINED), EL_EXPIRED},
    [MOVED_SWEPT] = {BIT(EL_PENDING), EL_EXPIRED},
};

bool lease_may_move(enum envlease_status from, enum envlease_status to, enum lease_cause why)
{
	return from < EL_STATUS_COUNT && why < MOVED_COUNT && table[why].to == to &&
	       (table[why].from & BIT(from)) != 0;
}
