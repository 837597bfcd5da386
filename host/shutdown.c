/*
 * Shutdown functions that outlive the request in which they were registered. Under rewinding each request runs those
 * of the boot, and those that hayate_on_worker_start() has registered, before its own, as a script that boots does.
 * Where state is kept they run once, when the worker script ends.
 *
 * A library may register its function once in a process, behind a flag: in a warm-up request. Then requests would never
 * have it, since they meet the flag set. So the functions of warm-up requests are remembered. One that a second request
 * of the same target did not register again was registered once, for good: requests run it, too. One that it did
 * register again is registered by each request. For that to be known, a target whose request registered a function is
 * asked for at least twice. A request that registers such a function itself after all, bound to the same objects, does
 * not run it twice.
 *
 * A warm-up request ends with its own functions, with those found to be registered once, and with those of the boot
 * that are bound to something: they hand in what the request has left with them. Not with names of functions and static
 * methods of the boot: those are the handlers of fatal errors, of which some disarm themselves when they have run.
 */
#include "host.h"
#include "engine.h"

/* How deep arrays are looked into for objects. */
#define MAX_DEPTH 4

typedef php_shutdown_function_entry function;

static HashTable *of_boot;
/* Those of the boot and of warm-up requests, once the boot stands; they own nothing. */
static HashTable *lent;
/* How many there are: of the boot; with those of warm-up requests; with those of a worker's own step. */
static uint32_t lent_of_boot, lent_of_warmup, lent_count;

struct remembered {
	function function;
	const char *target; /* of the request that registered it; one of options.warmup */
	bool again;         /* that target has been asked for once more */
	bool repeated;      /* and it was registered once more; what `function` held is given up */
	const void *code;
};
static struct remembered *remembered;
static size_t remembered_count;

/* What a function is, whatever it is bound to. NULL: called through __call(), and not to be told from others. */
static const void *code_of(const function *f)
{
	const zend_function *handler = f->fci_cache.function_handler;
	return handler == NULL                       ? NULL
	       : handler->type == ZEND_USER_FUNCTION ? (const void *)handler->op_array.opcodes
	                                             : (const void *)handler;
}

static bool is_bound(const function *f)
{
	return engine_shutdown_closure(f) != NULL || f->fci_cache.object != NULL;
}

/* What it is called with. */
static const zval *arguments_of(const function *f, uint32_t *count)
{
	return *engine_shutdown_arguments((function *)(uintptr_t)f, count);
}

static void hold(function *f)
{
	engine_shutdown_hold(f);
	uint32_t count;
	zval **arguments = engine_shutdown_arguments(f, &count);
	const zval *given = *arguments;
	*arguments = count == 0 ? NULL : safe_emalloc(count, sizeof(zval), 0);
	for (uint32_t i = 0; i < count; i++) {
		ZVAL_COPY(&(*arguments)[i], &given[i]);
	}
}

static void give_up(function *f)
{
	uint32_t count;
	zval **arguments = engine_shutdown_arguments(f, &count);
	for (uint32_t i = 0; i < count; i++) {
		zval_ptr_dtor(&(*arguments)[i]);
	}
	if (*arguments != NULL) {
		efree(*arguments);
		*arguments = NULL;
	}
	engine_shutdown_give_up(f);
}

/* A list of entries that belong to others. */
static HashTable *new_list(void)
{
	HashTable *list;
	ALLOC_HASHTABLE(list);
	zend_hash_init(list, 8, NULL, NULL, 0);
	return list;
}

static void append(HashTable *to, function *f)
{
	zend_hash_next_index_insert_mem(to, f, sizeof *f);
}

void shutdown_keep_of_boot(void)
{
	of_boot = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
}

static bool is_registered_once(const struct remembered *one)
{
	return one->again && !one->repeated;
}

static HashTable *captured_by(const function *f)
{
	const zend_function *handler = f->fci_cache.function_handler;
	return handler != NULL && handler->type == ZEND_USER_FUNCTION
	           ? ZEND_MAP_PTR_GET(handler->op_array.static_variables_ptr)
	           : NULL;
}

/* A reference of a function's to this object, counted. */
struct references {
	const zend_object *to;
	uint32_t count;
};

static void count_in(struct references *found, const zval *value, int depth)
{
	if (Z_TYPE_P(value) == IS_OBJECT) {
		found->count += Z_OBJ_P(value) == found->to;
	} else if (Z_TYPE_P(value) == IS_ARRAY && depth < MAX_DEPTH) {
		const zval *element;
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), element)
		{
			count_in(found, element, depth + 1);
		}
		ZEND_HASH_FOREACH_END();
	}
}

static void count_references(struct references *found, const function *f)
{
	found->count += f->fci_cache.object == found->to;
	zend_object *closure = engine_shutdown_closure(f);
	if (engine_shutdown_array(f) != NULL) {
		count_in(found, engine_shutdown_array(f), 0);
	} else if (closure != NULL) {
		zval its;
		ZVAL_OBJ(&its, closure);
		count_in(found, zend_get_closure_this_ptr(&its), 0);
	}
	const zval *value;
	if (captured_by(f) != NULL) {
		ZEND_HASH_FOREACH_VAL(captured_by(f), value)
		{
			count_in(found, value, 0);
		}
		ZEND_HASH_FOREACH_END();
	}
	uint32_t count;
	const zval *arguments = arguments_of(f, &count);
	for (uint32_t i = 0; i < count; i++) {
		count_in(found, &arguments[i], 0);
	}
}

/* Whether only functions that are remembered hold this object. */
static bool is_orphan(const zend_object *object)
{
	struct references found = {.to = object};
	for (size_t i = 0; i < remembered_count; i++) {
		if (!remembered[i].repeated) {
			count_references(&found, &remembered[i].function);
		}
	}
	return GC_REFCOUNT(object) <= found.count;
}

static bool holds_orphan(const zval *value, int depth)
{
	if (Z_TYPE_P(value) == IS_OBJECT) {
		return is_orphan(Z_OBJ_P(value));
	}
	bool found = false;
	if (Z_TYPE_P(value) == IS_ARRAY && depth < MAX_DEPTH) {
		const zval *element;
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), element)
		{
			found |= holds_orphan(element, depth + 1);
		}
		ZEND_HASH_FOREACH_END();
	}
	return found;
}

/* Whether a function is bound to something that a request has made for itself and nobody has kept. */
static bool is_of_one_request(const function *f)
{
	bool found = f->fci_cache.object != NULL && is_orphan(f->fci_cache.object);
	const zval *value;
	if (captured_by(f) != NULL) {
		ZEND_HASH_FOREACH_VAL(captured_by(f), value)
		{
			found |= holds_orphan(value, 0);
		}
		ZEND_HASH_FOREACH_END();
	}
	uint32_t count;
	const zval *arguments = arguments_of(f, &count);
	for (uint32_t i = 0; i < count; i++) {
		found |= holds_orphan(&arguments[i], 0);
	}
	return found;
}

/*
 * The one of the target's that `f` is once more; NULL: none. Of several with the same code: the one of the very same
 * object, else the last of those whose objects nobody has kept, else the last. Two objects of a class, of which the
 * application keeps one and makes the other for each request, are told apart so.
 */
static struct remembered *find_remembered(const char *target, const function *f, const bool *taken)
{
	struct remembered *found = NULL;
	bool of_request = false;
	for (size_t i = 0; i < remembered_count; i++) {
		struct remembered *one = &remembered[i];
		if (taken[i] || one->code != code_of(f) || strcmp(one->target, target) != 0) {
			continue;
		}
		if (!one->repeated && one->function.fci_cache.object != NULL &&
		    one->function.fci_cache.object == f->fci_cache.object) {
			return one;
		}
		/* What was given up has been found to be of each request. */
		bool transient = one->repeated || is_of_one_request(&one->function);
		if (found == NULL || transient || !of_request) {
			found = one;
			of_request = transient;
		}
	}
	return found;
}

static void remember(HashTable *own, const char *target, bool last)
{
	size_t before = remembered_count;
	bool *taken = ecalloc(before + 1, sizeof *taken);
	function *f;
	ZEND_HASH_FOREACH_PTR(own, f)
	{
		if (code_of(f) == NULL) {
			continue;
		}
		struct remembered *same = find_remembered(target, f, taken);
		if (same != NULL && (size_t)(same - remembered) < before) {
			taken[same - remembered] = true;
			if (!same->repeated) {
				same->repeated = true;
				give_up(&same->function);
			}
		} else if (!last) {
			remembered = safe_erealloc(remembered, remembered_count + 1, sizeof *remembered, 0);
			remembered[remembered_count] = (struct remembered){.function = *f, .target = target, .code = code_of(f)};
			hold(&remembered[remembered_count++].function);
			taken = safe_erealloc(taken, remembered_count + 1, sizeof *taken, 0);
			taken[remembered_count - 1] = true;
		}
	}
	ZEND_HASH_FOREACH_END();
	for (size_t i = 0; i < before; i++) {
		remembered[i].again |= strcmp(remembered[i].target, target) == 0;
	}
	efree(taken);
}

static void run_for_warmup(void)
{
	HashTable *own = BG(user_shutdown_function_names), *all = new_list();
	bool last;
	const char *target = warmup_target(&last);
	if (own != NULL) {
		remember(own, target, last);
	} else {
		for (size_t i = 0; i < remembered_count; i++) {
			remembered[i].again |= strcmp(remembered[i].target, target) == 0;
		}
	}
	function *f;
	if (of_boot != NULL) {
		ZEND_HASH_FOREACH_PTR(of_boot, f)
		{
			if (is_bound(f)) {
				append(all, f);
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	for (size_t i = 0; i < remembered_count; i++) {
		if (is_registered_once(&remembered[i])) {
			append(all, &remembered[i].function);
		}
	}
	if (own != NULL) {
		ZEND_HASH_FOREACH_PTR(own, f)
		{
			append(all, f);
		}
		ZEND_HASH_FOREACH_END();
	}
	BG(user_shutdown_function_names) = all;
	php_call_shutdown_functions();
	/* The list's destructor frees what belongs to the request. */
	BG(user_shutdown_function_names) = own;
}

static bool holds_same_of_all(HashTable *one, HashTable *other);

/* Whether both lead to the same objects and variables, if to any: those are what something may have been left with. */
static bool holds_same(const zval *one, const zval *other)
{
	if (Z_TYPE_P(one) == IS_OBJECT || Z_ISREF_P(one)) {
		return Z_TYPE_P(other) == Z_TYPE_P(one) && Z_COUNTED_P(other) == Z_COUNTED_P(one);
	}
	if (Z_TYPE_P(one) == IS_ARRAY) {
		return Z_TYPE_P(other) == IS_ARRAY && holds_same_of_all(Z_ARRVAL_P(one), Z_ARRVAL_P(other));
	}
	return Z_TYPE_P(other) != IS_OBJECT && !Z_ISREF_P(other);
}

static bool holds_same_of_all(HashTable *one, HashTable *other)
{
	if (one == other || one == NULL || other == NULL) {
		return one == other;
	}
	zend_ulong number;
	zend_string *name;
	zval *value;
	ZEND_HASH_FOREACH_KEY_VAL(one, number, name, value)
	{
		const zval *counterpart = name != NULL ? zend_hash_find(other, name) : zend_hash_index_find(other, number);
		if (counterpart == NULL || !holds_same(value, counterpart)) {
			return false;
		}
	}
	ZEND_HASH_FOREACH_END();
	return zend_hash_num_elements(one) == zend_hash_num_elements(other);
}

/* Whether to run one is to run the other: two objects of one class each have their own. */
static bool is_same(const function *one, const function *other)
{
	uint32_t count, others;
	const zval *arguments = arguments_of(one, &count), *counterparts = arguments_of(other, &others);
	if (code_of(one) == NULL || code_of(one) != code_of(other) || one->fci_cache.object != other->fci_cache.object ||
	    count != others) {
		return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (!holds_same(&arguments[i], &counterparts[i])) {
			return false;
		}
	}
	return holds_same_of_all(captured_by(one), captured_by(other));
}

/* A function of a warm-up request's is not run twice because this request has registered it, too. */
static void leave_out_registered_again(HashTable *all)
{
	zend_ulong number;
	function *f;
	ZEND_HASH_FOREACH_NUM_KEY_PTR(all, number, f)
	{
		for (uint32_t i = lent_of_boot; number >= lent_count && i < lent_of_warmup; i++) {
			const function *once = zend_hash_index_find_ptr(all, i);
			if (once != NULL && is_same(once, f)) {
				zend_hash_index_del(all, i);
				break;
			}
		}
	}
	ZEND_HASH_FOREACH_END();
}

void shutdown_run(void)
{
	if (options.rewind != REWIND_OFF && handle_warming()) {
		run_for_warmup();
		return;
	}
	if (lent != NULL && BG(user_shutdown_function_names) == lent && lent_of_boot < lent_of_warmup) {
		leave_out_registered_again(lent);
	}
	php_call_shutdown_functions();
}

const char *shutdown_ask_again(void)
{
	for (size_t i = 0; i < remembered_count; i++) {
		if (!remembered[i].again) {
			return remembered[i].target;
		}
	}
	return NULL;
}

/* Since the last request: one of an application that was booted anew takes the place of the one before. */
static void take_registered_between(HashTable *between)
{
	function *f;
	ZEND_HASH_FOREACH_PTR(between, f)
	{
		zend_ulong number;
		function *old;
		bool replaced = false;
		ZEND_HASH_FOREACH_NUM_KEY_PTR(lent, number, old)
		{
			if (!replaced && code_of(f) != NULL && code_of(old) == code_of(f)) {
				zend_hash_index_update_mem(lent, number, f, sizeof *f);
				if (number < lent_of_boot) {
					zend_hash_index_del(of_boot, number); /* with what it holds */
				}
				replaced = true;
			}
		}
		ZEND_HASH_FOREACH_END();
		if (!replaced) {
			append(lent, f);
		}
	}
	ZEND_HASH_FOREACH_END();
}

void shutdown_settle(void)
{
	lent = new_list();
	function *f;
	if (of_boot != NULL) {
		ZEND_HASH_FOREACH_PTR(of_boot, f)
		{
			append(lent, f);
		}
		ZEND_HASH_FOREACH_END();
	}
	lent_of_boot = zend_hash_num_elements(lent);
	for (size_t i = 0; i < remembered_count; i++) {
		if (is_registered_once(&remembered[i])) {
			append(lent, &remembered[i].function);
		} else if (!remembered[i].repeated) {
			give_up(&remembered[i].function);
		}
	}
	if (BG(user_shutdown_function_names) != NULL) {
		take_registered_between(BG(user_shutdown_function_names));
	}
	lent_of_warmup = lent_count = zend_hash_num_elements(lent);
}

void shutdown_keep_of_step(void)
{
	if (BG(user_shutdown_function_names) == NULL) {
		return;
	}
	function *f;
	ZEND_HASH_FOREACH_PTR(BG(user_shutdown_function_names), f)
	{
		append(lent, f);
	}
	ZEND_HASH_FOREACH_END();
	lent_count = zend_hash_num_elements(lent);
	BG(user_shutdown_function_names) = NULL; /* it owns them, and stays */
}

void shutdown_lend(void)
{
	BG(user_shutdown_function_names) = lent != NULL ? lent : of_boot;
}

static bool has_code_of(HashTable *list, const function *f)
{
	const function *one;
	if (list != NULL && code_of(f) != NULL) {
		ZEND_HASH_FOREACH_PTR(list, one)
		{
			if (code_of(one) == code_of(f)) {
				return true;
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	return false;
}

void shutdown_end_boot(bool warmed)
{
	/* Those of an application that was booted anew after the last warm-up request: they have not run yet. */
	HashTable *all = new_list(), *between = BG(user_shutdown_function_names);
	function *f;
	if (of_boot != NULL) {
		ZEND_HASH_FOREACH_PTR(of_boot, f)
		{
			/* The others have run with the last warm-up request. */
			if ((!warmed || !is_bound(f)) && !has_code_of(between, f)) {
				append(all, f);
			}
		}
		ZEND_HASH_FOREACH_END();
	}
	if (between != NULL) {
		ZEND_HASH_FOREACH_PTR(between, f)
		{
			append(all, f);
		}
		ZEND_HASH_FOREACH_END();
	}
	BG(user_shutdown_function_names) = all;
	php_call_shutdown_functions();
}
