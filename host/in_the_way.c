/*
 * What a request does for which it matters that classes are there before it (by_name.c), in a project that a boot
 * script of ours boots: it declares one of the same name, or gives another class that name; its own code asks whether
 * one is loaded, without having it loaded; or it has an autoloader of its own asked before others. Then its answer is
 * not the one of classic mode. PHP's error, or ours, ends it, and the application boots anew, with all classes left to
 * requests.
 *
 * A warm-up request that does so, in a process of its own, tells what not to load (by_name.c): so an application whose
 * every request does meets no error.
 */
#include "engine.h"
#include "host.h"

#include "zend_observer.h"

#include <string.h>

/* Those that were loaded from their files lie together in the table of classes. */
static uint32_t first, end;
static bool is;

/* What this process' own code has asked for: names in lower case, IN_THE_WAY_ALL for an autoloader. */
static HashTable asked;
static bool learns;

void in_the_way_may_be(uint32_t from, uint32_t to)
{
	first = first == end ? from : first;
	end = to;
}

void in_the_way_note(void)
{
	learns = true;
}

static zend_string *key_of(const char *name, size_t len)
{
	zend_string *key =
	    len > 0 && name[0] == '\\' ? zend_string_init(name + 1, len - 1, false) : zend_string_init(name, len, false);
	zend_str_tolower(ZSTR_VAL(key), ZSTR_LEN(key));
	return key;
}

static bool is_ahead(zend_string *key)
{
	const zval *at = zend_hash_find(EG(class_table), key);
	size_t place = at == NULL ? 0 : (size_t)((const Bucket *)at - EG(class_table)->arData);
	return at != NULL && place >= first && place < end;
}

static void hear_of_error(int type, zend_string *in, uint32_t line, zend_string *message)
{
	/* As PHP says it of a class, an interface, a trait or an enum: of 8.2, and of later ones. What PHP code says by
	 * trigger_error() may be a visitor's text. */
	static const struct {
		const char *begins, *ends;
	} texts[] = {{"Cannot declare ", ", because the name is already in use"},
	             {"Cannot redeclare ", " (previously declared in "}};
	if (first == end || (type & (E_ERROR | E_WARNING | E_COMPILE_ERROR | E_COMPILE_WARNING)) == 0) {
		return;
	}
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		const char *text = ZSTR_VAL(message), *over = strstr(text, texts[i].ends);
		size_t len = strlen(texts[i].begins);
		const char *name = over != NULL && strncmp(text, texts[i].begins, len) == 0 ? strchr(text + len, ' ') : NULL;
		if (name != NULL && name < over) {
			zend_string *key = key_of(name + 1, (size_t)(over - name - 1));
			is |= is_ahead(key);
			zend_string_release(key);
		}
	}
}

static bool own_code(const zend_execute_data *by)
{
	const zend_execute_data *frame = owner_calling(by);
	return frame != NULL && by_name_is_for_requests(frame->func->op_array.filename);
}

static void note(zend_string *key)
{
	if (learns) {
		zend_string *kept = zend_string_init(ZSTR_VAL(key), ZSTR_LEN(key), true);
		zend_hash_add_empty_element(&asked, kept);
		zend_string_release(kept);
	}
}

static void note_all(void)
{
	zend_string *all = zend_string_init(ZEND_STRL(IN_THE_WAY_ALL), false);
	note(all);
	zend_string_release(all);
}

static void end_request(const char *does, const char *what)
{
	is = true;
	zend_error_noreturn(
	    E_ERROR,
	    "Hayate: the request %s%s, and classes of packages are there before all requests. From now on requests load "
	    "their classes by themselves",
	    does, what);
}

static bool is_ahead_by_name(zend_string *name)
{
	zend_string *key = key_of(ZSTR_VAL(name), ZSTR_LEN(name));
	bool ahead = learns || is_ahead(key);
	zend_string_release(key);
	return ahead;
}

/* What an autoloader goes by has changed, such as the names that Laravel gives classes, or directories of Composer's.
 */
static bool finds_another(void)
{
	return (first != end || learns) && autoloaders_find_another(is_ahead_by_name);
}

bool in_the_way(void)
{
	/* Not written where it stays as it was: then a rewind need not look at its page. */
	if (!is && first != end && finds_another()) {
		is = true;
	}
	return is;
}

void in_the_way_before_answer(void)
{
	if (!is && first != end && finds_another()) {
		SG(headers_sent) = 0; /* nothing has been, so that this is a 500, with nothing of the answer that was to be */
		sapi_header_op(SAPI_HEADER_DELETE_ALL, NULL);
		end_request("has an autoloader find other classes", "");
	}
}

HashTable *in_the_way_asked(void)
{
	if (learns && finds_another()) {
		note_all();
	}
	return &asked;
}

static zif_handler class_alias_handler, class_exists_handler, interface_exists_handler, trait_exists_handler,
    enum_exists_handler;
static zif_handler class_implements_handler, class_parents_handler, class_uses_handler;
static zif_handler get_declared_classes_handler, get_declared_interfaces_handler, get_declared_traits_handler;
static zif_handler get_included_files_handler, get_required_files_handler;
static zif_handler register_handler, unregister_handler;

/* PHP warns where the name is taken, and goes on. */
static ZEND_FUNCTION(looked_at_class_alias)
{
	const zval *name = ZEND_NUM_ARGS() >= 2 ? ZEND_CALL_ARG(execute_data, 2) : NULL;
	if ((first != end || learns) && name != NULL && Z_TYPE_P(name) == IS_STRING) {
		zend_string *key = key_of(Z_STRVAL_P(name), Z_STRLEN_P(name));
		bool ahead = is_ahead(key);
		note(key);
		zend_string_release(key);
		if (ahead) {
			end_request("gives a class the name ", Z_STRVAL_P(name));
		}
	}
	class_alias_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/* Composer finds files by names as they are written. */
static bool is_its_name(const zval *name, zend_string *key)
{
	const zend_class_entry *class = zend_hash_find_ptr(EG(class_table), key);
	size_t skip = Z_STRVAL_P(name)[0] == '\\' ? 1 : 0;
	return class != NULL && zend_string_equals_cstr(class->name, Z_STRVAL_P(name) + skip, Z_STRLEN_P(name) - skip);
}

/* class_exists($class, false) and its kin: what is asked for, and by whom. */
static void look_at_question(const zval *name, bool loads, const zend_execute_data *by)
{
	if ((first == end && !learns) || name == NULL || Z_TYPE_P(name) != IS_STRING) {
		return;
	}
	zend_string *key = key_of(Z_STRVAL_P(name), Z_STRLEN_P(name));
	bool ahead = is_ahead(key) && (!loads || !is_its_name(name, key));
	bool matters = (ahead || (learns && !loads)) && own_code(by);
	if (matters) {
		note(key);
	}
	zend_string_release(key);
	if (matters && ahead) {
		end_request("asks whether there is already a class ", Z_STRVAL_P(name));
	}
}

static void look_at_call(const zend_execute_data *call)
{
	uint32_t count = ZEND_CALL_NUM_ARGS(call);
	look_at_question(count == 0 ? NULL : ZEND_CALL_ARG(call, 1), count < 2 || zend_is_true(ZEND_CALL_ARG(call, 2)),
	                 call->prev_execute_data);
}

/* By instructions that call it without a frame. */
static void (*class_exists_of_one)(zval *, zval *), (*class_exists_of_two)(zval *, zval *, zval *);

static void look_at_class_exists_of_one(zval *return_value, zval *name)
{
	look_at_question(name, true, EG(current_execute_data));
	class_exists_of_one(return_value, name);
}

static void look_at_class_exists_of_two(zval *return_value, zval *name, zval *loads)
{
	look_at_question(name, zend_is_true(loads), EG(current_execute_data));
	class_exists_of_two(return_value, name, loads);
}

/* get_declared_classes() and its kin, and get_included_files(). */
static void look_at_list(const zend_execute_data *call)
{
	if ((first == end && !learns) || !lifecycle_in_request() || !own_code(call->prev_execute_data)) {
		return;
	}
	note_all();
	if (first != end) {
		end_request("asks which classes there are already", "");
	}
}

/* One is put before all others, or one is taken away: by the project, or by a package, which may do it for the project.
 */
static void look_at_autoloader(const zend_execute_data *call, bool before)
{
	if ((first == end && !learns) || !lifecycle_in_request() || !before) {
		return;
	}
	note_all();
	if (first != end) {
		end_request("changes which autoloader is asked first", "");
	}
}

#define QUESTION(name)                                                                                                 \
	static ZEND_FUNCTION(looked_at_##name)                                                                             \
	{                                                                                                                  \
		look_at_call(execute_data);                                                                                    \
		name##_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);                                                              \
	}
#define LIST(name)                                                                                                     \
	static ZEND_FUNCTION(looked_at_##name)                                                                             \
	{                                                                                                                  \
		look_at_list(execute_data);                                                                                    \
		name##_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);                                                              \
	}
QUESTION(class_exists)
QUESTION(interface_exists)
QUESTION(trait_exists)
QUESTION(enum_exists)
QUESTION(class_implements)
QUESTION(class_parents)
QUESTION(class_uses)
LIST(get_declared_classes)
LIST(get_declared_interfaces)
LIST(get_declared_traits)
LIST(get_included_files)
LIST(get_required_files)

static ZEND_FUNCTION(looked_at_register)
{
	bool before = ZEND_NUM_ARGS() >= 3 && zend_is_true(ZEND_CALL_ARG(execute_data, 3));
	look_at_autoloader(execute_data, before);
	register_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_FUNCTION(looked_at_unregister)
{
	look_at_autoloader(execute_data, true);
	unregister_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

void in_the_way_startup(void)
{
	if (!options_is_project()) {
		return;
	}
	zend_hash_init(&asked, 8, NULL, NULL, true);
	zend_observer_error_register(hear_of_error);
	functions_wrap("class_alias", &class_alias_handler, ZEND_FN(looked_at_class_alias));
	class_exists_of_one = engine_wrap_frameless("class_exists", 1, look_at_class_exists_of_one);
	class_exists_of_two = engine_wrap_frameless("class_exists", 2, look_at_class_exists_of_two);
	functions_wrap("class_exists", &class_exists_handler, ZEND_FN(looked_at_class_exists));
	functions_wrap("interface_exists", &interface_exists_handler, ZEND_FN(looked_at_interface_exists));
	functions_wrap("trait_exists", &trait_exists_handler, ZEND_FN(looked_at_trait_exists));
	functions_wrap("enum_exists", &enum_exists_handler, ZEND_FN(looked_at_enum_exists));
	functions_wrap("class_implements", &class_implements_handler, ZEND_FN(looked_at_class_implements));
	functions_wrap("class_parents", &class_parents_handler, ZEND_FN(looked_at_class_parents));
	functions_wrap("class_uses", &class_uses_handler, ZEND_FN(looked_at_class_uses));
	functions_wrap("get_declared_classes", &get_declared_classes_handler, ZEND_FN(looked_at_get_declared_classes));
	functions_wrap("get_declared_interfaces", &get_declared_interfaces_handler,
	               ZEND_FN(looked_at_get_declared_interfaces));
	functions_wrap("get_declared_traits", &get_declared_traits_handler, ZEND_FN(looked_at_get_declared_traits));
	functions_wrap("get_included_files", &get_included_files_handler, ZEND_FN(looked_at_get_included_files));
	functions_wrap("get_required_files", &get_required_files_handler, ZEND_FN(looked_at_get_required_files));
	functions_wrap("spl_autoload_register", &register_handler, ZEND_FN(looked_at_register));
	functions_wrap("spl_autoload_unregister", &unregister_handler, ZEND_FN(looked_at_unregister));
}
