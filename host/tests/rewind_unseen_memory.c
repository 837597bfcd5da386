/*
 * Attacks on memory of the boot: the kernel writes to it, or it is mapped, moved, unmapped, protected.
 */
#include "rewind_unseen.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>

/* Newer than some headers. */
#define HY_MADV_POPULATE_WRITE 23
#define HY_MADV_COLLAPSE 25
#define HY_MADV_GUARD_INSTALL 102

/* The kernel writes. */

static void read_into(void)
{
	need(pread(file, area + 3 * PAGE + 5, 100, 0) == 100, "pread");
}

static void write_to_itself(void)
{
	char text[] = "written by process_vm_writev";
	struct iovec from = {text, sizeof text}, to = {area + 4 * PAGE, sizeof text};
	need(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof text, "process_vm_writev");
}

static void open_own_memory(void)
{
	int fd = open("/proc/self/mem", O_RDWR);
	need(fd >= 0 && pwrite(fd, "x", 1, (off_t)(uintptr_t)area) == 1, "/proc/self/mem");
}

static void advise(int advice)
{
	if (madvise(area + PAGE, 3 * PAGE, advice) != 0) {
		leave_out(strerror(errno));
	}
}
static void discard(void)
{
	advise(MADV_DONTNEED);
}
static void free_lazily(void)
{
	advise(MADV_FREE);
}
static void populate(void)
{
	advise(HY_MADV_POPULATE_WRITE);
}
static void page_out(void)
{
	advise(MADV_PAGEOUT);
	area[2 * PAGE]++;
}
static void no_fork(void)
{
	advise(MADV_DONTFORK);
}
static void wipe(void)
{
	advise(MADV_WIPEONFORK);
}
static void guard(void)
{
	advise(HY_MADV_GUARD_INSTALL);
}
static void advise_by_pidfd(void)
{
	struct iovec range = {area, PAGE};
	process_madvise(-1, &range, 1, MADV_DONTNEED, 0);
}
static void collapse(void)
{
	/* It may be refused; either way each 4 KiB are tracked. */
	madvise(large, LARGE, HY_MADV_COLLAPSE);
	large[PAGE]++;
}
static void close_and_discard(void)
{
	need(mprotect(area, 4 * PAGE, PROT_NONE) == 0 && madvise(area, 4 * PAGE, MADV_DONTNEED) == 0, "madvise");
}

/* Mappings. */

static void map_over(void)
{
	need(mmap(area, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED, "mmap");
}
static void attach_over(void)
{
	need(shmat(notes->shared, area, SHM_REMAP) == area, "shmat");
}
static void attach(void)
{
	uint8_t *at = shmat(notes->shared, NULL, 0);
	need(at != (void *)-1, "shmat");
	at[0]++;
}
static void detach(void)
{
	shmdt(attached);
}
static void move_over(void)
{
	void *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area) == area, "mremap");
}
static void move_away(void)
{
	if (mremap(area, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED) {
		wrong("memory of the snapshot was moved");
	}
}
static void move_and_keep(void)
{
	uint8_t *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	own[0] = 1;
	need(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED, "mremap");
}
static void turn_pages(void)
{
	/* Of shared mappings only. */
	if (remap_file_pages(area, PAGE, 0, 1, 0) == 0) {
		wrong("private memory was turned");
	}
}
static void unmap(void)
{
	need(munmap(area, 2 * PAGE) == 0, "munmap");
}
static void protect(void)
{
	need(mprotect(area, PAGE, PROT_READ) == 0, "mprotect");
}
static void lower_break(void)
{
	void *now = sbrk(0);
	need(sbrk(-(intptr_t)PAGE) != (void *)-1 && brk(now) == 0, "brk");
}
static void set_break(void)
{
	uint8_t *now = sbrk(0);
	need(brk(now - PAGE) == 0, "brk");
}
static void trim(void)
{
	mallopt(M_TRIM_THRESHOLD, 0);
	free(block);
	malloc_trim(0);
	block = malloc(1 << 20);
	memset(block, 1, 1 << 20);
}
void *write_in_thread(void *at)
{
	volatile uint8_t deep[100000];
	memset((void *)deep, 3, sizeof deep);
	*(uint8_t *)at = deep[17];
	return NULL;
}
static void run_thread(void)
{
	pthread_t id;
	need(pthread_create(&id, NULL, write_in_thread, area + 5 * PAGE) == 0, "pthread_create");
	pthread_join(id, NULL);
}
static void grow_stack(void)
{
	volatile uint8_t deep[3 << 20];
	for (size_t i = 0; i < sizeof deep; i += PAGE) {
		deep[i] = 1;
	}
	area[0] = deep[PAGE];
}

const struct attack attacks_of_memory[] = {
    {"read into", read_into, REWIND_SURE},
    {"process_vm_writev", write_to_itself, REWIND_SURE},
    {"/proc/self/mem", open_own_memory, REWIND_PROCESS},
    {"MADV_DONTNEED", discard, REWIND_SURE},
    {"MADV_FREE", free_lazily, REWIND_SURE},
    {"MADV_POPULATE_WRITE", populate, REWIND_SURE},
    {"MADV_PAGEOUT", page_out, REWIND_SURE},
    {"MADV_DONTFORK", no_fork, REWIND_MAPPINGS},
    {"MADV_WIPEONFORK", wipe, REWIND_MAPPINGS},
    {"MADV_GUARD_INSTALL", guard, REWIND_MAPPINGS},
    {"process_madvise", advise_by_pidfd, REWIND_MAPPINGS},
    {"MADV_COLLAPSE", collapse, REWIND_SURE},
    {"PROT_NONE and MADV_DONTNEED", close_and_discard, REWIND_MAPPINGS},
    {"MAP_FIXED", map_over, REWIND_MAPPINGS},
    {"SHM_REMAP", attach_over, REWIND_MAPPINGS},
    {"shmat", attach, REWIND_SURE},
    {"shmdt", detach, REWIND_SURE},
    {"MREMAP_FIXED", move_over, REWIND_MAPPINGS},
    {"mremap", move_away, REWIND_SURE},
    {"MREMAP_DONTUNMAP", move_and_keep, REWIND_SURE},
    {"remap_file_pages", turn_pages, REWIND_SURE},
    {"munmap", unmap, REWIND_SURE},
    {"mprotect", protect, REWIND_MAPPINGS},
    {"sbrk", lower_break, REWIND_MAPPINGS},
    {"brk", set_break, REWIND_MAPPINGS},
    {"malloc_trim", trim, REWIND_SURE},
    {"thread", run_thread, REWIND_SURE},
    {"stack", grow_stack, REWIND_SURE},
    {0},
};
