/*
 * An application that has booted, or answered warm-up requests, and is to be booted anew in another way. It ends as a
 * script does: its shutdown functions and the destructors of its objects run, its streams are closed. So what it holds
 * outside is given up (rows and keys that are locks, half-written files), and what warm-up requests left in buffers is
 * handed in once, by whom it is.
 *
 * After a fatal error none of this happens, as always in PHP. It takes SECONDS at most.
 */
#include "host.h"

#include "php_output.h"

#include <signal.h>
#include <unistd.h>

#define SECONDS 10

static enum hy_again again;
static const char *reason;

static void too_long(int signal)
{
	zygote_boot_again(again, reason);
}

static void close_streams(void)
{
	for (zend_long i = EG(regular_list).nNextFreeElement - 1; i > 0; i--) {
		const zval *value = zend_hash_index_find(&EG(regular_list), (zend_ulong)i);
		if (value != NULL && Z_RES_P(value)->ptr != NULL && Z_RES_P(value)->type == php_file_le_stream()) {
			zend_list_close(Z_RES_P(value));
		}
	}
}

void boot_again(enum hy_again how, const char *why, bool fatal)
{
	again = how;
	reason = why;
	if (!fatal) {
		signal(SIGALRM, too_long);
		alarm(SECONDS);
		EG(current_execute_data) = NULL;
		zend_set_memory_limit(SIZE_MAX >> 1);
		zend_try
		{
			php_output_activate();
			if (locks_lost() == NULL) {
				locks_take(); /* they guard what destructors write */
			}
			shutdown_end_boot(warmup_has_begun());
			zend_call_destructors();
			close_streams();
		}
		zend_end_try();
		alarm(0);
	}
	zygote_boot_again(how, why);
}
