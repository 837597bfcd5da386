/*
 * What the boot set that PHP ties to a request: it has to outlive the request in which the boot ran, and be there in
 * each that follows.
 *
 * PHP gives up such state at the end of a request (ini settings, handlers of sessions; shutdown.c has
 * shutdown functions) or sets it
 * anew at the beginning (mbstring). What is not such state needs no care: it stays until a rewind puts it back.
 */
#include "host.h"

#include "engine.h"

/*
 * Settings. PHP restores every changed one to its original value when a request ends, so the values at the end of the
 * boot are made the original ones for the warm-up requests, and for all requests where state is kept. Where a rewind
 * puts settings back, ini_restore() then gets the real ones again.
 */
struct original {
	zend_ini_entry *entry;
	zend_string *value;
	int modifiable;
};
static struct original *originals;
static uint32_t original_count;

void boot_keep_settings(void)
{
	if (EG(modified_ini_directives) == NULL) {
		return;
	}
	originals = safe_emalloc(zend_hash_num_elements(EG(modified_ini_directives)), sizeof *originals, 0);
	zend_ini_entry *entry;
	ZEND_HASH_MAP_FOREACH_PTR(EG(modified_ini_directives), entry)
	{
		originals[original_count++] =
		    (struct original){.entry = entry, .value = entry->orig_value, .modifiable = entry->orig_modifiable};
		entry->modified = 0;
		entry->orig_value = NULL;
	}
	ZEND_HASH_FOREACH_END();
	zend_hash_destroy(EG(modified_ini_directives));
	FREE_HASHTABLE(EG(modified_ini_directives));
	EG(modified_ini_directives) = NULL;
}

/* As zend_alter_ini_entry_ex() leaves them. */
void boot_make_settings_modified(void)
{
	if (original_count == 0) {
		return;
	}
	ALLOC_HASHTABLE(EG(modified_ini_directives));
	zend_hash_init(EG(modified_ini_directives), original_count, NULL, NULL, 0);
	for (uint32_t i = 0; i < original_count; i++) {
		zend_ini_entry *entry = originals[i].entry;
		entry->modified = 1;
		entry->orig_value = originals[i].value;
		entry->orig_modifiable = (uint8_t)originals[i].modifiable;
		zend_hash_add_ptr(EG(modified_ini_directives), entry->name, entry);
	}
}

/* Handlers of sessions: session's request shutdown forgets them, and `session.save_handler` goes on naming them. */

static zval handlers[ENGINE_SESSION_HANDLERS];
static zend_string *handler_class;

static php_ps_globals *session_globals(void)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("session"));
	return module != NULL && module->globals_size == sizeof(php_ps_globals) ? module->globals_ptr : NULL;
}

static void keep_session_handlers(void)
{
	php_ps_globals *session = session_globals();
	for (size_t i = 0; session != NULL && i < ENGINE_SESSION_HANDLERS; i++) {
		ZVAL_COPY(&handlers[i], &engine_session_handlers(session)[i]);
	}
	handler_class =
	    session != NULL && session->mod_user_class_name != NULL ? zend_string_copy(session->mod_user_class_name) : NULL;
}

void boot_restore_session_handlers(void)
{
	if (Z_ISUNDEF(handlers[0])) {
		return;
	}
	php_ps_globals *session = session_globals();
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		ZVAL_COPY(&engine_session_handlers(session)[i], &handlers[i]);
	}
	session->mod_user_class_name = handler_class != NULL ? zend_string_copy(handler_class) : NULL;
}

void boot_seed_sessions(uint64_t high, uint64_t low)
{
	php_ps_globals *session = session_globals();
	if (session != NULL) {
		engine_seed_sessions(session, high, low);
	}
}

/* mbstring: its request startup takes the values of php.ini. What functions have set is set again. */

static struct {
	const char *function; /* without an argument it says the value, with one it sets it */
	zval value;           /* undefined: as it would be anyway */
} encodings[] = {{.function = "mb_internal_encoding"},
                 {.function = "mb_http_output"},
                 {.function = "mb_substitute_character"},
                 {.function = "mb_detect_order"},
                 {.function = "mb_regex_encoding"}};
#define ENCODINGS (sizeof encodings / sizeof encodings[0])

static void call(const char *function, zval *result, zval *argument)
{
	zend_function *found = zend_hash_str_find_ptr(CG(function_table), function, strlen(function));
	ZVAL_UNDEF(result);
	if (found != NULL && found->type == ZEND_INTERNAL_FUNCTION) {
		zend_call_known_function(found, NULL, NULL, result, argument != NULL ? 1 : 0, argument, NULL);
	}
}

static void note_encodings(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		call(encodings[i].function, &encodings[i].value, NULL);
	}
}

void boot_compare_encodings(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		zval usual;
		call(encodings[i].function, &usual, NULL);
		if (zend_is_identical(&usual, &encodings[i].value)) {
			zval_ptr_dtor(&encodings[i].value);
			ZVAL_UNDEF(&encodings[i].value);
		}
		zval_ptr_dtor(&usual);
	}
}

void boot_restore_encodings(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		if (!Z_ISUNDEF(encodings[i].value)) {
			zval ignored;
			call(encodings[i].function, &ignored, &encodings[i].value);
			zval_ptr_dtor(&ignored);
		}
	}
}

void boot_keep(void)
{
	keep_session_handlers();
	note_encodings();
	shutdown_keep_of_boot();
}
