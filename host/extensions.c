/*
 * Extensions that keep state where a rewind does not reach, whatever a request does: in threads that run from the start
 * of a request on, or at the other end of a connection that outlives it.
 *
 * The list is short on purpose. What an extension does only when it is used (threads, connections, event loops) is
 * found out when it happens (rewind/process.c, rewind/interpose_*.c), and then costs only those who use it. No name
 * belongs here for memory that it keeps, in globals, statics or persistent lists: that is put back.
 */
#include "host.h"

static const struct {
	const char *name; /* as in `php -m` */
	const char *keeps;
} unsafe[] = {
    {"datadog-profiling", "threads that sample what requests do"},
    {"ddtrace", "a thread that sends traces"},
    {"elastic_apm", "a thread that sends traces"},
    {"grpc", "threads and connections that requests share"},
    {"newrelic", "a conversation with its daemon that spans requests"},
};

const char *extensions_unsafe(void)
{
	static char why[512];
	for (size_t i = 0; i < sizeof unsafe / sizeof unsafe[0]; i++) {
		const zend_module_entry *module =
		    zend_hash_str_find_ptr(&module_registry, unsafe[i].name, strlen(unsafe[i].name));
		if (module != NULL) {
			snprintf(why, sizeof why,
			         "the extension %s keeps %s, where a rewind does not reach. To avoid it: do without the extension "
			         "here, or say rewind = \"fork\" if it is to be so",
			         module->name, unsafe[i].keeps);
			return why;
		}
	}
	return NULL;
}
