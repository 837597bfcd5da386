/*
 * What is found before a snapshot, or between a fork and the tracking of the child.
 */
#include "rewind_unseen.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void memory_that_no_child_has(enum rewind_tracking tracking)
{
	make_state();
	if (rewind_loses_memory()) {
		wrong("nothing was lost");
	}
	need(madvise(area, PAGE, MADV_DONTFORK) == 0 && rewind_loses_memory(), "MADV_DONTFORK");
}

static void file_that_ends_early(enum rewind_tracking tracking)
{
	make_state();
	if (madvise(area, PAGE, 22) != 0) {
		leave_out("no MADV_POPULATE_READ"); /* Linux 5.14 */
	}
	need(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) != MAP_FAILED, "mmap");
	if (rewind_snapshot(tracking, NULL, 0) == NULL) {
		wrong("memory was copied that does not exist");
	}
}

static void huge_pages(enum rewind_tracking tracking)
{
	if (mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED) {
		leave_out("no huge pages are set aside");
	}
	make_state();
	if (rewind_snapshot(tracking, NULL, 0) == NULL) {
		wrong("huge pages were taken for small ones");
	}
}

static void no_room_for_a_snapshot(enum rewind_tracking tracking)
{
	make_state();
	struct rlimit limit;
	need(mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED &&
	         getrlimit(RLIMIT_AS, &limit) == 0,
	     "mmap");
	long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	need(statm != NULL && fscanf(statm, "%ld", &pages) == 1, "/proc/self/statm");
	fclose(statm);
	limit.rlim_cur = (rlim_t)pages * PAGE + (32 << 20);
	need(setrlimit(RLIMIT_AS, &limit) == 0, "RLIMIT_AS");
	const char *failed = rewind_snapshot(tracking, NULL, 0);
	if (failed == NULL || strcmp(failed, "no memory for the snapshot") != 0) {
		wrong(failed == NULL ? "there was room" : failed);
	}
	/* As each request does, which is served by a fork then. */
	rewind_amend(area, "8", 1);
	need(area[0] == '8', "rewind_amend");
}

static bool is_swapped(const void *at)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	need(pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)at / PAGE * sizeof entry)) == sizeof entry, "pagemap");
	close(fd);
	return entry >> 62 & 1;
}

static void swapped_before_tracking(enum rewind_tracking tracking)
{
	make_state();
	rewind_verify(1, tell);
	const char *failed = rewind_snapshot(tracking, NULL, 0);
	if (failed != NULL) {
		wrong(failed);
	}
	rewind_noticed();
	pid_t pid = fork();
	if (pid == 0) {
		/* What a handler of fork() may write. */
		area[3 * PAGE] = 8;
		madvise(area, PAGES * PAGE, MADV_PAGEOUT);
		if (!is_swapped(area + 3 * PAGE)) {
			_exit(LEFT_OUT);
		}
		failed = rewind_adopt();
		if (failed != NULL) {
			wrong(failed);
		}
		long passed = rewind_point();
		if (passed < 0) {
			wrong(rewind_error());
		}
		if (area[3 * PAGE] != 8) {
			wrong("what was written before the tracking is not part of the snapshot");
		}
		if (passed == TIMES) {
			_exit(0);
		}
		area[3 * PAGE]++;
		rewind_back();
	}
	int status = 0;
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == LEFT_OUT) {
		leave_out("no swap");
	}
	need(status == 0, "the child");
}

const struct look looks_before[] = {
    {"fork without memory", memory_that_no_child_has},
    {"file that ends early", file_that_ends_early},
    {"huge pages", huge_pages},
    {"no room for a snapshot", no_room_for_a_snapshot},
    {"swapped before tracking", swapped_before_tracking},
    {0},
};
