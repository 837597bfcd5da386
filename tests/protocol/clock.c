/* Loaded before libc: the clock on the wall, shifted by as many seconds as the file $CLOCK_SHIFT holds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shift;

__attribute__((constructor)) static void start(void)
{
	const char *name = getenv("CLOCK_SHIFT");
	int fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
	void *file = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	shift = file == MAP_FAILED ? NULL : file;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = (int)syscall(SYS_clock_gettime, clock, now);
	if (failed == 0 && shift != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		now->tv_sec += *shift;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec exact;
	clock_gettime(CLOCK_REALTIME, &exact);
	*now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *to)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (to != NULL) {
		*to = now.tv_sec;
	}
	return now.tv_sec;
}
