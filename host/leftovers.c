/*
 * Objects of the boot that hand something in only when they are freed, which objects that hold more than memory are not
 * (snapshot.c).
 *
 *   cURL handles write their cookies to CURLOPT_COOKIEJAR: each request's end has them do it.
 *
 *   Memcached holds back what it was told to buffer (OPT_BUFFER_WRITES): it is told to send it.
 *
 *   Archives (ZipArchive) are written when they are closed: those that a request has opened by an object of the boot
 *   are, with its end. They are written whole, over what others have written since they were opened: so none may be
 *   open when the boot is over.
 *
 * Promised: it touches no handle whose class is not the extension's own.
 */
#include "host.h"

#include <dlfcn.h>

#define CURLOPT_VERBOSE 41       /* curl/curl.h: CURLOPTTYPE_LONG + 41 */
#define CURLOPT_STDERR 10037     /* curl/curl.h: CURLOPTTYPE_OBJECTPOINT + 37 */
#define CURLOPT_COOKIELIST 10135 /* curl/curl.h: CURLOPTTYPE_OBJECTPOINT + 135 */

/* A handle that is freed says nothing since 8.17 (Curl_close of libcurl's lib/url.c). */
#define CURL_ENDS_SILENTLY 0x081100

/* How curl_version_info_data of curl/curl.h begins. */
struct curl_version {
	int age;
	const char *name;
	unsigned number;
};

static int (*curl_setopt)(void *, int, ...);
static bool curl_ends_silently;
/* Numbers of the boot's objects of these classes. */
static uint32_t *handles, *archives, *writers;
static uint32_t handle_count, archive_count, writer_count;
static zend_class_entry *archive_class;
static zend_class_entry *buffering_class;
static zend_function *flush_method;

static zend_class_entry *class_named(const char *name)
{
	zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), name, strlen(name));
	return class != NULL && class->type == ZEND_INTERNAL_CLASS ? class : NULL;
}

static void note(uint32_t **list, uint32_t *count, uint32_t number)
{
	*list = safe_erealloc(*list, *count + 1, sizeof **list, 0);
	(*list)[(*count)++] = number;
}

void leftovers_note(void)
{
	const zend_class_entry *class = class_named("curlhandle");
	handle_count = archive_count = writer_count = 0;
	archive_class = class_named("ziparchive");
	buffering_class = class_named("memcached");
	flush_method = buffering_class == NULL
	                   ? NULL
	                   : zend_hash_str_find_ptr(&buffering_class->function_table, ZEND_STRL("flushbuffers"));
	void *library = class == NULL ? NULL : dlopen("libcurl.so.4", RTLD_NOW | RTLD_NOLOAD);
	*(void **)&curl_setopt = library == NULL ? NULL : dlsym(library, "curl_easy_setopt");
	const struct curl_version *(*version)(int) = NULL;
	*(void **)&version = library == NULL ? NULL : dlsym(library, "curl_version_info");
	curl_ends_silently = version != NULL && version(0)->number >= CURL_ENDS_SILENTLY;
	const zend_objects_store *store = &EG(objects_store);
	for (uint32_t i = 1; i < store->top; i++) {
		const zend_object *object = store->object_buckets[i];
		if (!IS_OBJ_VALID(object)) {
			continue;
		}
		if (curl_setopt != NULL && object->ce == class) {
			note(&handles, &handle_count, i);
		} else if (archive_class != NULL && instanceof_function(object->ce, archive_class)) {
			note(&archives, &archive_count, i);
		} else if (flush_method != NULL && instanceof_function(object->ce, buffering_class)) {
			note(&writers, &writer_count, i);
		}
	}
}

/* One that lives, or NULL. The boot's stay until the end: snapshot.c holds them. */
static zend_object *living(uint32_t number)
{
	zend_object *object = EG(objects_store).object_buckets[number];
	return IS_OBJ_VALID(object) && !(OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED) ? object : NULL;
}

/* The name of the archive that an object has open, or NULL. */
static const char *open_archive(zend_object *object)
{
	zval room;
	const zval *name = zend_read_property(archive_class, object, ZEND_STRL("filename"), true, &room);
	return Z_TYPE_P(name) == IS_STRING && Z_STRLEN_P(name) > 0 ? Z_STRVAL_P(name) : NULL;
}

static void flush_all(void)
{
	for (uint32_t i = writer_count; i-- > 0;) {
		zend_object *object = living(writers[i]);
		/* php_memc_object_t begins with the memcached_st *, which only the constructor makes. */
		if (object != NULL && *(void **)((char *)object - object->handlers->offset) != NULL) {
			zval result;
			ZVAL_UNDEF(&result);
			zend_call_known_function(flush_method, object, buffering_class, &result, 0, NULL, NULL);
			zval_ptr_dtor(&result);
		}
	}
}

/* libcurl has a FILE of a stream that is closed by now (CURLOPT_STDERR), or of which that is not known: as PHP does
 * when it frees the handle, it is told to write elsewhere. */
static bool has_closed_stream(zend_object *object)
{
	zval *values;
	int count;
	(void)object->handlers->get_gc(object, &values, &count);
	for (int i = 0; i < count; i++) {
		if (Z_TYPE(values[i]) == IS_RESOURCE && Z_RES(values[i])->ptr == NULL) {
			return true;
		}
	}
	return false;
}

void leftovers_hand_in(void)
{
	flush_all();
	/* As PHP frees them: the last one first. Of two with one jar that of the first is what stays. */
	for (uint32_t i = handle_count; i-- > 0;) {
		zend_object *object = living(handles[i]);
		/* php_curl of ext/curl/curl_private.h begins with the CURL *. */
		void *handle = object == NULL ? NULL : *(void **)((char *)object - object->handlers->offset);
		if (handle != NULL) {
			if (has_closed_stream(object)) {
				curl_setopt(handle, CURLOPT_STDERR, stderr);
			}
			if (curl_ends_silently) {
				curl_setopt(handle, CURLOPT_VERBOSE, 0L);
			}
			curl_setopt(handle, CURLOPT_COOKIELIST, "FLUSH");
		}
	}
	for (uint32_t i = archive_count; i-- > 0;) {
		zend_object *object = living(archives[i]);
		zend_function *close = zend_hash_str_find_ptr(&archive_class->function_table, ZEND_STRL("close"));
		if (object != NULL && open_archive(object) != NULL && close != NULL) {
			zval result;
			ZVAL_UNDEF(&result);
			zend_call_known_function(close, object, archive_class, &result, 0, NULL, NULL);
			zval_ptr_dtor(&result);
		}
	}
}

const char *leftovers_open(void)
{
	static char why[512];
	archive_class = class_named("ziparchive");
	const zend_objects_store *store = &EG(objects_store);
	for (uint32_t i = 1; i < store->top && archive_class != NULL; i++) {
		zend_object *object = store->object_buckets[i];
		const char *name =
		    IS_OBJ_VALID(object) && instanceof_function(object->ce, archive_class) ? open_archive(object) : NULL;
		if (name != NULL) {
			snprintf(why, sizeof why, "left the archive %s open", name);
			return why;
		}
	}
	return NULL;
}
