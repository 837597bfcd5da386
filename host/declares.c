/*
 * Files that declare a class and do nothing else. What a file of classes does beside that (it defines a constant, reads
 * a superglobal, changes a setting, declares a function unless there is one) may go by a request, and belongs to the
 * request that loads it. So classes are loaded before requests (by_name.c) only from files that do nothing.
 *
 * And only where asking for the class is all that it takes: an autoloader that does nothing else (autoloaders.c) has
 * included the file for that very name, and there is no second class in it, which nobody would find by its own.
 *
 * What a file does is its compiled code: where it only declares, nothing but declarations and its end is left of that.
 * A file that the project's own code includes, its own autoloader among it, may be another one for another request, and
 * counts as one that does something.
 */
#include "engine.h"
#include "host.h"

#include <string.h>

static zend_op_array *(*compile)(zend_file_handle *, int);

/* Files that this process has included since it notes them. */
struct file {
	bool declares; /* and does nothing else, but to have these classes loaded: their names in lower case */
	size_t count;
	char **hints;
	char *of; /* the class for which it was included, in lower case; NULL: for none, or not by such an autoloader */
};
static HashTable included;
static bool notes;

static void add_hint(struct file *file, const zval *name)
{
	const char *text = Z_STRVAL_P(name);
	char *copy = pestrdup(text[0] == '\\' ? text + 1 : text, true);
	zend_str_tolower(copy, strlen(copy));
	file->hints = perealloc(file->hints, (file->count + 1) * sizeof file->hints[0], true);
	file->hints[file->count++] = copy;
}

/* Of what that calls nobody uses the answer: where it ends; NULL: somebody may. */
static const zend_op *end_of_call(const zend_op *op, const zend_op *end)
{
	if (op->result_type == IS_UNUSED) {
		return op;
	}
	return op + 1 < end && op[1].opcode == ZEND_FREE ? op + 1 : NULL;
}

/* Whether the call that begins there names a class that is needed soon, so that OPcache's preloading finds it, and does
 * nothing with the answer: class_exists(Header::class). Where it ends. */
static const zend_op *end_of_hint(struct file *file, const zend_op *op, const zend_op *end)
{
	static const char *const names[] = {"class_exists", "interface_exists", "trait_exists", "enum_exists"};
	const zend_function *frameless = engine_frameless(op);
	const zend_string *name = frameless != NULL ? frameless->common.function_name : patterns_called(op);
	bool known = false;
	for (size_t i = 0; name != NULL && i < sizeof names / sizeof names[0]; i++) {
		known |= zend_string_equals_cstr(name, names[i], strlen(names[i]));
	}
	if (known && frameless != NULL) {
		bool constant = op->op1_type == IS_CONST && Z_TYPE_P(RT_CONSTANT(op, op->op1)) == IS_STRING;
		if (constant) {
			add_hint(file, RT_CONSTANT(op, op->op1));
		}
		return !constant ? NULL : end_of_call(op, end);
	}
	for (op++; known && op < end; op++) {
		switch (op->opcode) {
		case ZEND_SEND_VAL:
		case ZEND_SEND_VAL_EX:
			known = op->op1_type == IS_CONST;
			if (known && Z_TYPE_P(RT_CONSTANT(op, op->op1)) == IS_STRING) {
				add_hint(file, RT_CONSTANT(op, op->op1));
			}
			break;
		case ZEND_DO_FCALL:
		case ZEND_DO_ICALL:
		case ZEND_DO_FCALL_BY_NAME:
			return end_of_call(op, end);
		default:
			known = false;
		}
	}
	return NULL;
}

/* `return 1` ends each file; what another one returns somebody may use, who gets `true` where it is loaded already. */
static bool returns_nothing(const zend_op *op)
{
	const zval *value = op->op1_type == IS_CONST ? RT_CONSTANT(op, op->op1) : NULL;
	return value != NULL && Z_TYPE_P(value) == IS_LONG && Z_LVAL_P(value) == 1;
}

static bool only_declares(struct file *file, const zend_op_array *code)
{
	const zend_op *end = code->opcodes + code->last;
	for (const zend_op *op = code->opcodes; op != NULL && op < end; op++) {
		switch (op->opcode) {
		case ZEND_NOP:
		case ZEND_EXT_STMT:
		case ZEND_EXT_NOP:
		case ZEND_DECLARE_CLASS:
		case ZEND_DECLARE_CLASS_DELAYED:
			break;
		case ZEND_RETURN:
			if (!returns_nothing(op)) {
				return false;
			}
			break;
		case ZEND_JMP: /* over the other one of two calls, below */
			break;
		default:
			op = engine_chooses_frameless(op) ? op : end_of_hint(file, op, end);
			if (op == NULL) {
				return false;
			}
		}
	}
	return true;
}

static bool own_code_includes(void)
{
	const zend_execute_data *frame = owner_calling(EG(current_execute_data));
	return frame != NULL && by_name_is_for_requests(frame->func->op_array.filename);
}

/* The class that autoloaders look for, and the code that needs it. */
static const zend_string *wanted;
static const zend_execute_data *wanting;
static zend_class_entry *(*autoload)(zend_string *, zend_string *);

static zend_class_entry *autoload_and_note(zend_string *name, zend_string *key)
{
	const zend_string *outer = wanted;
	const zend_execute_data *before = wanting;
	wanted = key;
	wanting = EG(current_execute_data);
	zend_class_entry *found = autoload(name, key);
	wanted = outer;
	wanting = before;
	return found;
}

/* Whether the autoloader that includes a file now does nothing else, and is one of the boot's. */
static bool autoloader_only_includes(void)
{
	const zend_execute_data *autoloader = NULL;
	for (const zend_execute_data *at = EG(current_execute_data); at != NULL && at != wanting;
	     at = at->prev_execute_data) {
		if (at->func != NULL && ZEND_USER_CODE(at->func->type)) {
			autoloader = at;
		}
	}
	return autoloader != NULL && autoloaders_trust(autoloader);
}

static zend_op_array *compile_and_note(zend_file_handle *in, int type)
{
	uint32_t functions = zend_hash_num_elements(EG(function_table));
	zend_op_array *code = compile(in, type);
	if (!notes || code == NULL || code->filename == NULL) {
		return code;
	}
	const zend_string *name = code->filename;
	struct file *file = zend_hash_str_find_ptr(&included, ZSTR_VAL(name), ZSTR_LEN(name));
	if (file == NULL) {
		file = pecalloc(1, sizeof *file, true);
		file->declares = true;
		file->of = wanted != NULL && ZSTR_VAL(in->filename)[0] == '/' && autoloader_only_includes()
		               ? pestrdup(ZSTR_VAL(wanted), true)
		               : NULL;
		zend_hash_str_add_ptr(&included, ZSTR_VAL(name), ZSTR_LEN(name), file);
	}
	file->declares = file->declares && only_declares(file, code) &&
	                 functions == zend_hash_num_elements(EG(function_table)) && !own_code_includes();
	return code;
}

void declares_startup(void)
{
	if (options.worker_mode && options.rewind != REWIND_OFF) {
		zend_hash_init(&included, 64, NULL, NULL, true);
		compile = zend_compile_file;
		zend_compile_file = compile_and_note;
	}
}

void declares_note(void)
{
	if (!notes) {
		notes = true;
		autoload = zend_autoload;
		zend_autoload = autoload_and_note;
	}
}

bool declares_only(const zend_class_entry *class, bool by_anyone)
{
	const zend_string *name = class->info.user.filename;
	const struct file *file = name == NULL ? NULL : zend_hash_str_find_ptr(&included, ZSTR_VAL(name), ZSTR_LEN(name));
	return file != NULL && file->declares &&
	       (by_anyone || (file->of != NULL && zend_binary_strcasecmp(ZSTR_VAL(class->name), ZSTR_LEN(class->name),
	                                                                 file->of, strlen(file->of)) == 0));
}

size_t declares_hints(const zend_string *name, char ***hints)
{
	const struct file *file = zend_hash_str_find_ptr(&included, ZSTR_VAL(name), ZSTR_LEN(name));
	*hints = file == NULL ? NULL : file->hints;
	return file == NULL ? 0 : file->count;
}
