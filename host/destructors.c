/*
 * Destructors at the end of a rewound request, in PHP's order: global variables that hold the last reference to an
 * object, the last variable first; then all other objects in the order in which they were made. Objects of the boot
 * and of warm-up requests are among them, for a request ends as if it had booted by itself.
 *
 * PHP looks at every object. Here those of the boot that have something to do are listed once, with the snapshot: they
 * are few among thousands, and looking at the others would cost more than many a request. PHP also frees what a global
 * variable was the last to hold; here only objects that lead to one of the list, since nobody sees the others go.
 *
 * A request may free objects of the boot, and objects of its own then bear their numbers: those are looked at as well
 * (snapshot_freed()).
 */
#include "host.h"
#include "engine.h"

#include "zend_generators.h"

/* Numbers of the boot's objects whose destruction runs code, ascending. */
static uint32_t *listed;
static uint32_t listed_count;

/* Numbers of objects that variables hold and that lead to a listed one. */
static uint32_t *leading;
static uint32_t leading_count;

static bool is_listed(uint32_t number)
{
	uint32_t low = 0, high = listed_count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (listed[middle] == number) {
			return true;
		}
		if (listed[middle] < number) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return false;
}

static bool is_stopped_generator(const zend_object *object)
{
	return object->ce == zend_ce_generator && ((const zend_generator *)object)->execute_data == NULL;
}

/*
 * What the destructor of PHP's own classes of files does besides calling that of PHP code is closing the file. That is
 * none of its business here: a file of the boot stays open, and cleanup.c closes a request's.
 */
static const zend_class_entry *file_class;

static bool is_file(const zend_object *object)
{
	return file_class != NULL && instanceof_function(object->ce, file_class);
}

static bool runs_code(const zend_object *object)
{
	return object->ce->destructor != NULL || (object->handlers->dtor_obj != zend_objects_destroy_object &&
	                                          !is_stopped_generator(object) && !is_file(object));
}

/* The search for listed objects: what is still to be looked at, and what has been. */
struct search {
	HashTable seen;
	zend_refcounted **waiting;
	size_t count, room;
};

static void await(struct search *search, zval *value)
{
	while (Z_TYPE_P(value) == IS_INDIRECT) {
		value = Z_INDIRECT_P(value);
	}
	ZVAL_DEREF(value);
	if ((Z_TYPE_P(value) != IS_OBJECT && Z_TYPE_P(value) != IS_ARRAY) || !Z_REFCOUNTED_P(value) ||
	    !zend_hash_index_add_empty_element(&search->seen, (zend_ulong)(uintptr_t)Z_COUNTED_P(value))) {
		return;
	}
	if (search->count == search->room) {
		search->room = search->room == 0 ? 256 : 2 * search->room;
		search->waiting = safe_erealloc(search->waiting, search->room, sizeof *search->waiting, 0);
	}
	search->waiting[search->count++] = Z_COUNTED_P(value);
}

static void await_all(struct search *search, HashTable *table)
{
	zval *value;
	ZEND_HASH_FOREACH_VAL(table, value)
	{
		await(search, value);
	}
	ZEND_HASH_FOREACH_END();
}

static bool leads_to_listed(zval *from)
{
	struct search search = {.waiting = NULL};
	zend_hash_init(&search.seen, 64, NULL, NULL, 0);
	await(&search, from);
	bool found = false;
	while (search.count > 0 && !found) {
		zend_refcounted *next = search.waiting[--search.count];
		if (GC_TYPE(next) == IS_ARRAY) {
			await_all(&search, (HashTable *)next);
			continue;
		}
		zend_object *object = (zend_object *)next;
		found = is_listed(object->handle);
		zval *values;
		int count;
		HashTable *table = object->handlers->get_gc(object, &values, &count);
		for (int i = 0; i < count; i++) {
			await(&search, &values[i]);
		}
		if (table != NULL) {
			await_all(&search, table);
		}
	}
	zend_hash_destroy(&search.seen);
	if (search.waiting != NULL) {
		efree(search.waiting);
	}
	return found;
}

/* Global variables of a script that still runs lie in its frame. */
static zval *value_of(zval *entry)
{
	return Z_TYPE_P(entry) == IS_INDIRECT ? Z_INDIRECT_P(entry) : entry;
}

static void note_leading(zval *value)
{
	if (Z_TYPE_P(value) == IS_OBJECT && leads_to_listed(value)) {
		leading = safe_erealloc(leading, leading_count + 1, sizeof *leading, 0);
		leading[leading_count++] = Z_OBJ_HANDLE_P(value);
	}
}

/* Calls visit with each variable of the functions that led to the present place. Global variables are none of them. */
static void each_local(void (*visit)(zval *value))
{
	for (zend_execute_data *frame = EG(current_execute_data); frame != NULL; frame = frame->prev_execute_data) {
		if (frame->func == NULL || !ZEND_USER_CODE(frame->func->type) || ZEND_CALL_KIND(frame) == ZEND_CALL_TOP_CODE ||
		    ZEND_CALL_KIND(frame) == ZEND_CALL_NESTED_CODE) {
			continue;
		}
		for (int i = 0; i < frame->func->op_array.last_var; i++) {
			visit(ZEND_CALL_VAR_NUM(frame, i));
		}
	}
}

static void find_leading(void)
{
	zval *entry;
	ZEND_HASH_FOREACH_VAL(&EG(symbol_table), entry)
	{
		note_leading(value_of(entry));
	}
	ZEND_HASH_FOREACH_END();
	each_local(note_leading);
}

void destructors_note(void)
{
	const zend_objects_store *store = &EG(objects_store);
	file_class = zend_hash_str_find_ptr(CG(class_table), ZEND_STRL("splfileinfo"));
	listed = safe_erealloc(listed, store->top, sizeof *listed, 0);
	listed_count = leading_count = 0;
	for (uint32_t i = 1; i < store->top; i++) {
		const zend_object *object = store->object_buckets[i];
		if (IS_OBJ_VALID(object) && !(OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) && runs_code(object)) {
			listed[listed_count++] = i;
		}
	}
	if (listed_count > 0) {
		find_leading();
	}
}

const uint32_t *destructors_of_boot(uint32_t *count)
{
	*count = listed_count;
	return listed;
}

static bool is_leading(const zend_object *object)
{
	for (uint32_t i = 0; i < leading_count; i++) {
		if (leading[i] == object->handle) {
			return true;
		}
	}
	return false;
}

/* As zval_call_destructor() in Zend/zend_execute_API.c. */
static int drop_last_reference(zval *entry)
{
	zval *value = value_of(entry);
	if (Z_TYPE_P(value) != IS_OBJECT || Z_REFCOUNT_P(value) != 1 ||
	    (snapshot_has(Z_OBJ_P(value)) && !is_leading(Z_OBJ_P(value)))) {
		return ZEND_HASH_APPLY_KEEP;
	}
	if (value != entry) {
		/* The table gives up what it points to only when the script is over. */
		zval held;
		ZVAL_COPY_VALUE(&held, value);
		ZVAL_UNDEF(value);
		zval_ptr_dtor(&held);
	}
	return ZEND_HASH_APPLY_REMOVE;
}

static void drop_local(zval *value)
{
	if (Z_TYPE_P(value) == IS_OBJECT && (!snapshot_has(Z_OBJ_P(value)) || is_leading(Z_OBJ_P(value)))) {
		zval held;
		ZVAL_COPY_VALUE(&held, value);
		ZVAL_UNDEF(value);
		zval_ptr_dtor(&held);
	}
}

void destructors_leave_functions(void)
{
	each_local(drop_local);
}

static void destroy(zend_object *object)
{
	if (!IS_OBJ_VALID(object) || OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) {
		return;
	}
	bool of_boot = object->handle < snapshot_marks.objects;
	if (of_boot && !runs_code(object)) {
		return; /* PHP would mark it; nobody looks at the mark */
	}
	GC_ADD_FLAGS(object, IS_OBJ_DESTRUCTOR_CALLED);
	if (object->handlers->dtor_obj != zend_objects_destroy_object || object->ce->destructor != NULL) {
		GC_ADDREF(object);
		engine_destructor_begins();
		if (of_boot && is_file(object)) {
			zend_objects_destroy_object(object);
		} else {
			object->handlers->dtor_obj(object);
		}
		engine_destructor_over();
		GC_DELREF(object);
	}
}

/* As shutdown_destructors() in Zend/zend_execute_API.c. */
static void call_all(void)
{
	uint32_t before;
	do {
		before = zend_hash_num_elements(&EG(symbol_table));
		zend_hash_reverse_apply(&EG(symbol_table), drop_last_reference);
	} while (before != zend_hash_num_elements(&EG(symbol_table)));
	zend_objects_store *store = &EG(objects_store);
	EG(flags) |= EG_FLAGS_OBJECT_STORE_NO_REUSE;
	/* Both ascending. No number is used again from here on; one that is freed meanwhile leaves its number unused. */
	uint32_t freed_count, next_listed = 0, next_freed = 0;
	const uint32_t *freed = snapshot_freed(&freed_count);
	while (next_listed < listed_count || next_freed < freed_count) {
		bool boot =
		    next_freed == freed_count || (next_listed < listed_count && listed[next_listed] < freed[next_freed]);
		uint32_t number = boot ? listed[next_listed++] : freed[next_freed++];
		destroy(store->object_buckets[number]);
	}
	for (uint32_t i = MAX(snapshot_marks.objects, 1); i < store->top; i++) {
		destroy(store->object_buckets[i]);
	}
}

void destructors_call(void)
{
	zend_try
	{
		call_all();
	}
	zend_catch
	{
		/* As PHP does: an error in a destructor ends the destructors, not the request. */
		zend_objects_store_mark_destructed(&EG(objects_store));
	}
	zend_end_try();
}
