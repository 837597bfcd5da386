/*
 * The process's memory: which of it is put back, the copy, and mappings that nobody declared.
 *
 * Put back is every private writable mapping except the main stack (its live part is copied at the point), the
 * rewinder's own, and what the kernel may drop. Everything here may run during the rollback: no libc state is touched.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#define SCRATCH_SIZE (4ul << 20)
/* bit 63 present, bit 62 swapped: Documentation/admin-guide/mm/pagemap.rst */
#define PAGEMAP_POPULATED (3ull << 62)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_FILE (1ull << 61)
#define PAGEMAP_EXCLUSIVE (1ull << 56)
/* struct rseq, as far as the kernel writes it by itself; aligned to its size */
#define RSEQ_SIZE 32
#define MAX_FLAGGED 256
/* Linux 5.14; newer than some headers */
#define HY_MADV_POPULATE_READ 22

static char *scratch;

/* One line of /proc/self/maps. */
struct line {
	uintptr_t start, end;
	bool private_writable, sealed, file; /* sealed: private, and nobody may write to it */
	const char *name;                    /* up to the end of the line */
	size_t name_len;
};

static uintptr_t hex(const char **at)
{
	uintptr_t value = 0;
	for (;; (*at)++) {
		char c = **at;
		if (c >= '0' && c <= '9') {
			value = value << 4 | (uintptr_t)(c - '0');
		} else if (c >= 'a' && c <= 'f') {
			value = value << 4 | (uintptr_t)(c - 'a' + 10);
		} else {
			return value;
		}
	}
}

static void skip_field(const char **at)
{
	while (**at != ' ' && **at != '\n' && **at != '\0') {
		(*at)++;
	}
	while (**at == ' ') {
		(*at)++;
	}
}

/* Moves on to the next line; false at the end. */
static bool next_line(const char **at, struct line *line)
{
	if (**at == '\0') {
		return false;
	}
	line->start = hex(at);
	(*at)++;
	line->end = hex(at);
	(*at)++;
	line->private_writable = (*at)[1] == 'w' && (*at)[3] == 'p';
	line->sealed = (*at)[1] != 'w' && (*at)[3] == 'p';
	skip_field(at); /* permissions */
	skip_field(at); /* offset */
	skip_field(at); /* device */
	line->file = **at != '0';
	skip_field(at); /* inode */
	line->name = *at;
	while (**at != '\n' && **at != '\0') {
		(*at)++;
	}
	line->name_len = (size_t)(*at - line->name);
	if (**at == '\n') {
		(*at)++;
	}
	return true;
}

static bool named(const struct line *line, const char *name)
{
	size_t len = strlen(name);
	return line->name_len >= len && memcmp(line->name, name, len) == 0;
}

static const char *read_file(const char *path)
{
	if (scratch == NULL) {
		/* Where nothing is rewound, nothing is kept. */
		scratch = rewind_control != NULL
		              ? rewind_keep(SCRATCH_SIZE)
		              : mmap(NULL, SCRATCH_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	if (scratch == NULL || scratch == MAP_FAILED) {
		scratch = NULL;
		return NULL;
	}
	long fd = SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0) {
		return NULL;
	}
	size_t len = 0;
	long n;
	while ((n = SYS3(SYS_read, fd, scratch + len, SCRATCH_SIZE - 1 - len)) > 0) {
		len += (size_t)n;
	}
	SYS1(SYS_close, fd);
	scratch[len] = '\0';
	return n < 0 || len == SCRATCH_SIZE - 1 ? NULL : scratch;
}

static const char *read_maps(void)
{
	return read_file("/proc/self/maps");
}

/* Flags of a mapping in /proc/self/smaps (Documentation/filesystems/proc.rst). */
enum {
	/* The kernel may drop it (MAP_DROPPABLE, Linux 6.11), which no tracking covers: there libc keeps what getrandom()
	 * draws from (glibc 2.41), and the kernel empties it in a forked child. To put it back would draw the same numbers
	 * again. */
	DROPPABLE = 1,
	/* The kernel empties it in a forked child (MADV_WIPEONFORK): by that libraries know that they were forked. */
	WIPED = 2,
	/* A forked child does not have it (MADV_DONTFORK, and what some devices map). */
	NOT_FORKED = 4,
	/* In pages of 2 MiB or more from a pool (MAP_HUGETLB), which cannot be tracked by 4 KiB. */
	HUGE_PAGES = 8,
};
static const struct {
	char name[5];
	unsigned flag;
} flag_names[] = {{" dp ", DROPPABLE}, {" wf ", WIPED}, {" dc ", NOT_FORKED}, {" ht ", HUGE_PAGES}};

struct flagged {
	uintptr_t start, end;
	unsigned flags;
};

/* Mappings with any of these flags, at most MAX_FLAGGED. False when they cannot be read, or are more. */
static bool find_flagged(unsigned wanted, struct flagged *to, size_t *count)
{
	const char *at = read_file("/proc/self/smaps");
	struct flagged last = {0, 0, 0};
	*count = 0;
	if (at == NULL) {
		return false;
	}
	while (*at != '\0') {
		/* A mapping's first line begins with its address, in small letters; those that follow with a capital one. */
		if ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f')) {
			last.start = hex(&at);
			at++;
			last.end = hex(&at);
		}
		bool flags = memcmp(at, "VmFlags:", 8) == 0;
		last.flags = 0;
		for (; *at != '\n' && *at != '\0'; at++) {
			for (size_t i = 0; flags && i < sizeof flag_names / sizeof flag_names[0]; i++) {
				last.flags |= memcmp(at, flag_names[i].name, 4) == 0 ? flag_names[i].flag : 0;
			}
		}
		at += *at == '\n';
		if (last.flags & wanted) {
			if (*count == MAX_FLAGGED) {
				return false;
			}
			to[(*count)++] = last;
		}
	}
	return true;
}

bool rewind_loses_memory(void)
{
	struct flagged flagged[MAX_FLAGGED];
	size_t count;
	bool known = find_flagged(NOT_FORKED, flagged, &count);
	memory_drop_scratch();
	return !known || count > 0;
}

bool rewind_is_memfd(int fd)
{
	static const char name[] = "/memfd:";
	char path[64], target[sizeof name] = "";
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	long n = SYS4(SYS_readlinkat, AT_FDCWD, path, target, sizeof target - 1);
	return n == sizeof name - 1 && memcmp(target, name, sizeof name - 1) == 0;
}

static const char too_many[] = "the process has more mappings than the rewinder can keep";

static bool add_region(const struct line *line, uintptr_t start, uintptr_t end)
{
	struct control *c = rewind_control;
	if (c->region_count == MAX_REGIONS) {
		return false;
	}
	struct region *region = &c->regions[c->region_count++];
	*region = (struct region){.start = start, .end = end, .first = c->page_count};
	/* The end of a path says more than its beginning. */
	size_t skip = line->name_len < sizeof region->name ? 0 : line->name_len - sizeof region->name + 1;
	memcpy(region->name, line->name + skip, line->name_len - skip);
	c->page_count += (end - start) / PAGE_SIZE;
	return true;
}

/*
 * A mapping, without the pages of it that are guards (MADV_GUARD_INSTALL, Linux 6.13, with which glibc 2.42 guards the
 * stacks of threads): /proc/self/maps does not show them, and who reads one is killed. In pagemap a guard looks like a
 * page in swap; to be filled is refused to it alone.
 */
static const char *add_regions(const struct line *line, long pagemap)
{
	uint64_t entries[512]; /* scratch holds the lines */
	const size_t room = sizeof entries / sizeof *entries;
	uintptr_t from = line->start;
	for (uintptr_t at = line->start; !line->file && at < line->end;) {
		size_t batch = (line->end - at) / PAGE_SIZE;
		batch = batch < room ? batch : room;
		long n = SYS4(SYS_pread64, pagemap, entries, batch * sizeof *entries, at / PAGE_SIZE * sizeof *entries);
		if (n != (long)(batch * sizeof *entries)) {
			return "/proc/self/pagemap cannot be read";
		}
		for (size_t p = 0; p < batch; p++, at += PAGE_SIZE) {
			if ((entries[p] & (PAGEMAP_POPULATED | PAGEMAP_PROTECTED)) == PAGEMAP_SWAPPED &&
			    SYS3(SYS_madvise, at, PAGE_SIZE, HY_MADV_POPULATE_READ) == -EFAULT) {
				if (at > from && !add_region(line, from, at)) {
					return too_many;
				}
				from = at + PAGE_SIZE;
			}
		}
	}
	return from == line->end || add_region(line, from, line->end) ? NULL : too_many;
}

const char *memory_read_regions(void)
{
	struct control *c = rewind_control;
	struct flagged rare[MAX_FLAGGED];
	size_t rare_count;
	bool known = find_flagged(DROPPABLE | HUGE_PAGES, rare, &rare_count);
	const char *at = read_maps();
	long pagemap = track_open_proc("/proc/self/pagemap", O_RDONLY);
	if (pagemap < 0) {
		return "/proc/self/pagemap cannot be opened";
	}
	const char *wrong = NULL;
	if (at == NULL || !known) {
		wrong = "/proc/self/maps and smaps cannot be read, or name more than 256 mappings of rare kinds";
	}
	struct line line;
	size_t d = 0;
	c->region_count = 0;
	c->page_count = 0;
	while (wrong == NULL && next_line(&at, &line)) {
		if (named(&line, "[stack]") || !line.private_writable || named(&line, "/memfd:" KEPT_NAME)) {
			continue;
		}
		while (d < rare_count && rare[d].end <= line.start) {
			d++;
		}
		if (d < rare_count && rare[d].start <= line.start) {
			if (rare[d].flags & HUGE_PAGES) {
				wrong = "the boot has memory in huge pages (MAP_HUGETLB), in which written pages cannot be told apart";
			}
			continue;
		}
		wrong = add_regions(&line, pagemap);
	}
	SYS1(SYS_close, pagemap);
	return wrong;
}

const char *memory_find_stack(void)
{
	const char *at = read_maps();
	struct line line;
	while (at != NULL && next_line(&at, &line)) {
		if (named(&line, "[stack]")) {
			rewind_control->stack_end = line.end;
			memory_drop_scratch();
			return NULL;
		}
	}
	return "the main thread's stack was not found in /proc/self/maps";
}

size_t memory_find(uintptr_t at)
{
	const struct control *c = rewind_control;
	size_t low = 0, high = c->region_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (at < c->regions[middle].start) {
			high = middle;
		} else if (at >= c->regions[middle].end) {
			low = middle + 1;
		} else {
			return middle;
		}
	}
	return SIZE_MAX;
}

void memory_mark_unused(const struct rewind_range *unused, size_t count)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < count; i++) {
		for (uintptr_t at = unused[i].start; at < unused[i].end; at += PAGE_SIZE) {
			size_t r = memory_find(at);
			if (r != SIZE_MAX) {
				c->pages[c->regions[r].first + (at - c->regions[r].start) / PAGE_SIZE] = PAGE_UNUSED;
			}
		}
	}
}

static bool all_zero(const uint64_t *words)
{
	uint64_t any = 0;
	for (size_t i = 0; i < PAGE_SIZE / sizeof *words; i++) {
		any |= words[i];
	}
	return any == 0;
}

const char *memory_copy_all(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		size_t pages = (region->end - region->start) / PAGE_SIZE;
		bool file = region->name[0] != '\0' && region->name[0] != '[';
		/* To read what lies beyond the end of its file would be the end of this process. */
		if (file && SYS3(SYS_madvise, region->start, region->end - region->start, HY_MADV_POPULATE_READ) == -EFAULT) {
			return "the boot has mapped a file beyond its end";
		}
		for (size_t done = 0; done < pages;) {
			/* Pages that never existed are zero, and so is the copy until somebody writes to it. */
			uint64_t *entries = (uint64_t *)(void *)scratch;
			size_t batch =
			    pages - done < SCRATCH_SIZE / sizeof *entries ? pages - done : SCRATCH_SIZE / sizeof *entries;
			long n = c->pagemap < 0 ? -1
			                        : SYS4(SYS_pread64, c->pagemap, entries, batch * sizeof *entries,
			                               (region->start / PAGE_SIZE + done) * sizeof *entries);
			bool known = n == (long)(batch * sizeof *entries);
			for (size_t p = 0; p < batch; p++) {
				size_t page = region->first + done + p;
				const uint8_t *from = (const uint8_t *)region->start + (done + p) * PAGE_SIZE;
				if (c->pages[page] & PAGE_UNUSED || (known && !file && !(entries[p] & PAGEMAP_POPULATED))) {
					continue;
				}
				if (!all_zero((const uint64_t *)(const void *)from)) {
					memcpy(c->shadow + page * PAGE_SIZE, from, PAGE_SIZE);
				}
			}
			done += batch;
		}
	}
	return NULL;
}

bool memory_restore_page(size_t page, uintptr_t at)
{
	const struct control *c = rewind_control;
	const uint8_t *from = c->shadow + page * PAGE_SIZE;
	uint64_t rseq[RSEQ_SIZE / 8];
	bool has_rseq = c->rseq - at < PAGE_SIZE;
	if (has_rseq) {
		memcpy(rseq, (const void *)c->rseq, sizeof rseq);
	}
	bool differs = c->restore_page((uint8_t *)at, from);
	if (has_rseq) {
		memcpy((void *)c->rseq, rseq, sizeof rseq);
	}
	return differs;
}

bool memory_page_differs(size_t page, uintptr_t at)
{
	const struct control *c = rewind_control;
	const uint8_t *copy = c->shadow + page * PAGE_SIZE;
	if (c->rseq - at >= PAGE_SIZE) {
		return memcmp((const void *)at, copy, PAGE_SIZE) != 0;
	}
	size_t before = c->rseq - at, after = before + RSEQ_SIZE;
	return memcmp((const void *)at, copy, before) != 0 ||
	       memcmp((const void *)(at + after), copy + after, PAGE_SIZE - after) != 0;
}

/*
 * In a forked child: pages that are its own already, because it or the fork wrote to them before tracking could begin.
 * What it shares with its parent is mapped more than once; bit 56 of a pagemap entry says "mapped once", bit 61 "page
 * cache". A page that the parent has written to since the fork looks the same, which does no harm. One that has gone to
 * swap meanwhile is compared with the copy.
 */
const char *memory_mark_own(void)
{
	struct control *c = rewind_control;
	uint64_t *entries = (uint64_t *)(void *)scratch;
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		size_t pages = (region->end - region->start) / PAGE_SIZE;
		for (size_t done = 0; done < pages;) {
			size_t batch =
			    pages - done < SCRATCH_SIZE / sizeof *entries ? pages - done : SCRATCH_SIZE / sizeof *entries;
			long n = SYS4(SYS_pread64, c->pagemap, entries, batch * sizeof *entries,
			              (region->start / PAGE_SIZE + done) * sizeof *entries);
			if (n != (long)(batch * sizeof *entries)) {
				return "/proc/self/pagemap cannot be read";
			}
			for (size_t p = 0; p < batch; p++) {
				size_t page = region->first + done + p;
				if (c->pages[page] & PAGE_UNUSED) {
					continue;
				}
				bool own = (entries[p] & PAGEMAP_POPULATED) && (entries[p] & PAGEMAP_EXCLUSIVE) &&
				           !(entries[p] & PAGEMAP_FILE);
				/* Of a page in swap the kernel does not say whose it is. */
				if (!own && entries[p] & PAGEMAP_SWAPPED) {
					own = memory_page_differs(page, region->start + (done + p) * PAGE_SIZE);
				}
				if (own) {
					c->pages[page] |= PAGE_CHANGED;
				}
			}
			done += batch;
		}
	}
	/* What the kernel has emptied with the fork is empty in the snapshot as well. */
	struct flagged wiped[MAX_FLAGGED];
	size_t wiped_count;
	if (!find_flagged(WIPED, wiped, &wiped_count)) {
		return "the mappings that a fork empties cannot be read, or are too many";
	}
	for (size_t i = 0; i < wiped_count; i++) {
		for (uintptr_t at = wiped[i].start; at < wiped[i].end; at += PAGE_SIZE) {
			size_t r = memory_find(at);
			if (r != SIZE_MAX) {
				c->pages[c->regions[r].first + (at - c->regions[r].start) / PAGE_SIZE] |= PAGE_CHANGED;
			}
		}
	}
	return NULL;
}

static bool add_range(struct rewind_range *to, size_t *count, const struct line *line)
{
	if (*count > 0 && to[*count - 1].end == line->start) {
		to[*count - 1].end = line->end;
	} else if (*count < MAX_REGIONS) {
		to[(*count)++] = (struct rewind_range){line->start, line->end};
	} else {
		return false;
	}
	return true;
}

const char *memory_know_mappings(void)
{
	struct control *c = rewind_control;
	const char *at = read_maps();
	struct line line;
	c->known_count = c->sealed_count = 0;
	while (at != NULL && next_line(&at, &line)) {
		if (!add_range(c->known, &c->known_count, &line) ||
		    (line.sealed && !add_range(c->sealed, &c->sealed_count, &line))) {
			return "the process has more mappings than the rewinder can keep";
		}
	}
	c->known_pages = memory_size_pages();
	return at == NULL ? "/proc/self/maps cannot be read" : NULL;
}

static bool meets(const struct rewind_range *ranges, size_t count, uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < count; i++) {
		if (start < ranges[i].end && end > ranges[i].start) {
			return true;
		}
	}
	return false;
}

bool memory_is_known(uintptr_t start, uintptr_t end)
{
	return meets(rewind_control->known, rewind_control->known_count, start, end);
}

bool memory_is_sealed(uintptr_t start, uintptr_t end)
{
	return meets(rewind_control->sealed, rewind_control->sealed_count, start, end);
}

void memory_drop_scratch(void)
{
	if (scratch != NULL) {
		SYS3(SYS_madvise, scratch, SCRATCH_SIZE, MADV_DONTNEED);
	}
}

/* Size of the process in pages, first field of /proc/self/statm; -1 when it cannot be read. */
long memory_size_pages(void)
{
	const struct control *c = rewind_control;
	char text[128];
	long n = SYS4(SYS_pread64, c->statm, text, sizeof text - 1, 0);
	long pages = 0;
	for (long i = 0; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
		pages = pages * 10 + (text[i] - '0');
	}
	return n <= 0 ? -1 : pages;
}

static bool is_kept_chunk(uintptr_t at)
{
	const struct control *c = rewind_control;
	for (size_t i = 0; i < c->chunk_count; i++) {
		if (at >= c->chunks[i] && at < c->chunks[i] + CHUNK_SIZE) {
			return true;
		}
	}
	return false;
}

/* Unmaps what is in [start, end) and was not there at the point. */
static void unmap_strangers(uintptr_t start, uintptr_t end)
{
	struct control *c = rewind_control;
	size_t k = 0;
	while (start < end) {
		while (k < c->known_count && c->known[k].end <= start) {
			k++;
		}
		uintptr_t until = k == c->known_count || c->known[k].start >= end ? end : c->known[k].start;
		while (start < until) {
			uintptr_t stop = start;
			if (is_kept_chunk(start)) {
				start += PAGE_SIZE;
				continue;
			}
			while (stop < until && !is_kept_chunk(stop)) {
				stop += PAGE_SIZE;
			}
			if (SYS2(SYS_munmap, start, stop - start) != 0) {
				c->doubt_after = REWIND_MAPPINGS;
			}
			start = stop;
		}
		if (k < c->known_count && start >= c->known[k].start) {
			start = c->known[k].end;
		}
	}
}

/*
 * Mappings that libc makes for itself (threads' stacks, libraries, locales) pass no interposed function. They show in
 * the size of the process; then they are found and unmapped. Nothing refers to them: libc's own notes were put back.
 */
void memory_sweep(void)
{
	struct control *c = rewind_control;
	const char *at = read_maps();
	if (at == NULL) {
		c->doubt_after = REWIND_MAPPINGS;
		return;
	}
	c->counters.sweeps++;
	struct line line;
	while (next_line(&at, &line)) {
		if (!named(&line, "[stack]") && !named(&line, "[heap]") && !named(&line, "[v")) {
			unmap_strangers(line.start, line.end);
		}
	}
	long pages = memory_size_pages();
	long expected = c->known_pages + (long)(c->chunk_count * (CHUNK_SIZE / PAGE_SIZE));
	if (pages < expected) {
		c->doubt_after = REWIND_MAPPINGS; /* something of the snapshot is gone */
	}
	/* The stack may have grown, which is harmless. */
	c->known_pages = pages - (long)(c->chunk_count * (CHUNK_SIZE / PAGE_SIZE));
	c->must_sweep = false;
}

static void report_difference(size_t page, uintptr_t at, const char *region)
{
	const struct control *c = rewind_control;
	const uint8_t *copy = c->shadow + page * PAGE_SIZE, *live = (const uint8_t *)at;
	size_t i = 0;
	while (i < PAGE_SIZE && copy[i] == live[i]) {
		i++;
	}
	static const char digits[] = "0123456789abcdef";
	char text[160] = "memory differs from the snapshot at ";
	size_t len = strlen(text);
	for (int shift = 60; shift >= 0; shift -= 4) {
		text[len++] = digits[((at + i) >> shift) & 15];
	}
	memcpy(text + len, c->pages[page] & PAGE_HOT ? " (hot) in " : " in ", c->pages[page] & PAGE_HOT ? 10 : 4);
	len += c->pages[page] & PAGE_HOT ? 10 : 4;
	size_t name = strlen(region);
	memcpy(text + len, region, name);
	text[len + name] = '\0';
	c->verify_report(text);
}

void memory_verify(void)
{
	struct control *c = rewind_control;
	int told = 0;
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		for (uintptr_t at = region->start; at < region->end; at += PAGE_SIZE) {
			size_t page = region->first + (at - region->start) / PAGE_SIZE;
			if (c->pages[page] & PAGE_UNUSED) {
				continue;
			}
			if (memory_page_differs(page, at)) {
				c->doubt_after = REWIND_MEMORY;
				if (told++ < 8 && c->verify_report != NULL) {
					report_difference(page, at, region->name);
				}
			}
		}
	}
}
