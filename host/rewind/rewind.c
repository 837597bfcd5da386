/*
 * Snapshot, point, rollback, and the hot set. See rewind.h for what is promised.
 *
 * The hot set: pages that nearly every request writes are put back each time and never protected, so they never fault.
 * When the process had no page fault since the last look, no other page can have been written (a write to a protected
 * page is a fault), and the look itself is saved.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/rseq.h>
#include <time.h>
#include <unistd.h>

/* All handlers of the boot may be called on it, one on the other, of 3 KB each. */
#define ROLLBACK_STACK (320ul << 10)
/* How much of the stack may be in use at the point; and how far below the end of the main
 * stack other mappings begin, at the least. */
#define MOST_STACK (1ul << 20)
#define MAIN_STACK (128ul << 20)
/* Address space of the memfd, in bytes: far more than a process's memory. */
#define KEPT_MOST (1l << 40)
/* What decides whether a page is hot: how likely the next request is to write to it. A hot page costs a copy each time,
 * some 100 to 200 ns, and more when there are so many that they do not stay in the processor's cache; a cold one that
 * is written costs a fault and the same copy, somewhat less than a microsecond. So a page is to be hot when at least
 * every fourth or fifth request writes to it, whatever it is that rare requests write.
 *
 * A cold page becomes hot when so many writes in a row came within so many rewinds of the one before. Of writes by one
 * request in twenty, one in two thousand has such predecessors; of writes by every second one, three of four. */
#define SHORT_GAP 3
#define STREAK_HOT 4
/* One in LOOKS hot pages is compared at each rewind. A page that differs gains so many looks, one that does not loses
 * one, and without any left it is called cold: balanced at one request in five. */
#define LOOKS 16
#define LOOKS_FIRST 4
#define LOOKS_GAINED 4
#define LOOKS_MOST 32
/* Some pages are written by each request with what they held before: they look unwritten and would fault all the same.
 * So one that is written as soon as it was called cold is hot again at once, and has twice the looks from then on. */
#define MOST_PATIENT 9
#define WAS_HOT 0x80u /* a flag beside the patience */
/* soft-dirty: how much the hot set may grow before it is learned anew */
#define SOFT_GROWTH 128
/* struct pthread of glibc 2.36 is smaller than this */
#define THREAD_SIZE 4096

struct control *rewind_control;

void rewind_die(const char *what, long error)
{
	static const char intro[] = "hayate-php: rewind failed, this worker ends: ";
	SYS3(SYS_write, STDERR_FILENO, intro, sizeof intro - 1);
	SYS3(SYS_write, STDERR_FILENO, what, strlen(what));
	char number[24] = " (error ";
	size_t len = strlen(number);
	long value = error < 0 ? -error : error;
	char digits[20];
	size_t n = 0;
	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0 && n < 10);
	while (n > 0) {
		number[len++] = digits[--n];
	}
	number[len++] = ')';
	number[len++] = '\n';
	SYS3(SYS_write, STDERR_FILENO, number, len);
	SYS1(SYS_exit_group, 70);
	__builtin_unreachable();
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Maps `size` more bytes of the memfd. */
static void *map_kept(int fd, size_t *used, size_t size)
{
	size = (size + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1);
	size_t at = *used;
	void *result = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, (off_t)at);
	if (result == MAP_FAILED) {
		return NULL;
	}
	*used = at + size;
	return result;
}

void *rewind_keep(size_t size)
{
	struct control *c = rewind_control;
	return c == NULL ? NULL : map_kept(c->kept_fd, &c->kept_size, size);
}

static int find_libphp(struct dl_phdr_info *info, size_t size, void *to)
{
	struct control *c = to;
	if (info->dlpi_name == NULL || strstr(info->dlpi_name, "libphp") == NULL) {
		return 0;
	}
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			c->libphp_low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			c->libphp_high = c->libphp_low + info->dlpi_phdr[i].p_memsz;
		}
	}
	return 1;
}

const char *rewind_init(void)
{
	/* Large blocks come from the break, whose end is put back, not from mappings that pass the interposed functions by;
	 * it never shrinks, and one arena holds everything. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 1 << 20);
	mallopt(M_ARENA_MAX, 1);
	int fd = memfd_create(KEPT_NAME, MFD_CLOEXEC);
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, REWIND_OWN_FROM);
	if (high >= 0) {
		close(fd);
		fd = high;
	}
	size_t used = 0;
	/* Once, and for all processes that share the file: to truncate it takes pages beyond the end from all of them,
	 * those that they have copied for themselves as well. It holds no more than what is written. */
	bool sized = fd >= 0 && ftruncate(fd, KEPT_MOST) == 0;
	struct control *c = !sized ? NULL : map_kept(fd, &used, sizeof *c);
	if (c == NULL) {
		return "no memory for the rewinder";
	}
	c->kept_fd = fd;
	c->kept_size = used;
	c->uffd = c->pagemap = c->clear_refs = c->statm = c->cwd = -1;
	c->restore_page = page_restore_fastest();
	rewind_control = c;
	c->rollback_stack = rewind_keep(ROLLBACK_STACK);
	if (c->rollback_stack == NULL) {
		return "no memory for the rewinder";
	}
	const char *wrong = memory_find_stack();
	if (wrong != NULL) {
		return wrong;
	}
	/* Where libc's getrandom() keeps what it draws from is mapped at its first use: that is before the snapshot. */
	unsigned char drawn;
	if (getrandom(&drawn, 1, GRND_NONBLOCK) < 0) {
		errno = 0; /* then libc asks the kernel each time, and maps nothing */
	}
	dl_iterate_phdr(find_libphp, c);
	/* A huge page would be copied whole for one byte. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	return NULL;
}

struct names {
	char *at;
	size_t used;
};
#define NAMES_SIZE (256ul << 10)

static int add_name(struct dl_phdr_info *info, size_t size, void *to)
{
	struct names *names = to;
	size_t len = info->dlpi_name == NULL ? 0 : strlen(info->dlpi_name) + 1;
	if (len > 1 && names->used + len < NAMES_SIZE) {
		memcpy(names->at + names->used, info->dlpi_name, len);
		names->used += len;
	}
	return 0;
}

/* What the application refers to at the point must not be unloaded after it: libc unloads converters of iconv() that
 * nobody has used for a while. */
bool rewind_pin_libraries(void)
{
	struct names names = {.at = rewind_keep(NAMES_SIZE)};
	if (names.at == NULL) {
		return false;
	}
	dl_iterate_phdr(add_name, &names);
	for (const char *name = names.at; name < names.at + names.used; name += strlen(name) + 1) {
		dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	}
	return true;
}

static const char *take_snapshot(enum rewind_tracking tracking, const struct rewind_range *unused, size_t unused_count)
{
	memory_mark_unused(unused, unused_count);
	rewind_control->rseq = __rseq_size == 0 ? 0 : (uintptr_t)__builtin_thread_pointer() + (uintptr_t)__rseq_offset;
	/* From here on what is written will be found; so the copy may be made after it. */
	const char *wrong = track_start(tracking);
	if (wrong != NULL) {
		return wrong;
	}
	track_protect_all();
	return memory_copy_all();
}

const char *rewind_snapshot(enum rewind_tracking tracking, const struct rewind_range *unused, size_t unused_count)
{
	struct control *c = rewind_control;
	if (tracking != REWIND_UFFD && tracking != REWIND_SOFT_DIRTY) {
		return "a snapshot needs tracking";
	}
	if (!rewind_pin_libraries()) {
		return "no memory for the rewinder";
	}
	const char *wrong = memory_read_regions();
	if (wrong != NULL) {
		return wrong;
	}
	c->pages = rewind_keep(c->page_count);
	c->streaks = rewind_keep(c->page_count);
	c->patience = rewind_keep(c->page_count);
	c->cold_at = rewind_keep(c->page_count * sizeof *c->cold_at);
	c->hot = rewind_keep(c->page_count * sizeof *c->hot);
	c->written_room = c->page_count + 1;
	c->written = rewind_keep(c->written_room * sizeof *c->written);
	/* Filled through a shared mapping, so that forked workers share it; then seen privately, so that each may make what
	 * it changes before the point a part of its own snapshot. In a file of its own: the other one is shared by
	 * processes that take their snapshots each by itself. */
	size_t size = c->page_count * PAGE_SIZE;
	int fd = memfd_create(KEPT_NAME, MFD_CLOEXEC);
	bool sized = fd >= 0 && ftruncate(fd, (off_t)size) == 0;
	void *private = !sized ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	void *common = !sized ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0) {
		close(fd);
	}
	if (c->pages == NULL || c->streaks == NULL || c->patience == NULL || c->cold_at == NULL || c->hot == NULL ||
	    c->written == NULL || private == MAP_FAILED || common == MAP_FAILED) {
		wrong = "no memory for the snapshot";
	} else {
		c->shadow = common;
		wrong = take_snapshot(tracking, unused, unused_count);
	}
	if (common != MAP_FAILED) {
		munmap(common, size);
	}
	/* Without a snapshot rewind_amend() must find none. */
	c->shadow = wrong == NULL ? private : NULL;
	if (wrong != NULL && private != MAP_FAILED) {
		munmap(private, size);
	}
	return wrong;
}

/* Calls visit for each page that was written and is put back by looking: neither unused nor hot. */
static void each_written(void (*visit)(size_t page, uintptr_t at))
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->written_count; i++) {
		size_t r = memory_find(c->written[i].start);
		if (r == SIZE_MAX) {
			rewind_die("a written page lies outside the snapshot", 0);
		}
		for (uintptr_t at = c->written[i].start; at < c->written[i].end; at += PAGE_SIZE) {
			if (at >= c->regions[r].end) {
				r = memory_find(at);
				if (r == SIZE_MAX) {
					rewind_die("a written page lies outside the snapshot", 0);
				}
			}
			size_t page = c->regions[r].first + (at - c->regions[r].start) / PAGE_SIZE;
			if (!(c->pages[page] & (PAGE_UNUSED | PAGE_HOT))) {
				visit(page, at);
			}
		}
	}
}

static void mark_changed(size_t page, uintptr_t at)
{
	rewind_control->pages[page] |= PAGE_CHANGED;
}

void rewind_noticed(void)
{
	track_scan();
	each_written(mark_changed);
}

const char *rewind_adopt(void)
{
	struct control *c = rewind_control;
	track_stop();
	const char *wrong = track_start(c->tracking);
	if (wrong != NULL) {
		return wrong;
	}
	track_protect_all();
	return memory_mark_own();
}

static void make_hot(size_t page, uintptr_t at)
{
	struct control *c = rewind_control;
	c->pages[page] |= PAGE_HOT;
	c->hot[c->hot_count++] = (struct hot){
	    .at = at, .page = (uint32_t)page, .looks = (uint32_t)LOOKS_FIRST << (c->patience[page] & ~WAS_HOT)};
}

/* Page faults of this process so far. To count those of one thread costs half as much as to add up all; where libc
 * knows of no other, process_doubt() hears of each new one. */
static uint64_t count_faults(void)
{
	struct rusage usage;
	SYS2(SYS_getrusage, rewind_control->single_threaded ? RUSAGE_THREAD : RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

/* On the rollback stack: what changed since the snapshot becomes part of it, and the work begins. */
static void reach_point(void)
{
	struct control *c = rewind_control;
	c->faults = count_faults();
	memcpy(c->stack_copy, (const void *)c->stack_low, c->stack_end - c->stack_low);
	track_scan();
	each_written(mark_changed);
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		for (uintptr_t at = region->start; at < region->end; at += PAGE_SIZE) {
			size_t page = region->first + (at - region->start) / PAGE_SIZE;
			if (c->pages[page] & PAGE_CHANGED) {
				c->pages[page] &= (uint8_t)~PAGE_CHANGED;
				memcpy(c->shadow + page * PAGE_SIZE, (const void *)at, PAGE_SIZE);
			}
		}
	}
	/* The kernel writes to the thread's block whenever it likes. */
	uintptr_t thread = (uintptr_t)__builtin_thread_pointer() & ~(PAGE_SIZE - 1);
	for (uintptr_t at = thread; at <= thread + THREAD_SIZE; at += PAGE_SIZE) {
		size_t r = memory_find(at);
		if (r != SIZE_MAX) {
			make_hot(c->regions[r].first + (at - c->regions[r].start) / PAGE_SIZE, at);
		}
	}
	c->hot_limit = c->hot_count + SOFT_GROWTH;
	track_protect_all();
	c->active = true;
	context_jump(&c->context);
}

static long refuse(const char *why)
{
	snprintf(rewind_control->error, sizeof rewind_control->error, "%s", why);
	return -1;
}

const char *rewind_misplaced(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), end = rewind_control->stack_end;
	if (here > end || end - here > MOST_STACK) {
		return here <= end && end - here < MAIN_STACK
		           ? "it was called more than a megabyte deep in the stack, which each rewind would have to copy"
		           : "it was called within a Fiber, whose stack is not the process's own";
	}
	return NULL;
}

long rewind_point(void)
{
	struct control *c = rewind_control;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	if (rewind_misplaced() != NULL) {
		return refuse(rewind_misplaced());
	}
	openings_settle();
	c->stack_room = c->stack_end - here + PAGE_SIZE;
	c->stack_copy = rewind_keep(c->stack_room);
	c->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	if (c->stack_copy == NULL || c->statm < 0) {
		return refuse("no memory for the copy of the stack, or /proc/self/statm cannot be opened");
	}
	const char *wrong = process_note();
	if (wrong != NULL) {
		return refuse(wrong);
	}
	c->brk = (uintptr_t)SYS1(SYS_brk, 0);
	wrong = memory_know_mappings();
	if (wrong != NULL) {
		return refuse(wrong);
	}
	memory_drop_scratch();
	if (context_save(&c->context) == 0) {
		c->stack_low = c->context.sp;
		context_on_stack(c->rollback_stack + ROLLBACK_STACK, reach_point);
	}
	return (long)rewind_control->counters.rewinds;
}

void rewind_amend(void *at, const void *from, size_t size)
{
	struct control *c = rewind_control;
	memcpy(at, from, size);
	if (c == NULL || c->shadow == NULL) {
		return;
	}
	for (size_t done = 0; done < size;) {
		uintptr_t to = (uintptr_t)at + done;
		size_t offset = to % PAGE_SIZE;
		size_t part = size - done < PAGE_SIZE - offset ? size - done : PAGE_SIZE - offset;
		size_t r = memory_find(to);
		if (r != SIZE_MAX) {
			size_t page = c->regions[r].first + (to - c->regions[r].start) / PAGE_SIZE;
			memcpy(c->shadow + page * PAGE_SIZE + offset, (const uint8_t *)from + done, part);
		}
		done += part;
	}
}

const char *rewind_watch(void)
{
	const char *wrong = process_note();
	openings_settle();
	rewind_control->active = wrong == NULL;
	return wrong;
}

const char *rewind_forked(void)
{
	return descriptors_own_files() ? NULL : "a file that the boot opened cannot be opened again";
}

void rewind_child_over(void)
{
	descriptors_restore_flags(true, true);
}

const char *rewind_error(void)
{
	return rewind_control->error;
}

enum rewind_doubt rewind_doubt(void)
{
	struct control *c = rewind_control;
	enum rewind_doubt found = process_doubt();
	if (c->connection_used || found == REWIND_CONNECTION) {
		return REWIND_CONNECTION;
	}
	return c->doubt != REWIND_SURE ? c->doubt : found;
}

enum rewind_doubt rewind_doubt_after(void)
{
	return rewind_control->doubt_after;
}

/* Says whether the page is cold from here on. */
static bool look_at_hot(struct hot *hot, bool now_or_never)
{
	struct control *c = rewind_control;
	if (memory_restore_page(hot->page, hot->at)) {
		if (hot->looks < LOOKS_MOST) {
			hot->looks += LOOKS_GAINED;
		}
		return false;
	}
	hot->looks -= hot->looks > 0;
	/* The kernel writes to that page by itself. */
	if ((!now_or_never && hot->looks > 0) || c->rseq - hot->at < PAGE_SIZE) {
		return false;
	}
	c->pages[hot->page] &= (uint8_t)~PAGE_HOT;
	c->streaks[hot->page] = 0;
	c->patience[hot->page] |= WAS_HOT;
	c->cold_at[hot->page] = (uint32_t)c->counters.rewinds;
	return true;
}

/* With `all`, pages that look unwritten are cold from here on, and are protected by the caller. */
static void restore_hot(bool all)
{
	struct control *c = rewind_control;
	size_t slice = c->counters.rewinds % LOOKS;
	size_t i = 0;
	while (i < c->hot_count) {
		struct hot *hot = &c->hot[i];
		/* A page that is cold must be protected: where that is not possible for one page alone, a write to it would
		 * be no fault, and nobody would look for it. There pages cool down all at once. */
		if (!all && (i % LOOKS != slice || c->tracking == REWIND_SOFT_DIRTY)) {
			memory_restore_page(hot->page, hot->at);
		} else if (look_at_hot(hot, all)) {
			track_protect(hot->at, hot->at + PAGE_SIZE);
			*hot = c->hot[--c->hot_count];
			continue;
		}
		i++;
	}
}

/* Cold pages next to each other are protected again in one call. */
static void flush_protect(void)
{
	struct control *c = rewind_control;
	if (c->protect.end > c->protect.start) {
		track_protect(c->protect.start, c->protect.end);
	}
	c->protect = (struct rewind_range){0, 0};
}

static void restore_cold(size_t page, uintptr_t at)
{
	struct control *c = rewind_control;
	memory_restore_page(page, at);
	c->counters.last_cold++;
	if (c->cold_count > 0 && c->cold[c->cold_count - 1].end == at) {
		c->cold[c->cold_count - 1].end = at + PAGE_SIZE;
	} else if (c->cold_count < sizeof c->cold / sizeof c->cold[0]) {
		c->cold[c->cold_count++] = (struct rewind_range){at, at + PAGE_SIZE};
	}
	uint32_t gap = (uint32_t)c->counters.rewinds - c->cold_at[page];
	bool soon = gap <= SHORT_GAP;
	c->cold_at[page] = (uint32_t)c->counters.rewinds;
	if (c->patience[page] & WAS_HOT) {
		unsigned patience = soon ? (c->patience[page] & ~WAS_HOT) + 1u : 0;
		c->patience[page] = (uint8_t)(patience < MOST_PATIENT ? patience : MOST_PATIENT);
		c->streaks[page] = soon ? STREAK_HOT : 0;
	} else {
		c->streaks[page] = (uint8_t)(soon ? c->streaks[page] + 1 : 0);
	}
	if (c->streaks[page] >= STREAK_HOT || c->tracking == REWIND_SOFT_DIRTY) {
		make_hot(page, at);
	} else if (at == c->protect.end) {
		c->protect.end += PAGE_SIZE;
	} else {
		flush_protect();
		c->protect = (struct rewind_range){at, at + PAGE_SIZE};
	}
}

static void restore_mappings(uintptr_t brk)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->made_count; i++) {
		if (c->made[i].chunk && c->chunk_count < MAX_CHUNKS) {
			c->chunks[c->chunk_count++] = c->made[i].start;
		} else if (SYS2(SYS_munmap, c->made[i].start, c->made[i].end - c->made[i].start) != 0) {
			rewind_die("unmapping what a request mapped", 0);
		}
	}
	c->made_count = 0;
	if (brk < c->brk) {
		rewind_die("the break is below where it was", 0);
	}
	if (brk > c->brk && (uintptr_t)SYS1(SYS_brk, c->brk) != c->brk) {
		rewind_die("putting back the break", 0);
	}
}

static void roll_back(void)
{
	struct control *c = rewind_control;
	uint64_t started = now();
	/* libc knows without asking the kernel, as long as what it knows is not put back. */
	uintptr_t brk = (uintptr_t)sbrk(0);
	c->active = false;
	c->doubt = REWIND_SURE;
	c->connection_used = false;
	/* Before the look: a fault that comes after it belongs to the next one. */
	uint64_t faults = count_faults();
	bool look = faults != c->faults;
	if (look) {
		/* A fork takes the right to write to all pages from the parent, so that its next write is a fault; other ways
		 * to make a process are noted (interpose_calls.c). */
		if (process_left_child()) {
			c->doubt_after = REWIND_CHILD;
		}
		/* What libc loads by itself (names, character sets) is mapped, and touched: without a fault there is none. To
		 * ask writes to memory of the loader's. */
		if (process_lost_library()) {
			rewind_die("a shared library of the boot was unloaded", 0);
		}
		faults = count_faults();
	}
	c->faults = faults;
	if (look) {
		track_scan();
		c->counters.scans++;
	}
	uint64_t scanned = look ? now() : started;
	bool learn_anew = c->tracking == REWIND_SOFT_DIRTY && c->hot_count > c->hot_limit;
	restore_hot(learn_anew);
	c->counters.last_cold = 0;
	if (look) {
		c->cold_count = 0;
		each_written(restore_cold);
		flush_protect();
	}
	if (learn_anew) {
		c->hot_limit = c->hot_count + c->hot_count / 4 + SOFT_GROWTH;
		track_protect_all();
	}
	restore_mappings(brk);
	memcpy((void *)c->stack_low, c->stack_copy, c->stack_end - c->stack_low);
	process_restore();
	/* A mapping that was made unseen has either been touched, which is a fault, or costs only address space. */
	if (c->must_sweep ||
	    (look && memory_size_pages() != c->known_pages + (long)(c->chunk_count * (CHUNK_SIZE / PAGE_SIZE)))) {
		memory_sweep();
	}
	if (c->verify_every != 0 && c->counters.rewinds % c->verify_every == 0) {
		memory_verify();
	}
	c->counters.rewinds++;
	c->counters.cold_pages += c->counters.last_cold;
	c->counters.hot_pages = (uint32_t)c->hot_count;
	c->counters.scan_ns += scanned - started;
	c->counters.copy_ns += now() - scanned;
	c->active = true;
	c->rolling_back = false;
	if (c->blocked) {
		SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &c->signal_mask, NULL, sizeof c->signal_mask);
	}
	if (c->postponed_count != 0) {
		signals_send_again();
	}
	context_jump(&c->context);
}

void rewind_back(void)
{
	/* A handler must not run on memory that is half put back (signals.c). */
	struct control *c = rewind_control;
	c->blocked = signals_must_be_blocked();
	if (c->blocked) {
		uint64_t all = ~0ull;
		SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
	}
	c->mask_changed = false;
	c->rolling_back = true;
	context_on_stack(c->rollback_stack + ROLLBACK_STACK, roll_back);
}

void rewind_verify(unsigned every, void (*report)(const char *line))
{
	rewind_control->verify_every = every;
	rewind_control->verify_report = report;
}

const struct rewind_counters *rewind_counters(void)
{
	return &rewind_control->counters;
}

void rewind_each_region(void (*visit)(uintptr_t start, const char *name, size_t pages, size_t unused_pages, void *to),
                        void *to)
{
	const struct control *c = rewind_control;
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		size_t pages = (region->end - region->start) / PAGE_SIZE, unused = 0;
		for (size_t p = 0; p < pages; p++) {
			unused += (c->pages[region->first + p] & PAGE_UNUSED) != 0;
		}
		visit(region->start, region->name, pages, unused, to);
	}
}

size_t rewind_last_written(struct rewind_range *to, size_t room)
{
	const struct control *c = rewind_control;
	size_t n = c->cold_count < room ? c->cold_count : room;
	memcpy(to, c->cold, n * sizeof *to);
	return n;
}
