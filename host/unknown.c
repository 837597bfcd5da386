/*
 * What the boot leaves open and nobody here knows the end of. Under php-fpm each request's end closes what its boot has
 * opened, and what that held back is written. Under rewinding resources and objects of the boot outlive the request,
 * and what they have buffered in memory is put back: so what a request wrote to an unknown one would be lost without a
 * word.
 *
 * So here is a list of what is known: it holds nothing back, or cleanup.c, leftovers.c or sqlite.c have it written, or
 * it is a connection, of which the rewinder sees that it is used. A boot that leaves anything else is not rewound.
 *
 * And a list of classes whose objects read a file when they are made, and write it anew when they are destroyed: under
 * php-fpm each request reads what the one before has written.
 *
 * Promised: it decides by the names of types, extensions and streams, and runs nobody's code.
 */
#include "host.h"

/* Types of resources. Streams are looked at one by one. */
static const char *const known_types[] = {
    "stream factory",
    "stream-context",
    "stream filter",
    "userfilter.bucket brigade",
    "userfilter.bucket",
    "SSH2 Session",
    "SSH2 Listener",
    "SSH2 SFTP",
    "odbc link",
    "odbc result",
    "xmlrpc server",
    "odbc link persistent",
    "persistent stream",
    "Libvirt connection",
    "mailparse_mail_structure",
    "SOAP SDL",
    "SOAP URL",
    "SOAP table",
    "SSH2 Publickey Subsystem",
    "Libvirt domain",
    "Libvirt node device",
    "Libvirt storagepool",
    "Libvirt volume",
    "Libvirt virtual network",
    "smbclient state",
    "oci8 connection",
    "oci8 persistent connection",
    "oci8 statement",
    "SQL Server Connection",
    "SQL Server Statement",
    "mcrypt",
    "Zip Directory",
    "Zip Entry",
};

/* Extensions whose objects hold memory, or write at once, or belong to a connection, or are seen to (see above). */
static const char *const known_extensions[] = {
    "Core",
    "date",
    "libxml",
    "openssl",
    "pcre",
    "zlib",
    "filter",
    "hash",
    "json",
    "random",
    "Reflection",
    "SPL",
    "session",
    "standard",
    "sodium",
    "mysqlnd",
    "PDO",
    "pdo_mysql",
    "pdo_pgsql",
    "pdo_sqlite",
    "pdo_odbc",
    "pdo_dblib",
    "pdo_firebird",
    "xml",
    "apcu",
    "calendar",
    "ctype",
    "curl",
    "dom",
    "mbstring",
    "FFI",
    "fileinfo",
    "ftp",
    "gd",
    "intl",
    "igbinary",
    "msgpack",
    "mysqli",
    "pgsql",
    "Phar",
    "readline",
    "redis",
    "shmop",
    "SimpleXML",
    "sockets",
    "sqlite3",
    "sysvmsg",
    "sysvsem",
    "sysvshm",
    "tokenizer",
    "xmlreader",
    "xmlrpc",
    "xsl",
    "zip",
    "memcached",
    "Zend OPcache",
    "xdebug",
    "mongodb",
    "gmp",
    "uuid",
    "bcmath",
    "soap",
    "tidy",
    "snmp",
    "ldap",
    "enchant",
    "pspell",
    "imagick",
    "gmagick",
    "amqp",
    "ast",
    "ds",
    "gearman",
    "gnupg",
    "http",
    "raphf",
    "maxminddb",
    "memcache",
    "oauth",
    "pcov",
    "psr",
    "rrd",
    "solr",
    "stomp",
    "uopz",
    "yac",
    "yaml",
    "uploadprogress",
    "protobuf",
    "decimal",
    "excimer",
    "opentelemetry",
    "iconv",
    "bz2",
    "lexbor",
    "uri",
    "exif",
    "gettext",
    "zmq",
    "rdkafka",
    "vips",
    "mailparse",
    "odbc",
    "imap",
    "relay",
    "oci8",
    "pdo_oci",
    "sqlsrv",
    "pdo_sqlsrv",
    "ibm_db2",
    "pq",
    "event",
    "ev",
    "uv",
    "couchbase",
    /* Not rewound (extensions.c), and with a fork for each request their own threads and agents send what they hold. */
    "grpc",
    "ddtrace",
    "datadog-profiling",
    "elastic_apm",
    "newrelic",
    "brotli",
    "zstd",
    "lzf",
    "simdjson",
    "inotify",
    "phalcon",
    "yaf",
    "sync",
    "xhprof",
    "luasandbox",
    "swoole",
    "openswoole",
    "hayate",
};

/* In PHP code: classes, and what descends from them. */
static const char *const writers_of_what_was_read[] = {
    "GuzzleHttp\\Cookie\\FileCookieJar",
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static bool is_known(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; name != NULL && i < count; i++) {
		if (strcasecmp(name, list[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Files of dba_open() keep pages, or their own size and free list, in memory until they are closed. One that is only
 * read has nothing to write. (dba_info of ext/dba/php_dba.h, 7.4 and later, begins so; DBA_READER is 1.) */
static bool is_read_only_dba(const void *info)
{
	const struct {
		void *handle;
		void *path;
		int mode;
	} *dba = info;
	return dba->mode == 1;
}

static bool is_known_resource(const zend_resource *resource, const char *type)
{
	if (resource->type == php_file_le_stream()) {
		return cleanup_stream(resource->ptr) != CLEANUP_STREAM_UNKNOWN;
	}
	if (strcmp(type, "dba") == 0 || strcmp(type, "dba persistent") == 0) {
		return is_read_only_dba(resource->ptr);
	}
	return is_known(type, known_types, COUNT(known_types));
}

const char *unknown_stale(void)
{
	static char why[300];
	const zend_objects_store *store = &EG(objects_store);
	for (uint32_t i = 1; i < store->top; i++) {
		const zend_object *object = store->object_buckets[i];
		const zend_class_entry *class = IS_OBJ_VALID(object) ? object->ce : NULL;
		while (class != NULL && class->type == ZEND_USER_CLASS) {
			if (is_known(ZSTR_VAL(class->name), writers_of_what_was_read, COUNT(writers_of_what_was_read))) {
				snprintf(why, sizeof why, "left an object of the class %.200s", ZSTR_VAL(object->ce->name));
				return why;
			}
			class = class->parent;
		}
	}
	return NULL;
}

/* The class of PHP's or of an extension's that it is, or descends from. */
static const zend_class_entry *internal_class(const zend_object *object)
{
	const zend_class_entry *class = object->ce;
	while (class != NULL && class->type != ZEND_INTERNAL_CLASS) {
		class = class->parent;
	}
	return class;
}

/* XMLWriter closes its file when it is destroyed, as each request's end has it; older ones only when they were freed.
 */
static bool is_closed_when_destroyed(const zend_object *object, const char *module)
{
	return strcasecmp(module, "xmlwriter") == 0 && object->handlers->dtor_obj != zend_objects_destroy_object;
}

/* Dba\Connection of PHP 8.4 and later (dba_connection_object of ext/dba/dba.c) begins with the dba_info *, which is
 * NULL in a closed one. */
static bool is_dba_object_without_rest(const zend_object *object, const char *module)
{
	if (strcasecmp(module, "dba") != 0 || object->handlers->offset <= 0) {
		return false;
	}
	const void *info = *(void *const *)((const char *)object - object->handlers->offset);
	return info == NULL || is_read_only_dba(info);
}

const char *unknown_child(void)
{
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		const char *type = resource->ptr == NULL ? NULL : zend_rsrc_list_get_rsrc_type(resource);
		if (type != NULL && strcmp(type, "process") == 0) {
			return "left a child process of proc_open()";
		}
		if (type != NULL && resource->type == php_file_le_stream() && boot_files_is_program(resource->ptr)) {
			return "left a child process of popen()";
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}

const char *unknown_left(void)
{
	static char why[512];
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		const char *type = resource->ptr == NULL ? NULL : zend_rsrc_list_get_rsrc_type(resource);
		if (type == NULL || is_known_resource(resource, type)) {
			continue;
		}
		const php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;
		snprintf(why, sizeof why, "left a resource open of the type \"%.100s%s%.100s\"", type,
		         stream == NULL ? "" : " of ", stream == NULL ? "" : stream->ops->label);
		return why;
	}
	ZEND_HASH_FOREACH_END();
	const zend_objects_store *store = &EG(objects_store);
	for (uint32_t i = 1; i < store->top; i++) {
		const zend_object *object = store->object_buckets[i];
		const zend_class_entry *class =
		    IS_OBJ_VALID(object) && cleanup_reaches_outside(object) ? internal_class(object) : NULL;
		const zend_module_entry *module = class == NULL ? NULL : class->info.internal.module;
		if (module != NULL && !is_known(module->name, known_extensions, COUNT(known_extensions)) &&
		    !is_closed_when_destroyed(object, module->name) && !is_dba_object_without_rest(object, module->name)) {
			snprintf(why, sizeof why, "left an object of the class %.200s, of the extension %.100s",
			         ZSTR_VAL(class->name), module->name);
			return why;
		}
	}
	return NULL;
}
