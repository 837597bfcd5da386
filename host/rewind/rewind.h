/*
 * The rewinder: takes a process back to a point it has passed, memory and kernel-side state alike.
 *
 * It knows nothing of PHP. The order of calls, once each unless said otherwise:
 *
 *   rewind_init()        first thing in main()
 *   rewind_libraries_opened()  before the work begins, if it opens files
 *   rewind_snapshot()    copies the memory; in the process that is forked from, or in the one that will be rewound
 *   rewind_noticed()     there, before each fork: which pages changed since
 *   rewind_adopt()       in the forked child, first thing: tracking of its own
 *   rewind_extend()      may follow, after work of the child's own: what that did becomes part of its snapshot
 *   rewind_point()       returns 0, and again after each rewind; what changed since the snapshot becomes part of it
 *   rewind_doubt()       after the work: whether something was left that a rewind does not take back
 *   rewind_back()        rewinds; does not return
 *
 * Without tracking there is rewind_watch() instead: nothing is put back, but rewind_doubt() tells what would have been
 * in doubt.
 *
 * It promises that after rewind_back() the process continues in rewind_point() with every private writable page, the
 * break, the mappings, the descriptors it had at the point, working directory, umask, signal mask and dispositions as
 * they were there, or that it does not continue at all: a step that fails ends the process. Shared mappings and what
 * other processes see (files, peers of sockets) are not taken back.
 *
 * It must never be used with threads alive: ask rewind_doubt() first. It must never run on a stack other than the
 * main thread's.
 */
#ifndef HAYATE_REWIND_H
#define HAYATE_REWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <stdint.h>

/* Numbers of the host's own descriptors begin here, above those that the boot is likely to use. */
#define REWIND_OWN_FROM 16

/* How written pages are found. The numbers are those of enum hy_tracking in layout.h. */
enum rewind_tracking {
	REWIND_OFF = 0,
	REWIND_UFFD = 1,       /* userfaultfd write protection, PAGEMAP_SCAN: Linux 6.7 and later */
	REWIND_SOFT_DIRTY = 2, /* soft-dirty bits: CONFIG_MEM_SOFT_DIRTY */
	REWIND_FORK = 3,       /* neither: the caller forks for each request and rewinds nothing */
};

/* What a rewind cannot take back. */
enum rewind_doubt {
	REWIND_SURE = 0,
	REWIND_THREADS,     /* another thread is alive */
	REWIND_MAPPINGS,    /* memory of the snapshot was unmapped, replaced or protected otherwise */
	REWIND_DESCRIPTORS, /* a descriptor of the snapshot was closed and could not be put back */
	REWIND_CONNECTION,  /* a socket or pipe of the snapshot was used: the peer has moved on */
	REWIND_CHILD,       /* a child process is alive */
	REWIND_LIBRARY,     /* a shared library of the snapshot was unloaded */
	REWIND_MEMORY,      /* a comparison found memory that differs */
	REWIND_PROCESS,     /* priority, limits, session, user or group of the process were changed */
};

struct rewind_counters {
	uint64_t rewinds;
	uint64_t scan_ns;    /* finding written pages */
	uint64_t copy_ns;    /* putting back pages, mappings, descriptors, stack */
	uint64_t scans;      /* rewinds in which a page fault made a scan necessary */
	uint64_t cold_pages; /* pages put back that were not hot */
	uint64_t sweeps;     /* rewinds after which mappings were compared one by one */
	uint32_t hot_pages;
	uint32_t last_cold;
};

struct rewind_range {
	uintptr_t start, end;
};

/* Reserves the rewinder's own memory and makes malloc() fit for rewinding. NULL, or what failed. */
const char *rewind_init(void);

/* Whether a forked child of this process would be without some of its memory (MADV_DONTFORK), or that cannot be said.
 */
bool rewind_loses_memory(void);

/* What is open now belongs to libraries or to the caller, who take care of their own locks. NULL, or what failed. */
const char *rewind_libraries_opened(void);

/*
 * The best tracking that this kernel allows this process, and in `why` (if not NULL) one line that says what stands in
 * the way of a better one; empty for the best.
 */
enum rewind_tracking rewind_probe(char *why, size_t size);

/*
 * Copies the private writable memory. `unused` (ascending, page aligned) are ranges whose contents mean nothing now,
 * such as free pages of an allocator: they are neither tracked nor put back. NULL, or what failed.
 */
const char *rewind_snapshot(enum rewind_tracking tracking, const struct rewind_range *unused, size_t unused_count);

/* In the process that took the snapshot, before a fork: notes the pages that it changed since. */
void rewind_noticed(void);

/* In the forked child, before it changes anything of its own. NULL, or what failed. */
const char *rewind_adopt(void);

/*
 * Between the fork, or the snapshot, and the point: what the process has written and mapped since then becomes part of
 * its snapshot. `unused` are ranges as for rewind_snapshot(), of now. Only with REWIND_UFFD. NULL, or what failed: then
 * the process must not go on.
 */
const char *rewind_extend(const struct rewind_range *unused, size_t unused_count);

/*
 * Returns 0, and then once after each rewind with the number of rewinds so far. -1: it cannot be done here, and
 * rewind_error() says why.
 */
long rewind_point(void);
const char *rewind_error(void);

/* Why rewind_point() would refuse where it is called from; NULL: it would not. */
const char *rewind_misplaced(void);

/* Notes what the process has now, for rewind_doubt() in it and in processes forked from it. NULL, or what failed. */
const char *rewind_watch(void);

/*
 * Between rewind_point() and the work: writes `size` bytes to `at`, for good. Rewinds from then on put back what was
 * written here. Without a snapshot it only writes.
 */
void rewind_amend(void *at, const void *from, size_t size);

/*
 * Gives an open file or directory a file description of its own: a position, flags and locks that no other process
 * shares. The position stays, and so does the number. 0, or the errno of what failed.
 */
int rewind_own_file(int fd);

/*
 * Opens the file of that name in the place of the one that is open under this number, for good: also of those that a
 * rewind puts back. `flags` as for open(2); a new file is made as fopen() makes one. 0, or the errno of what failed;
 * EBUSY: a record lock of the boot is on the old one.
 */
int rewind_replace_file(int fd, const char *name, int flags);

/* When the lock that flock() gave this descriptor was taken, before the point: higher numbers are later. 0: not seen.
 */
uint32_t rewind_locked_at(int fd);
/* How often flock() was called for it until the point. */
uint32_t rewind_lock_tries(int fd);
/* Whether this process has taken a System V semaphore before the point (with SEM_UNDO) that it has not given back.
 * `too_many`: not all that it changed are known. */
bool rewind_holds_semaphore(bool *too_many);

/* In a child forked after that: positions, locks and flags of files are its own, no longer its parent's. NULL, or what
 * failed. */
const char *rewind_forked(void);
/* In the parent, when that child has ended: puts back flags of what the two did share. */
void rewind_child_over(void);

/* To be asked after everything the work acquired was released and before rewind_back(). */
enum rewind_doubt rewind_doubt(void);

/* The same after a rewind: what it found out on the way. */
enum rewind_doubt rewind_doubt_after(void);

void rewind_back(void) __attribute__((noreturn));

/* With the snapshot: what generators in libraries hold is forgotten, so that they seed themselves anew. */
void rewind_forget_randomness(void);
/* A number that no other process which makes UUIDs at the same time has; 14 bits of it count. */
void rewind_uuid_sequence(unsigned number);

/*
 * Before the point: from then on it is noted whether the work writes to this file, by any descriptor or by its name, or
 * could: it duplicates a descriptor of it, or maps it. (What its children write is theirs, and not seen.) False when
 * there is no room for more. The second forgets all of them.
 */
struct stat;
bool rewind_watch_file(const struct stat *st);
void rewind_watch_no_file(void);
/* Whether it did; true for a file that is not watched. */
bool rewind_was_written(const struct stat *st);

/*
 * A file that was opened for writing by its name before the point, noted from rewind_libraries_opened() on: kept
 * memory, which the caller may change. What the work does is not noted.
 */
struct rewind_opening {
	uint64_t device, inode;
	int flags;          /* of open(2) */
	bool noted;         /* there is one */
	bool late;          /* it was opened when the boot was over */
	bool touched;       /* the boot has written to it by this descriptor */
	bool otherwise;     /* or by another one, which is not noted */
	bool emptied;       /* the boot has cut it, or had emptied by another descriptor what has its name */
	bool unsure;        /* or may have: of so many names it did so, or gave them up, that not all are kept */
	bool led, moved;    /* the boot has given its name to another one, or removed the name; it led there before */
	bool kept;          /* beyond the point */
	uint32_t locked_at; /* see rewind_locked_at(); also where nothing is noted */
	uint32_t lock_tries;
	int locked; /* LOCK_SH, LOCK_EX, 0 */
	char *name; /* absolute, links not resolved. Room for PATH_MAX */
};
/* NULL: what is open under this number was opened otherwise, or for reading. */
struct rewind_opening *rewind_opening_of(int fd);
/* Opens what now has the name, as it was opened before, but nothing is emptied. `mode`: of one that is made. A
 * descriptor, or -errno. */
int rewind_opening_again(const struct rewind_opening *one, mode_t mode);
/* Makes a file that is not there, to be read and written, with these rights whatever the umask is. A descriptor, or
 * -errno. */
int rewind_make_file(const char *name, mode_t mode);
/* From now on (or no more) what is done to files that were opened before is a warm-up request's, and is not noted. */
void rewind_boot_over(bool over);

/* From here to the rewind the request ends: nobody hears of a socket of the boot that it closes, as of one that it does
 * not close. */
void rewind_request_ends(void);

/* Gives up the locks that the work has taken on files of the boot, and semaphores; a rewind does so as well. */
void rewind_unlock(void);

/* Compares all tracked memory with the snapshot every `every` rewinds, 0: never. Differences are told to `report`. */
void rewind_verify(unsigned every, void (*report)(const char *line));

const struct rewind_counters *rewind_counters(void);

/* Memory that rewinds leave alone, zeroed; it is shared with nobody and copied by a fork. NULL when there is none. */
void *rewind_keep(size_t size);

/* Says whether nobody uses the position of a file, which is then not put back. To be taken back when it is closed. */
void rewind_positionless(int fd, bool is);

/* Called when somebody sets the timer of processor time, or the handler of its signal (`by_handler`), whether the work
 * is watched or not. NULL: nobody asked. */
extern void (*rewind_timer_taken)(bool by_handler);
/* Whether somebody has asked for a function of libc's by its name, as FFI does: whoever has it may change what no note
 * is made of, such as the mask of signals. Never false again by itself. */
extern bool *rewind_libc_asked_for;
/* setitimer(2) for the host itself, whose timers a rewind leaves alone. */
struct itimerval;
void rewind_set_timer(int which, const struct itimerval *value);

/* How long poll(2) waits for sockets before they are shut down, in ms; 0: as long as it is told to. Then whoever waits
 * for one finds its end. And whether that has happened. */
extern int rewind_patience_ms;
extern bool rewind_lost_patience;

/* The kernel tells this process of children that end, whatever the boot has said about SIGCHLD: it may ignore it. */
void rewind_hear_children(void);
/* In a child of such a process: as the boot has said it. */
void rewind_leave_children(void);

/* Whether it is a file without a name and a file system (memfd_create(2)). Files on tmpfs are not, though they have
 * seals as well. */
bool rewind_is_memfd(int fd);

/* Whether it is what descriptor 0, 1 or 2 is: the input, output and log of this process. */
bool rewind_is_output(const struct stat *st);

/* How many threads this process has; 0 when /proc does not say. */
int rewind_threads(void);

/* The regions of the snapshot, for reports. */
void rewind_each_region(void (*visit)(uintptr_t start, const char *name, size_t pages, size_t unused_pages, void *to),
                        void *to);
/* The pages put back by the last rewind that were not hot, as ranges; returns how many. For reports. */
size_t rewind_last_written(struct rewind_range *to, size_t room);

#endif
