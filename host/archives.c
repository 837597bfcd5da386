/*
 * Archives of the phar extension (Phar, PharData, phar://). It reads the list of what is in an archive once in a
 * request, and writes archives whole: by the list of the boot's time each request would write over what the ones
 * before it have added.
 *
 * So the extension's end of a request runs when the boot is over, and with each warm-up request, and it forgets all
 * lists. Names that were given to archives it would forget as well, and the code that came from them is loaded by
 * those: then the lists stay, if nobody can write to such an archive, and there is no other.
 *
 * Promised: of the extension's variables only those are read of which PHP 7.3 and later have no other.
 */
#include "host.h"

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

/* One of which code was loaded, or was not; NULL: there is none. */
static const char *find(bool code)
{
	const struct archives *known = archives();
	const zend_string *path;
	if (known == NULL || is_empty(&known->by_path)) {
		return NULL;
	}
	ZEND_HASH_FOREACH_STR_KEY((HashTable *)(uintptr_t)&known->by_path, path)
	{
		if (path != NULL && is_code(path) == code) {
			return ZSTR_VAL(path);
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}

void archives_forget(void)
{
	const struct archives *known = archives();
	if (known != NULL && is_empty(&known->by_name) && find(true) == NULL) {
		lifecycle_module("phar", false);
	}
}

const char *archives_left(void)
{
	static const char *const classes[] = {"phar", "phardata", "pharfileinfo"};
	static char why[512];
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
	const char *written = find(false);
	bool data = written != NULL;
	written = data || zend_ini_long(ZEND_STRL("phar.readonly"), 0) != 0 ? written : find(true);
	if (written == NULL) {
		return NULL;
	}
	snprintf(why, sizeof why,
	         data ? "read the archive %.300s by a name that it gave to one"
	              : "runs code of the archive %.300s, to which phar.readonly lets it write",
	         written);
	return why;
}
