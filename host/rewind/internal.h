/*
 * What the rewinder's files share: system calls without libc, and the control block.
 *
 * While pages are being put back nothing may write to memory that is put back, errno included: so the rollback makes
 * its system calls by itself, runs on a stack of its own, and keeps its state in the control block, which lies in
 * mappings of a memfd whose name marks them as not to be rewound.
 */
#ifndef HAYATE_REWIND_INTERNAL_H
#define HAYATE_REWIND_INTERNAL_H

#include "machine.h"
#include "rewind.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

#define PAGE_SIZE 4096ul
#define KEPT_NAME "hayate-rewind"

/* Returns what the kernel returns: -errno on failure. */
#define SYS1(n, a) sys6(n, (long)(a), 0, 0, 0, 0, 0)
#define SYS2(n, a, b) sys6(n, (long)(a), (long)(b), 0, 0, 0, 0)
#define SYS3(n, a, b, c) sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

/* A private writable mapping of the snapshot. Page p of it has number first + p. */
struct region {
	uintptr_t start, end;
	size_t first;
	char name[48];
};

#define MAX_REGIONS 2048
#define MAX_MAPPINGS 4096
#define MAX_HELD 64
#define MAX_SIGNALS 64
/* A rollback takes some microseconds. */
#define MOST_POSTPONED 64
#define MAX_WATCHED 256
/* Our own descriptors have numbers from REWIND_OWN_FROM on, but for those that are opened at the point (`cwd`,
 * `statm`); copies of the boot's have the lowest that are free. A rewind closes whatever has a number that was free: by
 * one call, where those have no gap between them. The kernel looks at each number up to the size of its table, which is
 * 64 at first. */
#define COPIES_FROM 3
/* A chunk of ZendMM: the kind of mapping that requests make and give back all the time. */
#define CHUNK_SIZE (2ul << 20)
#define MAX_CHUNKS 16

/* Of an entry of /proc/self/pagemap: protected against writes by userfaultfd. */
#define PAGEMAP_PROTECTED (1ull << 57)

/* pages[n] */
enum {
	PAGE_UNUSED = 1, /* meant nothing at the snapshot: never put back */
	PAGE_HOT = 2,    /* put back after each request without looking; not protected */
	PAGE_CHANGED = 4 /* changed between snapshot and point: becomes part of the snapshot at the point */
};

struct hot {
	uintptr_t at;
	uint32_t page;
	uint32_t looks; /* that it may be found as it was, until it is called cold */
};

/* A mapping made since the point. */
struct made {
	uintptr_t start, end;
	bool chunk; /* ZendMM's: may be handed out again without being zeroed */
};

/* A descriptor that was open at the point; its number is its index in control.fds. */
struct descriptor {
	int copy;  /* 0: none */
	int flags; /* of its open file description */
	bool known, cloexec;
	bool library;  /* open before the work began: a library's, or the caller's */
	bool lost;     /* closed or replaced since the point */
	bool peer;     /* a socket or pipe, or a queue of the kernel's: using it cannot be taken back */
	bool datagram; /* a socket that sends messages one by one: those need no answer */
	bool portless; /* such a one without a port: the kernel gives it one when it sends */
	bool sent;     /* a message, since the point */
	bool held;     /* a lock on it was held at the point */
	bool flocked;  /* namely one of flock(2) */
	bool locked;   /* locked or unlocked since the point */
	bool taken;    /* namely by flock(2), or by a record lock of the open file: who inherits it has that, too */
	int watched;   /* index in control.watched plus one; 0: nobody asked for that */
};

/* A file of which somebody wants to know whether the work writes to it. */
struct watched_file {
	uint64_t device, inode;
	bool written; /* since the point; a rewind does not forget it */
};

/* The directory that a name is in, and the name. */
struct place_name {
	uint64_t device, inode; /* of the directory */
	char base[256];
};
/* Of descriptors below this it is known how they were opened; and of so many names that it emptied them. */
#define REWIND_MOST_OPENINGS 4096
#define REWIND_MOST_EMPTIED 65536
#define MOST_SEMAPHORES 1024
/* Numbers of descriptors below this may be said to have no position. */
#define MOST_POSITIONLESS 65536

/* A record lock (fcntl) that was held at the point. */
struct held {
	int fd;
	short type;
	int64_t start, end; /* end: the first byte behind it, INT64_MAX without end */
	bool open_file;     /* it belongs to the open file description, not to the process */
};

/* The kernel's layout of struct sigaction, which is not libc's. */
struct kernel_sigaction {
	void *handler;
	unsigned long flags;
	void *restorer;
	uint64_t mask;
};

/* page.c: makes a page what the copy is; says whether it was not */
typedef bool page_restore(uint8_t *to, const uint8_t *from);
page_restore *page_restore_fastest(void);

struct control {
	/* Between the first rewind_point() and the end of the process: what the work does is being noted. */
	bool active;
	enum rewind_tracking tracking;
	enum rewind_doubt doubt, doubt_after;
	bool connection_used; /* whatever else was in doubt since: this alone outlives a process that was forked */
	char error[256];
	struct rewind_counters counters;

	/* memory */
	struct region regions[MAX_REGIONS];
	size_t region_count;
	size_t page_count;
	uint8_t *pages;    /* what is known of each page: PAGE_* */
	uint8_t *streaks;  /* how many writes in a row came soon after the one before, while it is cold */
	uint8_t *patience; /* how often it turned out to be hot after all: doubles the time until it is called cold */
	uint32_t *cold_at; /* the rewind in which it was last written, or called cold */
	uint8_t *shadow;   /* the copy; page n at n * PAGE_SIZE */
	page_restore *restore_page;
	struct hot *hot;
	size_t hot_count;
	size_t hot_limit; /* soft-dirty: when the hot set is larger, it is learned anew */
	uintptr_t rseq;   /* where the kernel writes by itself: 32 bytes, 0 without */
	uintptr_t brk;
	struct context context;
	uintptr_t stack_low, stack_end;
	uint8_t *stack_copy;
	size_t stack_room;
	uint8_t *rollback_stack;
	uint64_t faults; /* of this process when pages were last looked for */

	/* tracking */
	int uffd, pagemap, clear_refs;
	struct rewind_range *written; /* result of a scan, ascending */
	size_t written_room, written_count;
	struct rewind_range protect;   /* to be protected again next */
	struct rewind_range cold[512]; /* what the last rewind put back, for reports */
	size_t cold_count;

	/* mappings */
	struct made made[MAX_MAPPINGS];
	size_t made_count;
	uintptr_t chunks[MAX_CHUNKS]; /* given back by a request, kept for the next */
	size_t chunk_count;
	struct rewind_range known[MAX_REGIONS]; /* all that was mapped at the point */
	size_t known_count;
	struct rewind_range sealed[MAX_REGIONS]; /* of those, what is private and not written to, so that it has no copy */
	size_t sealed_count;
	long known_pages;                  /* size of the process then, without chunks kept */
	bool must_sweep;                   /* mappings were made that the interposed functions did not see */
	uintptr_t libphp_low, libphp_high; /* code whose 2 MiB mappings need not be zeroed */
	int statm;

	/* descriptors */
	struct descriptor *fds;
	size_t fd_count; /* entries; what has a higher number was not open at the point */
	bool any_lost, any_locked, any_sent;
	bool any_flags, any_cloexec; /* of open files, of descriptors: may have changed */
	bool any_unknown;            /* something was closed that nobody knows: perhaps one of these */
	bool ending;                 /* what the request closes now would be closed with its process */
	/* A duplicate was made of one, and something was locked that was not open at the point: perhaps that. */
	bool any_duplicate, locked_other;
	struct {
		int fd;
		int64_t at;
	} * offsets;
	size_t offset_count;
	uint8_t positionless[MOST_POSITIONLESS / 8]; /* by bit: its position means nothing */
	struct rewind_range *gaps;                   /* [start, end): numbers free at the point */
	size_t gap_count;
	bool *libraries_fds; /* open before the work began */
	size_t libraries_fd_count;
	struct held held[MAX_HELD];
	size_t held_count;
	struct watched_file watched[MAX_WATCHED];
	size_t watched_count;
	struct rewind_opening *openings; /* by descriptor; NULL: nobody asked yet */
	char *opening_names;             /* PATH_MAX bytes for each */
	size_t opening_count;            /* up to the highest that was noted */
	uint64_t *emptied;               /* names of files that the boot has emptied, each as a number of 64 bits */
	size_t emptied_count;            /* so far; the last ones are kept */
	bool boot_over;                  /* what is written now is a warm-up request's */
	/* What the kernel would undo if the process ended (semop(2), SEM_UNDO): sums since the work began, and from the
	 * point on since the point. */
	struct {
		int set;
		short number, sum;
	} undo[MOST_SEMAPHORES];
	size_t undo_count;
	uint32_t lock_count;   /* locks on files taken before the point */
	long childrens_faults; /* see held.c */
	bool undo_full;        /* there were more before the point */
	int cwd;
	int umask;

	/* signals, timers, threads, children, libraries */
	uint64_t signal_mask;
	uint64_t not_pending; /* of these, which the boot has left none of */
	struct kernel_sigaction actions[MAX_SIGNALS + 1];
	uint64_t actions_changed; /* bit n - 1: signal n */
	bool mask_changed;        /* or may have been */
	bool cannot_wait;         /* the boot has a handler that does not stand behind the host's */
	bool blocked;             /* signals are, by the present rollback */
	volatile bool rolling_back;
	siginfo_t postponed[MOST_POSTPONED]; /* signals that came meanwhile */
	uint64_t postponed_once;             /* those of them that are kept once, as actions_changed */
	volatile uint32_t postponed_count;   /* more than there is room for: the last ones are lost */
	uint8_t timers_set;                  /* bit ITIMER_* */
	long timers_made;                    /* by timer_create(), and not deleted */
	stack_t signal_stack;
	bool signal_stack_changed;
	bool threads_started;
	bool single_threaded; /* libc knew of no thread at the point */
	bool directory_changed, umask_changed, name_changed, slack_changed;
	char name[16];       /* of the process, as in /proc/self/comm */
	unsigned long slack; /* of its timers, ns */
	unsigned long long libraries_added, libraries_removed;
	bool libraries_used; /* dlopen() or dlclose() was called since the point */

	/* UUIDs with the time: the last one, in units of 100 ns, and what tells this process's from others' */
	uint64_t uuid_time;
	uint16_t uuid_sequence;
	bool uuid_numbered;

	unsigned verify_every;
	void (*verify_report)(const char *line);
	size_t kept_size; /* of the memfd */
	int kept_fd;
};
/* NULL until rewind_init(). The pointer itself is put back by each rewind, to the same value. */
extern struct control *rewind_control;

/* Ends the process: the state is in doubt and nothing may run on it. */
void rewind_die(const char *what, long error) __attribute__((noreturn));

/* What is loaded stays loaded. False: no memory. */
bool rewind_pin_libraries(void);

/* memory.c */
size_t memory_find(uintptr_t at);                      /* index of the region, or SIZE_MAX */
bool memory_is_known(uintptr_t start, uintptr_t end);  /* any of it was mapped at the point */
bool memory_is_sealed(uintptr_t start, uintptr_t end); /* … privately, and nobody might write to it */
const char *memory_read_regions(void);
const char *memory_find_stack(void);
void memory_mark_unused(const struct rewind_range *unused, size_t count);
const char *memory_copy_all(void); /* NULL, or what cannot be read */
const char *memory_know_mappings(void);
void memory_sweep(void);
void memory_verify(void);
long memory_size_pages(void);
void memory_drop_scratch(void); /* gives back what the functions above took to read files of /proc */
bool memory_restore_page(size_t page, uintptr_t at); /* whether it differed; of the page of c->rseq it means nothing */
bool memory_page_differs(size_t page, uintptr_t at);
const char *memory_mark_own(void);

/* track.c */
/* Opens a file of this process's own; who is not dumpable does not own it, so it is dumpable for this moment. */
long track_open_proc(const char *path, int flags);
const char *track_start(enum rewind_tracking tracking); /* registers, and protects what is not unused */
const char *track_register(void);                       /* the regions of now; those that are known stay as they are */
void track_stop(void);                                  /* in a forked child: forgets the parent's tracking */
void track_scan(void);                                  /* → written */
void track_protect(uintptr_t start, uintptr_t end);
void track_protect_all(void); /* what is neither unused nor hot */

/* What is known of a descriptor that was open at the point and still is; NULL otherwise. */
static inline struct descriptor *descriptor_of(int fd)
{
	struct control *c = rewind_control;
	struct descriptor *found = (size_t)(unsigned)fd < c->fd_count ? &c->fds[fd] : NULL;
	return found != NULL && found->known && !found->lost ? found : NULL;
}

/* descriptors.c */
const char *descriptors_note(void); /* NULL, or what failed */
bool descriptors_own_files(void);   /* each is opened anew, at its position; false: one cannot be */
bool descriptors_was_answered(int fd);
bool descriptors_was_any_answered(void);
void descriptors_restore(void);       /* closes what was opened, opens what was closed or replaced */
void descriptors_restore_files(void); /* their flags and positions; after the locks, which a copy may have to give up */
void descriptors_restore_flags(bool of_files, bool of_descriptors);

/* openings.c */
const char *openings_begin(void); /* from now on; NULL, or what failed */
void openings_settle(void);       /* at the point: those that nobody has asked for are forgotten */

/* held.c */
bool held_note(int fd, struct descriptor *to); /* false: there are more locks than can be noted */
void held_restore(void);
void held_note_children(void); /* at the point */

/* signals.c */
void signals_stand_in_front(void);
/* The handler of the boot that stands behind this one, if it is the host's; else NULL. */
const struct kernel_sigaction *signals_behind(int signal, const void *handler);
bool signals_must_be_blocked(void);
void signals_send_again(void); /* those that came during a rollback */

/* process.c */
const char *process_note(void);
void process_restore(void);
enum rewind_doubt process_doubt(void);
bool process_left_child(void); /* a process that has not ended */
/* Whether a shared library of the boot was unloaded. Notes whether others were loaded. */
bool process_lost_library(void);

#endif
