/*
 * Where PHP's versions differ in what the host needs of them. One source is built for each version; what else the host
 * uses is the same in all of them, or says so by itself (ZEND_HAS_OOM).
 *
 * Of EG, CG and SG only fields that all of these have are used. What a version has besides (EG(stack_base),
 * EG(stack_limit) and EG(call_stack) since 8.3, for instance) needs nobody: these structures lie in memory that is put
 * back as a whole, to the byte, and a worker that was forked has the stack of its zygote at the same addresses.
 *
 * OPcache is a shared object until 8.4, and part of libphp from 8.5 on. Both are a zend_extension, which asks for the
 * SAPI's name in its start-up: zend_startup_extensions() runs that, and php_module_startup() calls it after
 * zend_startup_modules(), in which the host's own module lends the name (opcache.c).
 *
 * Layouts that PHP keeps to itself are written down here as of the versions below, non-debug and non-thread-safe. Who
 * uses one checks it before it is believed (snapshot.c, opcache.c), and does without it when it is not as expected.
 *
 * For a new version, compare: struct _zend_mm_heap and _zend_mm_chunk (Zend/zend_alloc.c); zend_accel_globals and
 * zend_accel_directives (ext/opcache/ZendAccelerator.h); php_ps_globals (ext/session/php_session.h); php_random.h, and
 * who else keeps a php_random_status_state_*; php_open_temporary_fd() (main/php_open_temporary_file.c);
 * php_request_startup() and _shutdown() (main/main.c) with handle.c; shutdown_destructors() (Zend/zend_execute_API.c)
 * with destructors.c; functions that are called without a frame (ZEND_FRAMELESS_FUNCTION) with those that the host
 * wraps.
 */
#ifndef HAYATE_ENGINE_H
#define HAYATE_ENGINE_H

#include "php.h"

#include "ext/random/php_random.h"
#include "ext/session/php_session.h"
#include "ext/standard/basic_functions.h"
#include "zend_closures.h"
#include "zend_fibers.h"

#if PHP_VERSION_ID < 80200 || PHP_VERSION_ID >= 80600 || defined(ZTS) || ZEND_DEBUG
#error                                                                                                                 \
    "the host knows PHP 8.2 to 8.5, non-debug and non-thread-safe: compare what engine.h names with this one's sources"
#endif

/* The PHP that runs, once it has started: a later release of the version that the host was built for, perhaps. */
static inline const char *engine_version(void)
{
	const zval *version = zend_get_constant_str(ZEND_STRL("PHP_VERSION"));
	return version != NULL && Z_TYPE_P(version) == IS_STRING ? Z_STRVAL_P(version) : PHP_VERSION;
}

/* flush() before any output sends the head; with php-fpm before 8.4 it sends nothing. */
#define ENGINE_FLUSH_SENDS_HEAD (PHP_VERSION_ID >= 80400)

/* How long a temporary file's name is that PHP has made: phpXXXXXX, from 8.4 on with 13 random characters before the
 * six. */
#define ENGINE_TEMPORARY_NAME (PHP_VERSION_ID >= 80400 ? 22 : 9)

/* The head of struct _zend_mm_heap, as far as the lists of free blocks and what follows them. */
#define ENGINE_BINS 30
struct engine_heap {
	int use_custom_heap;
	void *storage;
	size_t size, peak;
#if PHP_VERSION_ID >= 80400
	uintptr_t shadow_key; /* with which pointers within free blocks are encoded, but not these */
#endif
	void *free_slot[ENGINE_BINS];
	size_t real_size, real_peak, limit;
	/* more limits, of which releases have different numbers; then struct mm_rest of snapshot.c */
};

/* What follows the settings in OPcache's globals, preload_user being the last of them. */
struct engine_opcache_tail {
	zend_string *cwd, *include_path;
	char include_path_key[32], cwd_key[32];
	int include_path_key_len;
	bool include_path_check;
	int cwd_key_len;
	bool cwd_check;
	int auto_globals_mask;
	time_t request_time;
};

/* Handlers of sessions that PHP code has set. */
#define ENGINE_SESSION_HANDLERS (sizeof(((php_ps_globals *)NULL)->mod_user_names) / sizeof(zval))
static inline zval *engine_session_handlers(php_ps_globals *session)
{
	return (zval *)(void *)&session->mod_user_names;
}

/* The function of one to three arguments that an instruction calls without a frame, as compiled code does from 8.4 on;
 * NULL: it is another instruction. Its first argument is the instruction's first operand. */
static inline const zend_function *engine_frameless(const zend_op *op)
{
#if PHP_VERSION_ID >= 80400
	return op->opcode == ZEND_FRAMELESS_ICALL_1 || op->opcode == ZEND_FRAMELESS_ICALL_2 ||
	               op->opcode == ZEND_FRAMELESS_ICALL_3
	           ? zend_flf_functions[op->extended_value]
	           : NULL;
#else
	return NULL;
#endif
}

/* Puts a function in the place of that which instructions call without a frame, of so many arguments: what was there,
 * or NULL. When PHP has started, before it compiles anything: the compiler finds instructions' functions by these
 * pointers. */
static inline void *engine_wrap_frameless(const char *name, uint32_t arguments, void *instead)
{
#if PHP_VERSION_ID >= 80400
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
	const zend_frameless_function_info *infos =
	    function == NULL ? NULL : function->internal_function.frameless_function_infos;
	size_t count = 0;
	while (infos != NULL && infos[count].handler != NULL) {
		count++;
	}
	zend_frameless_function_info *own = pemalloc((count + 1) * sizeof *own, true);
	void *before = NULL;
	for (size_t i = 0; i < count; i++) {
		own[i] = infos[i];
		if (infos[i].num_args != arguments) {
			continue;
		}
		for (void **at = zend_flf_handlers; *at != NULL; at++) {
			if (*at == infos[i].handler) {
				before = *at;
				*at = own[i].handler = instead;
			}
		}
	}
	own[count] = (zend_frameless_function_info){0};
	if (before == NULL) {
		pefree(own, true);
	} else {
		function->internal_function.frameless_function_infos = own;
	}
	return before;
#else
	return NULL;
#endif
}

/* Whether it only chooses between a call without a frame and a function of that name in the name space. */
static inline bool engine_chooses_frameless(const zend_op *op)
{
#if PHP_VERSION_ID >= 80400
	return op->opcode == ZEND_JMP_FRAMELESS;
#else
	return false;
#endif
}

/* Whether a statement is exit: of a kind of its own before 8.4, since then a call of a function, which has that name.
 */
static inline bool engine_is_exit(const zend_ast *statement, const char *called)
{
#if PHP_VERSION_ID < 80400
	return statement->kind == ZEND_AST_EXIT;
#else
	return called != NULL && (strcasecmp(called, "exit") == 0 || strcasecmp(called, "die") == 0);
#endif
}

/* As PHP's own handler does when max_execution_time is over: the request ends at the next instruction that looks. */
static inline void engine_end_by_timeout(void)
{
	if (zend_on_timeout != NULL) {
		zend_on_timeout((int)EG(timeout_seconds));
	}
	zend_atomic_bool_store_ex(&EG(timed_out), true);
	zend_atomic_bool_store_ex(&EG(vm_interrupt), true);
}

/* Generators of random numbers. */

static inline void *engine_random_state(const zend_object *engine, size_t *size)
{
	const php_random_engine *of = php_random_engine_from_obj((zend_object *)(uintptr_t)engine);
#if PHP_VERSION_ID >= 80400
	*size = of->engine.algo->state_size;
	return of->engine.state;
#else
	*size = of->algo->state_size;
	return of->status->state;
#endif
}

/* That of mt_rand(). */
static inline php_random_status_state_mt19937 *engine_mt_state(void)
{
#if PHP_VERSION_ID >= 80400
	return &RANDOM_G(mt19937);
#else
	return RANDOM_G(mt19937)->state;
#endif
}

static inline void engine_seed_mt(void *state, uint32_t seed)
{
#if PHP_VERSION_ID >= 80400
	php_random_mt19937_seed32(state, seed);
#else
	php_random_status status = {.state = state};
	php_random_algo_mt19937.seed(&status, seed);
#endif
}

/* That of lcg_value(): two words. */
static inline int32_t *engine_lcg_state(void)
{
#if PHP_VERSION_ID >= 80400
	return RANDOM_G(combined_lcg);
#else
	return ((php_random_status_state_combinedlcg *)RANDOM_G(combined_lcg)->state)->state;
#endif
}

/* It is `words` from here on, which the process's end does not give back. */
static inline void engine_move_lcg(int32_t words[2])
{
#if PHP_VERSION_ID < 80400
	_Static_assert(sizeof(php_random_status_state_combinedlcg) == 2 * sizeof *words, "the state is two words");
	memcpy(words, engine_lcg_state(), 2 * sizeof *words);
	RANDOM_G(combined_lcg)->state = words;
#endif
}

/* That by which sessions decide whether to collect old ones; before 8.4 it is lcg_value()'s. Some releases seed it when
 * PHP starts, others at the first use. */
static inline void engine_seed_sessions(php_ps_globals *session, uint64_t high, uint64_t low)
{
#if PHP_VERSION_ID >= 80400
	php_random_pcgoneseq128xslrr64_seed128(&session->random_state, php_random_uint128_constant(high, low));
#endif
}

/* Around each destructor at the end of a script: before 8.4 no fiber may be switched there. */
static inline void engine_destructor_begins(void)
{
#if PHP_VERSION_ID < 80400
	zend_fiber_switch_block();
#endif
}

static inline void engine_destructor_over(void)
{
#if PHP_VERSION_ID < 80400
	zend_fiber_switch_unblock();
#endif
}

/* Shutdown functions: what is called, and what it is given. */

/* The closure that is called; NULL: something else is. */
static inline zend_object *engine_shutdown_closure(const php_shutdown_function_entry *f)
{
#if PHP_VERSION_ID >= 80500
	return f->fci_cache.closure;
#else
	const zval *name = &f->fci.function_name;
	return Z_TYPE_P(name) == IS_OBJECT && Z_OBJCE_P(name) == zend_ce_closure ? Z_OBJ_P(name) : NULL;
#endif
}

/* The array by which it was named, `[$object, 'method']`, which holds the object once more; NULL: there is none. */
static inline const zval *engine_shutdown_array(const php_shutdown_function_entry *f)
{
#if PHP_VERSION_ID >= 80500
	return NULL;
#else
	return Z_TYPE(f->fci.function_name) == IS_ARRAY ? &f->fci.function_name : NULL;
#endif
}

static inline zval **engine_shutdown_arguments(php_shutdown_function_entry *f, uint32_t *count)
{
#if PHP_VERSION_ID >= 80500
	*count = f->param_count;
	return &f->params;
#else
	*count = f->fci.param_count;
	return &f->fci.params;
#endif
}

/* As fci_addref() and user_shutdown_function_dtor() in ext/standard/basic_functions.c, but for the arguments. */
static inline void engine_shutdown_hold(php_shutdown_function_entry *f)
{
#if PHP_VERSION_ID >= 80500
	zend_fcc_addref(&f->fci_cache);
#else
	Z_TRY_ADDREF(f->fci.function_name);
	if (f->fci_cache.object != NULL) {
		GC_ADDREF(f->fci_cache.object);
	}
#endif
}

static inline void engine_shutdown_give_up(php_shutdown_function_entry *f)
{
#if PHP_VERSION_ID >= 80500
	zend_fcc_dtor(&f->fci_cache);
#else
	zval_ptr_dtor(&f->fci.function_name);
	if (f->fci_cache.object != NULL) {
		OBJ_RELEASE(f->fci_cache.object);
	}
#endif
}

#endif
