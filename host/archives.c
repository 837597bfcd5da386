/*
 * Archives of the phar extension (Phar, PharData, phar://). It reads the list of what is in an archive once in a
 * request, and writes archives whole: by the list of the boot's time each request would write over what the ones
 * before it have added.
 *
 * So all lists are forgotten when the boot is over, and with each warm-up request, but those of archives from which
 * code was loaded and to which nobody can write: code is found by names that it gives to its own archive, and there the
 * list is what it was. A name that an archive brings itself is there again for whoever reads it. One that was given to
 * it would be lost: then the application is not rewound.
 *
 * Promised: of the extension's variables only those are read of which PHP 7.3 and later have no other.
 */
#include "host.h"

#include <fcntl.h>
#include <unistd.h>

/* How the extension's variables begin (ext/phar/phar_internal.h). */
struct archives {
	HashTable swapped;
	HashTable by_path;
	void *cached;
	HashTable by_name;
};

static const struct archives *archives(void)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("phar"));
	return module == NULL ? NULL : module->globals_ptr;
}

/* The extension gives tables up without emptying them. */
static bool is_empty(const HashTable *table)
{
	return HT_FLAGS(table) & HASH_FLAG_UNINITIALIZED || zend_hash_num_elements(table) == 0;
}

/* Whether code was loaded that lies in this archive, or is its stub. */
static bool is_code(const zend_string *path)
{
	const zend_string *file;
	ZEND_HASH_FOREACH_STR_KEY(&EG(included_files), file)
	{
		const char *name = ZSTR_VAL(file);
		bool within = strncmp(name, "phar://", 7) == 0;
		name += within ? 7 : 0;
		if (strncmp(name, ZSTR_VAL(path), ZSTR_LEN(path)) == 0 && name[ZSTR_LEN(path)] == (within ? '/' : '\0')) {
			return true;
		}
	}
	ZEND_HASH_FOREACH_END();
	return false;
}

/* Looks it up, which has the extension read the list where it has none. By the extension's own wrapper: applications
 * put another one in its place. */
static bool finds(const char *path, const char *entry)
{
	char url[PATH_MAX + 64];
	php_stream_statbuf found;
	php_stream_wrapper *wrapper =
	    zend_hash_str_find_ptr(php_stream_get_url_stream_wrappers_hash_global(), ZEND_STRL("phar"));
	int len = snprintf(url, sizeof url, "phar://%s/%s", path, entry);
	return wrapper != NULL && len < (int)sizeof url &&
	       wrapper->wops->url_stat(wrapper, url, PHP_STREAM_URL_STAT_QUIET, &found, NULL) == 0;
}

/*
 * Whether phar.readonly keeps it from being written: not an archive of data, which is a tar or zip archive without a
 * stub. One of the extension's own format begins with its stub.
 */
static bool is_protected(const char *path)
{
	char head[5] = "";
	int fd = zend_ini_long(ZEND_STRL("phar.readonly"), 0) != 0 ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	if (fd < 0) {
		return false;
	}
	bool read_it = read(fd, head, sizeof head) == (ssize_t)sizeof head;
	close(fd);
	bool own_format = read_it && (memcmp(head, "<?php", 5) == 0 || memcmp(head, "#!", 2) == 0);
	return own_format || finds(path, ".phar/stub.php");
}

static bool stays(const zend_string *path)
{
	return is_code(path) && is_protected(ZSTR_VAL(path));
}

static HashTable *paths(void)
{
	const struct archives *known = archives();
	return known == NULL || is_empty(&known->by_path) ? NULL : (HashTable *)(uintptr_t)&known->by_path;
}

static HashTable *names(void)
{
	const struct archives *known = archives();
	return known == NULL || is_empty(&known->by_name) ? NULL : (HashTable *)(uintptr_t)&known->by_name;
}

static bool has_name(const void *archive)
{
	const void *named;
	if (names() != NULL) {
		ZEND_HASH_FOREACH_PTR(names(), named)
		{
			if (named == archive) {
				return true;
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	return false;
}

/* Code that requests may write to, and which would not find itself when its name is forgotten; NULL: there is none. */
static const char *find_named_code(void)
{
	const zend_string *path;
	const void *archive;
	if (paths() != NULL) {
		ZEND_HASH_FOREACH_STR_KEY_PTR(paths(), path, archive)
		{
			if (path != NULL && is_code(path) && has_name(archive) && !is_protected(ZSTR_VAL(path))) {
				return ZSTR_VAL(path);
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	return NULL;
}

static void forget_lists(void)
{
	zend_string *path, *staying = NULL, **going = safe_emalloc(zend_hash_num_elements(paths()), sizeof *going, 0);
	size_t count = 0;
	ZEND_HASH_FOREACH_STR_KEY(paths(), path)
	{
		if (path != NULL && stays(path)) {
			staying = path;
		} else if (path != NULL) {
			going[count++] = path;
		}
	}
	ZEND_HASH_FOREACH_END();
	if (staying == NULL) {
		lifecycle_module("phar", false);
	} else if (finds(ZSTR_VAL(staying), "")) { /* the extension keeps a pointer to what was looked up last */
		while (count > 0) {
			zend_hash_del(paths(), going[--count]);
		}
	}
	efree(going);
}

/* A name that was given to an archive. */
static struct {
	char name[256], path[PATH_MAX];
} given;

/* Names of archives that are to be forgotten. */
struct name {
	zend_string *name, *path;
	struct name *next;
};

static struct name *note_names(void)
{
	struct name *list = NULL;
	zend_string *name, *path;
	const void *archive, *named;
	if (names() == NULL) {
		return NULL;
	}
	ZEND_HASH_FOREACH_STR_KEY_PTR(paths(), path, archive)
	{
		if (path == NULL || stays(path)) {
			continue;
		}
		ZEND_HASH_FOREACH_STR_KEY_PTR(names(), name, named)
		{
			if (name != NULL && named == archive) {
				struct name *one = emalloc(sizeof *one);
				*one = (struct name){.name = zend_string_copy(name), .path = zend_string_copy(path), .next = list};
				list = one;
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	ZEND_HASH_FOREACH_END();
	return list;
}

void archives_forget(void)
{
	if (paths() == NULL || find_named_code() != NULL) {
		return;
	}
	struct name *list = note_names();
	forget_lists();
	bool read_again = list != NULL;
	while (list != NULL) {
		struct name *one = list;
		list = one->next;
		bool found = finds(ZSTR_VAL(one->path), "");
		if (!found || names() == NULL || !zend_hash_exists(names(), one->name)) {
			snprintf(given.name, sizeof given.name, "%s", ZSTR_VAL(one->name));
			snprintf(given.path, sizeof given.path, "%s", ZSTR_VAL(one->path));
		}
		zend_string_release(one->name);
		zend_string_release(one->path);
		efree(one);
	}
	if (read_again && paths() != NULL) {
		forget_lists();
	}
}

/* A list that could not be forgotten; NULL: there is none. */
static const char *find_kept(void)
{
	const zend_string *path;
	if (paths() != NULL) {
		ZEND_HASH_FOREACH_STR_KEY(paths(), path)
		{
			if (path != NULL && !stays(path)) {
				return ZSTR_VAL(path);
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	return NULL;
}

const char *archives_left(void)
{
	static const char *const classes[] = {"phar", "phardata", "pharfileinfo"};
	static char why[512];
	why[0] = '\0';
	const zend_objects_store *store = &EG(objects_store);
	for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
		const zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), classes[i], strlen(classes[i]));
		for (uint32_t j = 1; j < store->top && archives() != NULL && class != NULL; j++) {
			const zend_object *object = store->object_buckets[j];
			if (IS_OBJ_VALID(object) && instanceof_function(object->ce, class)) {
				snprintf(why, sizeof why, "left an object of the class %.200s", ZSTR_VAL(object->ce->name));
				return why;
			}
		}
	}
	const char *code = find_named_code(), *kept = find_kept();
	if (code != NULL) {
		snprintf(why, sizeof why, "runs code of the archive %.300s, to which requests may write", code);
	} else if (given.name[0] != '\0') {
		snprintf(why, sizeof why, "gave a name to the archive %.300s (%.100s)", given.path, given.name);
	} else if (kept != NULL) {
		snprintf(why, sizeof why, "read the archive %.300s", kept);
	}
	return why[0] == '\0' ? NULL : why;
}
