/*
 * Regular expressions that loaded code names are compiled before the snapshot. What a request compiles goes with the
 * rewind, so one on a path that no warm-up request took (that of a visitor with a session, of a form) would be compiled
 * for each visitor anew, some ten to fifty microseconds each.
 *
 * Only constants that a preg_ function is called with: which they are depends on the code alone, so they tell nothing
 * of any request. Nothing of the application runs here, and nobody hears of a pattern that is none.
 */
#include "host.h"
#include "engine.h"

#include "ext/pcre/php_pcre.h"

/* PHP forgets some when it has 4,096; requests have theirs as well. */
#define MOST 2048

static unsigned compiled;

static void compile(const zval *pattern)
{
	if (Z_TYPE_P(pattern) == IS_STRING && Z_STRLEN_P(pattern) > 0 && compiled < MOST) {
		compiled++;
		pcre_get_compiled_regex_cache(Z_STR_P(pattern));
	} else if (Z_TYPE_P(pattern) == IS_ARRAY) {
		zval *one;
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(pattern), one)
		{
			if (Z_TYPE_P(one) == IS_STRING) {
				compile(one);
			}
		}
		ZEND_HASH_FOREACH_END();
	}
}

/* Whether a function's first argument is a pattern, or several. */
static bool takes_pattern(const zend_string *name)
{
	static const char *const names[] = {"preg_match", "preg_match_all",        "preg_replace", "preg_filter",
	                                    "preg_split", "preg_replace_callback", "preg_grep"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (zend_string_equals_cstr(name, names[i], strlen(names[i]))) {
			return true;
		}
	}
	return false;
}

const zend_string *patterns_called(const zend_op *op)
{
	const zval *name = op->op2_type == IS_CONST ? RT_CONSTANT(op, op->op2) : NULL;
	switch (op->opcode) {
	case ZEND_INIT_FCALL:
		break;
	case ZEND_INIT_FCALL_BY_NAME:
		name = name == NULL ? NULL : name + 1;
		break;
	case ZEND_INIT_NS_FCALL_BY_NAME:
		name = name == NULL ? NULL : name + 2; /* that of the global one, should there be none in the namespace */
		break;
	default:
		name = NULL;
	}
	return name == NULL || Z_TYPE_P(name) != IS_STRING ? NULL : Z_STR_P(name);
}

/* The constant that a function of patterns is called with first. */
static const zval *pattern_at(const zend_op *op, const zend_op *end)
{
	const zend_function *frameless = engine_frameless(op);
	if (frameless != NULL) {
		return op->op1_type == IS_CONST && takes_pattern(frameless->common.function_name) ? RT_CONSTANT(op, op->op1)
		                                                                                  : NULL;
	}
	const zend_string *name = patterns_called(op);
	const zend_op *first = op + 1;
	if (name == NULL || !takes_pattern(name) || first >= end ||
	    (first->opcode != ZEND_SEND_VAL && first->opcode != ZEND_SEND_VAL_EX) || first->op1_type != IS_CONST ||
	    first->op2_type == IS_CONST || first->op2.num != 1) {
		return NULL;
	}
	return RT_CONSTANT(first, first->op1);
}

static void look_into(const zend_op_array *code)
{
	const zend_op *end = code->opcodes + code->last;
	for (const zend_op *op = code->opcodes; op < end; op++) {
		const zval *pattern = pattern_at(op, end);
		if (pattern != NULL) {
			compile(pattern);
		}
	}
	for (uint32_t i = 0; i < code->num_dynamic_func_defs; i++) {
		look_into(code->dynamic_func_defs[i]);
	}
}

/* Methods that a class has inherited are looked into with the class that they are of. */
static void look_into_all(HashTable *functions, const zend_class_entry *of)
{
	zend_function *function;
	ZEND_HASH_FOREACH_PTR(functions, function)
	{
		if (function->type == ZEND_USER_FUNCTION && function->common.scope == of) {
			look_into(&function->op_array);
		}
	}
	ZEND_HASH_FOREACH_END();
}

void patterns_compile(void)
{
	/* A pattern that is none is the application's to be told of when it uses it. */
	zval error_handler;
	ZVAL_COPY_VALUE(&error_handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	const int reporting = EG(error_reporting), last_type = PG(last_error_type), last_line = PG(last_error_lineno);
	zend_string *last_message = PG(last_error_message), *last_file = PG(last_error_file);
	const php_pcre_error_code last_code = PCRE_G(error_code);
	EG(error_reporting) = 0;
	PG(last_error_message) = PG(last_error_file) = NULL;

	look_into_all(EG(function_table), NULL);
	zend_class_entry *class;
	ZEND_HASH_FOREACH_PTR(EG(class_table), class)
	{
		if (class->type == ZEND_USER_CLASS) {
			look_into_all(&class->function_table, class);
		}
	}
	ZEND_HASH_FOREACH_END();

	if (PG(last_error_message) != NULL) {
		zend_string_release(PG(last_error_message));
	}
	if (PG(last_error_file) != NULL) {
		zend_string_release(PG(last_error_file));
	}
	PG(last_error_message) = last_message;
	PG(last_error_file) = last_file;
	PG(last_error_type) = last_type;
	PG(last_error_lineno) = last_line;
	PCRE_G(error_code) = last_code;
	EG(error_reporting) = reporting;
	ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler);
}
