/*
 * What the host's files share: the options, the request being served, and who may call what.
 *
 *   main.c      start-up, in order            options.c  the command line
 *   zygote.c    forks and reaps workers       worker.c   the loop of classic mode, and a worker's end
 *   handle.c    worker mode: hayate_handle_request()   lifecycle.c  begins and ends its requests
 *   fork.c      a process for each request    decline.c  boots that cannot be served from as they are
 *   sapi.c      the SAPI module               request.c  request head → PHP
 *   output.c    PHP's output → response       functions.c  PHP functions
 *   user_ini.c  .user.ini                     opcache.c  what opcache needs of a SAPI it does not know
 *   boot.c      what the boot set, for all requests  shutdown.c its shutdown functions
 *   ring.c      the shared memory             log.c      records on standard error
 *   rewind/     rewinding a process           snapshot.c what PHP needs for it
 *   cleanup.c   the end of a rewound request  warmup.c   requests before the snapshot
 *   prime.c     OPcache, before the boot      opening.c  scripts that cannot be opened
 *   destructors.c  destructors at that end    sqlite.c   SQLite connections of the boot
 *   residue.c   what warm-up requests leave to be handed in
 *   after.c     what follows hayate_handle_request() in the loop
 *   ini_files.c ini files that PHP passes over
 *   visit.c     requests that the host makes by itself  compare.c  what warm-up left behind
 *   errors.c    errors in development (--dev)  isolation.c  what keeps PHP's processes apart
 *   seccomp.c   what scripts may not do to other processes of their user
 *   extensions.c  extensions that do not bear rewinding
 *   front_controller.c  the project's own as worker script
 *   asked_once*.c  what a boot asks once for all  asked_by_packages.c  the same of packages  owner.c  whose code it is
 *   asked_of_framework.c  what boot scripts learn of their framework  try_out.c  code that may not come back
 *   clocks.c    what PHP keeps of the time    randomness.c  what must not be drawn twice
 *   engine.h    where PHP's versions differ
 *   warm.c      connections kept over rewinds  worker_start.c  what each worker does before its point
 *   stray.c     processes that PHP code forked   locks.c  locks that the boot holds
 *   unknown.c   what the boot must not leave open, since nobody knows how it ends
 *   boot_files*.c  files that the boot has open for writing, and temporary ones
 *   archives.c  what PHP knows of archives (phar), for a request
 *   trace.c     what slow requests are doing
 *   by_name.c   classes by their names
 *   declares.c  files that declare a class and do nothing else   in_the_way.c  when it matters that they are there
 *   autoloaders.c  which ones do no more than to include them
 *   learn.c     warm-up requests in processes of their own   runtime_caches.c what functions have looked up
 *
 * The host is single-threaded. The process is a zygote until zygote_run() or zygote_adopt() returns in a forked worker.
 */
#ifndef HAYATE_HOST_H
#define HAYATE_HOST_H

#include "php.h"
#include "SAPI.h"
#include "rewind/rewind.h"
#include "ring.h"

#define HAYATE_SAPI_NAME "hayate"

/* What each request writes to. It lies together, beside PHP's globals, which the linker puts first: a rewind puts back
 * whole pages. */
#define EACH_REQUEST __attribute__((section(".bss.0_each_request")))

/* A request that the host makes by itself. */
struct visit {
	const char *target, *host, *scheme, *port, *script_name, *path_info;
	const char *script;   /* NULL: index.php of the document root */
	bool another_visitor; /* than the others: one with a language and a cookie */
};

struct options {
	bool worker_mode;
	const char *worker_script; /* worker mode: absolute path */
	bool private_boot; /* worker mode: each worker boots by itself instead of being forked from the booted zygote */
	const char *document_root;
	const char *cwd;
	const char *php_ini;
	uint64_t max_requests; /* 0: no limit */
	uint64_t max_memory;   /* bytes, 0: no limit */
	bool no_new_privileges;
	bool development;
	bool probe;             /* say what this kernel and these settings allow, and exit */
	char *ini;              /* lines of php.ini, over the files */
	const char **ini_names; /* what they set; NULL ends them */
	const char **fixed_ini; /* names of settings that PHP code may not change */
	size_t fixed_ini_count;
	const char **env; /* K=V */
	size_t env_count;
	const char **ini_env; /* K=V, by which PHP finds its ini files; gone when it has started */
	size_t ini_env_count;
	enum rewind_tracking rewind; /* worker mode; REWIND_OFF: state is kept */
	unsigned rewind_verify;      /* compare all memory with the snapshot every so many rewinds; 0: never */
	struct visit *warmup;        /* requests before the snapshot */
	size_t warmup_count;
	bool classes_later;              /* a recognised project's are left to requests */
	bool warm_connections;           /* those open at the point are kept over rewinds */
	uint64_t connection_lifetime_ms; /* 0: kept for ever */
	struct visit *compared;          /* requests that show what those have left behind */
	size_t compared_count;
};
extern struct options options;
/* Fills `options` or prints what is wrong and exits with 2. */
void options_parse(int argc, char **argv);
bool options_is_project(void);             /* a boot script of ours runs a recognised project */
const char *options_env(const char *name); /* what the application's own environment says; NULL: nothing */
void options_print_tracking(void);         /* how this kernel lets written pages be found, and why not better */

/* The request being served. `exchange.slot` is NULL between requests and while a worker script boots. */
struct request {
	struct hy_exchange exchange;
	size_t
	    header_bytes; /* of the response's headers, those that were replaced included, since they were last added up */
	bool answered;    /* hayate_finish_request(): the client has its answer, the script goes on */
	enum { HANDLER_WAITS, HANDLER_RUNS, HANDLER_IS_OVER } handler; /* of hayate_handle_request(), in classic mode */
	struct {
		const char *at;
		uint32_t len;
	} field[HY_FIELD_COUNT];
	const char *authorization; /* header values, NULL when absent */
	const char *cookie;
	char *joined_cookie; /* owned: several Cookie headers in one line */
};
extern struct request request;

/* request.c */
void request_startup(void);             /* once, before PHP starts */
void request_after_startup(void);       /* once, when PHP has started */
void request_begin(void);               /* reads the head of request.exchange into request and SG(request_info) */
void request_end(void);                 /* forgets it; the slot must have been released */
void request_register_server(zval *to); /* $_SERVER */
void request_fill_filter_table(void);   /* of filter_input(INPUT_SERVER), once in a request */
char *request_getenv(const char *name, size_t len);
typedef void (*request_header_fn)(const char *name, size_t name_len, const char *value, size_t value_len, void *to);
void request_each_header(request_header_fn fn, void *to);

/* output.c */
size_t output_write(const char *from, size_t len);
void output_flush(void *context);
int output_header(sapi_header_struct *header, sapi_header_op_enum op, sapi_headers_struct *headers);
int output_send_headers(sapi_headers_struct *headers);
/* Sends an informational head (102 to 199) with these; false when that cannot be any more, or there were too many. */
bool output_inform(uint16_t status, sapi_headers_struct *headers);
void output_finish(bool release); /* completes the answer; with `release` gives the slot back as well */

/* sapi.c */
extern sapi_module_struct hayate_sapi;

/* functions.c */
extern const zend_function_entry hayate_functions[];
void functions_before_startup(void); /* before PHP starts: leaves out pcntl and chroot() */
/* Has a function of PHP's call another one first, which calls what was before. */
void functions_wrap(const char *name, zif_handler *before, zif_handler handler);
void functions_startup(void); /* module start-up: wraps filter_input() and its kin */
/* after PHP has started: functions that only boot scripts see; ends the zygote when they cannot be added */
void functions_of_boot_scripts(const zend_function_entry *functions);
void functions_disabled_for_others(void); /* when PHP has started; those that boot scripts need they have */

/* handle.c */
PHP_FUNCTION(hayate_handle_request);
bool handle_reached(void); /* whether the worker script ever called hayate_handle_request() */
bool handle_warming(void); /* the boot is over, and warm-up requests are being handled */
/* Worker mode with rewind: the script was unwound or ended after the point. Rewinds, or ends the process. */
void handle_script_over(bool fatal) __attribute__((noreturn));
uint64_t handle_rewind_ns(void); /* what the rewind before this request took, clean-up included; 0: there was none */
bool handle_rewinds(void);       /* what a request leaves is put back when it is over, or ends with its process */
bool handle_leaving(void);       /* the script was told that there are no more requests */

/* lifecycle.c: a request of worker mode */
void lifecycle_begin(void);
void lifecycle_end(bool unwound);      /* `unwound`: by a fatal error */
void lifecycle_clean_up(bool unwound); /* of that, where no request runs: gives up what was acquired */
bool lifecycle_in_request(void);
/* exit() ended the request; an exception that nobody caught is reported as PHP does at the end of a script. */
void lifecycle_settle_exception(void);
/* Late 8.2 notes that memory has run out, and unwinds. The first is for the end of a script. */
void lifecycle_forget_out_of_memory(void);
void lifecycle_leave_if_out_of_memory(void);
void lifecycle_settle_outside(void);  /* what code of the boot has thrown outside of a request */
void lifecycle_collect_outside(void); /* cycles, whose destructors are such code */
/* Extensions that are started and shut down with each request. */
void lifecycle_module(const char *name, bool startup);
void lifecycle_shut_modules_down(void);
void lifecycle_start_ahead(void);       /* before the snapshot, and again where code has run since */
void lifecycle_note_session(void);      /* when the boot is over */
void lifecycle_note_superglobals(void); /* before the point */
/* A bail-out ends the step, and is remembered. */
void lifecycle_step(const char *name, void (*run)(void));
#define LIFECYCLE_STEP(run) lifecycle_step(#run, run)
const char *lifecycle_failed(void);   /* the step in which a bail-out was caught, NULL: in none */
bool lifecycle_left_connection(void); /* the request left one that is kept in the middle of something */
const char *lifecycle_unclean(void);  /* the step of cleanup.c in which that happened, NULL: in none */

/* fork.c: a process for each request */
/* In a worker, from the point on. True in such a process; false when the worker has to leave. */
bool fork_from_now_on(void);
void fork_begin(void); /* in such a process, first thing */
/* In a process whose logs are nobody's, and which the pool must not hear; perhaps of the classes that it has loaded. */
void fork_be_silent(bool names_classes);
bool fork_is_for_one_request(void); /* this is such a process */
/* In the parent of one, by a signal handler: has PHP end its request, if it is that one; false: there is none. */
bool fork_end_request(uint32_t ticket);
enum hy_retired fork_cost(int status); /* wait status of such a process: what it did to the boot's stays for others */
/* Ends it; HY_RETIRED_NOT: the worker goes on, else it leaves as well. */
void fork_end(enum hy_retired why) __attribute__((noreturn));

/* decline.c: these return only if there is nothing to decline; else the application boots again in another way */
void decline_note_answer(void);    /* a boot of ours: before what it answers is dropped */
void decline_boot(void);           /* when it is over */
void decline_warmup(void);         /* when the last of its requests is over */
void decline_misplaced_call(void); /* hayate_handle_request() cannot be gone back to from where it was called */
void decline_failed_boot(const char *said, bool fatal); /* it ended before there was a request; PHP's last words */
void decline_lost_locks(void);                          /* before and after each warm-up request */

/* boot.c: what outlives the request in which the boot ran */
void boot_keep(void);                /* at the boot's end, before extensions are shut down for it */
void boot_note_process(void);        /* umask and working directory, at the end of the boot */
void boot_restore_process(void);     /* after a warm-up request and the loop after it */
int boot_start_php(void);            /* as php_request_startup(), and session.auto_start is for requests */
void boot_look_at_session(void);     /* before its extensions are shut down */
const char *boot_left_session(void); /* to follow "the boot "; NULL: none */
void boot_keep_settings(void);       /* after that */
/* At the end of a request whose state stays, before extensions are shut down, and after that. */
void boot_note_living_sessions(void); /* before session ends the request */
void boot_keep_living_sessions(void); /* after that */
void boot_keep_session_settings(void);
void boot_forget_sessions(void);                      /* what nobody else holds any more */
void boot_make_settings_modified(void);               /* when all that was made to look as in php.ini is over */
void boot_restore_session_handlers(void);             /* after each request shutdown of session */
void boot_seed_sessions(uint64_t high, uint64_t low); /* what they draw from to collect old ones */
void boot_compare_encodings(void);      /* between request startup and shutdown of mbstring: what has to be restored */
void boot_encodings_before_step(void);  /* before a step that belongs to no request */
void boot_keep_encodings_of_step(void); /* after it: what it has set, requests begin with */
void boot_restore_encodings(void);      /* after each request startup of mbstring */

/* shutdown.c */
void shutdown_keep_of_boot(void);     /* at the boot's end */
void shutdown_run(void);              /* at the end of a request */
const char *shutdown_ask_again(void); /* the target of a warm-up request without which it is not known who runs what */
void shutdown_settle(void);           /* when there are no more warm-up requests */
void shutdown_end_boot(
    bool warmed); /* one that is given up, after warm-up requests or without: it ends as a script does */
void shutdown_keep_of_step(void); /* of what each worker does before its point */
void shutdown_lend(void);         /* to the request, or script, that ends next */

/* patterns.c */
/* The name in small letters of the function that a call begins with; NULL: not known before it runs. */
const zend_string *patterns_called(const zend_op *op);
void patterns_compile(void); /* those that loaded code names, when the warm-up requests are over */

/* snapshot.c */
struct snapshot_marks {
	uint32_t objects, persistent; /* what has these numbers or higher was made by a request */
	zend_long resources;
};
extern struct snapshot_marks snapshot_marks;
bool snapshot_has(const zend_object *object); /* it was made by the boot, or by a warm-up request */
/* Numbers of those that this request has freed, ascending: its own may have them now. Until the next one is freed. */
const uint32_t *snapshot_freed(uint32_t *count);
/* Numbers of objects of the boot that it has not connected. */
const uint32_t *snapshot_unconnected(uint32_t *count);
void snapshot_prepare(void); /* once, before the snapshot or the first fork for a request */
/* NULL, or what failed. */
const char *snapshot_take(enum rewind_tracking tracking);
/* In a worker, before the point: what it did since the snapshot becomes part of it. NULL, or what failed. */
const char *snapshot_extend(void);
/* The request's code has run: from here on what the boot opened stays open. Before what it held is given up. */
void snapshot_hold(void);
/* At the point, in the process that will be rewound: whether what snapshot_take() found still holds. */
const char *snapshot_check(void);

/* randomness.c */
void randomness_after_startup(void);
/* What this call draws, the boot's, comes of a seed that the application has given: as under php-fpm. */
bool randomness_follows_a_seed(const zend_execute_data *call);
void randomness_boot_over(void);       /* before the first warm-up request */
void randomness_prepare(void);         /* with the snapshot */
void randomness_forked(void);          /* in a worker, first thing */
const char *randomness_entropy(void);  /* memory for the next one; NULL, or what failed */
void randomness_drop_read_ahead(void); /* before workers are forked, and before the snapshot */
void randomness_seed(void);            /* after each rewind: what must not repeat */

/* cleanup.c */
void cleanup_prepare(void);                              /* before the snapshot */
bool cleanup_reaches_outside(const zend_object *object); /* to free it does more than giving back memory */
bool cleanup_closes(const zend_object *object);          /* and what that is the rewinder sees and puts right */
bool cleanup_is_pointed_to(const zend_object *object);   /* and others may have its address */
bool cleanup_is_unconnected(const zend_object *object);  /* one of those, to a database, that has nothing open yet */
enum cleanup_stream {
	CLEANUP_STREAM_QUIET,  /* its end does nothing that others see */
	CLEANUP_STREAM_ENDS,   /* if it is the boot's, it is closed at the end of each request */
	CLEANUP_STREAM_UNKNOWN /* it writes, and nothing is known of what it holds back */
};
enum cleanup_stream cleanup_stream(const struct _php_stream *stream);
const char *cleanup_request(bool unwound); /* all that the request acquired; NULL, or the step that failed */
void cleanup_leave(void);                  /* in a rewound worker that leaves: nothing of the boot ends once more */

/* destructors.c */
void destructors_note(void);                          /* with the snapshot: which objects of the boot have one */
const uint32_t *destructors_of_boot(uint32_t *count); /* numbers of those objects */
/* At the end of a request, first: what variables of functions hold whose end a script without a loop would reach. */
void destructors_leave_functions(void);
void destructors_call(void); /* of everybody's objects */

/* sqlite.c */
const char *sqlite_left_open(void);   /* what the boot is in the middle of, to follow "the boot "; NULL: of nothing */
void sqlite_note(void);               /* with the snapshot: whose connections those are that are open */
void sqlite_note_locks(void);         /* before the point, in the process that is rewound */
const char *sqlite_unshareable(void); /* a connection to a file, to follow "the boot "; NULL: there is none */
bool sqlite_is_replaced(void);        /* a name of the boot's databases leads to another file by now */
void sqlite_end_request(void);        /* of those: what a request has left half-done */
bool sqlite_loses_locks(void);        /* after that: they would be without locks that they rely on */

/* residue.c: what warm-up requests leave with objects that have a destructor */
void residue_of_boot(void);            /* before the first */
void residue_of_handler(void);         /* when the handler of one has returned */
const char *residue_after(bool again); /* after the loop: a class; `again`: it is not the first of its target */
bool residue_is_new(void);             /* after that: there are objects that were not there before */

/* visit.c */
void visit_parse(const char *text, struct visit *visit);
/* False: it does not fit. `who` is the request's id in the log. */
bool visit_begin(const struct visit *visit, const char *who, struct hy_exchange *exchange);

/* clocks.c */
void clocks_boot_over(void);      /* while the boot's own request is not over yet */
const char *clocks_keep(void);    /* before the point: memory that rewinds leave alone; NULL, or what failed */
void clocks_forget_process(void); /* before the point, and before it in each worker */
void clocks_startup(void);        /* when PHP has started */
void clocks_request_begins(void);
void clocks_between_requests(void); /* after the point, and before each fork for a request */

/* time_limit.c: max_execution_time in worker mode */
void time_limit_startup(void);                              /* when PHP has started */
void time_limit_end_request(pid_t worker, uint32_t ticket); /* in its parent: of that request only */
void time_limit_start(void);                                /* before the boot */
void time_limit_begin(void);                                /* of a request */
void time_limit_end(void);

/* prime.c */
void prime_opcache(void); /* before the boot */

/* by_name.c: classes and regular expressions */
void by_name_startup(void);  /* when PHP has started */
void by_name_load(void);     /* at the end of a boot, and when something was added */
void by_name_add(void);      /* in a process that answers: those that its request has needed, for a boot to come */
void by_name_remember(void); /* all that came after the boot's, and nothing of before, for a boot to come */
/* Whether the project may have another file for another request. */
bool by_name_is_for_requests(const zend_string *file);
void by_name_forget(void); /* a boot to come loads nothing by name */

/* Among the names: no class is to be loaded before the requests. */
#define IN_THE_WAY_ALL "*"
/* Among them: no compiled template of Twig's is. */
#define IN_THE_WAY_TEMPLATES "*twig"
/* in_the_way.c: of what a request does, by classes that were loaded before it */
void in_the_way_startup(void);                        /* when PHP has started */
void in_the_way_may_be(uint32_t first, uint32_t end); /* those lie there in the table of classes */
void in_the_way_note(void);                           /* from now on, in this process: what its own code asks for */
HashTable *in_the_way_asked(void);                    /* that */
void in_the_way_noted(void);                          /* no more from now on */
bool in_the_way(void);                                /* they were */
void in_the_way_before_answer(void);                  /* its head: here the request may end, too */

/* autoloaders.c: those that look up a file, include it, and do nothing else */
bool autoloaders_may_be_passed_over(void); /* at the end of a boot: no other one is asked before one of these */
/* Whether that is the call of one that was there then. */
bool autoloaders_trust(const zend_execute_data *call);
/* Which classes matter: one of that name; one whose name begins so, and whose file lies below none of those directories
 * (NULL: wherever). */
struct autoloaders_matter {
	bool (*name)(const char *name, size_t len);
	bool (*begins)(const char *prefix, size_t len, const HashTable *directories);
};
/* Whether something has changed since by which one of them finds another class that matters. */
bool autoloaders_find_another(const struct autoloaders_matter *matter);

/* declares.c: files that declare a class and do nothing else */
void declares_startup(void); /* when PHP has started */
void declares_note(void);    /* from now on, in this process */
/* Whether its file does nothing else, and was included since, by an autoloader that does nothing else, for this name;
 * or by anyone: what a framework has generated it includes itself, if the class is not there. */
bool declares_only(const zend_class_entry *class, bool by_anyone);
/* The classes that it has loaded, without doing anything with them: names in lower case. Their number. */
size_t declares_hints(const zend_string *file, char ***hints);

/* learn.c: warm-up requests in processes of their own, where a boot script of ours boots a project */
bool learn_elsewhere(void);
void learn_startup(void);      /* when PHP has started */
void learn_begin(void);        /* before such processes are forked */
void learn_request_over(void); /* in one: its request */
void learn_over(bool warm);    /* in the process that has booted: takes over what was learned, if there were requests */

/* runtime_caches.c: what functions have looked up */
void runtime_caches_keep(void); /* before those processes are forked */
void runtime_caches_note(void); /* in one that has answered */
void runtime_caches_take_over(void);

/* warmup.c */
bool warmup_next(struct hy_exchange *exchange); /* false: no more */
const char *warmup_target(bool *last);          /* of the present one; whether it is asked for once more */
void warmup_limit(void);                        /* they have so long, all together */
bool warmup_has_begun(void);
void warmup_over(void);
void warmup_failed(const char *why, bool fatal)
    __attribute__((noreturn));                                  /* booted again without; after a fatal error */
void warmup_differs(const char *why) __attribute__((noreturn)); /* the same, since answers show what it left behind */

/* leftovers.c: what objects of the boot hand in only when they are freed */
void leftovers_note(void);        /* at the snapshot */
void leftovers_hand_in(void);     /* at the end of a request */
const char *leftovers_open(void); /* NULL, or what the boot must not leave open */

/* archives.c */
void archives_forget(void);      /* at the end of the boot, and of a warm-up request */
const char *archives_left(void); /* NULL, or what requests must not write by, to follow "the boot " */

/* again.c: ends the booted application as a script ends, unless a fatal error did, and then zygote_boot_again() */
void boot_again(enum hy_again how, const char *why, bool fatal) __attribute__((noreturn));

/* compare.c */
void compare_once_for_all(void); /* before workers that boot by themselves are forked */
/*
 * True in each process that is to answer one request and end; `exchange` has it then, and `prepare` has made the
 * application fit for that (NULL, or what failed). The first is to be called before the warm-up requests, the second
 * after them; that one returns false only if there was no difference.
 */
bool compare_keep_classic(struct hy_exchange *exchange); /* before the boot; such a process serves in classic mode */
bool compare_keep_cold(const char *(*prepare)(void), struct hy_exchange *exchange);
bool compare_classic_answers(
    void);                 /* where the boot has failed: a sample request has an answer in classic mode, below 500 */
bool compare_learns(void); /* this is a process that makes a warm-up request (learn.c) */
void compare_learn(void);  /* has them made, and takes over what there is to be learned from them */
bool compare_warm(const char *(*prepare)(void), struct hy_exchange *exchange);
bool compare_answers(void);                                       /* this is such a process */
void compare_failed(void);                                        /* in one: a fatal error has ended its request */
void compare_request_over(void);                                  /* in one: its request */
void compare_head(uint16_t status, sapi_headers_struct *headers); /* of the answer; NULL: there are none */

/* front_controller.c: the project's own, up to the method that handles a request */
void front_controller_startup(void); /* when PHP has started */
bool front_controller_boots(void);   /* that is what the worker script runs */

/* asked_of_framework.c: what a framework was asked of a request there; the functions of the boot scripts */
void asked_of_framework_startup(void);        /* when PHP has started */
void asked_of_environment(const char *name);  /* getenv() has no such variable of a request */
const char *asked_of_framework(void);         /* at the end of the boot: NULL, or what a boot script has found */
const char *asked_of_framework_in_vain(void); /* where the boot has failed: the same, or what nobody came to look at */

/* try_out.c: what boot scripts load, tried out in another process */
void try_out_startup(void); /* when PHP has started */

/* owner.c: whose code a file holds; names as PHP has them, resolved */
void owner_startup(void); /* when PHP has started */
bool owner_is_project(const char *file);
bool owner_is_boot_script(const char *file);
bool owner_seems_package(const char *file); /* of Composer's or PHP's library, by its name alone */
bool owner_is_package(const char *file);
/* The next call of PHP code from there on, of which there is a file; NULL: none. */
const zend_execute_data *owner_calling(const zend_execute_data *frame);

/* asked_by_packages.c: the same of packages: where there is no better reason */
void asked_by_packages_startup(void);
void asked_by_packages_call(const char *what); /* a function of PHP's that tells of a request was called */
const char *asked_by_packages(void);           /* at the end of the boot: NULL, or what one of them asked */

/* asked_once*.c: what the project's own code does in a boot of ours that may be otherwise for another request */
void asked_once_startup(void);                       /* when PHP has started */
bool asked_once_looks_into(const zend_string *file); /* when it is compiled */
const char *asked_once(void);                        /* at the end of the boot, on its stack: NULL, or where it does */
const char *asked_in_vain(void); /* where the boot has failed: NULL, or what it wanted of a request */

/* extensions.c */
const char *extensions_unsafe(void); /* NULL, or which loaded one must not be rewound, why, and what to do about it */

/* ini_files.c: when PHP has started, with the environment that it did this in. NULL, or which of its ini files it could
 * not read. */
const char *ini_files_unread(void);

/* errors.c: --dev */
char *errors_settings(char *others); /* lines of php.ini with what development wants before them */
void errors_of_boot(void);
void errors_of_request(void);
bool errors_failed(void); /* PHP itself reported a fatal error in this request */

/* opening.c */
void opening_startup(void);                         /* module start-up: before OPcache keeps what opens files */
void opening_begin(const zend_file_handle *script); /* that a request names: it is about to run */
void opening_end(void);                             /* it has run */

/* user_ini.c */
void user_ini_activate(const char *script);

/* opcache.c */
void opcache_before_startup(void); /* module start-up: before zend extensions start */
void opcache_after_startup(void);
bool opcache_is_on(void);
void opcache_after_fork(void);
bool opcache_reset_called(void);  /* worker mode: by the request that ends now */
bool opcache_wants_restart(void); /* worker mode: it is full; looked at once a second */
const char *opcache_keep(void);   /* memory for the last one; NULL, or what failed */
void opcache_find_clock(time_t boot);
void opcache_set_clock(time_t now);
void opcache_after_bailout(void); /* gives back locks that a fatal error may have left */

/* unknown.c */
/* Of the boot, to follow "the boot "; NULL: nothing. */
const char *unknown_child(void); /* a child process, which is one for all requests */
const char *unknown_left(void);  /* whose end nobody here knows */
const char *unknown_stale(void); /* that writes at its end what it has read at its beginning */

/* boot_files*.c */
void boot_files_share(void);                                /* in the zygote, before workers are forked */
bool boot_files_is_program(const php_stream *stream);       /* of popen() */
bool boot_files_has_buffer(const php_stream *stream);       /* a plain file: libc holds back what is written to it */
bool boot_files_is_nameless(int fd, const struct stat *st); /* and no other process has it */
void boot_files_note(void); /* when others may write to them from now on; what was noted before is forgotten */
/* That no request can find as a boot of its own would, to follow "the boot "; NULL: nothing. `now_and_then`: another
 * boot may leave none. */
const char *boot_files_left(bool *now_and_then);
/* At the beginning of a request: those that others have replaced are opened again. */
enum boot_files {
	BOOT_FILES_LOCKED,   /* by the boot: before the locks are taken */
	BOOT_FILES_UNLOCKED, /* the others: when it has the locks, which may guard them */
	BOOT_FILES_ALL,
};
void boot_files_look(enum boot_files which);
/* Before a fork: so do this process' own, or files that are gone would be kept for ever. The child says what fails. */
void boot_files_follow(void);
void boot_files_renew(void);           /* temporary ones hold what the boot left */
void boot_files_settle(void);          /* when it is over: they are no longer than that */
bool boot_files_written(void);         /* at its end: one that is not put back has been written to */
bool boot_files_replaced(void);        /* one could not be opened again */
void boot_files_remove(void);          /* when the worker ends: the temporary ones that have a name */
void boot_files_bury(uint32_t worker); /* in the zygote, when it has ended otherwise */

/* locks.c: what the boot holds, each request takes anew */
void locks_lend(void);              /* at the end of the boot, and of what runs before each worker's requests */
const char *locks_left(void);       /* what no request can take for itself, to follow "the boot "; NULL: nothing */
const char *locks_taken_once(void); /* by a warm-up request, as above: later ones would believe that they have it */
const char *locks_lost(void);       /* by a warm-up request, to follow "a warm-up request "; NULL: none */
bool locks_are_on(uint64_t device, uint64_t inode); /* one that was taken is on this file */
struct stat;
void locks_moved(uint64_t device, uint64_t inode,
                 const struct stat *to); /* before the point: that file is another now */
void locks_take(void);                   /* at the beginning of a request; what ends it gives all back: a rewind, … */
void locks_give_back(void);              /* … or, after a warm-up request and the loop after it, this */

/* worker_start.c */
PHP_FUNCTION(hayate_on_worker_start);
bool worker_start_runs(void);
bool worker_start_took_place(void);                        /* in this worker */
__attribute__((noreturn)) void worker_start_give_up(void); /* ends this worker before it takes a request */
void worker_start_run(void); /* in a worker, before the point: what the application wants done in each */

/* warm.c: connections that are kept over rewinds */
void warm_watch(void); /* before PHP code runs */
/* Which step of worker_start.c opens connections from now on, from 1; 0: none of them. */
void warm_step(unsigned number);
/* Steps that open what cannot be kept, so that no worker takes them again; bit 0 the first. */
uint32_t warm_left_out(void);
/* Before the point: which ones. It may end this worker, whose successor leaves steps out. */
void warm_settle(void);
bool warm_request_over(void); /* tells their servers to forget; false: one is in the middle of something */
void warm_after_rewind(void); /* waits for that; does not return when it did not go well */
bool warm_may_start(void);    /* false: a start failed a while ago, and this worker goes without; until another tries */
/* This worker goes without for a while. `skip`: those after it of its number do not begin until then. Returns whether
 * that is news. */
bool warm_start_failed(bool skip);
bool warm_has_started(void); /* once, in a worker of this number */
bool warm_lost(void);        /* why no request was taken: a server has closed one, or that while is over */
void warm_leave(void);       /* says goodbye on them */
void warm_give_up(void);     /* none is kept after all */

/* zygote.c */
void zygote_run(void);               /* module started: serves the control channel; returns only in a worker */
void zygote_adopt(void);             /* the same from within the booted worker script */
void zygote_snapshot(void);          /* copies the booted application, or turns to a fork for each request */
void zygote_failed(const char *why); /* tells the pool and exits */
void zygote_remark(const char *why); /* tells the pool what people have to know */
void zygote_worker_ready(void);      /* worker mode: tells the pool that this worker serves now */
bool zygote_is_worker(void);
void zygote_booting(void);            /* before PHP code runs */
void zygote_baseline(void);           /* what is open now is in order */
const char *zygote_unshareable(void); /* NULL, or what was done since then that processes must not share */
bool zygote_is_own(int fd);           /* it was open before PHP code ran */
/* Until it returns false. False: they cannot be listed. */
bool zygote_each_fd(bool (*visit)(int fd, void *to), void *to);
bool zygote_left_threads(int besides); /* after a moment, in which those that are about to end may do so */
/* Tells the pool to start it again in another way, and exits. Safe in a signal handler. */
void zygote_boot_again(enum hy_again how, const char *why) __attribute__((noreturn));

/* after.c: finishes the answer when the handler has returned, if `caller` goes on with something else */
bool after_has_answered(void);
void after_begins(void); /* the handler does */
void after_handler(const zend_execute_data *caller, void (*step)(const char *name, void (*run)(void)));
bool calls_again(const zend_execute_data *caller); /* its loop does nothing but that */

/* worker.c */
void worker_classic(void);                  /* serves until it retires; does not return */
void worker_serve_classic(void);            /* one request */
void worker_boot(void);                     /* worker mode: runs the worker script; does not return */
void worker_close_script(void);             /* when the boot is over */
enum hy_retired worker_after_request(void); /* whether this worker has to leave, and why */
void worker_exit(enum hy_retired why) __attribute__((noreturn));

/* trace.c */
int trace_start(void);           /* in the zygote, when it has booted; a descriptor to wait for, or -1 */
void trace_forget_others(void);  /* in a worker, before anything else */
int trace_open(uint32_t number); /* in a worker, while it is dumpable */
void trace_hand_over(uint32_t number, int memory);
void trace_take(void);              /* in the zygote: what workers have handed over */
void trace_forget(uint32_t number); /* that worker has ended */
/* Logs what a worker is doing, unless the request with that ticket (its lower 32 bits) is over. */
void trace_write(uint32_t number, pid_t pid, uint32_t milliseconds, uint32_t ticket);

/* isolation.c */
void isolation_zygote(void);            /* before PHP starts */
void isolation_worker(uint32_t number); /* in a worker, after its fork; before it runs PHP code */
int isolation_landlock(void);           /* the kernel's version of Landlock; less than 1: it has none */

/* seccomp.c */
void seccomp_forbid(void); /* in the zygote, with no_new_privs */

/* log.c */
void log_record(const char *text); /* one record, however many lines it has */
void log_lines(const char *text);  /* a record for each line */
/* A record that belongs to the request of that id; NULL: to none. */
void log_for(const char *id, size_t id_len, const char *text, size_t len);
void log_own(const char *text); /* a record of the host's own; a warning unless it begins with HY_LOG_ERROR */
/* The same. */
void log_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
