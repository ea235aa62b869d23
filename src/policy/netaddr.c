#include "policy/netaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

struct range {
	uint8_t at[16];
	unsigned bits;
	enum netaddr_class class;
};

/* IANA's special-purpose registries; of two ranges that hold an address the first decides. */
static const struct range v4[] = {
    {{169, 254, 169, 254}, 32, NETADDR_METADATA}, /* most clouds */
    {{169, 254, 170, 2}, 32, NETADDR_METADATA},	  /* container credentials */
    {{168, 63, 129, 16}, 32, NETADDR_METADATA},	  /* a public address that never leaves the cloud */
    {{100, 100, 100, 200}, 32, NETADDR_METADATA},
    {{192, 0, 0, 192}, 32, NETADDR_METADATA},
    {{0}, 8, NETADDR_UNSPECIFIED},
    {{10}, 8, NETADDR_PRIVATE},
    {{100, 64}, 10, NETADDR_CGNAT},
    {{127}, 8, NETADDR_LOOPBACK},
    {{169, 254}, 16, NETADDR_LINK_LOCAL},
    {{172, 16}, 12, NETADDR_PRIVATE},
    {{192, 0, 0}, 24, NETADDR_RESERVED},
    {{192, 0, 2}, 24, NETADDR_RESERVED},
    {{192, 31, 196}, 24, NETADDR_RESERVED},
    {{192, 52, 193}, 24, NETADDR_RESERVED},
    {{192, 88, 99}, 24, NETADDR_RESERVED},
    {{192, 168}, 16, NETADDR_PRIVATE},
    {{192, 175, 48}, 24, NETADDR_RESERVED},
    {{198, 18}, 15, NETADDR_RESERVED},
    {{198, 51, 100}, 24, NETADDR_RESERVED},
    {{203, 0, 113}, 24, NETADDR_RESERVED},
    {{224}, 4, NETADDR_MULTICAST},
    {{240}, 4, NETADDR_RESERVED},
};

static const struct range v6[] = {
    {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128, NETADDR_METADATA},
    {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}, 128, NETADDR_METADATA},
    {{0}, 128, NETADDR_UNSPECIFIED},
    {{[15] = 1}, 128, NETADDR_LOOPBACK},
    {{[10] = 0xff, [11] = 0xff}, 96, NETADDR_EMBEDDED}, /* mapped */
    {{0}, 96, NETADDR_EMBEDDED},			/* compatible, of old */
    {{[8] = 0xff, [9] = 0xff}, 96, NETADDR_EMBEDDED},	/* translated */
    {{0x00, 0x64, 0xff, 0x9b}, 32, NETADDR_EMBEDDED},	/* NAT64, also a network's own */
    {{0x20, 0x01, 0x00, 0x00}, 32, NETADDR_EMBEDDED},	/* Teredo */
    {{0x20, 0x02}, 16, NETADDR_EMBEDDED},		/* 6to4 */
    {{0x20, 0x01}, 23, NETADDR_RESERVED},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, NETADDR_RESERVED},
    {{0x3f, 0xff}, 20, NETADDR_RESERVED},
    {{0xfc}, 7, NETADDR_PRIVATE},
    {{0xfe, 0x80}, 10, NETADDR_LINK_LOCAL},
    {{0xfe, 0xc0}, 10, NETADDR_PRIVATE},
    {{0xff}, 8, NETADDR_MULTICAST},
    {{0x20}, 3, NETADDR_PUBLIC}, /* 2000::/3 is what is assigned */
};

static bool within(const struct netaddr *a, const struct range *r)
{
	unsigned whole = r->bits / 8, rest = r->bits % 8;

	if (memcmp(a->b, r->at, whole) != 0)
		return false;
	return rest == 0 || ((a->b[whole] ^ r->at[whole]) >> (8 - rest)) == 0;
}

enum netaddr_class netaddr_classify(const struct netaddr *a)
{
	const struct range *r = a->v6 ? v6 : v4;
	size_t n = a->v6 ? ARRAY_LEN(v6) : ARRAY_LEN(v4);

	for (size_t i = 0; i < n; i++)
		if (within(a, &r[i]))
			return r[i].class;
	/* IPv4 is assigned but for the ranges above, IPv6 is not. */
	return a->v6 ? NETADDR_RESERVED : NETADDR_PUBLIC;
}

const char *netaddr_class_name(enum netaddr_class c)
{
	static const char *const names[NETADDR_CLASSES] = {
	    [NETADDR_PUBLIC] = "public",	   [NETADDR_UNSPECIFIED] = "unspecified",
	    [NETADDR_LOOPBACK] = "loopback",	   [NETADDR_PRIVATE] = "private",
	    [NETADDR_LINK_LOCAL] = "link-local",   [NETADDR_METADATA] = "metadata",
	    [NETADDR_CGNAT] = "carrier-grade NAT", [NETADDR_MULTICAST] = "multicast",
	    [NETADDR_RESERVED] = "reserved",	   [NETADDR_EMBEDDED] = "IPv4 within IPv6",
	};

	return names[c];
}

bool netaddr_equal(const struct netaddr *a, const struct netaddr *b)
{
	return a->v6 == b->v6 && memcmp(a->b, b->b, a->v6 ? 16 : 4) == 0;
}

int netaddr_parse(const char *s, struct netaddr *ret)
{
	char text[NETADDR_TEXT];
	size_t n = strlen(s);

	*ret = (struct netaddr){0};
	if (n > 2 && s[0] == '[' && s[n - 1] == ']') {
		s++;
		n -= 2;
	} else if (inet_pton(AF_INET, s, ret->b) == 1) {
		return 0;
	}
	if (n >= sizeof(text))
		return -EINVAL;
	memcpy(text, s, n);
	text[n] = '\0';
	ret->v6 = true;
	return inet_pton(AF_INET6, text, ret->b) == 1 ? 0 : -EINVAL;
}

void netaddr_text(const struct netaddr *a, char out[NETADDR_TEXT])
{
	if (!inet_ntop(a->v6 ? AF_INET6 : AF_INET, a->b, out, NETADDR_TEXT))
		(void)snprintf(out, NETADDR_TEXT, "?");
}
