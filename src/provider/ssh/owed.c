#include "provider/ssh/owed.h"

#include <stddef.h>

#include "base/cleanup.h"
#include "wire/guest.h"
#include "wire/rejoin.h"
#include "wire/remote.h"

static const struct {
	uint8_t request, event;
	enum owed_kind kind;
} answers[] = {
    {RM_OPEN, RM_OPENED, OWED_OPEN},	 {RM_OPEN, RM_REMOVED, OWED_OPEN},
    {RM_LAND, RM_LANDED, OWED_LAND},	 {RM_START, GM_READY, OWED_START},
    {GM_EXEC, GM_STARTED, OWED_STARTED}, {GM_EXEC, GM_EXITED, OWED_LAST},
    {GM_EXEC, GM_FAILED, OWED_LAST},	 {GM_PACK, GM_PACKED, OWED_PACK},
    {GM_EXEC, GM_OOM, OWED_OOM},	 {GM_PING, GM_PONG, OWED_PING},
    {RM_HOLD, RM_HELD, OWED_HOLD},	 {RM_BOX, RM_BOXED, OWED_BOX},
    {RM_BOX, RM_NOT_BOXED, OWED_BOX},
};

void owed_request(struct owed *o, uint8_t type)
{
	bool counted[OWED_KINDS] = {false};

	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		if (answers[i].request != type || counted[answers[i].kind])
			continue;
		counted[answers[i].kind] = true;
		if (o->n[answers[i].kind] < UINT32_MAX)
			o->n[answers[i].kind]++;
	}
}

bool owed_event(struct owed *o, uint8_t type)
{
	if (type == RM_FAULT) {
		bool first = !o->faulted;

		o->faulted = true;
		return first;
	}
	for (size_t i = 0; i < ARRAY_LEN(answers); i++)
		if (answers[i].event == type)
			return o->n[answers[i].kind] && o->n[answers[i].kind]--;
	return false;
}
