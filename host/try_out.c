/*
 * Code that may end the process, or never come back, is tried out in a process that is forked for it: what a boot
 * script loads by its name before there are requests (php/boot/symfony_classes.php). Where a class cannot be linked,
 * PHP ends, and nothing catches that; the process that has booted must not. There it also shows whether code of the
 * project's own runs.
 */
#include "explain.h"
#include "host.h"
#include "stray.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Processes at most: each one that ends before its time has cost one. */
#define MOST_FORKS 16
/* What takes longer than this waits for something. */
#define SECONDS_FOR_ONE 1

struct trial {
	_Atomic uint32_t at; /* the one that is tried out */
	_Atomic unsigned char came_back[];
};

/* In the process that was forked, which nobody hears. */
static ZEND_COLD ZEND_NORETURN void try_all(struct trial *trial, uint32_t first, uint32_t count, uint64_t until,
                                            zend_fcall_info *call, zend_fcall_info_cache *cache, bool notes)
{
	fork_be_silent(notes);
	if (notes) {
		declares_note();
	}
	opcache_after_fork();
	signal(SIGALRM, SIG_DFL);
	zend_try
	{
		for (uint32_t i = first; i < count && hy_now() < until; i++) {
			trial->at = i;
			alarm(SECONDS_FOR_ONE);
			zval number, result;
			ZVAL_LONG(&number, i);
			ZVAL_UNDEF(&result);
			call->params = &number;
			call->param_count = 1;
			call->retval = &result;
			/* An exception that is left is exit()'s. */
			if (zend_call_function(call, cache) == FAILURE || EG(exception) != NULL) {
				_exit(1);
			}
			trial->came_back[i] = Z_TYPE(result) == IS_TRUE;
			zval_ptr_dtor(&result);
			if (notes) {
				by_name_add();
			}
		}
		trial->at = count;
	}
	zend_end_try();
	_exit(0);
}

/* Calls it with the numbers from 0 to count - 1, in their order, as long as there is time. True of those with which it
 * comes back and says true. */
static void try_out(zend_fcall_info *call, zend_fcall_info_cache *cache, zend_long count, double seconds, bool notes,
                    zval *return_value)
{
	array_init(return_value);
	if (count <= 0 || count > 1 << 20 || !(seconds > 0 && seconds < 3600)) {
		return;
	}
	size_t size = sizeof(struct trial) + (size_t)count;
	struct trial *trial = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (trial == MAP_FAILED) {
		return;
	}
	uint64_t until = hy_now() + (uint64_t)(seconds * 1e9);
	pid_t self = getpid();
	uint32_t first = 0;
	for (int i = 0; i < MOST_FORKS && first < count && hy_now() < until; i++) {
		trial->at = first;
		pid_t pid = host_fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			if (getppid() != self) {
				_exit(0);
			}
			try_all(trial, first, (uint32_t)count, until, call, cache, notes);
		}
		int status;
		while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
		}
		if (pid < 0) {
			break;
		}
		rewind_child_over();
		first = trial->at + 1;
	}
	for (zend_long i = 0; i < count; i++) {
		if (trial->came_back[i]) {
			add_next_index_long(return_value, i);
		}
	}
	munmap(trial, size);
}

static bool parse(zend_execute_data *execute_data, zend_fcall_info *call, zend_fcall_info_cache *cache,
                  zend_long *count, double *seconds)
{
	ZEND_PARSE_PARAMETERS_START_EX(0, 3, 3)
	Z_PARAM_FUNC(*call, *cache)
	Z_PARAM_LONG(*count)
	Z_PARAM_DOUBLE(*seconds)
	ZEND_PARSE_PARAMETERS_END_EX(return false);
	return true;
}

/* came_back(callable(int): bool $attempt, int $count, float $seconds): list<int>: those with which $attempt comes back
 * and says true. */
static PHP_FUNCTION(came_back)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	zend_long count;
	double seconds;
	if (parse(execute_data, &call, &cache, &count, &seconds)) {
		try_out(&call, &cache, count, seconds, false, return_value);
	}
}

/* What ran in this process leaves a run-time cache with each function. True: the function is the project's own and has
 * one. With `forget` it has none from now on, so that it shows when it runs. */
static bool ran(HashTable *functions, bool forget)
{
	bool any = false;
	const zend_string *file = NULL;
	bool own = false;
	zend_function *function;
	ZEND_HASH_FOREACH_PTR(functions, function)
	{
		zend_op_array *code = &function->op_array;
		if (function->type != ZEND_USER_FUNCTION || RUN_TIME_CACHE(code) == NULL) {
			continue;
		}
		if (code->filename != file) {
			file = code->filename;
			own = by_name_is_for_requests(file);
		}
		any |= own;
		if (own && forget) {
			ZEND_MAP_PTR_SET(code->run_time_cache, NULL);
		}
	}
	ZEND_HASH_FOREACH_END();
	return any;
}

static bool own_code_ran(bool forget)
{
	bool any = ran(EG(function_table), forget);
	zend_class_entry *class;
	ZEND_HASH_FOREACH_PTR(EG(class_table), class)
	{
		if (class->type == ZEND_USER_CLASS) {
			any |= ran(&class->function_table, forget);
		}
	}
	ZEND_HASH_FOREACH_END();
	return any;
}

/* runs_own_code(callable(): void $what): bool: whether a function of the project's own that has a name runs while $what
 * does. To be called in a process that only tries something out. */
static PHP_FUNCTION(runs_own_code)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_FUNC(call, cache)
	ZEND_PARSE_PARAMETERS_END();
	own_code_ran(true);
	zval result;
	ZVAL_UNDEF(&result);
	call.retval = &result;
	if (zend_call_function(&call, &cache) == SUCCESS && EG(exception) == NULL) {
		RETVAL_BOOL(own_code_ran(false));
	}
	zval_ptr_dtor(&result);
}

/* load_classes(callable(int): bool $attempt, int $count, float $seconds): void: loads the classes that $attempt has
 * loaded in another process, as far as they may be there before the requests (by_name.c). */
static PHP_FUNCTION(load_classes)
{
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	zend_long count;
	double seconds;
	if (parse(execute_data, &call, &cache, &count, &seconds)) {
		zval came_back;
		try_out(&call, &cache, count, seconds, true, &came_back);
		zval_ptr_dtor(&came_back);
		by_name_load();
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_came_back, 0, 3, IS_ARRAY, 0)
ZEND_ARG_TYPE_INFO(0, attempt, IS_CALLABLE, 0)
ZEND_ARG_TYPE_INFO(0, count, IS_LONG, 0)
ZEND_ARG_TYPE_INFO(0, seconds, IS_DOUBLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_runs_own_code, 0, 1, _IS_BOOL, 0)
ZEND_ARG_TYPE_INFO(0, what, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_load_classes, 0, 3, IS_VOID, 0)
ZEND_ARG_TYPE_INFO(0, attempt, IS_CALLABLE, 0)
ZEND_ARG_TYPE_INFO(0, count, IS_LONG, 0)
ZEND_ARG_TYPE_INFO(0, seconds, IS_DOUBLE, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry of_boot_scripts[] = {
    ZEND_NS_FE("Hayate\\Boot", came_back, arginfo_came_back)
        ZEND_NS_FE("Hayate\\Boot", runs_own_code, arginfo_runs_own_code)
            ZEND_NS_FE("Hayate\\Boot", load_classes, arginfo_load_classes) ZEND_FE_END};

void try_out_startup(void)
{
	if (options_is_project()) {
		functions_of_boot_scripts(of_boot_scripts);
	}
}
