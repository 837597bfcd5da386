/*
 * Whether what follows hayate_handle_request() in a worker script's loop does nothing but call it again: then no answer
 * has to be complete before.
 *
 * The instructions that the caller would run (Zend/zend_vm_opcodes.h) are gone through up to that call, with the values
 * that its variables have, on paper: only null, booleans and integers, which is what conditions of such loops are made
 * of. Of the handler only what it is made from counts: a variable, a constant, a property, `f(...)`,
 * `$app->handle(...)`, `X::handle(...)`, an array of such things, a function without a name.
 *
 * Promised: true only where no code of the application runs between, and nothing is destroyed. What is not known here
 * is taken for something that follows. Nothing is written, and nobody's code runs.
 */
#include "host.h"

/* More steps than this are something, and so are more variables. */
#define STEPS 64
#define VARIABLES 16

/* What variables have by then; IS_UNDEF: anything. Those that are not here have what the caller's frame says. */
struct paper {
	const zend_execute_data *caller;
	struct {
		uint32_t var;
		zval value;
	} has[VARIABLES];
	int count;
};

static bool note(struct paper *paper, uint32_t var, const zval *value)
{
	int i = 0;
	while (i < paper->count && paper->has[i].var != var) {
		i++;
	}
	if (i == VARIABLES) {
		return false;
	}
	paper->count += i == paper->count;
	paper->has[i].var = var;
	ZVAL_COPY_VALUE(&paper->has[i].value, value);
	return true;
}

static bool note_result(struct paper *paper, const zend_op *at, const zval *value)
{
	return at->result_type == IS_UNUSED || note(paper, at->result.var, value);
}

static bool note_bool(struct paper *paper, const zend_op *at, bool is)
{
	zval value = {.value.lval = 0};
	ZVAL_BOOL(&value, is);
	return note_result(paper, at, &value);
}

/* Of a handler: what it is does not matter. */
static bool note_anything(struct paper *paper, const zend_op *at)
{
	zval value = {.value.lval = 0};
	ZVAL_UNDEF(&value);
	return note_result(paper, at, &value);
}

/* A variable as the caller has it now. */
static const zval *in_frame(const struct paper *paper, uint32_t var)
{
	const zval *value = ZEND_CALL_VAR(paper->caller, var);
	return Z_ISREF_P(value) ? Z_REFVAL_P(value) : value;
}

/* NULL: that is not known, or is nothing that conditions are made of. */
static const zval *value_of(const struct paper *paper, const zend_op *at, zend_uchar type, znode_op node)
{
	const zval *value = NULL;
	if (type == IS_CONST) {
		value = RT_CONSTANT(at, node);
	} else if (type != IS_UNUSED) {
		for (int i = 0; i < paper->count && value == NULL; i++) {
			value = paper->has[i].var == node.var ? &paper->has[i].value : NULL;
		}
		if (value == NULL && type == IS_CV) {
			value = in_frame(paper, node.var);
		}
	}
	return value != NULL && Z_TYPE_P(value) >= IS_NULL && Z_TYPE_P(value) <= IS_LONG ? value : NULL;
}

static bool is_true(const zval *value)
{
	return Z_TYPE_P(value) == IS_LONG ? Z_LVAL_P(value) != 0 : Z_TYPE_P(value) == IS_TRUE;
}

/* An assignment to a variable destroys what it had, and one that a typed property refers to may be refused. */
static bool can_be_assigned(const struct paper *paper, uint32_t var)
{
	return !Z_REFCOUNTED_P(ZEND_CALL_VAR(paper->caller, var));
}

static bool assign(struct paper *paper, const zend_op *at)
{
	const zval *value = value_of(paper, at, at->op2_type, at->op2);
	return value != NULL && at->op1_type == IS_CV && can_be_assigned(paper, at->op1.var) &&
	       note_result(paper, at, value) && note(paper, at->op1.var, value);
}

static bool count(struct paper *paper, const zend_op *at)
{
	const zval *value = value_of(paper, at, at->op1_type, at->op1);
	if (value == NULL || at->op1_type != IS_CV || !can_be_assigned(paper, at->op1.var) || Z_TYPE_P(value) != IS_LONG ||
	    Z_LVAL_P(value) == ZEND_LONG_MAX || Z_LVAL_P(value) == ZEND_LONG_MIN) {
		return false;
	}
	bool up = at->opcode == ZEND_PRE_INC || at->opcode == ZEND_POST_INC;
	bool before = at->opcode == ZEND_PRE_INC || at->opcode == ZEND_PRE_DEC;
	zval old, new;
	ZVAL_COPY_VALUE(&old, value);
	ZVAL_LONG(&new, Z_LVAL(old) + (up ? 1 : -1));
	return note_result(paper, at, before ? &new : &old) && note(paper, at->op1.var, &new);
}

static bool compare(struct paper *paper, const zend_op *at)
{
	const zval *one = value_of(paper, at, at->op1_type, at->op1), *other = value_of(paper, at, at->op2_type, at->op2);
	if (one == NULL || other == NULL) {
		return false;
	}
	bool identical = at->opcode == ZEND_IS_IDENTICAL || at->opcode == ZEND_IS_NOT_IDENTICAL;
	if (!identical && (Z_TYPE_P(one) != IS_LONG || Z_TYPE_P(other) != IS_LONG)) {
		return false;
	}
	bool same = Z_TYPE_P(one) == Z_TYPE_P(other) && (Z_TYPE_P(one) != IS_LONG || Z_LVAL_P(one) == Z_LVAL_P(other));
	switch (at->opcode) {
	case ZEND_IS_IDENTICAL:
	case ZEND_IS_EQUAL:
		return note_bool(paper, at, same);
	case ZEND_IS_NOT_IDENTICAL:
	case ZEND_IS_NOT_EQUAL:
		return note_bool(paper, at, !same);
	case ZEND_IS_SMALLER:
		return note_bool(paper, at, Z_LVAL_P(one) < Z_LVAL_P(other));
	default:
		return note_bool(paper, at, Z_LVAL_P(one) <= Z_LVAL_P(other));
	}
}

/* A property that is there as the class declares it: no __get(), no hook, no object that is made only now. */
static bool is_plain_property(const struct paper *paper, const zend_op *at)
{
	const zval *of = at->op1_type == IS_UNUSED ? &paper->caller->This
	                 : at->op1_type == IS_CV   ? in_frame(paper, at->op1.var)
	                                           : NULL;
	if (of == NULL || Z_TYPE_P(of) != IS_OBJECT || at->op2_type != IS_CONST ||
	    Z_OBJ_HT_P(of)->read_property != zend_std_read_property) {
		return false;
	}
	const zend_property_info *info =
	    zend_hash_find_ptr(&Z_OBJCE_P(of)->properties_info, Z_STR_P(RT_CONSTANT(at, at->op2)));
	/* One that an ancestor has as well, for itself alone, may be that one here. */
	if (info == NULL || info->flags & (ZEND_ACC_STATIC | ZEND_ACC_CHANGED)) {
		return false;
	}
#if PHP_VERSION_ID >= 80400
	if (info->hooks != NULL) {
		return false;
	}
#endif
	bool accessible = info->flags & ZEND_ACC_PUBLIC || paper->caller->func->common.scope == info->ce;
	return accessible && Z_TYPE_P(OBJ_PROP(Z_OBJ_P(of), info->offset)) != IS_UNDEF;
}

/* A variable that is there: of others PHP warns, and the application may hear of it. */
static bool is_there(const struct paper *paper, zend_uchar type, znode_op node)
{
	return type != IS_CV || Z_TYPE_P(in_frame(paper, node.var)) != IS_UNDEF;
}

/* A class that is loaded, and no trait: of that PHP warns. */
static bool is_class(const zval *name)
{
	const zend_class_entry *class = zend_hash_find_ptr(EG(class_table), Z_STR_P(name + 1));
	return class != NULL && !(class->ce_flags & ZEND_ACC_TRAIT);
}

/* What `...(...)` makes a function of, and what call_user_func() is told to call: nothing loads a class for it. */
static bool is_loaded(const struct paper *paper, const zend_op *at)
{
	switch (at->opcode) {
	case ZEND_INIT_STATIC_METHOD_CALL:
		return at->op1_type == IS_UNUSED || (at->op1_type == IS_CONST && is_class(RT_CONSTANT(at, at->op1)));
	case ZEND_INIT_DYNAMIC_CALL:
		return at->op2_type == IS_CV && Z_TYPE_P(in_frame(paper, at->op2.var)) == IS_OBJECT;
	default: {
		const zval *name = at->op2_type == IS_CONST ? RT_CONSTANT(at, at->op2) : NULL;
		return name != NULL && Z_TYPE_P(name) == IS_STRING && strchr(Z_STRVAL_P(name), ':') == NULL;
	}
	}
}

/* Runs one instruction on paper: the next one, or NULL for one that does something. */
static const zend_op *run(struct paper *paper, const zend_op *at)
{
	const zval *value = value_of(paper, at, at->op1_type, at->op1);
	bool nothing = false;
	switch (at->opcode) {
	case ZEND_JMP:
		return OP_JMP_ADDR(at, at->op1);
	case ZEND_JMPZ_EX:
	case ZEND_JMPNZ_EX:
		if (value == NULL || !note_bool(paper, at, is_true(value))) {
			return NULL;
		}
		ZEND_FALLTHROUGH;
	case ZEND_JMPZ:
	case ZEND_JMPNZ: {
		bool jumps_if = at->opcode == ZEND_JMPNZ || at->opcode == ZEND_JMPNZ_EX;
		return value == NULL ? NULL : is_true(value) == jumps_if ? OP_JMP_ADDR(at, at->op2) : at + 1;
	}
	case ZEND_BOOL:
	case ZEND_BOOL_NOT:
		nothing = value != NULL && note_bool(paper, at, is_true(value) == (at->opcode == ZEND_BOOL));
		break;
	case ZEND_TYPE_CHECK:
		nothing = value != NULL && note_bool(paper, at, at->extended_value >> Z_TYPE_P(value) & 1);
		break;
	case ZEND_QM_ASSIGN: /* else of a variable that is the handler */
		nothing = value != NULL ? note_result(paper, at, value)
		          : at->op1_type != IS_CV
		              ? note_anything(paper, at)
		              : Z_TYPE_P(in_frame(paper, at->op1.var)) != IS_UNDEF && note_anything(paper, at);
		break;
	case ZEND_FREE:
		nothing = value != NULL;
		break;
	case ZEND_ASSIGN:
		nothing = assign(paper, at);
		break;
	case ZEND_PRE_INC:
	case ZEND_PRE_DEC:
	case ZEND_POST_INC:
	case ZEND_POST_DEC:
		nothing = count(paper, at);
		break;
	case ZEND_IS_IDENTICAL:
	case ZEND_IS_NOT_IDENTICAL:
	case ZEND_IS_EQUAL:
	case ZEND_IS_NOT_EQUAL:
	case ZEND_IS_SMALLER:
	case ZEND_IS_SMALLER_OR_EQUAL:
		nothing = compare(paper, at);
		break;
	case ZEND_FETCH_OBJ_R:
	case ZEND_FETCH_OBJ_FUNC_ARG:
		nothing = is_plain_property(paper, at) && note_anything(paper, at);
		break;
	case ZEND_INIT_STATIC_METHOD_CALL:
	case ZEND_INIT_DYNAMIC_CALL:
	case ZEND_INIT_USER_CALL:
		nothing = is_loaded(paper, at);
		break;
	case ZEND_INIT_ARRAY:
	case ZEND_ADD_ARRAY_ELEMENT: /* with keys that are written there, or none */
		nothing = is_there(paper, at->op1_type, at->op1) && (at->op2_type & (IS_UNUSED | IS_CONST)) == at->op2_type &&
		          note_anything(paper, at);
		break;
	case ZEND_DECLARE_LAMBDA_FUNCTION:
	case ZEND_CALLABLE_CONVERT:
	case ZEND_FETCH_THIS:
		nothing = note_anything(paper, at);
		break;
	case ZEND_BIND_LEXICAL:
		nothing = is_there(paper, at->op2_type, at->op2);
		break;
	case ZEND_SEND_VAR:
	case ZEND_SEND_VAR_EX:
	case ZEND_SEND_FUNC_ARG:
		nothing = is_there(paper, at->op1_type, at->op1);
		break;
	case ZEND_NOP:
	case ZEND_EXT_STMT:
	case ZEND_EXT_FCALL_BEGIN:
	case ZEND_EXT_FCALL_END:
	case ZEND_INIT_FCALL:
	case ZEND_INIT_FCALL_BY_NAME:
	case ZEND_INIT_NS_FCALL_BY_NAME:
	case ZEND_INIT_METHOD_CALL:
	case ZEND_CHECK_FUNC_ARG:
	case ZEND_SEND_VAL:
	case ZEND_SEND_VAL_EX:
	case ZEND_SEND_USER:
		nothing = true;
		break;
	default:
		break;
	}
	return nothing ? at + 1 : NULL;
}

bool calls_again(const zend_execute_data *caller)
{
	if (caller == NULL || caller->func == NULL || !ZEND_USER_CODE(caller->func->type) || caller->opline == NULL) {
		return false;
	}
	struct paper paper = {.caller = caller};
	const zend_op *call = caller->opline, *at = call + 1;
	(void)note_bool(&paper, call, true);
	for (int i = 0; i < STEPS && at != NULL && at != call; i++) {
		at = run(&paper, at);
	}
	return at == call;
}
