#include "policy/secret.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

/* '*' at the start or the end stands for any bytes; case is ignored. */
static const char *const secret_files[] = {
    ".env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "*.ovpn",
    "*.asc.key",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    ".npmrc",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    "credentials",
    "credentials.json",
    "client_secret*",
    "service-account*",
    "service_account*",
    "serviceaccount*",
    "secrets.json",
    "secrets.yml",
    "secrets.yaml",
    "secrets.toml",
    "*.tfstate",
    "*.tfvars",
    ".vault-token",
    "kubeconfig",
    "*.kubeconfig",
    ".boto",
    ".s3cfg",
    "*.mobileprovision",
    ".terraformrc",
};
static const char *const secret_dirs[] = {
    ".aws", ".ssh", ".gnupg", ".azure", ".kube", ".docker", ".gcloud", ".password-store",
};
static const char *const heavy_dirs[] = {
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradle",
    ".terraform",
    ".next",
    ".nuxt",
    ".turbo",
    ".parcel-cache",
    ".cache",
    "bower_components",
};
/* ".env.local" is a secret, these endings are templates meant to be read. */
static const char *const template_ends[] = {
    "example", "sample", "template", "dist", "defaults", "schema",
};

static bool like(const char *pat, const char *s, size_t n)
{
	size_t m;

	/* Asked of every file of a walk: the first byte settles most. Patterns are lower case. */
	if (pat[0] != '*' && (s[0] | 0x20) != (pat[0] | 0x20))
		return false;
	m = strlen(pat);
	if (pat[0] == '*' && (!n || (s[n - 1] | 0x20) != (pat[m - 1] | 0x20)))
		return false;
	if (pat[0] == '*')
		return n >= m - 1 && strncasecmp(s + n - (m - 1), pat + 1, m - 1) == 0;
	if (pat[m - 1] == '*')
		return n >= m - 1 && strncasecmp(s, pat, m - 1) == 0;
	return n == m && strncasecmp(s, pat, n) == 0;
}

static bool any(const char *const *v, size_t count, const char *s, size_t n)
{
	for (size_t i = 0; i < count; i++)
		if (like(v[i], s, n))
			return true;
	return false;
}

static bool template(const char *s, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(template_ends); i++) {
		size_t m = strlen(template_ends[i]);

		if (n > m && s[n - m - 1] == '.' &&
		    strncasecmp(s + n - m, template_ends[i], m) == 0)
			return true;
	}
	return false;
}

static bool env_file(const char *s, size_t n)
{
	/* .env.production, production.env, .envrc is not one: it is code, and flagged elsewhere. */
	if (n > 5 && strncasecmp(s, ".env.", 5) == 0)
		return true;
	return n > 4 && strncasecmp(s + n - 4, ".env", 4) == 0;
}

/*
 * Asked of every file of a walk, and most names are none of these: the ends of a name settle it.
 * The first bytes of secret_files that have no star there, and the last bytes of those that do.
 */
static bool file_candidate(const char *s, size_t n)
{
	char first = s[0], last = s[n - 1];

	first = first >= 'A' && first <= 'Z' ? (char)(first | 0x20) : first;
	last = last >= 'A' && last <= 'Z' ? (char)(last | 0x20) : last;
	return memchr("._cisk", first, 6) || memchr("my2xsekngv", last, 10);
}

/* A copy that a program left beside a secret is one: terraform.tfstate.backup, terraform.tfstate.1700000000.backup, id_rsa.bak. */
static size_t without_backup(const char *name, size_t n)
{
	static const char *const endings[] = {".backup", ".bak", ".old", ".orig", "~"};

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		size_t k = strlen(endings[i]), d;

		if (n <= k || strncasecmp(name + n - k, endings[i], k) != 0)
			continue;
		n -= k;
		for (d = n; d && name[d - 1] >= '0' && name[d - 1] <= '9'; d--)
			;
		return d > 1 && d < n && name[d - 1] == '.' ? d - 1 : n;
	}
	return n;
}

bool secret_looking(const char *name, size_t n, bool is_dir)
{
	if (is_dir)
		return any(secret_dirs, ARRAY_LEN(secret_dirs), name, n);
	if (n && memchr("pkdg~PKDG", name[n - 1], 9))
		n = without_backup(name, n);
	if (!n || !file_candidate(name, n))
		return false;
	return (any(secret_files, ARRAY_LEN(secret_files), name, n) || env_file(name, n)) &&
	       !template(name, n);
}

bool secret_heavy_dir(const char *name, size_t n)
{
	return any(heavy_dirs, ARRAY_LEN(heavy_dirs), name, n);
}
