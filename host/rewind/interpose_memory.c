/*
 * Mappings: what was made since the point goes again, what the snapshot has stays as it is.
 */
#include "interpose.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>

/* Not in all headers; the last two are of Linux 6.13 */
#define HY_MADV_SOFT_OFFLINE 101
#define HY_MADV_DONTNEED_LOCKED 24
#define HY_MADV_GUARD_INSTALL 102
#define HY_MADV_GUARD_REMOVE 103

static uintptr_t page_up(uintptr_t at)
{
	return (at + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1);
}

static void note_made(struct control *c, uintptr_t start, size_t len, bool chunk)
{
	if (c->made_count == MAX_MAPPINGS) {
		c->must_sweep = true; /* too many to note one by one */
		return;
	}
	c->made[c->made_count++] = (struct made){start, start + page_up(len), chunk};
}

/* The note of a mapping made since the point that covers all of [start, end). */
static struct made *find_made(struct control *c, uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < c->made_count; i++) {
		if (start >= c->made[i].start && end <= c->made[i].end) {
			return &c->made[i];
		}
	}
	return NULL;
}

/* Takes [start, end) out of a note; what is left of it before and behind stays noted. */
static void forget_made(struct control *c, struct made *note, uintptr_t start, uintptr_t end)
{
	struct made was = *note;
	*note = c->made[--c->made_count];
	if (was.start < start) {
		note_made(c, was.start, start - was.start, false);
	}
	if (end < was.end) {
		note_made(c, end, was.end - end, false);
	}
}

void interpose_changing_memory(uintptr_t start, uintptr_t end)
{
	struct control *c = watching();
	if (c != NULL && memory_is_known(start, end)) {
		c->doubt = REWIND_MAPPINGS;
	}
}

/* A chunk that is not any more what ZendMM asked for must not be handed out again. */
static void spoil_chunks(struct control *c, uintptr_t start, uintptr_t end)
{
	for (size_t i = 0; i < c->made_count; i++) {
		if (start < c->made[i].end && end > c->made[i].start) {
			c->made[i].chunk = false;
		}
	}
}

/* ZendMM asks for chunks of this size all the time and counts on zeros in the first page only; nobody else in libphp
 * maps just so much. */
static bool is_chunk_request(const struct control *c, const void *at, size_t len, int protection, int flags,
                             uintptr_t caller)
{
	return at == NULL && len == CHUNK_SIZE && protection == (PROT_READ | PROT_WRITE) &&
	       flags == (MAP_PRIVATE | MAP_ANONYMOUS) && caller >= c->libphp_low && caller < c->libphp_high;
}

/* At an address that is a multiple of the size, as ZendMM needs it. */
static uintptr_t map_chunk(void)
{
	uintptr_t at =
	    (uintptr_t)syscall(SYS_mmap, NULL, 2 * CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if ((void *)at == MAP_FAILED) {
		return at;
	}
	uintptr_t chunk = (at + CHUNK_SIZE - 1) & ~(CHUNK_SIZE - 1);
	if (chunk > at) {
		syscall(SYS_munmap, at, chunk - at);
	}
	syscall(SYS_munmap, chunk + CHUNK_SIZE, at + CHUNK_SIZE - chunk);
	return chunk;
}

EXPORT void *mmap(void *at, size_t len, int protection, int flags, int fd, off_t offset)
{
	struct control *c = watching();
	if (c == NULL) {
		if ((flags & MAP_TYPE) != MAP_PRIVATE && protection & PROT_WRITE) {
			openings_wrote(fd); /* by memory, whenever it likes */
		}
		return (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset);
	}
	if (is_chunk_request(c, at, len, protection, flags, (uintptr_t)__builtin_return_address(0))) {
		bool kept = c->chunk_count > 0;
		uintptr_t chunk = kept ? c->chunks[--c->chunk_count] : map_chunk();
		if (kept) {
			/* Of a new chunk's header ZendMM writes only what is not zero. */
			memset((void *)chunk, 0, PAGE_SIZE);
		}
		if ((void *)chunk != MAP_FAILED) {
			note_made(c, chunk, CHUNK_SIZE, true);
		}
		return (void *)chunk;
	}
	if (flags & MAP_FIXED) {
		interpose_changing_memory((uintptr_t)at, (uintptr_t)at + page_up(len));
		spoil_chunks(c, (uintptr_t)at, (uintptr_t)at + page_up(len));
		for (size_t i = 0; i < c->chunk_count; i++) {
			if ((uintptr_t)at < c->chunks[i] + CHUNK_SIZE && (uintptr_t)at + page_up(len) > c->chunks[i]) {
				c->doubt = REWIND_MAPPINGS; /* one that was given back already */
			}
		}
	}
	if ((flags & MAP_TYPE) != MAP_PRIVATE && protection & PROT_WRITE) {
		interpose_writing(fd); /* by memory, whenever it likes */
	}
	void *result = (void *)syscall(SYS_mmap, at, len, protection, flags, fd, offset);
	if (result != MAP_FAILED && find_made(c, (uintptr_t)result, (uintptr_t)result + page_up(len)) == NULL) {
		note_made(c, (uintptr_t)result, len, false);
	}
	return result;
}
EXPORT void *mmap64(void *at, size_t len, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

EXPORT int munmap(void *at, size_t len)
{
	struct control *c = watching();
	uintptr_t start = (uintptr_t)at, end = start + page_up(len);
	if (c != NULL && start % PAGE_SIZE == 0 && len != 0) {
		struct made *note = find_made(c, start, end);
		if (note == NULL && memory_is_known(start, end)) {
			/* Unmapped memory of the snapshot could not be put back; it stays, unused, until the rewind. */
			return 0;
		}
		if (note != NULL) {
			bool chunk = note->chunk && note->start == start && note->end == end;
			forget_made(c, note, start, end);
			if (chunk && c->chunk_count < MAX_CHUNKS) {
				c->chunks[c->chunk_count++] = start;
				return 0;
			}
		}
	}
	return (int)syscall(SYS_munmap, at, len);
}

EXPORT void *mremap(void *at, size_t old_len, size_t new_len, int flags, ...)
{
	struct control *c = watching();
	void *to = NULL;
	if (flags & MREMAP_FIXED) {
		va_list rest;
		va_start(rest, flags);
		to = va_arg(rest, void *);
		va_end(rest);
	}
	uintptr_t start = (uintptr_t)at;
	if (c != NULL && memory_is_known(start, start + page_up(old_len))) {
		errno = ENOMEM; /* the caller copies instead, as it does where memory is short */
		return MAP_FAILED;
	}
	if (c != NULL && to != NULL && memory_is_known((uintptr_t)to, (uintptr_t)to + page_up(new_len))) {
		c->doubt = REWIND_MAPPINGS;
	}
	if (c != NULL) {
		spoil_chunks(c, start, start + page_up(old_len));
		spoil_chunks(c, (uintptr_t)to, to == NULL ? 0 : (uintptr_t)to + page_up(new_len));
	}
	void *result = (void *)syscall(SYS_mremap, at, old_len, new_len, flags, to);
	if (c != NULL && result != MAP_FAILED) {
		struct made *note = find_made(c, start, start + page_up(old_len));
		if (note != NULL && !(flags & MREMAP_DONTUNMAP)) {
			forget_made(c, note, start, start + page_up(old_len));
		}
		note_made(c, (uintptr_t)result, new_len, false);
	}
	return result;
}

/* What was sealed has no copy, and what is written once it is not any more could not be put back. Shared memory is left
 * out: OPcache opens and closes that of its machine code. */
static void note_protection(uintptr_t start, uintptr_t end)
{
	struct control *c = watching();
	if (c == NULL) {
		return;
	}
	bool doubtful = memory_is_sealed(start, end);
	for (size_t i = 0; i < c->region_count; i++) {
		doubtful |= start < c->regions[i].end && end > c->regions[i].start;
	}
	if (doubtful) {
		c->doubt = REWIND_MAPPINGS;
	}
	spoil_chunks(c, start, end);
}

EXPORT int mprotect(void *at, size_t len, int protection)
{
	note_protection((uintptr_t)at, (uintptr_t)at + page_up(len));
	return (int)syscall(SYS_mprotect, at, len, protection);
}

EXPORT int pkey_mprotect(void *at, size_t len, int protection, int key)
{
	note_protection((uintptr_t)at, (uintptr_t)at + page_up(len));
	return (int)syscall(SYS_pkey_mprotect, at, len, protection, key);
}

/* A page that is thrown away changes without having been written; so it is written. */
static void touch(uintptr_t start, uintptr_t end)
{
	for (uintptr_t at = start & ~(PAGE_SIZE - 1); at < end; at += PAGE_SIZE) {
		if (memory_find(at) != SIZE_MAX) {
			volatile uint8_t *byte = (volatile uint8_t *)at;
			*byte = *byte;
		}
	}
}

EXPORT int madvise(void *at, size_t len, int advice)
{
	struct control *c = watching();
	uintptr_t start = (uintptr_t)at, end = start + page_up(len);
	int result = (int)syscall(SYS_madvise, at, len, advice);
	if (c == NULL || result != 0) {
		return result;
	}
	switch (advice) {
	case MADV_DONTNEED:
	case HY_MADV_DONTNEED_LOCKED:
	case MADV_FREE:
		/* Where the worker is replaced anyway, the pages may be closed to it. */
		if (c->doubt == REWIND_SURE) {
			touch(start, (uintptr_t)at + len);
		}
		break;
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_HUGEPAGE:
	case MADV_HWPOISON:
	case HY_MADV_SOFT_OFFLINE:
	case HY_MADV_GUARD_INSTALL:
	case HY_MADV_GUARD_REMOVE:
		interpose_changing_memory(start, end);
		spoil_chunks(c, start, end);
		break;
	default:
		break; /* how it is likely to be used, or what belongs into a dump */
	}
	return result;
}

/* From Linux 6.13 on a process may give itself all kinds of advice by this way. */
EXPORT ssize_t process_madvise(int pidfd, const struct iovec *ranges, size_t count, int advice, unsigned flags)
{
	struct control *c = watching();
	if (c != NULL && advice != MADV_COLD && advice != MADV_PAGEOUT && advice != MADV_WILLNEED) {
		c->doubt = REWIND_MAPPINGS;
	}
	return syscall(SYS_process_madvise, pidfd, ranges, count, advice, flags);
}

/* System V shared memory. */

EXPORT void *shmat(int id, const void *at, int flags)
{
	struct control *c = watching();
	struct shmid_ds segment;
	size_t size = c != NULL && syscall(SYS_shmctl, id, IPC_STAT, &segment) == 0 ? segment.shm_segsz : 0;
	if (flags & SHM_REMAP) {
		interpose_changing_memory((uintptr_t)at, (uintptr_t)at + page_up(size == 0 ? 1 : size));
	}
	void *result = (void *)syscall(SYS_shmat, id, at, flags);
	if (c != NULL && result != MAP_FAILED) {
		if (size != 0) {
			note_made(c, (uintptr_t)result, size, false);
		} else {
			c->must_sweep = true; /* its size is a secret of its owner */
		}
	}
	return result;
}

EXPORT int shmdt(const void *at)
{
	struct control *c = watching();
	uintptr_t start = (uintptr_t)at;
	struct made *note = c == NULL ? NULL : find_made(c, start, start + 1);
	if (c != NULL && note == NULL && memory_is_known(start, start + 1)) {
		return 0; /* it stays until the rewind, as what is unmapped */
	}
	int result = (int)syscall(SYS_shmdt, at);
	if (note != NULL && result == 0) {
		forget_made(c, note, note->start, note->end);
	}
	return result;
}
