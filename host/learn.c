/*
 * Warm-up requests in processes of their own. Where a boot script of ours (php/boot/) boots a project, nobody has
 * looked at what its requests leave in statics, globals, libraries and PHP itself; so warm-up requests are handled by
 * processes that were forked at the end of the boot and end with their request. The process that has booted, from which
 * visitors are served, takes from them only what is the same for all: names of the classes and regular expressions that
 * they needed (by_name.c), what functions have looked up (runtime_caches.c), and what the boot script itself has noted,
 * which knows its framework.
 *
 * A request that crashes, or does not come back, is one that nothing is learned from.
 */
#include "host.h"
#include "zend_exceptions.h"

#include <string.h>
#include <sys/mman.h>

/* Bytes of all that boot scripts note. */
#define ROOM ((size_t)1 << 20)

/* Shared with the processes that answer: texts, one after the other, each with a zero at its end. */
struct learned {
	size_t used;
	char text[];
};
static struct learned *learned;

/* What a boot script wants to be called with when all is learned; undefined: nothing. */
static zval callable;

bool learn_elsewhere(void)
{
	return options_is_project() && options.rewind != REWIND_OFF;
}

void learn_begin(void)
{
	void *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	learned = at == MAP_FAILED ? NULL : at;
	runtime_caches_keep();
}

void learn_request_over(void)
{
	by_name_add();
	runtime_caches_note();
}

/* False: a fatal error ended it. */
static bool call(bool warm)
{
	volatile bool done = false;
	zval result, argument;
	ZVAL_UNDEF(&result);
	ZVAL_BOOL(&argument, warm);
	zend_try
	{
		call_user_function(NULL, NULL, &callable, &result, 1, &argument);
		if (EG(exception) != NULL) {
			zend_exception_error(EG(exception), E_WARNING);
			zend_clear_exception();
		}
		zval_ptr_dtor(&result);
		done = true;
	}
	zend_end_try();
	return done;
}

void learn_over(bool warm)
{
	by_name_load();
	runtime_caches_take_over();
	if (!Z_ISUNDEF(callable) && !call(warm)) {
		warmup_failed("what the boot script makes of its warm-up requests ended with a fatal error", true);
	}
	zval_ptr_dtor(&callable);
	ZVAL_UNDEF(&callable);
	if (learned != NULL) {
		munmap(learned, ROOM);
		learned = NULL;
	}
}

/* learn(string $what): void: in a warm-up request: something that the process that has booted is to know. */
static PHP_FUNCTION(learn)
{
	zend_string *what;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(what)
	ZEND_PARSE_PARAMETERS_END();
	size_t size = ZSTR_LEN(what) + 1;
	if (learned != NULL && compare_learns() && strlen(ZSTR_VAL(what)) + 1 == size &&
	    size <= ROOM - sizeof *learned - MIN(learned->used, ROOM - sizeof *learned)) {
		memcpy(learned->text + learned->used, ZSTR_VAL(what), size);
		learned->used += size;
	}
}

/* learned(): list<string>: what warm-up requests have noted, each thing once. */
static PHP_FUNCTION(learned)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	size_t used = learned == NULL ? 0 : MIN(learned->used, ROOM - sizeof *learned);
	HashTable seen;
	zend_hash_init(&seen, 8, NULL, NULL, false);
	for (size_t at = 0; at < used;) {
		size_t len = strnlen(learned->text + at, used - at);
		if (zend_hash_str_add_empty_element(&seen, learned->text + at, len) != NULL) {
			add_next_index_stringl(return_value, learned->text + at, len);
		}
		at += len + 1;
	}
	zend_hash_destroy(&seen);
}

/* when_learned(callable(bool $warm): void $then): void: calls it once, after the warm-up requests, if there were any,
 * and before the snapshot. */
static PHP_FUNCTION(when_learned)
{
	zend_fcall_info given;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(given, cache)
	ZEND_PARSE_PARAMETERS_END();
	zval_ptr_dtor(&callable);
	ZVAL_COPY(&callable, &given.function_name);
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_learn, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, what, IS_STRING, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_learned, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_when_learned, 0, 1, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, then, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry of_boot_scripts[] = {
    ZEND_NS_FE("Hayate\\Boot", learn, arginfo_learn) ZEND_NS_FE("Hayate\\Boot", learned, arginfo_learned)
        ZEND_NS_FE("Hayate\\Boot", when_learned, arginfo_when_learned) ZEND_FE_END};

void learn_startup(void)
{
	if (options_is_project()) {
		functions_of_boot_scripts(of_boot_scripts);
	}
}
