/*
 * What warm-up requests leave with objects that hand it in when they are destroyed: log lines in a buffer, deferred
 * items of a cache. Destructors run at the end of each request, so each visitor would hand in again what a warm-up
 * request has left, and no visitor's own script would have.
 *
 * An object may well be made or filled by the first requests that use it: caches, open files. So each target that made
 * or changed an object with a destructor is asked for again, a few times. If then each request still changes one, or
 * leaves one of its own, that accumulates, and the application is booted again without warm-up requests. What an
 * application resets after a request, in the loop, does not count.
 *
 * An object's state is told by its properties: numbers, strings, arrays, and how much lies in PHP's own containers. Not
 * by the objects of other classes that it refers to, nor by resources.
 */
#include "host.h"

#include "zend_weakrefs.h"

#define MAX_DEPTH 8
#define FNV_PRIME 1099511628211ull
#define FNV_BASIS 14695981039346656037ull

/* Objects with a destructor, weakly, and the state they were in. */
static HashTable known;
/* Of those, the ones that the handler of the last request has made. */
static HashTable made_by_handler;

static void mix(uint64_t *hash, uint64_t word)
{
	*hash = (*hash ^ word) * FNV_PRIME;
}

static void mix_value(uint64_t *hash, zval *value, int depth);

static void mix_table(uint64_t *hash, HashTable *table, int depth)
{
	zend_ulong number;
	zend_string *name;
	zval *value;
	mix(hash, zend_hash_num_elements(table));
	ZEND_HASH_FOREACH_KEY_VAL(table, number, name, value)
	{
		mix(hash, name != NULL ? zend_string_hash_val(name) : number);
		mix_value(hash, value, depth);
	}
	ZEND_HASH_FOREACH_END();
}

static void mix_held(uint64_t *hash, zend_object *object, int depth)
{
	zval *values;
	int count;
	HashTable *table = object->handlers->get_gc(object, &values, &count);
	mix(hash, (uint64_t)count);
	for (int i = 0; i < count; i++) {
		mix_value(hash, &values[i], depth);
	}
	if (table != NULL) {
		mix_table(hash, table, depth);
	}
}

static void mix_value(uint64_t *hash, zval *value, int depth)
{
	while (Z_TYPE_P(value) == IS_INDIRECT) {
		value = Z_INDIRECT_P(value);
	}
	ZVAL_DEREF(value);
	mix(hash, Z_TYPE_P(value));
	switch (Z_TYPE_P(value)) {
	case IS_LONG:
	case IS_DOUBLE:
		mix(hash, (uint64_t)Z_LVAL_P(value));
		break;
	case IS_STRING:
		mix(hash, zend_string_hash_val(Z_STR_P(value)));
		break;
	case IS_ARRAY:
		if (depth < MAX_DEPTH) {
			mix_table(hash, Z_ARRVAL_P(value), depth + 1);
		}
		break;
	case IS_OBJECT:
		mix(hash, (uint64_t)(uintptr_t)Z_OBJCE_P(value));
		/* PHP's own containers. Not get_gc(): many classes answer it in one buffer that they share. */
		if (Z_OBJCE_P(value)->type == ZEND_INTERNAL_CLASS && Z_OBJ_HT_P(value)->count_elements != NULL) {
			zend_long count = 0;
			Z_OBJ_HT_P(value)->count_elements(Z_OBJ_P(value), &count);
			mix(hash, (uint64_t)count);
		}
		break;
	default:
		break;
	}
}

static uint64_t state_of(zend_object *object)
{
	uint64_t hash = FNV_BASIS;
	mix_held(&hash, object, 0);
	return hash;
}

static bool any_made;

/* Names a class of which one has changed since; notes those that are new, also in `made`, if that is given. */
static const char *look(HashTable *made)
{
	const zend_objects_store *store = &EG(objects_store);
	const char *changed = NULL;
	any_made = false;
	for (uint32_t i = 1; i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (!IS_OBJ_VALID(object) || object->ce->destructor == NULL || OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) {
			continue;
		}
		zval now;
		ZVAL_LONG(&now, (zend_long)state_of(object));
		zval *before = zend_hash_index_find(&known, zend_object_to_weakref_key(object));
		if (before == NULL) {
			zend_weakrefs_hash_add(&known, object, &now);
			any_made = true;
			if (made != NULL) {
				zend_weakrefs_hash_add(made, object, &now);
			}
		} else if (Z_LVAL_P(before) != Z_LVAL(now)) {
			if (made == NULL) {
				ZVAL_COPY_VALUE(before, &now);
			}
			changed = ZSTR_VAL(object->ce->name);
		}
	}
	return changed;
}

void residue_of_boot(void)
{
	zend_hash_init(&known, 16, NULL, NULL, 0);
	zend_hash_init(&made_by_handler, 16, NULL, NULL, 0);
	look(NULL);
}

void residue_of_handler(void)
{
	look(&made_by_handler);
}

const char *residue_after(bool again)
{
	bool made = zend_hash_num_elements(&made_by_handler) > 0;
	if (made) {
		gc_collect_cycles();
		made = zend_hash_num_elements(&made_by_handler) > 0;
	}
	const char *left = look(NULL);
	if (made && again) {
		zend_ulong key;
		ZEND_HASH_FOREACH_NUM_KEY(&made_by_handler, key)
		{
			left = ZSTR_VAL(zend_weakref_key_to_object(key)->ce->name);
		}
		ZEND_HASH_FOREACH_END();
	}
	any_made |= made;
	while (zend_hash_num_elements(&made_by_handler) > 0) {
		zend_ulong key = 0;
		ZEND_HASH_FOREACH_NUM_KEY(&made_by_handler, key)
		{
			break;
		}
		ZEND_HASH_FOREACH_END();
		zend_weakrefs_hash_del(&made_by_handler, zend_weakref_key_to_object(key));
	}
	return left;
}

bool residue_is_new(void)
{
	return any_made;
}
