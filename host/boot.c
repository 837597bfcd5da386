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
 *
 * The same holds for sessions where the state of requests stays: an object that keeps them, made by a request and met
 * by those that follow, has said so once, and set them up.
 */
struct original {
	zend_ini_entry *entry;
	zend_string *value;
	int modifiable;
};
static struct original *originals;
static uint32_t original_count;
/* An object that was made by the request that ends keeps sessions from now on. */
static bool sessions_live_on;

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

/* Whether a setting is one of sessions. */
static bool is_of_sessions(const zend_ini_entry *entry)
{
	return zend_string_starts_with_literal(entry->name, "session.");
}

/* Its value becomes the one that requests begin with. */
static void settle(zend_ini_entry *entry)
{
	uint32_t known = 0;
	while (known < original_count && originals[known].entry != entry) {
		known++;
	}
	if (known == original_count) {
		originals = safe_erealloc(originals, original_count + 1, sizeof *originals, 0);
		originals[original_count++] =
		    (struct original){.entry = entry, .value = entry->orig_value, .modifiable = entry->orig_modifiable};
	} else if (entry->orig_value != entry->value) {
		zend_string_release(entry->orig_value);
	}
	entry->modified = 0;
	entry->orig_value = NULL;
}

void boot_keep_settings(void)
{
	if (EG(modified_ini_directives) == NULL) {
		return;
	}
	zend_ini_entry *entry;
	ZEND_HASH_MAP_FOREACH_PTR(EG(modified_ini_directives), entry)
	{
		settle(entry);
	}
	ZEND_HASH_FOREACH_END();
	zend_hash_destroy(EG(modified_ini_directives));
	FREE_HASHTABLE(EG(modified_ini_directives));
	EG(modified_ini_directives) = NULL;
}

void boot_keep_session_settings(void)
{
	if (!sessions_live_on || EG(modified_ini_directives) == NULL) {
		return;
	}
	zend_ini_entry *entry;
	ZEND_HASH_MAP_FOREACH_PTR(EG(modified_ini_directives), entry)
	{
		if (is_of_sessions(entry)) {
			settle(entry);
			zend_hash_del(EG(modified_ini_directives), entry->name);
		}
	}
	ZEND_HASH_FOREACH_END();
}

/* Handlers of sessions: session's request shutdown forgets them, and `session.save_handler` goes on naming them. */

static zval handlers[ENGINE_SESSION_HANDLERS];
static zend_string *handler_class;

static php_ps_globals *session_globals(void)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("session"));
	return module != NULL && module->globals_size == sizeof(php_ps_globals) ? module->globals_ptr : NULL;
}

static void keep_session_handlers(php_ps_globals *session)
{
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		zval before = handlers[i];
		ZVAL_COPY(&handlers[i], &engine_session_handlers(session)[i]);
		zval_ptr_dtor(&before);
	}
	zend_string *before = handler_class;
	handler_class = session->mod_user_class_name != NULL ? zend_string_copy(session->mod_user_class_name) : NULL;
	if (before != NULL) {
		zend_string_release(before);
	}
}

/* Whether handlers are methods of one object, which others hold as well. */
static bool live_on(const zval *names)
{
	uint32_t held = 0;
	const zend_object *of = NULL;
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		const zval *first = Z_TYPE(names[i]) == IS_ARRAY ? zend_hash_index_find(Z_ARRVAL(names[i]), 0) : NULL;
		if (first != NULL && Z_TYPE_P(first) == IS_OBJECT && (of == NULL || of == Z_OBJ_P(first))) {
			of = Z_OBJ_P(first);
			held++;
		}
	}
	return of != NULL && GC_REFCOUNT(of) > held;
}

void boot_keep_living_sessions(void)
{
	php_ps_globals *session = session_globals();
	const zval *set = session == NULL ? NULL : engine_session_handlers(session);
	sessions_live_on = set != NULL && Z_TYPE(set[0]) == IS_ARRAY &&
	                   (Z_TYPE(handlers[0]) != IS_ARRAY || Z_ARR(handlers[0]) != Z_ARR(set[0])) && live_on(set);
	if (sessions_live_on) {
		keep_session_handlers(session);
	}
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
	if (session_globals() != NULL) {
		keep_session_handlers(session_globals());
	}
	note_encodings();
	shutdown_keep_of_boot();
}
