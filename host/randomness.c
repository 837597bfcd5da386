/*
 * What must not be drawn twice, although the memory of PHP's generators is put back: they are seeded anew for each
 * request. What libraries keep is rewind/generators.c's part.
 *
 *   mt_rand() and its kin       seed themselves at the first use, from the kernel
 *   lcg_value(), uniqid()       seeded after each rewind
 *   collection of old sessions  seeded after each rewind; before PHP 8.4 it is lcg_value()
 *   engines of Random\          those of the boot that seeded themselves are seeded after each rewind
 *   gmp_random_*()              seeded at the first use
 *   OpenSSL                     asks the kernel
 *   SQLite                      seeds itself at its next use
 *
 * Seeds that the application itself has given in the boot are another matter: a request under php-fpm, which boots by
 * itself, draws the same sequence from such a seed each time. So it does here, from where the boot left it; what
 * warm-up requests drew from it is taken back. Whether a seed was given cannot be seen afterwards, so it is noted when
 * it happens: handlers of the functions that take one are wrapped.
 */
#include "host.h"
#include "engine.h"

#include "zend_objects_API.h"

#include <dlfcn.h>
#include <sys/random.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* OpenSSL's generator keeps its state in memory that is put back; the kernel's does not. */
static int kernel_random(unsigned char *to, int len)
{
	for (int done = 0; done < len;) {
		ssize_t n = getrandom(to + done, (size_t)(len - done), 0);
		if (n <= 0) {
			return 0;
		}
		done += (int)n;
	}
	return 1;
}
static int kernel_status(void)
{
	return 1;
}
/* RAND_METHOD of openssl/rand.h, which is deprecated and works in all of 3.x */
static const struct {
	int (*seed)(const void *, int);
	int (*bytes)(unsigned char *, int);
	void (*cleanup)(void);
	int (*add)(const void *, int, double);
	int (*pseudo)(unsigned char *, int);
	int (*status)(void);
} kernel_method = {NULL, kernel_random, NULL, NULL, kernel_random, kernel_status};

/* Entropy is fetched for many requests at once, into memory that rewinds leave alone. */
static struct entropy {
	size_t used;
	uint32_t words[1024];
} * entropy;

/* The state of lcg_value(), each request's own. PHP's is a page of its own to put back. */
static int32_t lcg[2] EACH_REQUEST;

static uint32_t next_word(void)
{
	if (entropy->used == sizeof entropy->words / sizeof entropy->words[0]) {
		if (!kernel_random((unsigned char *)entropy->words, sizeof entropy->words)) {
			log_format(HY_LOG_ERROR "The kernel gave no random bytes; this worker ends.");
			_exit(70);
		}
		entropy->used = 0;
	}
	uint32_t word = entropy->words[entropy->used];
	entropy->words[entropy->used++] = 0;
	return word;
}

static uint64_t next_long(void)
{
	uint64_t high = next_word();
	return high << 32 | next_word();
}

const char *randomness_entropy(void)
{
	if (entropy == NULL && (entropy = rewind_keep(sizeof *entropy)) == NULL) {
		return "no memory for the rewinder";
	}
	engine_move_lcg(lcg);
	/* Empty: a process must not draw what its siblings draw. */
	entropy->used = sizeof entropy->words / sizeof entropy->words[0];
	return NULL;
}

/* mt_rand(). */

static zif_handler mt_srand_handler;
static bool mt_given; /* a seed, by the boot */
static php_random_status_state_mt19937 mt_at_boot;

static ZEND_FUNCTION(noted_mt_srand)
{
	mt_srand_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (!handle_reached() && !handle_warming()) {
		mt_given = ZEND_NUM_ARGS() > 0;
	}
}

/* Engines. */

#define KINDS 3
#define LARGEST_STATE sizeof(php_random_status_state_mt19937)
#define MOST_ENGINES 4096

static zif_handler construct_handlers[KINDS], unserialize_handlers[KINDS];
static zend_class_entry *engine_classes[KINDS];

/* An engine that was made before the snapshot. */
struct engine {
	const zend_object *object;
	bool given;              /* a seed */
	uint8_t *state;          /* when the boot was over, or it was made, whichever came later */
	const struct engine *as; /* a clone of that one, and nobody drew from either since: it draws the same */
};
static struct engine *engines;
static size_t engine_count;

static size_t state_size(const zend_object *object)
{
	size_t size;
	engine_random_state(object, &size);
	return size;
}

static void *state_of(const zend_object *object)
{
	size_t size;
	return engine_random_state(object, &size);
}

static struct engine *find_engine(const zend_object *object)
{
	for (size_t i = 0; i < engine_count; i++) {
		if (engines[i].object == object) {
			return &engines[i];
		}
	}
	return NULL;
}

static void note_engine(const zend_object *object, bool given)
{
	struct engine *engine = find_engine(object);
	if (engine == NULL && engine_count == MOST_ENGINES) {
		static bool said;
		if (!said) {
			said = true;
			log_format(
			    "The boot made more than %d engines of random numbers: those beyond draw the same in each request. To "
			    "avoid it: make them in the request that needs them.",
			    MOST_ENGINES);
		}
	} else if (engine == NULL) {
		if (engines == NULL && (engines = calloc(MOST_ENGINES, sizeof *engines)) == NULL) {
			return;
		}
		engine = &engines[engine_count];
		engine->object = object;
		engine->state = malloc(LARGEST_STATE);
		engine_count += engine->state != NULL;
	}
	if (engine != NULL && engine->state != NULL) {
		engine->given = given;
		memcpy(engine->state, state_of(object), state_size(object));
	}
}

static zend_object *clone_engine(zend_object *object)
{
	zend_object *clone = php_random_engine_common_clone_object(object);
	if (!handle_reached()) {
		const struct engine *engine = find_engine(object);
		note_engine(clone, engine == NULL || engine->given);
	}
	return clone;
}

static int kind_of_engine(const zend_object *object)
{
	int kind = 0;
	while (kind < KINDS && engine_classes[kind] != object->ce) {
		kind++;
	}
	return kind;
}

static ZEND_METHOD(Engine, noted_construct)
{
	zend_object *object = Z_OBJ_P(ZEND_THIS);
	int kind = kind_of_engine(object);
	if (kind == KINDS) {
		zend_throw_error(NULL, "an engine of an unknown class");
		return;
	}
	construct_handlers[kind](INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (handle_reached()) {
		return;
	}
	zval none, *seed = ZEND_NUM_ARGS() > 0 ? ZEND_CALL_ARG(execute_data, 1) : &none;
	ZVAL_NULL(&none);
	ZVAL_DEREF(seed);
	note_engine(object, Z_TYPE_P(seed) != IS_NULL);
	/* Of all objects of its class. */
	zend_object_handlers *handlers = (zend_object_handlers *)(uintptr_t)object->handlers;
	if (handlers->clone_obj == php_random_engine_common_clone_object) {
		handlers->clone_obj = clone_engine;
	}
}

/* What was stored once is the same in each request, under php-fpm as well. */
static ZEND_METHOD(Engine, noted_unserialize)
{
	zend_object *object = Z_OBJ_P(ZEND_THIS);
	int kind = kind_of_engine(object);
	if (kind == KINDS) {
		zend_throw_error(NULL, "an engine of an unknown class");
		return;
	}
	unserialize_handlers[kind](INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (!handle_reached()) {
		note_engine(object, true);
	}
}

/* Of all engines that were made, those that live. */
static void keep_living_engines(void)
{
	const zend_objects_store *store = &EG(objects_store);
	size_t kept = 0;
	for (uint32_t i = 1; i < store->top && engine_count > 0; i++) {
		const zend_object *object = store->object_buckets[i];
		struct engine *engine = IS_OBJ_VALID(object) && kind_of_engine(object) < KINDS ? find_engine(object) : NULL;
		if (engine != NULL && engine >= engines + kept) {
			struct engine living = *engine;
			*engine = engines[kept];
			engines[kept++] = living;
		}
	}
	engine_count = kept;
}

static void prepare_engines(void)
{
	keep_living_engines();
	for (size_t i = 0; i < engine_count; i++) {
		struct engine *engine = &engines[i];
		if (engine->given) {
			memcpy(state_of(engine->object), engine->state, state_size(engine->object));
		}
		for (size_t j = 0; j < i && !engine->given && engine->as == NULL; j++) {
			const struct engine *other = &engines[j];
			if (!other->given && other->object->ce == engine->object->ce &&
			    memcmp(state_of(other->object), state_of(engine->object), state_size(engine->object)) == 0) {
				engine->as = other;
			}
		}
	}
}

static void seed_engine(const struct engine *engine)
{
	void *state = state_of(engine->object);
	if (engine->as != NULL) {
		memcpy(state, state_of(engine->as->object), state_size(engine->object));
	} else if (engine->object->ce == random_ce_Random_Engine_Mt19937) {
		engine_seed_mt(state, next_word());
	} else if (engine->object->ce == random_ce_Random_Engine_PcgOneseq128XslRr64) {
		uint64_t low = next_long();
		((php_random_status_state_pcgoneseq128xslrr64 *)state)->state = php_random_uint128_constant(next_long(), low);
	} else {
		uint64_t *words = ((php_random_status_state_xoshiro256starstar *)state)->state;
		for (int i = 0; i < 4; i++) {
			words[i] = next_long();
		}
		words[0] |=
		    (words[0] | words[1] | words[2] | words[3]) == 0; /* all zero is the one state that it cannot have */
	}
}

/* GMP. Its extension keeps one state, which gmp_random_seed() sets. */

static zif_handler gmp_seed_handler, gmp_bits_handler, gmp_range_handler;
static zend_function *gmp_seed_function;
static bool gmp_seeded, gmp_given, gmp_seeding;
static zval gmp_seed_at_boot;
static bool gmp_drawn_since;

static void seed_gmp(zval *seed)
{
	zval result;
	ZVAL_UNDEF(&result);
	gmp_seeding = true;
	zend_call_known_function(gmp_seed_function, NULL, NULL, &result, 1, seed, NULL);
	gmp_seeding = false;
	zval_ptr_dtor(&result);
	gmp_seeded = true;
}

static ZEND_FUNCTION(noted_gmp_random_seed)
{
	gmp_seed_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (gmp_seeding || EG(exception) != NULL) {
		return;
	}
	gmp_seeded = true;
	if (!handle_reached() && !handle_warming()) {
		zval_ptr_dtor(&gmp_seed_at_boot);
		ZVAL_COPY(&gmp_seed_at_boot, ZEND_CALL_ARG(execute_data, 1));
		gmp_given = true;
	}
	gmp_drawn_since = handle_warming();
}

static void before_gmp_draws(void)
{
	gmp_drawn_since |= handle_warming();
	if (!gmp_seeded) {
		zval seed;
		zend_long number;
		if (!kernel_random((unsigned char *)&number, sizeof number)) {
			return; /* it seeds itself */
		}
		ZVAL_LONG(&seed, number & ZEND_LONG_MAX);
		seed_gmp(&seed);
	}
}

static ZEND_FUNCTION(seeded_gmp_random_bits)
{
	before_gmp_draws();
	gmp_bits_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static ZEND_FUNCTION(seeded_gmp_random_range)
{
	before_gmp_draws();
	gmp_range_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/* When. */

static zend_function *wrap(const HashTable *functions, const char *name, zif_handler *before, zif_handler handler)
{
	zend_function *function = zend_hash_str_find_ptr(functions, name, strlen(name));
	if (function == NULL || function->type != ZEND_INTERNAL_FUNCTION) {
		return NULL;
	}
	*before = function->internal_function.handler;
	function->internal_function.handler = handler;
	return function;
}

void randomness_after_startup(void)
{
	if (!options.worker_mode || options.rewind == REWIND_OFF) {
		return;
	}
	wrap(CG(function_table), "mt_srand", &mt_srand_handler, ZEND_FN(noted_mt_srand));
	wrap(CG(function_table), "srand", &mt_srand_handler, ZEND_FN(noted_mt_srand));
	engine_classes[0] = random_ce_Random_Engine_Mt19937;
	engine_classes[1] = random_ce_Random_Engine_PcgOneseq128XslRr64;
	engine_classes[2] = random_ce_Random_Engine_Xoshiro256StarStar;
	for (int i = 0; i < KINDS; i++) {
		HashTable *methods = &engine_classes[i]->function_table;
		wrap(methods, "__construct", &construct_handlers[i], ZEND_MN(Engine_noted_construct));
		wrap(methods, "__unserialize", &unserialize_handlers[i], ZEND_MN(Engine_noted_unserialize));
	}
	gmp_seed_function = wrap(CG(function_table), "gmp_random_seed", &gmp_seed_handler, ZEND_FN(noted_gmp_random_seed));
	if (gmp_seed_function != NULL) {
		wrap(CG(function_table), "gmp_random_bits", &gmp_bits_handler, ZEND_FN(seeded_gmp_random_bits));
		wrap(CG(function_table), "gmp_random_range", &gmp_range_handler, ZEND_FN(seeded_gmp_random_range));
	}
}

bool randomness_follows_a_seed(const zend_execute_data *call)
{
	static const char *const of_mt[] = {"mt_rand", "rand", "shuffle", "str_shuffle", "array_rand"};
	const zend_function *function = call->func;
	const char *name = ZSTR_VAL(function->common.function_name);
	if (function->common.scope == NULL) {
		for (size_t i = 0; i < sizeof of_mt / sizeof of_mt[0]; i++) {
			if (strcmp(name, of_mt[i]) == 0) {
				return mt_given;
			}
		}
		return gmp_given && strncmp(name, ZEND_STRL("gmp_")) == 0;
	}
	zend_object *drawn_from = Z_TYPE(call->This) == IS_OBJECT ? Z_OBJ(call->This) : NULL;
	zval room;
	if (drawn_from != NULL && drawn_from->ce == random_ce_Random_Randomizer) {
		const zval *engine = zend_read_property(drawn_from->ce, drawn_from, ZEND_STRL("engine"), true, &room);
		drawn_from = Z_TYPE_P(engine) == IS_OBJECT ? Z_OBJ_P(engine) : NULL;
	}
	const struct engine *engine = drawn_from == NULL ? NULL : find_engine(drawn_from);
	return engine != NULL && engine->given;
}

void randomness_boot_over(void)
{
	if (mt_given) {
		mt_at_boot = *engine_mt_state();
	}
	keep_living_engines();
	for (size_t i = 0; i < engine_count; i++) {
		note_engine(engines[i].object, engines[i].given);
	}
}

void randomness_prepare(void)
{
	int (*set_method)(const void *) = (int (*)(const void *))dlsym(RTLD_DEFAULT, "RAND_set_rand_method");
	if (set_method != NULL) {
		set_method(&kernel_method);
	}
	/* With 0 bytes SQLite forgets its generator and seeds it anew at its next use. */
	void *sqlite = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_NOLOAD);
	void (*sqlite_random)(int, void *) =
	    sqlite == NULL ? NULL : (void (*)(int, void *))dlsym(sqlite, "sqlite3_randomness");
	if (sqlite_random != NULL) {
		sqlite_random(0, NULL);
	}
	/* Its own reference stays: the library is part of the snapshot. */
	if (mt_given) {
		*engine_mt_state() = mt_at_boot;
	}
	prepare_engines();
	if (gmp_given && gmp_drawn_since) {
		seed_gmp(&gmp_seed_at_boot);
	}
	gmp_seeded = gmp_given;
	randomness_forked();
	rewind_forget_randomness();
}

void randomness_forked(void)
{
	RANDOM_G(mt19937_seeded) = mt_given;
	RANDOM_G(combined_lcg_seeded) = false;
	uint64_t seed[2];
	if (kernel_random((unsigned char *)seed, sizeof seed)) {
		boot_seed_sessions(seed[0], seed[1]);
	}
}

void randomness_seed(void)
{
	/* The range of the two generators' states: P. L'Ecuyer, CACM 31 (1988). */
	int32_t *state = engine_lcg_state();
	state[0] = (int32_t)(next_word() % 2147483562u) + 1;
	state[1] = (int32_t)(next_word() % 2147483398u) + 1;
	RANDOM_G(combined_lcg_seeded) = true;
	uint64_t high = next_long();
	boot_seed_sessions(high, next_long());
	for (size_t i = 0; i < engine_count; i++) {
		if (!engines[i].given) {
			seed_engine(&engines[i]);
		}
	}
}

/* PHP reads 8 KiB at once from /dev/urandom; what nobody has taken yet every request, and every worker, would take. */
void randomness_drop_read_ahead(void)
{
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		php_stream *stream = resource->ptr;
		php_stream_statbuf of;
		bool ahead = stream != NULL && resource->type == php_file_le_stream() && stream->ops == &php_stream_stdio_ops &&
		             stream->readpos != stream->writepos;
		/* Major 1 is memory: 8 /dev/random, 9 /dev/urandom (Documentation/admin-guide/devices.txt). */
		if (ahead && php_stream_stat(stream, &of) == 0 && S_ISCHR(of.sb.st_mode) && major(of.sb.st_rdev) == 1 &&
		    (minor(of.sb.st_rdev) == 8 || minor(of.sb.st_rdev) == 9)) {
			stream->readpos = stream->writepos = 0;
		}
	}
	ZEND_HASH_FOREACH_END();
}
