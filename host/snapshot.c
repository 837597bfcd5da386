/*
 * PHP's part of a snapshot (rewind/ does the memory): making the booted application fit for being put back again and
 * again. What must differ after each rewind is randomness.c's.
 *
 * Promised: objects of the boot are told from those of a request, and no request destroys one that holds more than
 * memory; pages of ZendMM that were free hold nothing that has to be put back.
 */
#include "host.h"
#include "engine.h"
#include "explain.h"
#include "rewind/rewind.h"

#include "ext/date/php_date.h"
#include "zend_alloc_sizes.h"
#include "zend_gc.h"
#include "zend_objects_API.h"
#include "zend_weakrefs.h"

#define PAGE 4096ul
#define CHUNK (2ul << 20)
#define CHUNK_PAGES 512u
#define MAX_UNUSED 65536

struct snapshot_marks snapshot_marks;

/* Zend/zend_alloc.c keeps these to itself, and so the head of a heap (engine.h); checked before they are believed. */
#define MM_LIMITS 8 /* at most so many words */
struct mm_rest {
	struct mm_huge *huge_list;
	struct mm_chunk *main_chunk, *cached_chunks;
	int chunks_count, peak_chunks_count, cached_chunks_count;
};
struct mm_huge {
	void *start;
	size_t size;
	struct mm_huge *next;
};
struct mm_chunk {
	struct engine_heap *heap;
	struct mm_chunk *next, *prev;
	uint32_t free_pages, free_tail, num;
};

/* The rest is where the heap's own chunk is named, followed by what can follow. NULL when nothing looks like that. */
static const struct mm_rest *rest_of(const struct engine_heap *heap)
{
	const struct mm_chunk *chunk = (const struct mm_chunk *)((uintptr_t)heap & ~(CHUNK - 1));
	if (heap->use_custom_heap != 0 || chunk->heap != heap) {
		return NULL;
	}
	const uint64_t *words = (const uint64_t *)(const void *)(heap + 1);
	for (size_t i = 0; i < MM_LIMITS; i++) {
		const struct mm_rest *rest = (const struct mm_rest *)(const void *)(words + i);
		if (rest->main_chunk == chunk && (uintptr_t)rest->cached_chunks % CHUNK == 0 && rest->chunks_count > 0 &&
		    rest->peak_chunks_count >= rest->chunks_count && rest->cached_chunks_count >= 0) {
			return rest;
		}
	}
	return NULL;
}

/* Where free_map lies in a chunk: its first page is always taken, so bit 0 is set, and the counts must agree. */
static size_t free_map_offset(const struct mm_chunk *chunk)
{
	const uint8_t *at = (const uint8_t *)chunk;
	for (size_t offset = 64 + sizeof(struct engine_heap); offset < 64 + sizeof(struct engine_heap) + 256; offset += 8) {
		const uint64_t *map = (const uint64_t *)(const void *)(at + offset);
		uint32_t used = 0;
		for (size_t i = 0; i < CHUNK_PAGES / 64; i++) {
			used += (uint32_t)__builtin_popcountll(map[i]);
		}
		/* map[0] of the page info that follows says "large run of one page": ZEND_MM_LRUN(ZEND_MM_FIRST_PAGE) */
		const uint32_t *info = (const uint32_t *)(const void *)(map + CHUNK_PAGES / 64);
		if ((map[0] & 1) && used == CHUNK_PAGES - chunk->free_pages && info[0] == (0x40000000u | 1u)) {
			return offset;
		}
	}
	return 0;
}

size_t snapshot_block_size(uintptr_t at)
{
#define BIN_SIZE(number, size, elements, pages, x, y) size,
#define BIN_PAGES(number, size, elements, pages, x, y) pages,
	static const uint16_t sizes[] = {ZEND_MM_BINS_INFO(BIN_SIZE, x, y)};
	static const uint8_t bin_pages[] = {ZEND_MM_BINS_INFO(BIN_PAGES, x, y)};
	const struct engine_heap *heap = (const struct engine_heap *)(const void *)zend_mm_get_heap();
	const struct mm_rest *rest = rest_of(heap);
	if (rest == NULL) {
		return 0;
	}
	for (const struct mm_huge *huge = rest->huge_list; huge != NULL; huge = huge->next) {
		if (at >= (uintptr_t)huge->start && at < (uintptr_t)huge->start + huge->size) {
			return huge->size;
		}
	}
	const struct mm_chunk *chunk = rest->main_chunk;
	while (chunk != (const struct mm_chunk *)(at & ~(CHUNK - 1))) {
		chunk = chunk->next;
		if (chunk == rest->main_chunk) {
			return 0;
		}
	}
	size_t offset = free_map_offset(rest->main_chunk);
	if (offset == 0) {
		return 0;
	}
	/* zend_mm_chunk.map: a word for each page; the first of a run says how long it is. */
	const uint64_t *taken = (const uint64_t *)(const void *)((const uint8_t *)chunk + offset);
	const uint32_t *map = (const uint32_t *)(const void *)(taken + CHUNK_PAGES / 64);
	size_t wanted = (at & (CHUNK - 1)) / PAGE;
	for (size_t page = 0; page <= wanted;) {
		bool small = map[page] >> 31;
		size_t pages = !(taken[page / 64] >> (page % 64) & 1) ? 1
		               : small                                ? bin_pages[map[page] & 31]
		                                                      : map[page] & 1023;
		if (pages == 0 || page + pages > wanted) {
			bool used = taken[page / 64] >> (page % 64) & 1;
			return !used ? PAGE : small ? sizes[map[page] & 31] : pages * PAGE;
		}
		page += pages;
	}
	return 0;
}

struct ranges {
	struct rewind_range *at;
	size_t count;
};

static void add_range(struct ranges *to, uintptr_t start, uintptr_t end)
{
	start = (start + PAGE - 1) & ~(PAGE - 1);
	end &= ~(PAGE - 1);
	if (start < end && to->count < MAX_UNUSED) {
		to->at[to->count++] = (struct rewind_range){start, end};
	}
}

/*
 * What means nothing now: ZendMM's free pages, the VM stack above its top, the arena above its top. Nothing is
 * reported when ZendMM is not as expected (another allocator by USE_ZEND_ALLOC=0, for one): slower, and correct.
 */
static void find_unused(struct ranges *to)
{
	to->count = 0;
	const struct engine_heap *heap = (const struct engine_heap *)(const void *)zend_mm_get_heap();
	const struct mm_rest *rest = rest_of(heap);
	if (rest == NULL) {
		return;
	}
	const struct mm_chunk *first = rest->main_chunk;
	size_t offset = free_map_offset(first);
	if (offset == 0) {
		return;
	}
	const struct mm_chunk *chunk = first;
	int seen = 0;
	do {
		if (chunk->heap != heap || ++seen > rest->chunks_count) {
			to->count = 0;
			return;
		}
		const uint64_t *map = (const uint64_t *)(const void *)((const uint8_t *)chunk + offset);
		for (uint32_t p = 0; p < CHUNK_PAGES;) {
			uint32_t from = p;
			while (p < CHUNK_PAGES && !(map[p / 64] >> (p % 64) & 1)) {
				p++;
			}
			add_range(to, (uintptr_t)chunk + from * PAGE, (uintptr_t)chunk + p * PAGE);
			p += p == from;
		}
		chunk = chunk->next;
	} while (chunk != first);
	for (chunk = rest->cached_chunks; chunk != NULL; chunk = chunk->next) {
		add_range(to, (uintptr_t)chunk + PAGE, (uintptr_t)chunk + CHUNK);
	}
	add_range(to, (uintptr_t)EG(vm_stack_top), (uintptr_t)EG(vm_stack_end));
	add_range(to, (uintptr_t)CG(arena)->ptr, (uintptr_t)CG(arena)->end);
}

/*
 * New blocks shall lie on pages that were free: those need not be put back. So the free blocks on pages that are partly
 * taken are forgotten.
 */
static void forget_free_blocks(void)
{
	struct engine_heap *heap = (struct engine_heap *)(void *)zend_mm_get_heap();
	if (rest_of(heap) != NULL) {
		memset(heap->free_slot, 0, sizeof heap->free_slot);
	}
}

/*
 * The objects of the boot that live. PHP takes one out when it frees it: they are entered among its weak references,
 * and no other note of theirs says, when a request has freed one and made another at the same place with the same
 * number, whose that is.
 */
static HashTable objects EACH_REQUEST;
/* Numbers of those that this request has freed, in that order; room for all. */
static uint32_t *freed;
static uint32_t freed_count EACH_REQUEST;

bool snapshot_has(const zend_object *object)
{
	return object->handle < snapshot_marks.objects &&
	       zend_hash_index_exists(&objects, zend_object_to_weakref_key(object));
}

/* PHP takes an object out of the table of weak references when it frees it. */
static void note_freed(zval *number)
{
	freed[freed_count++] = (uint32_t)Z_LVAL_P(number);
}

static int ascending(const void *one, const void *other)
{
	uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
	return (a > b) - (a < b);
}

const uint32_t *snapshot_freed(uint32_t *count)
{
	qsort(freed, freed_count, sizeof *freed, ascending);
	*count = freed_count;
	return freed;
}

/*
 * A request may destroy what the boot made: destructors, weak references and `finally` see it as under php-fpm, and the
 * memory comes back. What it closes so (a connection, a file) is closed, for its locks and its transaction end with it,
 * and the rewinder puts that right. Only the end of a request closes nothing of the boot's: there these objects have
 * handlers that destroy them as the classes' own do, and leave open what they hold; or, if others may have their
 * address, one more reference. What the boot has not connected has nothing of the boot's to be left open. Objects that
 * hold something else outside the memory (archives, curl's handles) stay: with one more reference from the beginning.
 * Resources need none, since what they open is put back when it was closed.
 */
static uint32_t *closing; /* numbers of those that can be closed */
static uint32_t closing_count;
#define MAX_HANDLERS 32
static struct {
	const zend_object_handlers *of;
	zend_object_handlers at_the_end;
} handlers[MAX_HANDLERS];
static int handlers_count;
/* The request that is there is at its end. */
static bool holds EACH_REQUEST;

static const zend_object_handlers *at_the_end(const zend_object_handlers *of)
{
	for (int i = 0; i < handlers_count; i++) {
		if (handlers[i].of == of) {
			return &handlers[i].at_the_end;
		}
	}
	return NULL;
}

static bool closes_nothing_at_the_end(const zend_object_handlers *of)
{
	if (at_the_end(of) == NULL && handlers_count < MAX_HANDLERS) {
		handlers[handlers_count].of = of;
		zend_object_handlers *own = &handlers[handlers_count++].at_the_end;
		*own = *of;
		own->dtor_obj = zend_objects_destroy_object;
		own->free_obj = zend_object_std_dtor;
	}
	return at_the_end(of) != NULL;
}

/* Numbers of those that the boot has not connected. What a request connects is its own: it is closed where that drops
 * it, or with its end (cleanup.c). */
static uint32_t *unconnected;
static uint32_t unconnected_count;

const uint32_t *snapshot_unconnected(uint32_t *count)
{
	*count = unconnected_count;
	return unconnected;
}

static void hold_object(zend_object *object)
{
	if (!cleanup_reaches_outside(object)) {
		return;
	}
	if (cleanup_closes(object) && cleanup_is_unconnected(object)) {
		unconnected = safe_erealloc(unconnected, unconnected_count + 1, sizeof *unconnected, 0);
		unconnected[unconnected_count++] = object->handle;
	} else if (cleanup_closes(object) &&
	           (cleanup_is_pointed_to(object) || closes_nothing_at_the_end(object->handlers))) {
		closing = safe_erealloc(closing, closing_count + 1, sizeof *closing, 0);
		closing[closing_count++] = object->handle;
	} else {
		GC_ADDREF(object);
	}
}

static void note_object(zend_object *object)
{
	hold_object(object);
	zval number;
	ZVAL_LONG(&number, object->handle);
	zend_weakrefs_hash_add(&objects, object, &number);
}

void snapshot_hold(void)
{
	for (uint32_t i = 0; i < closing_count && !holds; i++) {
		zend_object *object = EG(objects_store).object_buckets[closing[i]];
		if (!IS_OBJ_VALID(object) || !snapshot_has(object)) {
			continue;
		}
		if (cleanup_is_pointed_to(object)) {
			GC_ADDREF(object);
		} else if (at_the_end(object->handlers) != NULL) {
			object->handlers = at_the_end(object->handlers);
		}
	}
	holds = true;
}

static void set_marks(void)
{
	zend_objects_store *store = &EG(objects_store);
	/* -1: no free number below the top (ZEND_OBJECTS_STORE's FREE_LIST_END) */
	store->free_list_head = -1;
	if (store->top * 2 > store->size) {
		/* Else each request would move the table. */
		store->size *= 2;
		store->object_buckets = erealloc(store->object_buckets, store->size * sizeof(zend_object *));
	}
	snapshot_marks.objects = store->top;
	snapshot_marks.resources = EG(regular_list).nNextFreeElement;
	snapshot_marks.persistent = EG(persistent_list).nNumUsed;
	holds = false;
}

static void note_objects(void)
{
	const zend_objects_store *store = &EG(objects_store);
	zend_hash_init(&objects, store->top, NULL, note_freed, 0);
	freed = safe_emalloc(store->top, sizeof *freed, 0);
	for (uint32_t i = 1; i < store->top; i++) {
		if (IS_OBJ_VALID(store->object_buckets[i])) {
			note_object(store->object_buckets[i]);
		}
	}
	set_marks();
}

/* Of those that came later: what note_objects() does for all. Objects of before may be gone, and have gone from the
 * table as well; their numbers may be those of others. */
static void note_more_objects(void)
{
	const zend_objects_store *store = &EG(objects_store);
	/* By now they may be connected. */
	uint32_t *before = unconnected, count = unconnected_count;
	unconnected = NULL;
	unconnected_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		zend_object *object = store->object_buckets[before[i]];
		if (IS_OBJ_VALID(object) && zend_hash_index_exists(&objects, zend_object_to_weakref_key(object))) {
			hold_object(object);
		}
	}
	if (before != NULL) {
		efree(before);
	}
	for (uint32_t i = 1; i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (IS_OBJ_VALID(object) && !zend_hash_index_exists(&objects, zend_object_to_weakref_key(object))) {
			note_object(object);
		}
	}
	freed = safe_erealloc(freed, store->top, sizeof *freed, 0);
	freed_count = 0;
	set_marks();
}

static struct ranges unused;

const char *snapshot_extend(void)
{
	randomness_drop_read_ahead();
	lifecycle_collect_outside();
	cleanup_prepare();
	note_more_objects();
	destructors_note();
	sqlite_note();
	leftovers_note();
	randomness_prepare();
	zend_mm_gc(zend_mm_get_heap());
	forget_free_blocks();
	find_unused(&unused);
	return rewind_extend(unused.at, unused.count);
}

void snapshot_prepare(void)
{
	/* Else each request that asks for the time of day maps the file of the time zone: a page fault, and for it a look
	 * at all pages. */
	get_timezone_info();
	lifecycle_collect_outside();
	cleanup_prepare();
	note_objects();
	destructors_note();
	sqlite_note();
	leftovers_note();
	randomness_prepare();
}

const char *snapshot_take(enum rewind_tracking tracking)
{
	unused.at = rewind_keep(MAX_UNUSED * sizeof *unused.at);
	if (randomness_entropy() != NULL || unused.at == NULL) {
		return "no memory for the rewinder";
	}
	zend_mm_gc(zend_mm_get_heap());
	forget_free_blocks();
	find_unused(&unused);
	return rewind_snapshot(tracking, unused.at, unused.count);
}

const char *snapshot_check(void)
{
	struct ranges again = {.at = rewind_keep(MAX_UNUSED * sizeof *again.at)};
	if (again.at == NULL) {
		return "no memory for the rewinder";
	}
	find_unused(&again);
	if (again.count != unused.count || memcmp(again.at, unused.at, again.count * sizeof *again.at) != 0) {
		return "PHP's memory changed between snapshot and point";
	}
	return randomness_entropy();
}
