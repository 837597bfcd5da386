/*
 * What functions have looked up. PHP keeps for each function, beside its code, which function, class, property or
 * constant a name of its stands for, once it has run: with that a request of a framework's takes a third less.
 *
 * Warm-up requests that are made in processes of their own (learn.c) leave theirs here, and the process that has booted
 * takes them over. It takes nothing else of such a request, and nothing on trust: a function's cache holds pointers,
 * and each must be to something that is the same in both processes, which is
 *
 *   - what was there before they parted, or PHP itself brings, or
 *   - what OPcache keeps in its shared memory, and what is declared in this process as well, by its own name.
 *
 * Where one is not (a class that only that request declared, or gave another name, memory of the request), nothing of
 * the cache is taken. A name without its name space that stands for a global function or constant is taken to do so for
 * all requests. What lies between pointers are places of properties and the like, which belong to the pointer beside
 * them and are copied with it. The default values of parameters, which stand there too, are not: a constant of the
 * request may be in them.
 */
#include "host.h"

#include "zend_constants.h"
#include "zend_observer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Bytes of all that is left here; what does not fit is left out. Memory that nobody touches costs nothing. */
#define ROOM ((size_t)32 << 20)
/* Places of properties are below, and no address is. */
#define LOWEST_ADDRESS 0x10000u
/* Those of dynamic properties are negative numbers (ZEND_ENCODE_DYN_PROP_OFFSET()). */
#define LEAST_NEGATIVE ((uintptr_t)-0x10000)

struct note {
	zend_op_array *function;
	uint32_t words;
	uintptr_t word[];
};

/* Shared with the processes that answer. */
struct notes {
	size_t used; /* bytes of `bytes` */
	_Alignas(16) unsigned char bytes[];
};
static struct notes *notes;

/* Addresses, ascending once they are sorted. */
struct set {
	uintptr_t *at;
	size_t count, room;
};
/* What was there before they parted, and how many entries the table of classes had. */
static struct set before;
static uint32_t classes_before, constants_before;
/* Classes that the request has given another name, which is nobody else's. */
static struct set renamed;

static bool add(struct set *set, const void *address)
{
	if (set->count == set->room) {
		size_t room = set->room == 0 ? 1u << 16 : 2 * set->room;
		uintptr_t *at = mmap(NULL, room * sizeof *at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED) {
			return false;
		}
		if (set->room > 0) {
			memcpy(at, set->at, set->count * sizeof *at);
			munmap(set->at, set->room * sizeof *at);
		}
		set->at = at;
		set->room = room;
	}
	set->at[set->count++] = (uintptr_t)address;
	return true;
}

static int ascending(const void *a, const void *b)
{
	uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;
	return (one > other) - (one < other);
}

static void sort(struct set *set)
{
	qsort(set->at, set->count, sizeof *set->at, ascending);
}

static bool has(const struct set *set, uintptr_t address)
{
	return set->count > 0 && bsearch(&address, set->at, set->count, sizeof address, ascending) != NULL;
}

static void give_back(struct set *set)
{
	if (set->room > 0) {
		munmap(set->at, set->room * sizeof *set->at);
	}
	*set = (struct set){0};
}

/* Declarations that have not run yet have a zero in their keys. */
static bool is_declared(const zend_string *key)
{
	return key != NULL && ZSTR_VAL(key)[0] != '\0';
}

/* In memory of OPcache's that all processes share. */
static bool is_shared_class(const zend_class_entry *class)
{
	return class->type == ZEND_USER_CLASS && (class->ce_flags & ZEND_ACC_IMMUTABLE) != 0 &&
	       (class->ce_flags & ZEND_ACC_LINKED) != 0;
}

static bool is_shared_function(const zend_function *function)
{
	return function->type == ZEND_USER_FUNCTION && (function->common.fn_flags & ZEND_ACC_IMMUTABLE) != 0;
}

static bool add_callee(struct set *set, const zend_function *function, bool all)
{
	return (!all && !is_shared_function(function)) || add(set, function);
}

static bool add_class(struct set *set, zend_class_entry *class, bool all)
{
	bool there = add(set, class);
	zend_function *method;
	ZEND_HASH_MAP_FOREACH_PTR(&class->function_table, method)
	{
		there = there && add_callee(set, method, all || method->type == ZEND_INTERNAL_FUNCTION);
	}
	ZEND_HASH_FOREACH_END();
	zend_property_info *property;
	ZEND_HASH_MAP_FOREACH_PTR(&class->properties_info, property)
	{
		there = there && add(set, property);
	}
	ZEND_HASH_FOREACH_END();
	if ((class->ce_flags & ZEND_ACC_HAS_AST_CONSTANTS) != 0) {
		return there; /* each process computes them by itself */
	}
	zend_class_constant *constant;
	ZEND_HASH_MAP_FOREACH_PTR(&class->constants_table, constant)
	{
		there = there && (Z_TYPE(constant->value) == IS_CONSTANT_AST || add(set, &constant->value));
	}
	ZEND_HASH_FOREACH_END();
	return there;
}

/* `all`: what this process alone has, too. False: there is no memory for it. */
static bool collect(struct set *set, bool all)
{
	bool there = true;
	Bucket *bucket;
	ZEND_HASH_MAP_FOREACH_BUCKET(EG(class_table), bucket)
	{
		zend_class_entry *class = Z_PTR(bucket->val);
		bool counts = all ? class->type == ZEND_INTERNAL_CLASS || (class->ce_flags & ZEND_ACC_LINKED) != 0
		                  : is_shared_class(class);
		if (there && is_declared(bucket->key) && counts) {
			there = add_class(set, class, all);
		}
	}
	ZEND_HASH_FOREACH_END();
	ZEND_HASH_MAP_FOREACH_BUCKET(EG(function_table), bucket)
	{
		there = there && (!is_declared(bucket->key) || add_callee(set, Z_PTR(bucket->val), all));
	}
	ZEND_HASH_FOREACH_END();
	zend_constant *constant;
	ZEND_HASH_MAP_FOREACH_PTR(EG(zend_constants), constant)
	{
		there = there && (!all || add(set, constant));
	}
	ZEND_HASH_FOREACH_END();
	sort(set);
	return there;
}

/* Calls `visit` with a function in shared memory and the closures in it; a method stands in the tables of all classes
 * that inherit it. */
static void each_within(zend_op_array *function, void (*visit)(zend_op_array *, void *), void *to)
{
	visit(function, to);
	for (uint32_t i = 0; i < function->num_dynamic_func_defs; i++) {
		each_within(function->dynamic_func_defs[i], visit, to);
	}
}

static void each_in(HashTable *table, const zend_class_entry *class, void (*visit)(zend_op_array *, void *), void *to)
{
	zend_function *function;
	ZEND_HASH_MAP_FOREACH_PTR(table, function)
	{
		if (is_shared_function(function) && function->common.scope == class) {
			each_within(&function->op_array, visit, to);
		}
	}
	ZEND_HASH_FOREACH_END();
}

static void each_function(void (*visit)(zend_op_array *, void *), void *to)
{
	each_in(EG(function_table), NULL, visit, to);
	Bucket *bucket;
	ZEND_HASH_MAP_FOREACH_BUCKET(EG(class_table), bucket)
	{
		zend_class_entry *class = Z_PTR(bucket->val);
		if (is_declared(bucket->key) && is_shared_class(class)) {
			each_in(&class->function_table, class, visit, to);
		}
	}
	ZEND_HASH_FOREACH_END();
}

/* Sets the words of default values that are computed at a call (ZEND_RECV_INIT) to what they are before the first. */
static void leave_defaults_out(const zend_op_array *function, uintptr_t *word, uint32_t words)
{
	for (uint32_t i = 0; i < function->last; i++) {
		const zend_op *op = &function->opcodes[i];
		if (op->opcode != ZEND_RECV_INIT) {
			continue;
		}
		zval *value = RT_CONSTANT(op, op->op2);
		uint32_t slot = Z_TYPE_P(value) == IS_CONSTANT_AST ? Z_CACHE_SLOT_P(value) / (uint32_t)sizeof *word : words;
		for (uint32_t j = 0; j < sizeof(zval) / sizeof *word && slot + j < words; j++) {
			word[slot + j] = 0;
		}
	}
}

/* Whether it means the same in both processes. An odd number says that a name is no constant as long as there are so
 * many of them: with more than there were the two processes may have others. */
static bool is_common(uintptr_t word, const struct set *shared)
{
	if (word < LOWEST_ADDRESS) {
		return (word & 1) == 0 || word >> 1 <= constants_before;
	}
	return word >= LEAST_NEGATIVE || (!has(&renamed, word) && (has(&before, word) || has(shared, word)));
}

static bool are_common(const uintptr_t *word, uint32_t words, const struct set *shared)
{
	uint32_t i = 0;
	while (i < words && is_common(word[i], shared)) {
		i++;
	}
	return i == words;
}

static void drop(void)
{
	munmap(notes, ROOM);
	notes = NULL;
	give_back(&before);
}

void runtime_caches_keep(void)
{
	if (ZEND_OBSERVER_ENABLED) {
		return; /* who observes calls keeps notes of its own there */
	}
	void *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) {
		return;
	}
	notes = at;
	classes_before = EG(class_table)->nNumUsed;
	constants_before = zend_hash_num_elements(EG(zend_constants));
	if (!collect(&before, true)) {
		drop();
	}
}

static bool find_renamed(void)
{
	bool there = true;
	for (uint32_t i = classes_before; there && i < EG(class_table)->nNumUsed; i++) {
		const Bucket *bucket = EG(class_table)->arData + i;
		/* One by class_alias() is an IS_ALIAS_PTR. */
		if ((Z_TYPE(bucket->val) == IS_PTR || Z_TYPE(bucket->val) == IS_ALIAS_PTR) && is_declared(bucket->key) &&
		    !zend_string_equals_ci(bucket->key, ((const zend_class_entry *)Z_PTR(bucket->val))->name)) {
			there = add(&renamed, Z_PTR(bucket->val));
		}
	}
	sort(&renamed);
	return there;
}

static void note(zend_op_array *function, void *to)
{
	const struct set *shared = to;
	const uintptr_t *cache = RUN_TIME_CACHE(function);
	uint32_t words = (uint32_t)function->cache_size / (uint32_t)sizeof *cache;
	size_t size = sizeof(struct note) + words * sizeof *cache;
	if (cache == NULL || size > ROOM - sizeof *notes - notes->used) {
		return;
	}
	struct note *one = (void *)(notes->bytes + notes->used);
	*one = (struct note){.function = function, .words = words};
	memcpy(one->word, cache, words * sizeof *cache);
	leave_defaults_out(function, one->word, words);
	if (!are_common(one->word, words, shared)) {
		memset(one->word, 0, words * sizeof *cache);
	}
	notes->used += size;
}

void runtime_caches_note(void)
{
	struct set shared = {0};
	if (notes != NULL && find_renamed() && collect(&shared, false)) {
		each_function(note, &shared);
	}
	give_back(&shared);
}

static void add_known(zend_op_array *function, void *to)
{
	add(to, function);
}

/* Of two requests each has looked up something. Where they differ (of an object's class), the one that knows more. */
static void take(const struct note *one)
{
	uintptr_t *cache = RUN_TIME_CACHE(one->function);
	uint32_t mine = 0, its = 0;
	bool agree = true;
	for (uint32_t i = 0; i < one->words; i++) {
		mine += cache[i] != 0;
		its += one->word[i] != 0;
		agree &= cache[i] == 0 || one->word[i] == 0 || cache[i] == one->word[i];
	}
	for (uint32_t i = 0; i < one->words && (agree || its > mine); i++) {
		cache[i] = agree && one->word[i] == 0 ? cache[i] : one->word[i];
	}
}

/* A call by a cache goes straight on: what it leads to must have one of its own. */
static void prepare_called(const struct note *one, const struct set *functions)
{
	for (uint32_t i = 0; i < one->words; i++) {
		zend_function *called = has(functions, one->word[i]) ? (zend_function *)one->word[i] : NULL;
		if (called != NULL && RUN_TIME_CACHE(&called->op_array) == NULL) {
			zend_init_func_run_time_cache(&called->op_array);
		}
	}
}

static void add_callable(struct set *set, HashTable *table)
{
	zend_function *function;
	ZEND_HASH_MAP_FOREACH_PTR(table, function)
	{
		if (function->type == ZEND_USER_FUNCTION) {
			add(set, function);
		}
	}
	ZEND_HASH_FOREACH_END();
}

void runtime_caches_take_over(void)
{
	if (notes == NULL) {
		return;
	}
	struct set shared = {0}, known = {0}, callable = {0};
	bool there = collect(&shared, false);
	each_function(add_known, &known);
	sort(&known);
	add_callable(&callable, EG(function_table));
	zend_class_entry *class;
	ZEND_HASH_MAP_FOREACH_PTR(EG(class_table), class)
	{
		add_callable(&callable, &class->function_table);
	}
	ZEND_HASH_FOREACH_END();
	sort(&callable);
	size_t used = MIN(notes->used, ROOM - sizeof *notes);
	for (size_t at = 0; there && at + sizeof(struct note) <= used;) {
		const struct note *one = (const void *)(notes->bytes + at);
		at += sizeof *one + one->words * sizeof one->word[0];
		if (at > used) {
			break;
		}
		if (!has(&known, (uintptr_t)one->function) ||
		    one->words * sizeof one->word[0] != (size_t)one->function->cache_size) {
			continue;
		}
		if (RUN_TIME_CACHE(one->function) == NULL) {
			zend_init_func_run_time_cache(one->function);
		}
		if (are_common(one->word, one->words, &shared)) {
			prepare_called(one, &callable);
			take(one);
		}
	}
	give_back(&shared);
	give_back(&known);
	give_back(&callable);
	drop();
}
