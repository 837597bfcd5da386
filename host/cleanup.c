/*
 * What a request acquired is given back before its memory is put back: the part of PHP's request shutdown that others
 * can see. In PHP's order: shutdown functions, destructors, output, extensions, resources, objects.
 *
 * Each step runs in a zend_try of its own. A fatal error in one means that the rest of that step did not happen, and
 * then the worker leaves. Resources and objects end one by one: where code of the application hears of the end of one,
 * and throws or exits, the others end as well, as in PHP, and the worker goes on. Memory is freed by nobody: it is put
 * back whole.
 */
#include "host.h"
#include "rewind/rewind.h"

#include "php_output.h"

/*
 * Classes whose objects hold memory only (of others, free_obj is called). What they contain has its own place in the
 * object store. Children of these count as well.
 */
static const char *const harmless_names[] = {"closure",
                                             "generator",
                                             "weakreference",
                                             "weakmap",
                                             "arrayobject",
                                             "arrayiterator",
                                             "splobjectstorage",
                                             "splheap",
                                             "splpriorityqueue",
                                             "spldoublylinkedlist",
                                             "splfixedarray",
                                             "iteratoriterator",
                                             "messageformatter",
                                             "appenditerator",
                                             "limititerator",
                                             "filteriterator",
                                             "cachingiterator",
                                             "multipleiterator",
                                             "datetime",
                                             "datetimeimmutable",
                                             "datetimezone",
                                             "dateinterval",
                                             "dateperiod",
                                             "reflector",
                                             "reflectionclass",
                                             "reflectionproperty",
                                             "reflectionmethod",
                                             "reflectionfunction",
                                             "reflectionparameter",
                                             "reflectionnamedtype",
                                             "reflectionattribute",
                                             "hashcontext",
                                             "fiber",
                                             "domnode",
                                             "domnodelist",
                                             "domxpath",
                                             "simplexmlelement",
                                             "intldateformatter",
                                             "numberformatter",
                                             "collator",
                                             "internaliterator",
                                             "random\\randomizer"};
#define MAX_CLASSES 64
/* Those of a list that are there: extensions may be missing. */
static struct classes {
	const zend_class_entry *are[MAX_CLASSES];
	int count;
} harmless, closing, pointed_to;
/* Of these a request can connect an object that the boot has made, but not connected. */
static const zend_class_entry *pdo, *mysqli, *sqlite3;

/*
 * Extensions whose request shutdown frees memory only, or which are taken through it with each request (lifecycle.c).
 * Others are called: what they do there may be seen from outside.
 */
static const char *const silent_modules[] = {
    "Core",       "date",      "libxml",    "pcre",     "standard",  "hash",    "json",         "spl",
    "reflection", "ctype",     "dom",       "gd",       "intl",      "mysqlnd", "pdo",          "openssl",
    "random",     "sodium",    "zlib",      "mbstring", "filter",    "session", "zend opcache", "xml",
    "simplexml",  "xmlreader", "xmlwriter", "xsl",      "tokenizer", "iconv",   "fileinfo",     "calendar",
    "exif",       "gettext",   "bcmath",    "posix",    "curl",      "phar",    "readline",     "hayate"};

/*
 * Classes whose objects have connections, files, or what belongs to them (statements, results): to free one closes it,
 * and no more. The rewinder sees what became of a descriptor: a file is opened again, and for a connection that is
 * gone the worker is replaced. Children of these count as well.
 */
static const char *const closing_names[] = {"pdo", "mysqli", "redis", "splfileinfo"};
/* The like, of which a library, a list or another object may have the address without a reference: what their free_obj
 * would take back. */
static const char *const pointed_to_names[] = {"pdostatement", "mysqli_stmt",   "mysqli_result",     "sqlite3",
                                               "sqlite3stmt",  "sqlite3result", "pgsql\\connection", "pgsql\\result",
                                               "pgsql\\lob",   "xmlreader",     "xmlwriter"};

#define MAX_MODULES 64
static const zend_module_entry *loud_modules[MAX_MODULES];
static int loud_count;

static const char *doubtful EACH_REQUEST;

static bool is_silent(const char *name)
{
	for (size_t i = 0; i < sizeof silent_modules / sizeof silent_modules[0]; i++) {
		if (strcasecmp(silent_modules[i], name) == 0) {
			return true;
		}
	}
	return false;
}

/*
 * Streams of the boot whose end is seen: what writes through a compressor or a filter has the rest still to write, and
 * code of the application hears of the end of its own, whether it writes or reads. Files, memory and sockets of the
 * boot have nothing of the kind, and are put back. Of other streams that write nothing is known.
 */
static struct seen {
	zend_long number;
	bool always; /* else where a request has given it something of the kind */
} * seen;
static size_t seen_count;

static bool is_among(const char *label, const char *const *labels)
{
	while (*labels != NULL && strcmp(label, *labels) != 0) {
		labels++;
	}
	return *labels != NULL;
}

/* Code of the application hears of the end of such a filter (onClose()). */
static bool has_filter_in_php(const php_stream_filter_chain *chain)
{
	const php_stream_filter *filter = chain->head;
	while (filter != NULL && strcmp(filter->fops->label, "user-filter") != 0) {
		filter = filter->next;
	}
	return filter != NULL;
}

static bool is_file(const php_stream *stream)
{
	return stream->ops == &php_stream_stdio_ops || stream->ops == &php_stream_memory_ops ||
	       stream->ops == &php_stream_temp_ops;
}

/* Of a file or memory. libc holds back what is written to one that was given to a library as a FILE (curl's
 * CURLOPT_STDERR), by whomever. */
static bool has_rest(const php_stream *stream, bool writes)
{
	bool plain = stream->ops == &php_stream_stdio_ops;
	return (plain && writes && (stream->writefilters.head != NULL || boot_files_has_buffer(stream))) ||
	       has_filter_in_php(&stream->readfilters) || has_filter_in_php(&stream->writefilters);
}

static bool writes_to(const php_stream *stream)
{
	return strpbrk(stream->mode, "waxc+") != NULL;
}

enum cleanup_stream cleanup_stream(const php_stream *stream)
{
	static const char *const quiet[] = {"STDIO",       "MEMORY",     "TEMP",           "RFC2397",        "Output",
	                                    "Input",       "dir",        "glob",           "tcp_socket",     "udp_socket",
	                                    "unix_socket", "udg_socket", "generic_socket", "tcp_socket/ssl", NULL};
	static const char *const in_php[] = {"user-space", "user-space-dir", NULL};
	static const char *const compressors[] = {"ZLIB", "BZip2", NULL};
	bool writes = writes_to(stream);
	if (stream->is_persistent || stream->flags & PHP_STREAM_FLAG_NO_CLOSE) {
		return CLEANUP_STREAM_QUIET;
	}
	if (is_among(stream->ops->label, in_php)) {
		return CLEANUP_STREAM_ENDS;
	}
	if (is_among(stream->ops->label, quiet)) {
		return is_file(stream) && has_rest(stream, writes) ? CLEANUP_STREAM_ENDS : CLEANUP_STREAM_QUIET;
	}
	bool ends = is_among(stream->ops->label, compressors);
	return !writes ? CLEANUP_STREAM_QUIET : ends ? CLEANUP_STREAM_ENDS : CLEANUP_STREAM_UNKNOWN;
}

static void note_streams(void)
{
	seen_count = 0;
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		if (resource->type != php_file_le_stream()) {
			continue;
		}
		bool always = cleanup_stream(resource->ptr) == CLEANUP_STREAM_ENDS;
		if (always || is_file(resource->ptr)) {
			seen = safe_erealloc(seen, seen_count + 1, sizeof *seen, 0);
			seen[seen_count++] = (struct seen){.number = resource->handle, .always = always};
		}
	}
	ZEND_HASH_FOREACH_END();
}

/* What there is to be closed: NULL, or a stream of the boot. */
static zend_resource *to_be_seen(const struct seen *one)
{
	const zval *value = zend_hash_index_find(&EG(regular_list), (zend_ulong)one->number);
	zend_resource *resource = value == NULL ? NULL : Z_RES_P(value);
	if (resource == NULL || resource->ptr == NULL || resource->type != php_file_le_stream()) {
		return NULL;
	}
	const php_stream *stream = resource->ptr;
	return one->always || (is_file(stream) && has_rest(stream, writes_to(stream))) ? resource : NULL;
}

static void find_classes(struct classes *classes, const char *const *names, size_t count)
{
	classes->count = 0;
	for (size_t i = 0; i < count; i++) {
		const zend_class_entry *ce = zend_hash_str_find_ptr(CG(class_table), names[i], strlen(names[i]));
		if (ce != NULL && classes->count < MAX_CLASSES) {
			classes->are[classes->count++] = ce;
		}
	}
}

static const zend_class_entry *class_of_php(const char *name)
{
	const zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), name, strlen(name));
	return class != NULL && class->type == ZEND_INTERNAL_CLASS ? class : NULL;
}

void cleanup_prepare(void)
{
	note_streams();
	pdo = class_of_php("pdo");
	mysqli = class_of_php("mysqli");
	sqlite3 = class_of_php("sqlite3");
	find_classes(&harmless, harmless_names, sizeof harmless_names / sizeof harmless_names[0]);
	find_classes(&closing, closing_names, sizeof closing_names / sizeof closing_names[0]);
	find_classes(&pointed_to, pointed_to_names, sizeof pointed_to_names / sizeof pointed_to_names[0]);
	loud_count = 0;
	const zend_module_entry *module;
	ZEND_HASH_MAP_FOREACH_PTR(&module_registry, module)
	{
		if (module->request_shutdown_func != NULL && !is_silent(module->name) && loud_count < MAX_MODULES) {
			loud_modules[loud_count++] = module;
		}
	}
	ZEND_HASH_FOREACH_END();
}

static bool is_of(const struct classes *classes, const zend_class_entry *ce)
{
	for (; ce != NULL; ce = ce->parent) {
		if (ce->type == ZEND_INTERNAL_CLASS) {
			for (int i = 0; i < classes->count; i++) {
				if (classes->are[i] == ce) {
					return true;
				}
			}
		}
	}
	return false;
}

bool cleanup_reaches_outside(const zend_object *object)
{
	return object->handlers->free_obj != zend_object_std_dtor && !is_of(&harmless, object->ce);
}

bool cleanup_closes(const zend_object *object)
{
	return is_of(&closing, object->ce) || is_of(&pointed_to, object->ce);
}

bool cleanup_is_pointed_to(const zend_object *object)
{
	return is_of(&pointed_to, object->ce);
}

/* How mysqli_object of ext/mysqli/php_mysqli_structs.h begins, with its MYSQLI_RESOURCE, whose status is
 * MYSQLI_STATUS_VALID if it is connected. */
struct mysqli_begin {
	const struct {
		void *ptr, *info;
		int status;
	} * resource;
};
#define MYSQLI_VALID 2

bool cleanup_is_unconnected(const zend_object *object)
{
	const void *own = (const char *)object - object->handlers->offset;
	if (object->handlers->offset <= 0) {
		return false;
	}
	if (pdo != NULL && instanceof_function(object->ce, pdo)) {
		/* pdo_dbh_object_t of ext/pdo/php_pdo_driver.h begins with the pdo_dbh_t *, and that with its methods and the
		 * driver's data. */
		void *const *const *inner = own;
		return *inner != NULL && (*inner)[1] == NULL;
	}
	if (mysqli != NULL && instanceof_function(object->ce, mysqli)) {
		const struct mysqli_begin *begin = own;
		return begin->resource == NULL || begin->resource->ptr == NULL || begin->resource->status < MYSQLI_VALID;
	}
	/* php_sqlite3_db_object of ext/sqlite3/php_sqlite3_structs.h begins with whether it is open: a bool, or an int. */
	return sqlite3 != NULL && instanceof_function(object->ce, sqlite3) && *(const char *)own == 0;
}

/* A file of which a library has the FILE (curl's CURLOPT_STDERR), and writes to it as long as it has something to say.
 */
static bool is_lent(const zend_resource *resource)
{
	const php_stream *stream = resource->ptr;
	return resource->type == php_file_le_stream() && stream->ops == &php_stream_stdio_ops &&
	       boot_files_has_buffer(stream) && !boot_files_is_program(stream);
}

/* A fatal error has struck since `before` was the last one: neither exit() nor an exception that nobody caught. */
static bool has_struck(const zend_string *before)
{
	static const char uncaught[] = "Uncaught ";
	const zend_string *last = PG(last_error_message);
	return last != before && last != NULL && PG(last_error_type) & E_FATAL_ERRORS &&
	       strncmp(ZSTR_VAL(last), uncaught, sizeof uncaught - 1) != 0;
}

static void end_alone(const char *step, void (*end)(void *), void *what)
{
	zend_string *before = PG(last_error_message);
	if (before != NULL) {
		zend_string_addref(before); /* else another one could be at its place */
	}
	bool unclean = CG(unclean_shutdown);
	zend_try
	{
		end(what);
	}
	zend_catch
	{
		if (has_struck(before)) {
			doubtful = step;
			lifecycle_forget_out_of_memory(); /* else none of the application's would be called for the others */
		} else {
			CG(unclean_shutdown) = unclean; /* filters of the application would pass nothing on */
		}
	}
	zend_end_try();
	if (before != NULL) {
		zend_string_release(before);
	}
}

static void close_resource(void *resource)
{
	zend_list_close(resource);
}

static void close_all(bool lent)
{
	for (zend_long i = EG(regular_list).nNextFreeElement - 1; i >= snapshot_marks.resources; i--) {
		const zval *value = zend_hash_index_find(&EG(regular_list), (zend_ulong)i);
		if (value != NULL && Z_RES_P(value)->ptr != NULL && is_lent(Z_RES_P(value)) == lent) {
			end_alone("close_resources", close_resource, Z_RES_P(value));
		}
	}
	for (size_t i = seen_count; i-- > 0;) {
		zend_resource *resource = to_be_seen(&seen[i]);
		if (resource != NULL && is_lent(resource) == lent) {
			end_alone("close_resources", close_resource, resource);
		}
	}
}

static void close_resources(void)
{
	EG(flags) |= EG_FLAGS_IN_RESOURCE_SHUTDOWN;
	close_all(false);
}

static void close_lent_files(void)
{
	close_all(true);
}

static void call_free_obj(void *of)
{
	zend_object *object = of;
	object->handlers->free_obj(object);
}

static bool can_be_freed(const zend_object *object)
{
	return IS_OBJ_VALID(object) && !(OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED) && cleanup_reaches_outside(object);
}

static void free_object(zend_object *object)
{
	GC_ADD_FLAGS(object, IS_OBJ_FREE_CALLED);
	GC_ADDREF(object);
	end_alone("free_objects", call_free_obj, object);
}

static void free_own(zend_object *object)
{
	if (can_be_freed(object) && !snapshot_has(object)) {
		free_object(object);
	}
}

/* The request's own, some of which have numbers of objects of the boot that it freed; and what it has connected. */
static void free_objects(void)
{
	const zend_objects_store *store = &EG(objects_store);
	for (uint32_t i = store->top; i-- > snapshot_marks.objects;) {
		free_own(store->object_buckets[i]);
	}
	uint32_t count;
	const uint32_t *freed = snapshot_freed(&count);
	while (count > 0) {
		free_own(store->object_buckets[freed[--count]]);
	}
	const uint32_t *unconnected = snapshot_unconnected(&count);
	while (count > 0) {
		zend_object *object = store->object_buckets[unconnected[--count]];
		if (can_be_freed(object) && snapshot_has(object) && !cleanup_is_unconnected(object)) {
			free_object(object);
		}
	}
}

static void close_persistent(void)
{
	HashTable *list = &EG(persistent_list);
	for (uint32_t i = list->nNumUsed; i-- > snapshot_marks.persistent;) {
		Bucket *bucket = list->arData + i;
		if (Z_TYPE(bucket->val) != IS_UNDEF) {
			zend_hash_del_bucket(list, bucket);
		}
	}
}

static void shut_loud_modules_down(void)
{
	for (int i = loud_count; i-- > 0;) {
		loud_modules[i]->request_shutdown_func(loud_modules[i]->type, loud_modules[i]->module_number);
	}
}

void cleanup_leave(void)
{
	zend_objects_store_mark_destructed(&EG(objects_store));
	for (size_t i = 0; i < seen_count; i++) {
		zend_resource *resource = to_be_seen(&seen[i]);
		if (resource != NULL) {
			resource->type = -1; /* as closed */
		}
	}
}

static void run_step(const char *name, void (*run)(void))
{
	zend_try
	{
		run();
	}
	zend_catch
	{
		doubtful = name;
		/* As shutdown_destructors(): what could not be destroyed cleanly is not destroyed. */
		zend_objects_store_mark_destructed(&EG(objects_store));
	}
	zend_end_try();
}

#define step(run) run_step(#run, run)

const char *cleanup_request(bool unwound)
{
	doubtful = NULL;
	step(shut_loud_modules_down);
	step(close_resources);
	step(free_objects);
	step(sqlite_end_request);
	step(leftovers_hand_in);
	step(close_lent_files);
	step(close_persistent);
	if (unwound) {
		/* A fatal error may have come while opcache's lock was held. */
		step(opcache_after_bailout);
	}
	return doubtful;
}
