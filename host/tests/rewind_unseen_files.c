/*
 * Ways to write to a file of the boot that is watched: each is seen, and none that only reads is taken for one.
 */
#include "rewind_unseen.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[] = "/tmp/rewind_unseen.XXXXXX";
/* Of the same file: two of the boot, and another file to copy from. */
static int own, second, source;

static void by_write(void)
{
	need(write(own, "x", 1) == 1, "write");
}
static void by_second(void)
{
	need(write(second, "x", 1) == 1, "write");
}
static void by_pwrite(void)
{
	need(pwrite(own, "x", 1, 5) == 1, "pwrite");
}
static void by_pwritev(void)
{
	struct iovec part = {"x", 1};
	need(pwritev(own, &part, 1, 7) == 1 && pread(own, (char[1]){0}, 1, 7) == 1, "pwritev");
}
static void by_pwritev2(void)
{
	struct iovec part = {"y", 1};
	char is = 0;
	need(pwritev2(own, &part, 1, 9, 0) == 1 && pread(own, &is, 1, 9) == 1 && is == 'y', "pwritev2");
}
static void by_ftruncate(void)
{
	need(ftruncate(own, 50) == 0, "ftruncate");
}
static void by_truncate(void)
{
	need(truncate(path, 50) == 0, "truncate");
}
static void by_copying(void)
{
	need(copy_file_range(source, &(off64_t){0}, own, &(off64_t){0}, 10, 0) == 10, "copy_file_range");
}
static void by_sendfile(void)
{
	need(sendfile(own, source, &(off_t){0}, 10) == 10, "sendfile");
}
static void by_fallocate(void)
{
	need(posix_fallocate(own, 0, 200) == 0, "posix_fallocate");
}
static void by_name(void)
{
	need(open(path, O_WRONLY | O_APPEND) >= 0, "open");
}
static void by_emptying(void)
{
	need(open(path, O_RDONLY | O_TRUNC) >= 0, "open");
}
static void by_fopen(void)
{
	need(fopen(path, "a") != NULL, "fopen");
}
static void by_fdopen(void)
{
	need(fdopen(own, "r+") != NULL, "fdopen");
}
static void by_duplicate(void)
{
	need(dup(own) >= 0, "dup");
}
static void by_duplicate_fcntl(void)
{
	need(fcntl(own, F_DUPFD, 100) >= 0, "F_DUPFD");
}
static void by_mapping(void)
{
	need(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0) != MAP_FAILED, "mmap");
}
static void by_number(void)
{
	need(syscall(SYS_pwrite64, own, "x", 1, 0) == 1, "pwrite64");
}
static void by_reading(void)
{
	char to[10];
	need(pread(own, to, 10, 0) == 10 && open(path, O_RDONLY) >= 0 && fopen(path, "r") != NULL &&
	         mmap(NULL, PAGE, PROT_READ, MAP_SHARED, own, 0) != MAP_FAILED &&
	         mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, own, 0) != MAP_FAILED &&
	         write(source, "x", 1) == 1 && lseek(own, 0, SEEK_SET) == 0,
	     "reading");
}

static void ways_to_write(enum rewind_tracking tracking)
{
	static const struct {
		const char *name;
		void (*act)(void);
		bool writes;
	} ways[] = {
	    {"write", by_write, true},       {"a second descriptor", by_second, true},
	    {"pwrite", by_pwrite, true},     {"pwritev", by_pwritev, true},
	    {"pwritev2", by_pwritev2, true}, {"ftruncate", by_ftruncate, true},
	    {"truncate", by_truncate, true}, {"copy_file_range", by_copying, true},
	    {"sendfile", by_sendfile, true}, {"posix_fallocate", by_fallocate, true},
	    {"its name", by_name, true},     {"O_TRUNC", by_emptying, true},
	    {"fopen", by_fopen, true},       {"fdopen", by_fdopen, true},
	    {"dup", by_duplicate, true},     {"F_DUPFD", by_duplicate_fcntl, true},
	    {"mmap", by_mapping, true},      {"a number", by_number, true},
	    {"reading", by_reading, false},
	};
	char text[200], other[] = "/tmp/rewind_unseen.XXXXXX";
	struct stat st;
	memset(text, 'f', sizeof text);
	own = mkstemp(path);
	source = mkstemp(other);
	second = open(path, O_RDWR);
	need(own >= 0 && source >= 0 && second >= 0 && unlink(other) == 0 && fstat(own, &st) == 0, "mkstemp");
	bool failed = false;
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		need(pwrite(own, text, sizeof text, 0) == sizeof text && pwrite(source, text, sizeof text, 0) == sizeof text,
		     "pwrite");
		pid_t pid = fork();
		if (pid == 0) {
			need(rewind_was_written(&st) && rewind_watch_file(&st), "rewind_watch_file");
			const char *no = rewind_watch();
			if (no != NULL || rewind_was_written(&st)) {
				wrong(no != NULL ? no : "nobody has written yet");
			}
			ways[i].act();
			_exit(rewind_was_written(&st) == ways[i].writes ? 0 : 2);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (status != 0) {
			fprintf(stderr, "%s: %s\n", ways[i].name, ways[i].writes ? "not seen" : "taken for writing");
			failed = true;
		}
	}
	unlink(path);
	if (failed) {
		wrong("writing to a watched file");
	}
}

const struct look looks_at_files[] = {
    {"ways to write to a file", ways_to_write},
    {0},
};
