/*
 * .user.ini: per-directory settings, from the document root down to the script's directory, as php-fpm reads them.
 * Parsed files are kept for user_ini.cache_ttl seconds. In worker mode they do not apply: one process serves all
 * directories.
 */
#include "host.h"

#include "php_ini.h"

struct entry {
	time_t expires;
	HashTable *settings;
};

/* directory → struct entry; lives as long as the process */
static HashTable cache;
static bool cache_ready;

static void settings_dtor(zval *value)
{
	if (Z_TYPE_P(value) == IS_STRING) {
		zend_string_release_ex(Z_STR_P(value), true);
	} else if (Z_TYPE_P(value) == IS_ARRAY) {
		zend_hash_destroy(Z_ARRVAL_P(value));
		free(Z_ARR_P(value));
	}
}

static void activate_directory(const char *directory, size_t len)
{
	time_t now = (time_t)sapi_get_request_time();
	struct entry *entry = zend_hash_str_find_ptr(&cache, directory, len);
	if (entry == NULL) {
		struct entry fresh = {0, malloc(sizeof(HashTable))};
		zend_hash_init(fresh.settings, 8, NULL, settings_dtor, true);
		entry = zend_hash_str_update_mem(&cache, directory, len, &fresh, sizeof fresh);
	}
	/* Nor for longer where the clock was set back. */
	if (now >= entry->expires || entry->expires > now + PG(user_ini_cache_ttl)) {
		char path[MAXPATHLEN];
		snprintf(path, sizeof path, "%.*s", (int)len, directory);
		zend_hash_clean(entry->settings);
		php_parse_user_ini_file(path, PG(user_ini_filename), entry->settings);
		entry->expires = now + PG(user_ini_cache_ttl);
	}
	if (zend_hash_num_elements(entry->settings) > 0) {
		php_ini_activate_config(entry->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
	}
}

void user_ini_activate(const char *script)
{
	const char *root = request.field[HY_FIELD_DOCUMENT_ROOT].at;
	size_t root_len = strlen(root);
	const char *slash = script == NULL ? NULL : strrchr(script, '/');
	if (slash == NULL || PG(user_ini_filename) == NULL || *PG(user_ini_filename) == '\0') {
		return;
	}
	if (!cache_ready) {
		zend_hash_init(&cache, 8, NULL, NULL, true);
		cache_ready = true;
	}
	if (php_ini_has_per_dir_config()) {
		/* It takes what stands before a slash for a directory, the last one included. */
		char directory[MAXPATHLEN];
		snprintf(directory, sizeof directory, "%.*s", (int)(slash + 1 - script), script);
		php_ini_activate_per_dir_config(directory, strlen(directory));
	}
	if (php_ini_has_per_host_config()) {
		char *host = estrndup(request.field[HY_FIELD_SERVER_NAME].at, request.field[HY_FIELD_SERVER_NAME].len);
		zend_str_tolower(host, strlen(host));
		php_ini_activate_per_host_config(host, strlen(host));
		efree(host);
	}
	size_t end = (size_t)(slash - script);
	while (root_len > 1 && root[root_len - 1] == '/') {
		root_len--;
	}
	if (root_len == 0 || end < root_len || memcmp(script, root, root_len) != 0) {
		activate_directory(script, end);
		return;
	}
	/* The root first, so that deeper files have the last word. */
	for (size_t at = root_len; at <= end; at++) {
		if (at == end || script[at] == '/') {
			activate_directory(script, at);
		}
	}
}
