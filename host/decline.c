/*
 * Boots and warm-up requests that cannot be served from as they are: each is done again in another way, and the log
 * says why and what to do about it.
 */
#include "host.h"

#include "php_output.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* A state that neither a fork nor the end of a request may meet. `how` the application boots instead. */
struct unfinished {
	const char *left; /* what it is, to follow "the boot "; NULL: there is none */
	const char *why;
	const char *remedy;
	enum hy_again how;
};

static void decline_unfinished(const struct unfinished *one, bool warmed)
{
	if (one->left == NULL) {
		return;
	}
	char why[700];
	if (warmed) {
		snprintf(why, sizeof why, "a warm-up request %s", one->left);
		warmup_failed(why, false);
	}
	snprintf(why, sizeof why, "the boot %s, %s. To avoid it: %s before hayate_handle_request()", one->left, one->why,
	         one->remedy);
	boot_again(one->how, why, false);
}

/*
 * A connection of SQLite in the middle of something holds a lock of the process: a fork does not take it along, and the
 * end of a request gives it back. Where state is kept, a boot of its own for each worker is enough. An archive, or
 * another file, that was left open would be written over what requests have written. Of what is unknown nobody would
 * have the rest written.
 */
static void decline_all_unfinished(bool warmed)
{
	bool keeps = options.rewind == REWIND_OFF;
	struct unfinished sqlite = {
	    .left = keeps && zygote_is_worker() ? NULL : sqlite_left_open(),
	    .why = "on a lock that does not outlive a request",
	    .remedy = "fetch all rows, call closeCursor() or finalize(), and commit,",
	    .how = keeps ? HY_AGAIN_PRIVATE : HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&sqlite, warmed);
	struct unfinished archive = {
	    .left = keeps ? NULL : leftovers_open(),
	    .why = "which each request would write over what others have written",
	    .remedy = "close() it",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&archive, warmed);
	struct unfinished list = {
	    .left = keeps ? NULL : archives_left(),
	    .why = "and each request would write it by what the boot has read of it, over what others have added",
	    .remedy = "open archives in the request, not",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&list, warmed);
	struct unfinished child = {
	    .left = keeps ? NULL : unknown_child(),
	    .why = "and the boot of each request would start one of its own",
	    .remedy = "wait for it with proc_close() or pclose()",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&child, warmed);
	struct unfinished unknown = {
	    .left = keeps ? NULL : unknown_left(),
	    .why = "and Hayate does not know whether that holds back what requests write to it, which a rewind would lose",
	    .remedy = "close or unset it",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&unknown, warmed);
	struct unfinished stale = {
	    .left = keeps ? NULL : unknown_stale(),
	    .why = "which writes what it read in the boot when it is destroyed, over what other requests have written",
	    .remedy = "make it in the request, not",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&stale, warmed);
	bool now_and_then = false;
	const char *left = keeps ? NULL : boot_files_left(&now_and_then);
	struct unfinished file = {
	    .left = left,
	    .why = "and a boot of each request would do with it what it finds to do then",
	    .remedy = "close it, or open it to append (\"a\"),",
	    .how = now_and_then ? HY_AGAIN_ONCE_MORE : HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&file, warmed);
	struct unfinished lock = {
	    .left = keeps ? NULL : locks_left(),
	    .why = "and the boot of each request would take one that is there then",
	    .remedy = "acquire it in the request, or release it",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&lock, warmed);
}

/* What the host opens besides, and a request. */
#define SPARE 64
/* Of so many files that are open for writing it is noted how they were opened (rewind/openings.c). */
#define MOST_WRITTEN_TO 2048

static struct {
	size_t all, written_to;
} opened;

static bool count_opened(int fd, void *to)
{
	struct stat st;
	opened.all++;
	opened.written_to += !zygote_is_own(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	                     (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
	return true;
}

static void too_much(const char *why, bool warmed)
{
	if (warmed) {
		warmup_failed(why, false);
	}
	boot_again(HY_AGAIN_CLASSIC, why, false);
}

/*
 * Each descriptor of the boot is open twice: by the other one it is put back. Where there is no room for that, or for a
 * note, nothing would say so when it is missed.
 */
static void decline_too_much(bool warmed)
{
	struct rlimit most;
	char why[512];
	opened.all = opened.written_to = 0;
	bool listed = zygote_each_fd(count_opened, NULL);
	size_t needed = 2 * opened.all + SPARE;
	if (getrlimit(RLIMIT_NOFILE, &most) == 0 && (!listed || needed > most.rlim_cur)) {
		snprintf(why, sizeof why,
		         "the boot has %zu files open, for which Hayate needs %zu descriptors, and the limit of open files is "
		         "%lu. To avoid it: raise it (LimitNOFILE), or close files before hayate_handle_request()",
		         opened.all, needed, (unsigned long)most.rlim_cur);
		too_much(why, warmed);
	}
	if (opened.written_to > MOST_WRITTEN_TO) {
		snprintf(
		    why, sizeof why,
		    "the boot has %zu files open for writing, and no more than %d can be put back. To avoid it: close them "
		    "before hayate_handle_request()",
		    opened.written_to, MOST_WRITTEN_TO);
		too_much(why, warmed);
	}
}

/* What of an answer the boot has left that no request would have; NULL: nothing. */
static const char *answered;

/* Than PHP's own, where expose_php wants that. */
static bool has_other_headers(void)
{
	zend_llist_position at;
	const sapi_header_struct *header = zend_llist_get_first_ex(&SG(sapi_headers).headers, &at);
	bool one = zend_llist_count(&SG(sapi_headers).headers) == 1;
	return PG(expose_php) ? !one || strcmp(header->header, SAPI_PHP_VERSION_HEADER) != 0 : header != NULL;
}

/* Than the one that php.ini wants. */
static bool has_other_buffers(void)
{
	const char *handler = PG(output_handler);
	bool by_name = handler != NULL && handler[0] != '\0';
	int levels = OG(active) == NULL ? 0 : php_output_get_level();
	if (levels != (by_name || PG(output_buffering) != 0 ? 1 : 0)) {
		return true;
	}
	const char *expected = by_name ? handler : "default output handler";
	return levels == 1 && strcmp(ZSTR_VAL(OG(active)->name), expected) != 0;
}

void decline_note_answer(void)
{
	if (!options_is_project() || options.rewind == REWIND_OFF) {
		return;
	}
	answered = has_other_headers()                     ? "a header"
	           : Z_TYPE(SG(callback_func)) != IS_UNDEF ? "a function that adds headers"
	           : has_other_buffers()                   ? "an output buffer"
	           : after_has_answered()                  ? "a status, or output"
	                                                   : NULL;
}

void decline_boot(void)
{
	if (options.rewind != REWIND_OFF) {
		decline_too_much(false);
	}
	const char *looks = asked_once();
	const char *asks = asked_of_framework();
	looks = looks != NULL ? looks : asks != NULL ? asks : asked_by_packages();
	if (looks != NULL) {
		boot_again(HY_AGAIN_CLASSIC, looks, false);
	}
	if (answered != NULL) {
		char why[256];
		snprintf(why, sizeof why,
		         "what runs before there is a request has a part in the answer (%s), which each request is to have. To "
		         "avoid it: do it in a middleware",
		         answered);
		boot_again(HY_AGAIN_CLASSIC, why, false);
	}
	if (options.rewind != REWIND_OFF && zygote_left_threads(1)) {
		boot_again(HY_AGAIN_CLASSIC,
		           "the boot started a thread, which would write to memory that is being put back, and which a "
		           "fork would lose. To avoid it: start it in the request that needs it; libraries that "
		           "compute in parallel are told not to by OMP_NUM_THREADS=1 in the application's environment",
		           false);
	}
	if (options.rewind == REWIND_FORK && rewind_loses_memory()) {
		boot_again(HY_AGAIN_CLASSIC,
		           "the boot made memory that a fork does not take along (MADV_DONTFORK), and each request is to have "
		           "a fork. To avoid it: do so in the request that needs it",
		           false);
	}
	decline_all_unfinished(false);
	struct unfinished session = {
	    .left = options.rewind == REWIND_OFF ? NULL : boot_left_session(),
	    .why = "which belongs to a visitor, and no request has one without starting it",
	    .remedy = "start it in the request, or close it",
	    .how = HY_AGAIN_CLASSIC,
	};
	decline_unfinished(&session, false);
	const char *unshareable = zygote_is_worker() ? NULL : zygote_unshareable();
	unshareable = unshareable == NULL && !zygote_is_worker() ? sqlite_unshareable() : unshareable;
	if (unshareable != NULL) {
		char why[512];
		snprintf(why, sizeof why, "the boot %s", unshareable);
		boot_again(HY_AGAIN_PRIVATE, why, false);
	}
}

void decline_warmup(void)
{
	bool warmed = options.warmup_count > 0;
	/* Laravel and Symfony boot once more after a warm-up request. */
	const char *asks = asked_of_framework();
	if (asks != NULL) {
		boot_again(HY_AGAIN_CLASSIC, asks, false);
	}
	if (options.rewind != REWIND_OFF && warmed) {
		decline_too_much(true);
		decline_lost_locks();
	}
	decline_all_unfinished(warmed);
	const char *left = zygote_unshareable(), *once = options.rewind != REWIND_OFF ? locks_taken_once() : NULL;
	char why[512];
	if (left != NULL && warmed) {
		snprintf(why, sizeof why, "a warm-up request %s and left it so", left);
		warmup_failed(why, false);
	}
	if (left != NULL && !zygote_is_worker()) {
		snprintf(why, sizeof why, "the boot %s", left);
		boot_again(HY_AGAIN_PRIVATE, why, false);
	}
	if (once != NULL && warmed) {
		snprintf(why, sizeof why, "a warm-up request %s", once);
		warmup_failed(why, false);
	}
	/* To read only: it may be kept, in a boot for each worker. */
	const char *database = zygote_is_worker() ? NULL : sqlite_unshareable();
	if (database != NULL) {
		snprintf(why, sizeof why, "%s %s", warmed ? "a warm-up request" : "the boot", database);
		boot_again(HY_AGAIN_PRIVATE, why, false);
	}
	if (lifecycle_failed() != NULL && options.rewind != REWIND_OFF) {
		snprintf(why, sizeof why, "a fatal error struck at the end of a warm-up request (%s)", lifecycle_failed());
		warmup_failed(why, true);
	}
}

void decline_lost_locks(void)
{
	const char *lost = locks_lost(), *left = locks_left();
	lost = lost != NULL ? lost : left;
	char why[200];
	if (lost != NULL) {
		snprintf(why, sizeof why, "a warm-up request %s", lost);
		warmup_failed(why, false);
	}
}

void decline_misplaced_call(void)
{
	bool tracked = options.rewind != REWIND_OFF && options.rewind != REWIND_FORK;
	const char *misplaced = tracked ? rewind_misplaced() : NULL;
	if (misplaced != NULL) {
		char why[512];
		snprintf(
		    why, sizeof why,
		    "hayate_handle_request() cannot be gone back to: %s. To avoid it: call it from the worker script itself",
		    misplaced);
		boot_again(HY_AGAIN_FORK, why, false);
	}
}

/*
 * A recognised project is to be served as long as classic mode serves it. Where it is known that the boot looked at a
 * request, it would have been declined for that if it had not failed. Else a sample request in classic mode tells
 * whether the boot wants one, or the release is broken, which a start and a reload refuse. A front controller's own
 * code goes by names alone (asked_once.c), so of that a sample request tells in any case.
 */
void decline_failed_boot(const char *said, bool fatal)
{
	if (!options_is_project()) {
		return;
	}
	const char *vain = asked_of_framework_in_vain();
	vain = vain != NULL ? vain : asked_in_vain();
	if ((vain != NULL && !front_controller_boots()) || compare_classic_answers()) {
		char why[2048];
		int line = said != NULL ? (int)strcspn(said, "\n") : 0; /* a stack trace follows, which the log has */
		snprintf(why, sizeof why, "without a request the application does not boot%s%.*s%s: %s", line > 0 ? " (" : "",
		         line, line > 0 ? said : "", line > 0 ? ")" : "",
		         vain != NULL
		             ? vain
		             : "with one it does, in classic mode. To avoid it: do in a middleware what needs a request");
		boot_again(HY_AGAIN_CLASSIC, why, fatal);
	}
}
