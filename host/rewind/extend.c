/*
 * A process's own addition to the snapshot that it shares: before its point it may do some work of its own, and what
 * that wrote or mapped becomes part of what rewinds put back. The copies of all other pages stay shared.
 *
 * Which pages those are, the kernel says: every page of the snapshot was protected when the process was forked, and a
 * page that has lost that mark was written, thrown away or mapped anew. Pages that meant nothing at the snapshot bear
 * no mark, so they count as written unless they mean nothing now either.
 */
#include "internal.h"

#include <string.h>
#include <sys/mman.h>

/* bit 57 of a pagemap entry: protected through userfaultfd (Documentation/admin-guide/mm/pagemap.rst) */
#define BATCH 512

/* The snapshot as it was, while there is a new one. */
struct former {
	struct region regions[MAX_REGIONS];
	size_t region_count, page_count;
};

/* The first of the former regions that ends behind `at`; NULL: there is none. */
static const struct region *former_behind(const struct former *former, uintptr_t at)
{
	size_t low = 0, high = former->region_count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (former->regions[middle].end <= at) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low < former->region_count ? &former->regions[low] : NULL;
}

/*
 * The regions of now, cut where the former ones begin and end: a page that was part of the snapshot keeps its number,
 * and with it its copy; others get numbers behind those. False when they are too many.
 */
static bool number_regions(const struct former *former, struct region *fresh)
{
	struct control *c = rewind_control;
	size_t fresh_count = c->region_count;
	memcpy(fresh, c->regions, fresh_count * sizeof *fresh);
	c->region_count = 0;
	c->page_count = former->page_count;
	for (size_t i = 0; i < fresh_count; i++) {
		for (uintptr_t at = fresh[i].start; at < fresh[i].end;) {
			const struct region *was = former_behind(former, at);
			bool known = was != NULL && was->start <= at;
			uintptr_t end = was == NULL ? fresh[i].end : known ? was->end : was->start;
			end = end < fresh[i].end ? end : fresh[i].end;
			if (c->region_count == MAX_REGIONS) {
				return false;
			}
			struct region *region = &c->regions[c->region_count++];
			*region = fresh[i];
			region->start = at;
			region->end = end;
			region->first = known ? was->first + (at - was->start) / PAGE_SIZE : c->page_count;
			c->page_count += known ? 0 : (end - at) / PAGE_SIZE;
			at = end;
		}
	}
	return true;
}

/* Marks what differs from the former snapshot. NULL, or what failed. */
static const char *mark_changed_pages(size_t former_pages)
{
	struct control *c = rewind_control;
	uint64_t entries[BATCH];
	for (size_t i = 0; i < c->region_count; i++) {
		const struct region *region = &c->regions[i];
		size_t pages = (region->end - region->start) / PAGE_SIZE;
		for (size_t done = 0; done < pages; done += BATCH) {
			size_t batch = pages - done < BATCH ? pages - done : BATCH;
			long n = SYS4(SYS_pread64, c->pagemap, entries, batch * sizeof *entries,
			              (region->start / PAGE_SIZE + done) * sizeof *entries);
			if (n != (long)(batch * sizeof *entries)) {
				return "/proc/self/pagemap cannot be read";
			}
			for (size_t p = 0; p < batch; p++) {
				size_t page = region->first + done + p;
				bool unused = c->pages[page] & PAGE_UNUSED;
				if (page >= former_pages || unused || !(entries[p] & PAGEMAP_PROTECTED)) {
					c->pages[page] = PAGE_CHANGED;
				}
			}
		}
	}
	return NULL;
}

/* Notes for so many pages as there are now, and room for their copies behind those that there are. */
static const char *make_room(size_t former_pages)
{
	struct control *c = rewind_control;
	uint8_t *pages = rewind_keep(c->page_count);
	uint8_t *shadow = rewind_keep(c->page_count * PAGE_SIZE);
	c->streaks = rewind_keep(c->page_count);
	c->patience = rewind_keep(c->page_count);
	c->cold_at = rewind_keep(c->page_count * sizeof *c->cold_at);
	c->hot = rewind_keep(c->page_count * sizeof *c->hot);
	c->written_room = c->page_count + 1;
	c->written = rewind_keep(c->written_room * sizeof *c->written);
	if (pages == NULL || shadow == NULL || c->streaks == NULL || c->patience == NULL || c->cold_at == NULL ||
	    c->hot == NULL || c->written == NULL) {
		return "no memory for the snapshot";
	}
	memcpy(pages, c->pages, former_pages);
	size_t size = former_pages * PAGE_SIZE;
	long moved =
	    sys6(SYS_mremap, (long)c->shadow, (long)size, (long)size, MREMAP_MAYMOVE | MREMAP_FIXED, (long)shadow, 0);
	if (moved != (long)shadow) {
		return "the copy of the memory cannot be moved";
	}
	c->pages = pages;
	c->shadow = shadow;
	return NULL;
}

const char *rewind_extend(const struct rewind_range *unused, size_t unused_count)
{
	struct control *c = rewind_control;
	struct former *former = rewind_keep(sizeof *former);
	struct region *fresh = rewind_keep(sizeof c->regions);
	if (c->tracking != REWIND_UFFD) {
		return "a snapshot can be extended only where writes are tracked through userfaultfd";
	}
	if (former == NULL || fresh == NULL || !rewind_pin_libraries()) {
		return "no memory for the rewinder";
	}
	memcpy(former->regions, c->regions, c->region_count * sizeof *c->regions);
	former->region_count = c->region_count;
	former->page_count = c->page_count;
	const char *wrong = memory_read_regions();
	if (wrong == NULL && !number_regions(former, fresh)) {
		wrong = "the process has more mappings than the rewinder can keep";
	}
	wrong = wrong != NULL ? wrong : make_room(former->page_count);
	wrong = wrong != NULL ? wrong : mark_changed_pages(former->page_count);
	if (wrong != NULL) {
		return wrong;
	}
	memory_mark_unused(unused, unused_count);
	SYS2(SYS_munmap, former, sizeof *former);
	SYS2(SYS_munmap, fresh, sizeof c->regions);
	return track_register();
}
