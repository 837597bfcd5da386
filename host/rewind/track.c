/*
 * Which pages were written? Two ways of the kernel's behind one face.
 *
 * UFFD: all tracked mappings are registered with a userfaultfd in asynchronous write-protect mode; a write to a
 * protected page costs one fault, which the kernel resolves by itself; PAGEMAP_SCAN lists the pages that are not
 * protected any more. Linux 6.7; Documentation/admin-guide/mm/pagemap.rst and userfaultfd.rst.
 *
 * Soft-dirty: clearing is for the whole process and each page then faults once, so it is done as rarely as the growing
 * set of written pages allows. Documentation/admin-guide/mm/soft-dirty.rst.
 *
 * Runs during the rollback: no libc state is touched.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Newer than Debian 12's kernel headers; the values are the kernel's interface and do not change. */
#define HY_UFFD_USER_MODE_ONLY 1
#define HY_UFFD_WP_UNPOPULATED (1ull << 13)
#define HY_UFFD_WP_ASYNC (1ull << 15)
#define HY_USERFAULTFD_IOC_NEW _IO(0xAA, 0)
struct hy_page_region {
	uint64_t start, end, categories;
};
struct hy_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define HY_PAGEMAP_SCAN _IOWR('f', 16, struct hy_scan)
#define HY_PAGE_IS_WPALLOWED (1ull << 0)
#define HY_PAGE_IS_WRITTEN (1ull << 1)
/* bit 55 of a pagemap entry */
#define SOFT_DIRTY (1ull << 55)

/* Mappings with less than this between them are looked at in one call. */
#define JOIN_GAP (8ul << 20)

static struct hy_page_region *found;
#define FOUND_ROOM 8192u

/*
 * By the system call, or by the device, which no seccomp profile knows: who may open it gets the same (Linux 6.1). What
 * the system call said is the error, for it is what others will want to allow.
 */
static long new_uffd(void)
{
	const long flags = O_CLOEXEC | O_NONBLOCK | HY_UFFD_USER_MODE_ONLY;
	long fd = SYS1(SYS_userfaultfd, flags);
	if (fd >= 0) {
		return fd;
	}
	long device = SYS4(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
	if (device < 0) {
		return fd;
	}
	long made = SYS3(SYS_ioctl, device, HY_USERFAULTFD_IOC_NEW, flags);
	SYS1(SYS_close, device);
	return made >= 0 ? made : fd;
}

static long open_uffd(void)
{
	long fd = new_uffd();
	if (fd < 0) {
		return fd;
	}
	struct uffdio_api api = {.api = UFFD_API, .features = HY_UFFD_WP_ASYNC | HY_UFFD_WP_UNPOPULATED};
	long error = SYS3(SYS_ioctl, fd, UFFDIO_API, &api);
	if (error != 0) {
		SYS1(SYS_close, fd);
		return error;
	}
	return fd;
}

static long scan_range(int pagemap, uintptr_t start, uintptr_t end, struct hy_page_region *to, size_t room,
                       uintptr_t *walked)
{
	struct hy_scan scan = {
	    .size = sizeof scan,
	    .start = start,
	    .end = end,
	    .vec = (uintptr_t)to,
	    .vec_len = room,
	    .category_mask = HY_PAGE_IS_WRITTEN | HY_PAGE_IS_WPALLOWED,
	    .return_mask = HY_PAGE_IS_WRITTEN,
	};
	long n = SYS3(SYS_ioctl, pagemap, HY_PAGEMAP_SCAN, &scan);
	*walked = scan.walk_end;
	return n;
}

long track_open_proc(const char *path, int flags)
{
	long dumpable = SYS1(SYS_prctl, PR_GET_DUMPABLE);
	if (dumpable == 0) {
		SYS2(SYS_prctl, PR_SET_DUMPABLE, 1);
	}
	long fd = SYS4(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
	if (dumpable == 0) {
		SYS2(SYS_prctl, PR_SET_DUMPABLE, 0);
	}
	return fd;
}

static bool uffd_works(char *why, size_t size)
{
	long fd = open_uffd();
	if (fd < 0) {
		snprintf(
		    why, size, "%s",
		    fd == -ENOSYS ? "userfaultfd is not in this kernel; Linux 6.7 or later with CONFIG_USERFAULTFD has it"
		    : fd == -EPERM
		        ? "userfaultfd is forbidden here (a container's seccomp profile, usually): allow that system call, "
		          "or let PHP's user open /dev/userfaultfd"
		    : fd == -EINVAL ? "userfaultfd cannot write-protect asynchronously here; Linux 6.7 or later can"
		                    : strerror((int)-fd));
		return false;
	}
	/* Try the whole of it on a page of our own. */
	bool works = false;
	long pagemap = track_open_proc("/proc/self/pagemap", O_RDONLY);
	uint8_t *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pagemap >= 0 && page != MAP_FAILED) {
		uintptr_t at = (uintptr_t)page, walked;
		struct uffdio_register range = {.range = {at, PAGE_SIZE}, .mode = UFFDIO_REGISTER_MODE_WP};
		struct uffdio_writeprotect protect = {.range = {at, PAGE_SIZE}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
		struct hy_page_region one;
		works = SYS3(SYS_ioctl, fd, UFFDIO_REGISTER, &range) == 0 &&
		        SYS3(SYS_ioctl, fd, UFFDIO_WRITEPROTECT, &protect) == 0 &&
		        scan_range((int)pagemap, at, at + PAGE_SIZE, &one, 1, &walked) == 0;
		if (works) {
			*(volatile uint8_t *)page = 1;
			works = scan_range((int)pagemap, at, at + PAGE_SIZE, &one, 1, &walked) == 1 && one.start == at;
		}
	}
	if (page != MAP_FAILED) {
		munmap(page, PAGE_SIZE);
	}
	if (pagemap >= 0) {
		SYS1(SYS_close, pagemap);
	}
	SYS1(SYS_close, fd);
	if (!works) {
		snprintf(why, size, "%s",
		         pagemap < 0 ? "/proc/self/pagemap cannot be opened: mount /proc in the container"
		                     : "PAGEMAP_SCAN is not in this kernel; Linux 6.7 or later has it");
	}
	return works;
}

static bool soft_dirty_works(void)
{
	bool works = false;
	long pagemap = track_open_proc("/proc/self/pagemap", O_RDONLY);
	long clear = track_open_proc("/proc/self/clear_refs", O_WRONLY);
	uint8_t *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pagemap >= 0 && clear >= 0 && page != MAP_FAILED) {
		volatile uint8_t *byte = page;
		uint64_t entry = 0;
		int64_t offset = (int64_t)((uintptr_t)page / PAGE_SIZE * sizeof entry);
		*byte = 1;
		works = SYS3(SYS_write, clear, "4", 1) == 1 && SYS4(SYS_pread64, pagemap, &entry, sizeof entry, offset) == 8 &&
		        !(entry & SOFT_DIRTY);
		*byte = 2;
		works = works && SYS4(SYS_pread64, pagemap, &entry, sizeof entry, offset) == 8 && (entry & SOFT_DIRTY);
	}
	if (page != MAP_FAILED) {
		munmap(page, PAGE_SIZE);
	}
	if (pagemap >= 0) {
		SYS1(SYS_close, pagemap);
	}
	if (clear >= 0) {
		SYS1(SYS_close, clear);
	}
	return works;
}

enum rewind_tracking rewind_probe(char *why, size_t size)
{
	char reason[200] = "";
	if (sysconf(_SC_PAGESIZE) != (long)PAGE_SIZE) {
		if (why != NULL) {
			snprintf(why, size, "this kernel's pages are not of 4 KB, which are all that can be tracked");
		}
		return REWIND_FORK;
	}
	enum rewind_tracking best = uffd_works(reason, sizeof reason) ? REWIND_UFFD
	                            : soft_dirty_works()              ? REWIND_SOFT_DIRTY
	                                                              : REWIND_FORK;
	if (why != NULL) {
		snprintf(why, size, "%s%s", best == REWIND_UFFD ? "" : reason,
		         best == REWIND_FORK ? "; and this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)" : "");
	}
	return best;
}

/* Above what the work is likely to use, so that its own numbers stay low. */
static int move_up(long fd)
{
	if (fd < 0) {
		return (int)fd;
	}
	long moved = SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, REWIND_OWN_FROM);
	if (moved < 0) {
		return (int)fd;
	}
	SYS1(SYS_close, fd);
	return (int)moved;
}

const char *track_start(enum rewind_tracking tracking)
{
	struct control *c = rewind_control;
	c->tracking = tracking;
	c->uffd = c->clear_refs = -1;
	c->pagemap = move_up(track_open_proc("/proc/self/pagemap", O_RDONLY));
	if (c->pagemap < 0) {
		return "/proc/self/pagemap cannot be opened";
	}
	if (found == NULL && (found = rewind_keep(FOUND_ROOM * sizeof *found)) == NULL) {
		return "no memory for the rewinder";
	}
	if (tracking == REWIND_SOFT_DIRTY) {
		c->clear_refs = move_up(track_open_proc("/proc/self/clear_refs", O_WRONLY));
		return c->clear_refs < 0 ? "/proc/self/clear_refs cannot be opened" : NULL;
	}
	c->uffd = move_up(open_uffd());
	return c->uffd < 0 ? "userfaultfd cannot be opened" : track_register();
}

const char *track_register(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->region_count; i++) {
		struct uffdio_register range = {.range = {c->regions[i].start, c->regions[i].end - c->regions[i].start},
		                                .mode = UFFDIO_REGISTER_MODE_WP};
		if (SYS3(SYS_ioctl, c->uffd, UFFDIO_REGISTER, &range) != 0) {
			return "userfaultfd refuses a mapping of this process";
		}
	}
	return NULL;
}

void track_stop(void)
{
	struct control *c = rewind_control;
	if (c->uffd >= 0) {
		SYS1(SYS_close, c->uffd);
	}
	if (c->pagemap >= 0) {
		SYS1(SYS_close, c->pagemap);
	}
	if (c->clear_refs >= 0) {
		SYS1(SYS_close, c->clear_refs);
	}
	c->uffd = c->pagemap = c->clear_refs = -1;
}

static void add_written(uintptr_t start, uintptr_t end)
{
	struct control *c = rewind_control;
	if (c->written_count > 0 && c->written[c->written_count - 1].end == start) {
		c->written[c->written_count - 1].end = end;
	} else if (c->written_count < c->written_room) {
		c->written[c->written_count++] = (struct rewind_range){start, end};
	} else {
		rewind_die("more written ranges than there are pages", 0);
	}
}

/*
 * The kernel may list ranges twice: when they are more than fit a buffer of its own (512), it begins again before the
 * place where it stopped (seen on Linux 6.18). A page that came twice would count as written by two requests. Only what
 * lies wholly in a range that is known is left out, so nothing can be lost.
 */
static void scan_uffd(uintptr_t start, uintptr_t end)
{
	struct control *c = rewind_control;
	size_t first = c->written_count, known = first;
	uintptr_t before = start, past = start;
	while (start < end) {
		uintptr_t walked = start;
		long n = scan_range(c->pagemap, start, end, found, FOUND_ROOM, &walked);
		if (n < 0 || walked <= start) {
			rewind_die("PAGEMAP_SCAN", n);
		}
		for (long i = 0; i < n; i++) {
			uintptr_t from = found[i].start, to = found[i].end;
			known = from < before ? first : known;
			before = from;
			if (from < past) {
				while (known < c->written_count && c->written[known].end <= from) {
					known++;
				}
				if (known < c->written_count && c->written[known].start <= from && to <= c->written[known].end) {
					continue;
				}
			}
			add_written(from, to);
			past = to > past ? to : past;
		}
		start = walked;
	}
}

static void scan_soft_dirty(uintptr_t start, uintptr_t end)
{
	struct control *c = rewind_control;
	uint64_t *entries = (uint64_t *)(void *)found;
	const size_t room = FOUND_ROOM * sizeof *found / sizeof *entries;
	while (start < end) {
		size_t pages = (end - start) / PAGE_SIZE < room ? (end - start) / PAGE_SIZE : room;
		long n = SYS4(SYS_pread64, c->pagemap, entries, pages * sizeof *entries, start / PAGE_SIZE * sizeof *entries);
		if (n != (long)(pages * sizeof *entries)) {
			rewind_die("reading /proc/self/pagemap", n);
		}
		for (size_t i = 0; i < pages; i++) {
			if (entries[i] & SOFT_DIRTY) {
				add_written(start + i * PAGE_SIZE, start + (i + 1) * PAGE_SIZE);
			}
		}
		start += pages * PAGE_SIZE;
	}
}

void track_scan(void)
{
	struct control *c = rewind_control;
	c->written_count = 0;
	for (size_t i = 0; i < c->region_count;) {
		size_t last = i;
		if (c->tracking == REWIND_SOFT_DIRTY) {
			scan_soft_dirty(c->regions[i].start, c->regions[i].end);
		} else {
			while (last + 1 < c->region_count && c->regions[last + 1].start - c->regions[last].end < JOIN_GAP) {
				last++;
			}
			scan_uffd(c->regions[i].start, c->regions[last].end);
		}
		i = last + 1;
	}
}

void track_protect(uintptr_t start, uintptr_t end)
{
	struct control *c = rewind_control;
	if (c->tracking != REWIND_UFFD) {
		return; /* only all at once */
	}
	struct uffdio_writeprotect protect = {.range = {start, end - start}, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	long error = SYS3(SYS_ioctl, c->uffd, UFFDIO_WRITEPROTECT, &protect);
	if (error != 0) {
		rewind_die("UFFDIO_WRITEPROTECT", error);
	}
}

void track_protect_all(void)
{
	struct control *c = rewind_control;
	if (c->tracking == REWIND_SOFT_DIRTY) {
		long n = SYS3(SYS_write, c->clear_refs, "4", 1);
		if (n != 1) {
			rewind_die("clearing soft-dirty bits", n);
		}
		return;
	}
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		size_t pages = (region->end - region->start) / PAGE_SIZE;
		for (size_t p = 0; p < pages;) {
			size_t from = p;
			while (p < pages && !(c->pages[region->first + p] & (PAGE_UNUSED | PAGE_HOT))) {
				p++;
			}
			if (p > from) {
				track_protect(region->start + from * PAGE_SIZE, region->start + p * PAGE_SIZE);
			}
			while (p < pages && c->pages[region->first + p] & (PAGE_UNUSED | PAGE_HOT)) {
				p++;
			}
		}
	}
}
