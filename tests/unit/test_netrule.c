/* Unit tests of src/policy/netaddr.c and netrule.c: what a network allow-list lets through, and what addresses are (S2-09). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "policy/netrule.h"

static void classes(void **state)
{
	static const struct {
		const char *text;
		enum netaddr_class want;
	} rows[] = {
	    {"8.8.8.8", NETADDR_PUBLIC},
	    {"1.0.0.0", NETADDR_PUBLIC},
	    {"223.255.255.255", NETADDR_PUBLIC},
	    {"0.0.0.0", NETADDR_UNSPECIFIED},
	    {"0.1.2.3", NETADDR_UNSPECIFIED},
	    {"9.255.255.255", NETADDR_PUBLIC},
	    {"10.0.0.0", NETADDR_PRIVATE},
	    {"10.255.255.255", NETADDR_PRIVATE},
	    {"11.0.0.0", NETADDR_PUBLIC},
	    {"100.63.255.255", NETADDR_PUBLIC},
	    {"100.64.0.0", NETADDR_CGNAT},
	    {"100.127.255.255", NETADDR_CGNAT},
	    {"100.128.0.0", NETADDR_PUBLIC},
	    {"100.100.100.200", NETADDR_METADATA},
	    {"127.0.0.1", NETADDR_LOOPBACK},
	    {"127.255.255.254", NETADDR_LOOPBACK},
	    {"168.63.129.16", NETADDR_METADATA},
	    {"169.254.169.254", NETADDR_METADATA},
	    {"169.254.170.2", NETADDR_METADATA},
	    {"169.254.1.1", NETADDR_LINK_LOCAL},
	    {"172.15.255.255", NETADDR_PUBLIC},
	    {"172.16.0.0", NETADDR_PRIVATE},
	    {"172.31.255.255", NETADDR_PRIVATE},
	    {"172.32.0.0", NETADDR_PUBLIC},
	    {"192.0.0.1", NETADDR_RESERVED},
	    {"192.0.2.1", NETADDR_RESERVED},
	    {"192.88.99.1", NETADDR_RESERVED},
	    {"192.168.1.1", NETADDR_PRIVATE},
	    {"198.18.0.1", NETADDR_RESERVED},
	    {"198.19.255.255", NETADDR_RESERVED},
	    {"198.20.0.0", NETADDR_PUBLIC},
	    {"203.0.113.7", NETADDR_RESERVED},
	    {"224.0.0.1", NETADDR_MULTICAST},
	    {"239.255.255.255", NETADDR_MULTICAST},
	    {"240.0.0.1", NETADDR_RESERVED},
	    {"255.255.255.255", NETADDR_RESERVED},
	    {"2001:4860:4860::8888", NETADDR_PUBLIC},
	    {"[2606:4700::1111]", NETADDR_PUBLIC},
	    {"::", NETADDR_UNSPECIFIED},
	    {"::1", NETADDR_LOOPBACK},
	    {"::ffff:127.0.0.1", NETADDR_EMBEDDED},
	    {"::ffff:8.8.8.8", NETADDR_EMBEDDED},
	    {"::127.0.0.1", NETADDR_EMBEDDED},
	    {"::ffff:0:10.0.0.1", NETADDR_EMBEDDED},
	    {"64:ff9b::7f00:1", NETADDR_EMBEDDED},
	    {"64:ff9b:1::a00:1", NETADDR_EMBEDDED},
	    {"2002:7f00:1::", NETADDR_EMBEDDED},
	    {"2001:0:1234::1", NETADDR_EMBEDDED},
	    {"2001:db8::1", NETADDR_RESERVED},
	    {"2001:10::1", NETADDR_RESERVED},
	    {"3fff::1", NETADDR_RESERVED},
	    {"fc00::1", NETADDR_PRIVATE},
	    {"fdff::1", NETADDR_PRIVATE},
	    {"fd00:ec2::254", NETADDR_METADATA},
	    {"fd20:ce::254", NETADDR_METADATA},
	    {"fe80::1", NETADDR_LINK_LOCAL},
	    {"febf::1", NETADDR_LINK_LOCAL},
	    {"fec0::1", NETADDR_PRIVATE},
	    {"ff02::1", NETADDR_MULTICAST},
	    {"100::1", NETADDR_RESERVED},
	    {"4000::1", NETADDR_RESERVED},
	    {"5f00::1", NETADDR_RESERVED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct netaddr a;

		if (netaddr_parse(rows[i].text, &a) < 0)
			fail_msg("%s is not read", rows[i].text);
		if (netaddr_classify(&a) != rows[i].want)
			fail_msg("%s is %s, not %s", rows[i].text,
				 netaddr_class_name(netaddr_classify(&a)),
				 netaddr_class_name(rows[i].want));
	}
}

/* Each is refused by the reader of targets and of rules alike. */
static void odd_spellings(void **state)
{
	static const char *const rows[] = {
	    "",
	    "a",
	    "a:",
	    "a:0",
	    "a:65536",
	    "a:+80",
	    "a: 80",
	    "a:80:90",
	    ":80",
	    ".:80",
	    "a..b:80",
	    ".a.b:80",
	    "a.b..:80",
	    "-a.b:80",
	    "a-.b:80",
	    "user@a.b:80",
	    "user:pw@a.b:80",
	    "a.b%2fc:80",
	    "%61.b:80",
	    "a.b/c:80",
	    "a.b?c:80",
	    "a.b#c:80",
	    "a\\b:80",
	    "a b:80",
	    "b\303\274cher.example:80",
	    "0x7f.1:80",
	    "0x7f000001:80",
	    "2130706433:80",
	    "127.1:80",
	    "127.0.0.1.:80",
	    "017700000001:80",
	    "127.0.0.256:80",
	    "0.0.0.0:80",
	    "1.2.3.4.5:80",
	    "[::1:80",
	    "::1:80",
	    "[::1]80",
	    "[fe80::1%25eth0]:80",
	    "[fe80::1%eth0]:80",
	    "[127.0.0.1]:80",
	    "[::]:80",
	    "a*.b:80",
	    "a.*.b:80",
	};
	struct net_target t;
	struct net_rule rule;
	struct err e = ERR_INIT;
	const char *why;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (net_target_parse((struct view){rows[i], strlen(rows[i])}, 0, &t, &why) == 0)
			fail_msg("target '%s' is read as %s:%u", rows[i], t.host, t.port);
		assert_non_null(why);
		if (strcmp(rows[i], "a") != 0 && net_rule_parse(rows[i], &rule, &e) == 0)
			fail_msg("rule '%s' is read", rows[i]);
	}
}

static void matching(void **state)
{
	static const struct {
		const char *rule, *target;
		bool want;
	} rows[] = {
	    {"example.com", "example.com:443", true},
	    {"EXAMPLE.com", "eXample.COM:443", true},
	    {"example.com.", "example.com:443", true},
	    {"example.com", "example.com.:443", true},
	    {"example.com", "example.com:80", false},
	    {"example.com:80", "example.com:80", true},
	    {"example.com:80", "example.com:443", false},
	    {"example.com", "www.example.com:443", false},
	    {"example.com", "badexample.com:443", false},
	    {"example.com", "example.com.evil.org:443", false},
	    {"*.example.com", "www.example.com:443", true},
	    {"*.example.com", "a.b.example.com:443", true},
	    {"*.example.com", "example.com:443", false},
	    {"*.example.com", "badexample.com:443", false},
	    {"*.example.com", "www.example.com.evil.org:443", false},
	    {"*.example.com:8443", "www.example.com:8443", true},
	    {"*.example.com:8443", "www.example.com:443", false},
	    {"xn--bcher-kva.example", "xn--bcher-kva.example:443", true},
	    {"127.0.0.1:8080", "127.0.0.1:8080", true},
	    {"127.0.0.1:8080", "localhost:8080", false},
	    {"localhost:8080", "127.0.0.1:8080", false},
	    {"[2001:DB8::1]:443", "[2001:db8:0::1]:443", true},
	    {"[::1]:443", "[::ffff:127.0.0.1]:443", false},
	    {"127.0.0.1", "[::ffff:127.0.0.1]:443", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct net_rule rule;
		struct net_target t;
		struct err e = ERR_INIT;
		const char *why;

		if (net_rule_parse(rows[i].rule, &rule, &e) < 0)
			fail_msg("%s: %s", rows[i].rule, e.text);
		if (net_target_parse((struct view){rows[i].target, strlen(rows[i].target)}, 0, &t,
				     &why) < 0)
			fail_msg("%s: %s", rows[i].target, why);
		if (net_rule_matches(&rule, &t) != rows[i].want)
			fail_msg("%s against %s", rows[i].rule, rows[i].target);
	}
}

static void bad_rules(void **state)
{
	static const char *const rows[] = {"*",
					   "*:443",
					   "*.com",
					   "*.127.0.0.1",
					   "*.*.example.com",
					   "*example.com",
					   "w*.example.com",
					   "https://example.com",
					   "example.com/x",
					   "*.",
					   ","};
	struct net_rule rule;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (net_rule_parse(rows[i], &rule, &e) == 0)
			fail_msg("rule %s is read", rows[i]);
		assert_int_equal(e.code, ERR_USAGE);
	}
}

static void pins(void **state)
{
	static const char *const bad[] = {"a.b",	   "a.b:443",
					  "a.b:443:",	   "a.b:443:c.d",
					  "a.b::1.2.3.4",  "127.0.0.1:443:1.2.3.4",
					  "a.b:443:1.2.3", "*.b.c:443:1.2.3.4"};
	struct net_pin pin;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (net_pin_parse(bad[i], &pin, &e) == 0)
			fail_msg("pin %s is read", bad[i]);
	assert_int_equal(net_pin_parse("Api.Test:8443:10.0.0.1", &pin, &e), 0);
	assert_string_equal(pin.from.host, "api.test");
	assert_int_equal(pin.from.port, 8443);
	assert_int_equal(netaddr_classify(&pin.addr), NETADDR_PRIVATE);
	assert_int_equal(net_pin_parse("a.b:1:[::1]", &pin, &e), 0);
	assert_int_equal(net_pin_parse("a.b:1:::1", &pin, &e), 0);
	assert_int_equal(netaddr_classify(&pin.addr), NETADDR_LOOPBACK);
}

static void long_names(void **state)
{
	char name[320], *p = name;
	struct net_target t;
	const char *why;

	(void)state;
	/* 63 + 1 + 63 + 1 + 63 + 1 + 61 = 253 */
	for (int i = 0; i < 4; i++) {
		memset(p, 'a', 63);
		p += i < 3 ? 63 : 61;
		*p++ = '.';
	}
	memcpy(p - 1, ":443", 5);
	assert_int_equal(net_target_parse((struct view){name, strlen(name)}, 0, &t, &why), 0);
	memcpy(p - 1, "a:443", 6);
	assert_true(net_target_parse((struct view){name, strlen(name)}, 0, &t, &why) < 0);
	memset(name, 'a', 64);
	memcpy(name + 64, ".b:443", 7);
	assert_true(net_target_parse((struct view){name, strlen(name)}, 0, &t, &why) < 0);
	assert_int_equal(net_target_parse((struct view){name + 1, strlen(name + 1)}, 0, &t, &why),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(classes),	cmocka_unit_test(odd_spellings),
	    cmocka_unit_test(matching), cmocka_unit_test(bad_rules),
	    cmocka_unit_test(pins),	cmocka_unit_test(long_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
