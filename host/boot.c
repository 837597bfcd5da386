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

#include "php_main.h"
#include "zend_weakrefs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
	bool with_sessions; /* set by what keeps sessions, when that was made */
};
static struct original *originals;
static uint32_t original_count;
/* An object that was made by the request that ends keeps sessions from now on. */
static bool sessions_live_on;

/* As zend_alter_ini_entry_ex() leaves it. */
static void make_modified(const struct original *original)
{
	zend_ini_entry *entry = original->entry;
	entry->modified = 1;
	entry->orig_value = original->value;
	entry->orig_modifiable = (uint8_t)original->modifiable;
	zend_hash_add_ptr(EG(modified_ini_directives), entry->name, entry);
}

void boot_make_settings_modified(void)
{
	if (original_count == 0) {
		return;
	}
	ALLOC_HASHTABLE(EG(modified_ini_directives));
	zend_hash_init(EG(modified_ini_directives), original_count, NULL, NULL, 0);
	for (uint32_t i = 0; i < original_count; i++) {
		make_modified(&originals[i]);
	}
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
	} else if (entry->orig_value != entry->value && entry->orig_value != NULL) {
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
	uint32_t of_boot = original_count;
	zend_ini_entry *entry;
	ZEND_HASH_MAP_FOREACH_PTR(EG(modified_ini_directives), entry)
	{
		if (zend_string_starts_with_literal(entry->name, "session.")) {
			settle(entry);
			zend_hash_del(EG(modified_ini_directives), entry->name);
		}
	}
	ZEND_HASH_FOREACH_END();
	for (uint32_t i = of_boot; i < original_count; i++) {
		originals[i].with_sessions = true;
	}
}

/* What was set with handlers that nobody holds any more is as it was before. */
static void forget_session_settings(void)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < original_count; i++) {
		if (!originals[i].with_sessions) {
			originals[kept++] = originals[i];
			continue;
		}
		zend_ini_entry *entry = originals[i].entry;
		if (EG(modified_ini_directives) == NULL) {
			ALLOC_HASHTABLE(EG(modified_ini_directives));
			zend_hash_init(EG(modified_ini_directives), 8, NULL, NULL, 0);
		}
		make_modified(&originals[i]);
		zend_restore_ini_entry(entry->name, ZEND_INI_STAGE_DEACTIVATE);
	}
	original_count = kept;
}

/* Handlers of sessions: session's request shutdown forgets them, and `session.save_handler` goes on naming them. */

static zval handlers[ENGINE_SESSION_HANDLERS];
static zend_string *handler_class;
/* The boot set them: they stay, whoever holds their object. */
static bool of_boot = true;

static php_ps_globals *session_globals(void)
{
	const zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("session"));
	return module != NULL && module->globals_size == sizeof(php_ps_globals) ? module->globals_ptr : NULL;
}

/* Which the kernel keeps, and requests of php-fpm do not find as another one has left them. */
static char directory[PATH_MAX];
static mode_t mask;

void boot_note_process(void)
{
	mask = umask(0);
	umask(mask);
	if (getcwd(directory, sizeof directory) == NULL) {
		directory[0] = '\0';
	}
}

void boot_restore_process(void)
{
	umask(mask);
	if (directory[0] != '\0' && chdir(directory) != 0) {
		log_format("A warm-up request has changed the working directory, and that of the boot (%s) cannot be gone back "
		           "to: %s.",
		           directory, strerror(errno));
	}
}

int boot_start_php(void)
{
	php_ps_globals *session = session_globals();
	bool starts = session != NULL && session->auto_start;
	if (starts) {
		session->auto_start = 0;
	}
	int result = php_request_startup();
	if (starts) {
		session->auto_start = 1;
	}
	return result;
}

static bool left_session;

void boot_look_at_session(void)
{
	const php_ps_globals *session = session_globals();
	bool wrote =
	    session != NULL && session->auto_start && zend_hash_str_exists(&EG(symbol_table), ZEND_STRL("_SESSION"));
	left_session = wrote || (session != NULL && session->session_status == php_session_active);
}

const char *boot_left_session(void)
{
	return left_session ? "started a session, or wrote to $_SESSION" : NULL;
}

static void forget_session_handlers(void)
{
	zval before[ENGINE_SESSION_HANDLERS];
	memcpy(before, handlers, sizeof before);
	memset(handlers, 0, sizeof handlers); /* IS_UNDEF */
	zend_string *class = handler_class;
	handler_class = NULL;
	if (class != NULL) {
		zend_string_release(class);
	}
	/* The last thing: it may run code of the application. */
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		zval_ptr_dtor(&before[i]);
	}
}

static void keep_session_handlers(php_ps_globals *session)
{
	zval set[ENGINE_SESSION_HANDLERS];
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		ZVAL_COPY(&set[i], &engine_session_handlers(session)[i]);
	}
	zend_string *class = session->mod_user_class_name != NULL ? zend_string_copy(session->mod_user_class_name) : NULL;
	forget_session_handlers();
	memcpy(handlers, set, sizeof set);
	handler_class = class;
}

/* The object whose methods handlers are; NULL: there is none. `held`: how often they hold it. */
static zend_object *object_of(const zval *names, uint32_t *held)
{
	zend_object *of = NULL;
	*held = 0;
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		const zval *first = Z_TYPE(names[i]) == IS_ARRAY ? zend_hash_index_find(Z_ARRVAL(names[i]), 0) : NULL;
		if (first != NULL && Z_TYPE_P(first) == IS_OBJECT && (of == NULL || of == Z_OBJ_P(first))) {
			of = Z_OBJ_P(first);
			++*held;
		}
	}
	return of;
}

/* Session has none. */
static void clear_session_handlers(php_ps_globals *session)
{
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		zval_ptr_dtor(&engine_session_handlers(session)[i]);
		ZVAL_UNDEF(&engine_session_handlers(session)[i]);
	}
	if (session->mod_user_class_name != NULL) {
		zend_string_release(session->mod_user_class_name);
		session->mod_user_class_name = NULL;
	}
}

/*
 * Nobody but a cycle of its own held it, such as a container that was made for one request, and whose services know it.
 * The collector asks so only of what nobody else holds: `names` let go of their object for that moment. If it was so,
 * it is gone.
 */
static bool went_as_garbage(zval *names, zend_object *of)
{
	zval *firsts[ENGINE_SESSION_HANDLERS];
	size_t count = 0;
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		zval *first = Z_TYPE(names[i]) == IS_ARRAY ? zend_hash_index_find(Z_ARRVAL(names[i]), 0) : NULL;
		if (first != NULL && Z_TYPE_P(first) == IS_OBJECT && Z_OBJ_P(first) == of) {
			if (!Z_REFCOUNTED(names[i]) || Z_REFCOUNT(names[i]) > 1) {
				return false; /* somebody else's array as well */
			}
			firsts[count++] = first;
		}
	}
	HashTable alive;
	zend_hash_init(&alive, 1, NULL, NULL, 0);
	zval here;
	ZVAL_TRUE(&here);
	zend_weakrefs_hash_add(&alive, of, &here);
	for (size_t i = 0; i < count; i++) {
		ZVAL_NULL(firsts[i]);
		GC_DELREF(of);
	}
	gc_check_possible_root((zend_refcounted *)of);
	volatile bool failed = false;
	/* Destructors may end in a fatal error, and PHP knows the table on this stack. */
	zend_try
	{
		gc_collect_cycles();
	}
	zend_catch
	{
		failed = true;
	}
	zend_end_try();
	bool gone = zend_hash_num_elements(&alive) == 0;
	for (size_t i = 0; i < count && !gone; i++) {
		GC_ADDREF(of);
		ZVAL_OBJ(firsts[i], of);
	}
	if (!gone) {
		zend_weakrefs_hash_del(&alive, of);
	}
	zend_hash_destroy(&alive);
	if (failed) {
		zend_bailout();
	}
	return gone;
}

/* Handlers of the request that ends, whose object somebody else holds as well. */
static zval candidates[ENGINE_SESSION_HANDLERS];
static zend_string *candidate_class;

void boot_note_living_sessions(void)
{
	php_ps_globals *session = session_globals();
	uint32_t held, known;
	zend_object *set = session == NULL ? NULL : object_of(engine_session_handlers(session), &held);
	if (set == NULL || set == object_of(handlers, &known) || GC_REFCOUNT(set) <= held) {
		return;
	}
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		ZVAL_COPY(&candidates[i], &engine_session_handlers(session)[i]);
	}
	candidate_class = session->mod_user_class_name != NULL ? zend_string_copy(session->mod_user_class_name) : NULL;
}

void boot_keep_living_sessions(void)
{
	uint32_t held;
	zval set[ENGINE_SESSION_HANDLERS];
	memcpy(set, candidates, sizeof set);
	memset(candidates, 0, sizeof candidates);
	zend_string *class = candidate_class;
	candidate_class = NULL;
	zend_object *of = object_of(set, &held);
	sessions_live_on = of != NULL && GC_REFCOUNT(of) > held && !went_as_garbage(set, of);
	if (sessions_live_on) {
		of_boot = false;
		clear_session_handlers(session_globals());
		forget_session_handlers();
		memcpy(handlers, set, sizeof set);
		handler_class = class;
		boot_restore_session_handlers();
		return;
	}
	if (class != NULL) {
		zend_string_release(class);
	}
	for (size_t i = 0; i < ENGINE_SESSION_HANDLERS; i++) {
		zval_ptr_dtor(&set[i]);
	}
}

void boot_forget_sessions(void)
{
	uint32_t held;
	zend_object *of = object_of(handlers, &held);
	php_ps_globals *session = session_globals();
	if (of_boot || of == NULL || session == NULL || GC_REFCOUNT(of) > held) {
		return;
	}
	clear_session_handlers(session);
	forget_session_settings();
	forget_session_handlers();
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
	const char *setting;  /* which it follows until it is set, if it does */
	zval value;           /* undefined: as it would be anyway */
	bool is_set;
} encodings[] = {{.function = "mb_internal_encoding", .setting = "internal_encoding"},
                 {.function = "mb_http_output", .setting = "output_encoding"},
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

/* Whether the function was called to set it, be it to what it was: then it does not follow the setting any more. */
static bool is_set(const char *function, const char *setting, zval *value)
{
	if (setting == NULL) {
		return false;
	}
	zend_string *name = zend_string_init(setting, strlen(setting), false);
	const zend_ini_entry *entry = zend_hash_find_ptr(EG(ini_directives), name);
	bool set = false;
	if (Z_TYPE_P(value) == IS_STRING && entry != NULL && !entry->modified) {
		const char *other = strcasecmp(Z_STRVAL_P(value), "ISO-8859-1") == 0 ? "UTF-8" : "ISO-8859-1";
		zend_string *text = zend_string_init(other, strlen(other), false);
		zval follows;
		zend_alter_ini_entry(name, text, ZEND_INI_SYSTEM, ZEND_INI_STAGE_RUNTIME);
		call(function, &follows, NULL);
		set = zend_is_identical(&follows, value);
		zval_ptr_dtor(&follows);
		zend_restore_ini_entry(name, ZEND_INI_STAGE_RUNTIME);
		zend_string_release(text);
	}
	zend_string_release(name);
	return set;
}

static void keep_encodings_of_boot(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		call(encodings[i].function, &encodings[i].value, NULL);
		encodings[i].is_set = is_set(encodings[i].function, encodings[i].setting, &encodings[i].value);
	}
}

void boot_compare_encodings(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		zval usual;
		call(encodings[i].function, &usual, NULL);
		if (!encodings[i].is_set && zend_is_identical(&usual, &encodings[i].value)) {
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

static zval before_step[ENCODINGS];

void boot_encodings_before_step(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		call(encodings[i].function, &before_step[i], NULL);
	}
}

void boot_keep_encodings_of_step(void)
{
	for (size_t i = 0; i < ENCODINGS; i++) {
		zval now;
		call(encodings[i].function, &now, NULL);
		if (zend_is_identical(&now, &before_step[i]) && !is_set(encodings[i].function, encodings[i].setting, &now)) {
			zval_ptr_dtor(&now);
		} else {
			zval_ptr_dtor(&encodings[i].value);
			ZVAL_COPY_VALUE(&encodings[i].value, &now);
		}
		zval_ptr_dtor(&before_step[i]);
	}
}

void boot_keep(void)
{
	if (session_globals() != NULL) {
		keep_session_handlers(session_globals());
	}
	keep_encodings_of_boot();
	shutdown_keep_of_boot();
}
