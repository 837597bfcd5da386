/*
 * Autoloaders that look up where a class lies, include that file, and do nothing else: a class that one of them finds
 * may be there before it is asked for. One that does more has a part in its classes: it may call a method of each, give
 * it another name, or count.
 *
 * Those of Composer and of frameworks are known by name. Of functions without one, as phpab generates them, the
 * compiled code is looked at. A recognised project's own may go by a request, and are none of these.
 */
#include "host.h"
#include "engine.h"

#include <string.h>

static bool is(const zend_string *name, const char *text)
{
	return name != NULL && zend_string_equals_cstr(name, text, strlen(text));
}

/* A class that overrides nothing: it is as good as its parent. */
static bool has_methods_of_its_own(const zend_class_entry *class)
{
	const zend_function *method;
	ZEND_HASH_MAP_FOREACH_PTR((HashTable *)(uintptr_t) & class->function_table, method)
	{
		if (method->common.scope == class) {
			return true;
		}
	}
	ZEND_HASH_FOREACH_END();
	return false;
}

static bool has_known_name(const zend_function *function, const zend_class_entry *called)
{
	static const char *const known[][2] = {
	    {"Composer\\Autoload\\ClassLoader", "loadClass"},
	    {"Illuminate\\Foundation\\AliasLoader", "load"},
	    {"yii\\BaseYii", "autoload"},
	    {"CodeIgniter\\Autoloader\\Autoloader", "loadClass"},
	    {"CodeIgniter\\Autoloader\\Autoloader", "loadClassmap"},
	};
	const zend_class_entry *class = function->common.scope;
	if (called != class && (called == NULL || called->parent != class || has_methods_of_its_own(called))) {
		return false;
	}
	for (size_t i = 0; class != NULL && i < sizeof known / sizeof known[0]; i++) {
		if (is(class->name, known[i][0]) && is(function->common.function_name, known[i][1])) {
			return true;
		}
	}
	return false;
}

/* Functions of PHP's that answer, and touch nothing. */
static bool only_answers(const zend_string *function)
{
	static const char *const names[] = {
	    "strtolower",  "strtoupper", "strtr",    "str_replace", "strlen",           "strpos",  "strrpos",
	    "strncmp",     "strcmp",     "stripos",  "strncasecmp", "strcasecmp",       "substr",  "str_starts_with",
	    "ltrim",       "rtrim",      "trim",     "ucfirst",     "explode",          "implode", "dirname",
	    "file_exists", "is_file",    "in_array", "is_readable", "array_key_exists", "ucwords", "str_contains",
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (is(function, names[i])) {
			return true;
		}
	}
	return false;
}

/* Not where its name space has a function of that name. */
static bool calls_what_only_answers(const zend_op *op)
{
	if (op->opcode == ZEND_INIT_NS_FCALL_BY_NAME &&
	    zend_hash_exists(EG(function_table), Z_STR_P(RT_CONSTANT(op, op->op2) + 1))) {
		return false;
	}
	return only_answers(patterns_called(op));
}

/* What the function keeps, which may have methods of its own if it is an object. */
static bool statics_are_plain(const zend_op_array *code)
{
	const zval *one;
	const HashTable *statics = code->static_variables == NULL ? NULL : ZEND_MAP_PTR_GET(code->static_variables_ptr);
	statics = statics == NULL ? code->static_variables : statics;
	if (statics == NULL) {
		return true;
	}
	ZEND_HASH_MAP_FOREACH_VAL((HashTable *)(uintptr_t)statics, one)
	{
		ZVAL_DEREF(one);
		if (Z_TYPE_P(one) == IS_OBJECT) {
			return false;
		}
	}
	ZEND_HASH_FOREACH_END();
	return true;
}

static bool begins_with_slash(const zval *text)
{
	return Z_TYPE_P(text) == IS_STRING && Z_STRVAL_P(text)[0] == '/';
}

/* Whether a variable that the function keeps is an array of files by their whole names. */
static bool has_absolute(const zend_op_array *code, uint32_t variable)
{
	for (const zend_op *op = code->opcodes; op < code->opcodes + code->last; op++) {
		if (op->opcode == ZEND_BIND_STATIC && op->op1.var == variable) {
			const HashTable *statics = ZEND_MAP_PTR_GET(code->static_variables_ptr);
			statics = statics == NULL ? code->static_variables : statics;
			const zval *kept =
			    statics == NULL
			        ? NULL
			        : &((const Bucket *)((const char *)statics->arData +
			                             (op->extended_value &
			                              ~(uint32_t)(ZEND_BIND_REF | ZEND_BIND_IMPLICIT | ZEND_BIND_EXPLICIT))))
			               ->val;
			if (kept == NULL) {
				return false;
			}
			ZVAL_DEREF(kept);
			const zval *file;
			ZEND_HASH_FOREACH_VAL(
			    Z_TYPE_P(kept) == IS_ARRAY ? Z_ARRVAL_P(kept) : (HashTable *)(uintptr_t)&zend_empty_array, file)
			{
				if (!begins_with_slash(file)) {
					return false;
				}
			}
			ZEND_HASH_FOREACH_END();
			return Z_TYPE_P(kept) == IS_ARRAY;
		}
	}
	return false;
}

/* dirname(__DIR__), which is a constant for OPcache only. */
static bool is_directory(const zend_op_array *code, const zend_op *call)
{
	if (engine_frameless(call) != NULL) {
		return is(engine_frameless(call)->common.function_name, "dirname") && call->op1_type == IS_CONST &&
		       begins_with_slash(RT_CONSTANT(call, call->op1));
	}
	const zend_op *first = call;
	while (first > code->opcodes && (first[-1].opcode == ZEND_SEND_VAL || first[-1].opcode == ZEND_SEND_VAL_EX)) {
		first--;
	}
	return first < call && first > code->opcodes && is(patterns_called(first - 1), "dirname") &&
	       first->op1_type == IS_CONST && begins_with_slash(RT_CONSTANT(first, first->op1));
}

static bool is_absolute(const zend_op_array *code, const zend_op *from, uint8_t type, znode_op of);

/* Whether all that is ever put into a variable of the function's is. */
static bool is_always_absolute(const zend_op_array *code, uint32_t variable)
{
	bool made = false;
	for (const zend_op *op = code->opcodes; op < code->opcodes + code->last; op++) {
		bool takes = (op->opcode == ZEND_RECV || op->opcode == ZEND_RECV_INIT) && op->result.var == variable;
		bool walks = op->opcode == ZEND_FE_FETCH_R && op->op2_type == IS_CV && op->op2.var == variable;
		bool keeps = op->opcode == ZEND_BIND_STATIC && op->op1.var == variable;
		bool assigns = op->opcode == ZEND_ASSIGN && op->op1.var == variable;
		if (takes || walks || keeps || (assigns && !is_absolute(code, op, op->op2_type, op->op2))) {
			return false;
		}
		made |= assigns;
	}
	return made;
}

/* Whether an operand is a text that begins with a slash: a constant, what is put together of one and more, or a file of
 * an array that the function has. */
static bool is_absolute(const zend_op_array *code, const zend_op *from, uint8_t type, znode_op of)
{
	if (type == IS_CONST) {
		return begins_with_slash(RT_CONSTANT(from, of));
	}
	/* A variable may be made of itself. */
	static unsigned depth;
	if (type == IS_CV) {
		depth++;
		bool always = depth < 16 && is_always_absolute(code, of.var);
		depth--;
		return always;
	}
	for (const zend_op *op = from - 1; op >= code->opcodes; op--) {
		if ((op->result_type & (IS_TMP_VAR | IS_VAR)) == 0 || op->result.var != of.var) {
			continue;
		}
		switch (op->opcode) {
		case ZEND_CONCAT:
		case ZEND_FAST_CONCAT:
			return is_absolute(code, op, op->op1_type, op->op1);
		case ZEND_ROPE_END:
		case ZEND_ROPE_ADD:
			of = op->op1;
			break;
		case ZEND_ROPE_INIT:
			return is_absolute(code, op, op->op2_type, op->op2);
		case ZEND_FETCH_DIM_R:
			return op->op1_type == IS_CV && has_absolute(code, op->op1.var);
		default:
			return is_directory(code, op);
		}
	}
	return false;
}

/* What a file returns may go by anything. */
static bool nobody_looks_at_answer(const zend_op *op, const zend_op *end)
{
	return op->result_type == IS_UNUSED || (op + 1 < end && (op[1].opcode == ZEND_FREE || op[1].opcode == ZEND_RETURN));
}

static bool only_looks_up(const zend_op_array *code)
{
	if (!statics_are_plain(code)) {
		return false;
	}
	for (const zend_op *op = code->opcodes; op < code->opcodes + code->last; op++) {
		switch (op->opcode) {
		case ZEND_INIT_FCALL:
		case ZEND_INIT_FCALL_BY_NAME:
		case ZEND_INIT_NS_FCALL_BY_NAME:
			if (!calls_what_only_answers(op)) {
				return false;
			}
			break;
		case ZEND_ASSIGN:
			if (op->op1_type != IS_CV) {
				return false;
			}
			break;
		case ZEND_INCLUDE_OR_EVAL:
			if (op->extended_value == ZEND_EVAL || !is_absolute(code, op, op->op1_type, op->op1) ||
			    !nobody_looks_at_answer(op, code->opcodes + code->last)) {
				return false;
			}
			break;
		case ZEND_BIND_STATIC:
			/* By `use (&$of)` somebody else writes it. */
			if ((op->extended_value & (ZEND_BIND_REF | ZEND_BIND_EXPLICIT)) == (ZEND_BIND_REF | ZEND_BIND_EXPLICIT)) {
				return false;
			}
			break;
		/* Calls that have begun so. */
		case ZEND_SEND_VAL:
		case ZEND_SEND_VAL_EX:
		case ZEND_SEND_VAR:
		case ZEND_SEND_VAR_EX:
		case ZEND_DO_ICALL:
		case ZEND_DO_FCALL:
		case ZEND_DO_FCALL_BY_NAME:
		case ZEND_OP_DATA:
		/* What touches no more than the function's own. */
		case ZEND_NOP:
		case ZEND_EXT_STMT:
		case ZEND_EXT_NOP:
		case ZEND_RECV:
		case ZEND_RECV_INIT:
		case ZEND_QM_ASSIGN:
		case ZEND_INIT_ARRAY:
		case ZEND_ADD_ARRAY_ELEMENT:
		case ZEND_FETCH_DIM_R:
		case ZEND_FETCH_DIM_IS:
		case ZEND_ISSET_ISEMPTY_CV:
		case ZEND_ISSET_ISEMPTY_DIM_OBJ:
		case ZEND_IS_IDENTICAL:
		case ZEND_IS_NOT_IDENTICAL:
		case ZEND_IS_EQUAL:
		case ZEND_IS_NOT_EQUAL:
		case ZEND_IS_SMALLER:
		case ZEND_IS_SMALLER_OR_EQUAL:
		case ZEND_BOOL:
		case ZEND_BOOL_NOT:
		case ZEND_COALESCE:
		case ZEND_CONCAT:
		case ZEND_FAST_CONCAT:
		case ZEND_ROPE_INIT:
		case ZEND_ROPE_ADD:
		case ZEND_ROPE_END:
		case ZEND_ADD:
		case ZEND_SUB:
		case ZEND_STRLEN:
		case ZEND_IN_ARRAY:
		case ZEND_TYPE_CHECK:
		case ZEND_JMP:
		case ZEND_JMPZ:
		case ZEND_JMPNZ:
		case ZEND_JMPZ_EX:
		case ZEND_JMPNZ_EX:
		case ZEND_JMP_SET:
		case ZEND_FE_RESET_R:
		case ZEND_FE_FETCH_R:
		case ZEND_FE_FREE:
		case ZEND_FREE:
		case ZEND_RETURN:
		case ZEND_VERIFY_RETURN_TYPE:
			break;
		default:
			if (!engine_chooses_frameless(op) &&
			    (engine_frameless(op) == NULL || !only_answers(engine_frameless(op)->common.function_name))) {
				return false;
			}
		}
	}
	return true;
}

static bool only_includes(const zend_function *function, const zend_class_entry *called)
{
	if (function == NULL || !ZEND_USER_CODE(function->type) || function->op_array.filename == NULL ||
	    (options_is_project() && owner_is_project(ZSTR_VAL(function->op_array.filename)))) {
		return false;
	}
	return has_known_name(function, called) || only_looks_up(&function->op_array);
}

/* Those of the boot that may be passed over. Of one that a request registers nobody knows what it goes by. */
struct trusted {
	const zend_function *function;
	const zend_object *object;
};
static struct trusted *trusted;
static size_t trusted_count;

bool autoloaders_trust(const zend_execute_data *call)
{
	const zend_function *function = call->func;
	const zend_object *object = Z_TYPE(call->This) == IS_OBJECT ? Z_OBJ(call->This) : NULL;
	for (size_t i = 0; i < trusted_count; i++) {
		const zend_function *of = trusted[i].function;
		/* A closure's variables are its own; a method may have been inherited meanwhile. */
		bool same = of == function || (((of->common.fn_flags | function->common.fn_flags) & ZEND_ACC_CLOSURE) == 0 &&
		                               of->op_array.opcodes == function->op_array.opcodes);
		if (same && trusted[i].object == object) {
			return true;
		}
	}
	return false;
}

/* What the keys of an array mean by which a known one finds files. */
enum keys {
	ANYTHING,     /* whatever changes in it matters */
	NOTHING,      /* it finds no file by it */
	NAMES,        /* classes */
	PREFIXES,     /* what their names begin with; values: directories, in the order in which they are looked at */
	BY_CHARACTER, /* the first character of a prefix; values: arrays by prefixes */
	ALIASES       /* Yii's: `@acme` for the name space acme */
};

/* What those of the boot that are known by name go by: properties of theirs, as they were then. */
struct goes_by {
	const zval *now;
	zval was;
	enum keys keys;
};
static struct goes_by goes_by[64];
static size_t goes_by_count;

static enum keys keys_of(const zend_class_entry *class, const char *property)
{
	static const struct {
		const char *class, *property;
		enum keys keys;
	} known[] = {
	    {"Composer\\Autoload\\ClassLoader", "missingClasses", NOTHING},
	    {"Composer\\Autoload\\ClassLoader", "registeredLoaders", NOTHING},
	    {"Composer\\Autoload\\ClassLoader", "classMap", NAMES},
	    {"Composer\\Autoload\\ClassLoader", "prefixDirsPsr4", PREFIXES},
	    {"Composer\\Autoload\\ClassLoader", "prefixLengthsPsr4", BY_CHARACTER},
	    {"Composer\\Autoload\\ClassLoader", "prefixesPsr0", BY_CHARACTER},
	    {"Illuminate\\Foundation\\AliasLoader", "aliases", NAMES},
	    {"yii\\BaseYii", "classMap", NAMES},
	    {"yii\\BaseYii", "aliases", ALIASES},
	    {"CodeIgniter\\Autoloader\\Autoloader", "classmap", NAMES},
	    {"CodeIgniter\\Autoloader\\Autoloader", "prefixes", PREFIXES},
	    {"CodeIgniter\\Autoloader\\Autoloader", "files", NOTHING},
	    {"CodeIgniter\\Autoloader\\Autoloader", "helpers", NOTHING},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (is(class->name, known[i].class) && strcmp(property, known[i].property) == 0) {
			return known[i].keys;
		}
	}
	return ANYTHING;
}

/* Where a property lies; NULL: nowhere. */
static const zval *place_of(zend_class_entry *class, zend_object *object, const zend_property_info *property)
{
	if ((property->flags & ZEND_ACC_STATIC) == 0) {
		return object == NULL ? NULL : OBJ_PROP(object, property->offset);
	}
	if (CE_STATIC_MEMBERS(class) == NULL) {
		zend_class_init_statics(class);
	}
	const zval *at = CE_STATIC_MEMBERS(class) == NULL ? NULL : CE_STATIC_MEMBERS(class) + property->offset;
	return at != NULL && Z_TYPE_P(at) == IS_INDIRECT ? Z_INDIRECT_P(at) : at;
}

/* False: there are too many. */
static bool watch(zend_class_entry *class, zend_object *object)
{
	zend_property_info *property;
	if (zend_update_class_constants(class) != SUCCESS) {
		return false;
	}
	ZEND_HASH_FOREACH_PTR(&class->properties_info, property)
	{
		const char *name;
		const zval *at = place_of(class, object, property);
		if (at == NULL || zend_unmangle_property_name(property->name, &(const char *){NULL}, &name) != SUCCESS) {
			continue;
		}
		const zval *value = at;
		ZVAL_DEREF(value);
		enum keys keys = keys_of(property->ce, name);
		if (Z_TYPE_P(value) <= IS_ARRAY && keys != NOTHING) {
			if (goes_by_count == sizeof goes_by / sizeof goes_by[0]) {
				return false;
			}
			struct goes_by *by = &goes_by[goes_by_count++];
			by->now = at;
			ZVAL_COPY(&by->was, value); /* so that another one is written from now on */
			by->keys = Z_TYPE_P(value) == IS_ARRAY ? keys : ANYTHING;
		}
	}
	ZEND_HASH_FOREACH_END();
	return true;
}

/* The directories that were there, where others have only come behind them; NULL: more has changed. */
static const HashTable *appended_to(const zval *was, const zval *now)
{
	if (was == NULL || now == NULL || Z_TYPE_P(was) != IS_ARRAY || Z_TYPE_P(now) != IS_ARRAY) {
		return NULL;
	}
	uint32_t count = zend_hash_num_elements(Z_ARRVAL_P(was));
	for (uint32_t i = 0; i < count; i++) {
		zval *before = zend_hash_index_find(Z_ARRVAL_P(was), i), *after = zend_hash_index_find(Z_ARRVAL_P(now), i);
		if (before == NULL || after == NULL || !zend_is_identical(before, after)) {
			return NULL;
		}
	}
	return Z_ARRVAL_P(was);
}

static bool finds_another(enum keys keys, const HashTable *was, const HashTable *now,
                          const struct autoloaders_matter *matter);

/* What is kept under a key was `was`, and is `now`; NULL: nothing. */
static bool another_by_key(enum keys keys, const zend_string *key, const zval *was, const zval *now,
                           const struct autoloaders_matter *matter)
{
	static const HashTable *const none = &zend_empty_array;
	if (key == NULL) {
		return true;
	}
	switch (keys) {
	case NAMES:
		return matter->name(ZSTR_VAL(key), ZSTR_LEN(key));
	case PREFIXES:
		return matter->begins(ZSTR_VAL(key), ZSTR_LEN(key), appended_to(was, now));
	case BY_CHARACTER:
		return finds_another(PREFIXES, was != NULL && Z_TYPE_P(was) == IS_ARRAY ? Z_ARRVAL_P(was) : none,
		                     now != NULL && Z_TYPE_P(now) == IS_ARRAY ? Z_ARRVAL_P(now) : none, matter);
	case ALIASES:
		return ZSTR_VAL(key)[0] != '@' || matter->begins(ZSTR_VAL(key) + 1, ZSTR_LEN(key) - 1, NULL);
	default:
		return true;
	}
}

/* Whether a class that matters might be another one by what has changed. */
static bool finds_another(enum keys keys, const HashTable *was, const HashTable *now,
                          const struct autoloaders_matter *matter)
{
	zend_string *key;
	zend_ulong index;
	zval *value;
	if (was == now) {
		return false;
	}
	ZEND_HASH_FOREACH_KEY_VAL((HashTable *)(uintptr_t)now, index, key, value)
	{
		zval *before = key != NULL ? zend_hash_find(was, key) : zend_hash_index_find(was, index);
		if ((before == NULL || !zend_is_identical(before, value)) && another_by_key(keys, key, before, value, matter)) {
			return true;
		}
	}
	ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_KEY_VAL((HashTable *)(uintptr_t)was, index, key, value)
	{
		bool there = key != NULL ? zend_hash_exists(now, key) : zend_hash_index_exists(now, index);
		if (!there && another_by_key(keys, key, value, NULL, matter)) {
			return true;
		}
	}
	ZEND_HASH_FOREACH_END();
	return false;
}

bool autoloaders_find_another(const struct autoloaders_matter *matter)
{
	for (size_t i = 0; i < goes_by_count; i++) {
		const struct goes_by *by = &goes_by[i];
		const zval *now = by->now;
		ZVAL_DEREF(now);
		bool arrays = Z_TYPE_P(now) == IS_ARRAY && Z_TYPE(by->was) == IS_ARRAY;
		if (arrays ? finds_another(by->keys, Z_ARR(by->was), Z_ARRVAL_P(now), matter)
		           : !zend_is_identical((zval *)(uintptr_t)&by->was, (zval *)(uintptr_t)now)) {
			return true;
		}
	}
	return false;
}

/* It finds classes whose names begin in its own way, and no others. */
static bool has_no_part_in_others(const zend_function *function)
{
	return function != NULL && function->common.scope != NULL && is(function->common.scope->name, "Swift") &&
	       is(function->common.function_name, "autoload");
}

/* One that spl_autoload_functions() returns; also where only its own class may call it. NULL: it is none that is known
 * to do. */
static const zend_function *function_of(zval *autoloader, zend_class_entry **class, zend_object **object)
{
	zend_fcall_info_cache known;
	if (Z_TYPE_P(autoloader) == IS_ARRAY && zend_hash_num_elements(Z_ARRVAL_P(autoloader)) == 2) {
		const zval *of = zend_hash_index_find(Z_ARRVAL_P(autoloader), 0);
		const zval *method = zend_hash_index_find(Z_ARRVAL_P(autoloader), 1);
		if (of == NULL || method == NULL || Z_TYPE_P(method) != IS_STRING) {
			return NULL;
		}
		*object = Z_TYPE_P(of) == IS_OBJECT ? Z_OBJ_P(of) : NULL;
		*class = Z_TYPE_P(of) == IS_OBJECT   ? Z_OBJCE_P(of)
		         : Z_TYPE_P(of) == IS_STRING ? zend_lookup_class_ex(Z_STR_P(of), NULL, ZEND_FETCH_CLASS_NO_AUTOLOAD)
		                                     : NULL;
		return *class == NULL ? NULL : zend_hash_find_ptr_lc(&(*class)->function_table, Z_STR_P(method));
	}
	if (!zend_is_callable_ex(autoloader, NULL, IS_CALLABLE_SUPPRESS_DEPRECATIONS, NULL, &known, NULL)) {
		return NULL;
	}
	*class = known.called_scope;
	*object = known.object;
	return known.function_handler;
}

/* Composer's may look in include_path as well, which a request may change; `of` is its method. */
static bool looks_in_include_path(const zend_function *of, zend_object *object)
{
	zend_class_entry *class = of == NULL ? NULL : of->common.scope;
	zval room;
	return class != NULL && object != NULL && is(class->name, "Composer\\Autoload\\ClassLoader") &&
	       zend_is_true(zend_read_property(class, object, ZEND_STRL("useIncludePath"), true, &room));
}

bool autoloaders_may_be_passed_over(void)
{
	zval function, all, *one;
	bool another = false, first = false;
	while (goes_by_count > 0) {
		zval_ptr_dtor(&goes_by[--goes_by_count].was);
	}
	trusted_count = 0;
	/* By disable_functions it may be no more. */
	if (!zend_hash_str_exists(EG(function_table), ZEND_STRL("spl_autoload_functions"))) {
		return false;
	}
	ZVAL_STRING(&function, "spl_autoload_functions");
	ZVAL_UNDEF(&all);
	if (call_user_function(NULL, NULL, &function, &all, 0, NULL) == SUCCESS && Z_TYPE(all) == IS_ARRAY) {
		trusted = perealloc(trusted, (zend_hash_num_elements(Z_ARRVAL(all)) + 1) * sizeof *trusted, true);
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(all), one)
		{
			zend_class_entry *class = NULL;
			zend_object *object = NULL;
			const zend_function *of = function_of(one, &class, &object);
			bool includes = only_includes(of, class) && !looks_in_include_path(of, object);
			first |= includes && another;
			another |= !includes && !has_no_part_in_others(of);
			/* Of an object that a function is bound to as well: Laravel's `$this->load(...)`. */
			first |= includes && class != NULL && has_known_name(of, class) && !watch(class, object);
			if (includes) {
				trusted[trusted_count++] = (struct trusted){of, object};
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&all);
	zval_ptr_dtor(&function);
	return !first;
}
