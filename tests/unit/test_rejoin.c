/* Unit tests of src/wire/rejoin.c: what brings a session on another machine together with another connection (B-04). */
#include "wire/rejoin.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"

#include <cmocka.h>

static char root[] = "/srv/work", lease[] = "1m0000000000abcd";

static struct rm_attach attach(void)
{
	struct rm_attach m = {.came = UINT64_MAX - 1,
			      .place = {.grace_ms = 120000, .root = root, .lease = lease},
			      .hold = {.grace_ms = 120000, .id = "0123456789abcdef"}};

	memset(m.hold.token, 0xa5, sizeof(m.hold.token));
	return m;
}

static void what_is_put_is_got(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192);
	struct rm_attach m = attach(), got;

	(void)state;
	assert_int_equal(rm_attach_put(&b, &m), 0);
	assert_int_equal(rm_attach_get((struct view){b.data, b.len}, &got), 0);
	assert_int_equal(got.came, m.came);
	assert_string_equal(got.place.root, root);
	assert_string_equal(got.place.lease, lease);
	assert_string_equal(got.hold.id, m.hold.id);
	assert_memory_equal(got.hold.token, m.hold.token, RM_TOKEN);
	rm_attach_done(&got);
	/* Nothing less, nothing more. */
	for (size_t n = 0; n < b.len; n++) {
		assert_int_equal(rm_attach_get((struct view){b.data, n}, &got), -EPROTO);
		rm_attach_done(&got);
	}
	(void)buf_putc(&b, 'x');
	assert_int_equal(rm_attach_get((struct view){b.data, b.len}, &got), -EPROTO);
	rm_attach_done(&got);
}

/* A name is a name of a socket, a place a run's directory: neither leads elsewhere. */
static void what_leads_elsewhere_is_refused(void **state)
{
	static const char *const ids[] = {"../../etc/passwd", "0123456789abcde/",
					  "0123456789ABCDEF", "0123456789abcde"};
	static const char *const roots[] = {"", "srv", "/srv/../etc", "/srv/"};
	static const char *const leases[] = {"", "..", ".x", "a/b"};
	struct rm_attach m;
	char text[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(8192);

		m = attach();
		(void)snprintf(m.hold.id, sizeof(m.hold.id), "%s", ids[i]);
		assert_int_equal(rm_attach_put(&b, &m), -EINVAL);
		assert_int_equal(rm_hold_put(&b, &m.hold), -EINVAL);
		assert_int_equal(b.len, 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(roots) + ARRAY_LEN(leases); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(8192);

		m = attach();
		(void)snprintf(text, sizeof(text), "%s",
			       i < ARRAY_LEN(roots) ? roots[i] : leases[i - ARRAY_LEN(roots)]);
		*(i < ARRAY_LEN(roots) ? &m.place.root : &m.place.lease) = text;
		assert_int_equal(rm_attach_put(&b, &m), -EINVAL);
		assert_int_equal(rm_keep_put(&b, &m.place), -EINVAL);
	}
}

/* The same, said by somebody who does not ask our put. */
static void a_liar_is_refused(void **state)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192);
	struct rm_attach m = attach(), got;
	struct rm_hold hold;

	(void)state;
	assert_int_equal(rm_attach_put(&b, &m), 0);
	b.data[4] = '/';
	assert_int_equal(rm_attach_get((struct view){b.data, b.len}, &got), -EPROTO);
	rm_attach_done(&got);
	b.data[4] = '0';
	memset(b.data, 0xff, 4);
	assert_int_equal(rm_attach_get((struct view){b.data, b.len}, &got), -EPROTO);
	assert_int_equal(rm_hold_get((struct view){b.data, 4 + RM_JOIN_ID + RM_TOKEN}, &hold),
			 -EPROTO);
	rm_attach_done(&got);
	memset(b.data, 0, 4);
	assert_int_equal(rm_hold_get((struct view){b.data, 4 + RM_JOIN_ID + RM_TOKEN}, &hold),
			 -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_put_is_got),
	    cmocka_unit_test(what_leads_elsewhere_is_refused),
	    cmocka_unit_test(a_liar_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
