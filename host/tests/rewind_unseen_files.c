/*
 * Ways to write to a file: of one that is watched each is seen, and none that only reads is taken for one; of one that
 * was emptied before the point it is known what was written, or that it is not.
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

static const struct {
	const char *name;
	void (*act)(void);
	bool writes, followed; /* followed: before the point it is known what it writes */
} ways[] = {
    {"write", by_write, true, true},        {"a second descriptor", by_second, true, true},
    {"pwrite", by_pwrite, true, true},      {"pwritev", by_pwritev, true, false},
    {"pwritev2", by_pwritev2, true, false}, {"ftruncate", by_ftruncate, true, true},
    {"truncate", by_truncate, true, true},  {"copy_file_range", by_copying, true, false},
    {"sendfile", by_sendfile, true, false}, {"posix_fallocate", by_fallocate, true, false},
    {"its name", by_name, true, true},      {"O_TRUNC", by_emptying, true, true},
    {"fopen", by_fopen, true, false},       {"fdopen", by_fdopen, true, false},
    {"dup", by_duplicate, true, true},      {"F_DUPFD", by_duplicate_fcntl, true, true},
    {"mmap", by_mapping, true, false},      {"a number", by_number, true, false},
    {"reading", by_reading, false, true},
};

static void ways_to_write(enum rewind_tracking tracking)
{
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

static bool is_left(int fd, const char *bytes, size_t size)
{
	size_t left_size = 0;
	const uint8_t *left = rewind_left_in(fd, &left_size);
	return left != NULL && left_size == size && memcmp(left, bytes, size) == 0;
}

/* A process that did not empty the file, and is no child of one that has: it writes when it is told to. */
static int another;
static pid_t another_pid;

static void start_another(const char *bytes, size_t size, off_t at)
{
	int told[2];
	need(pipe(told) == 0, "pipe");
	another_pid = fork();
	if (another_pid == 0) {
		char byte;
		close(told[1]);
		_exit(read(told[0], &byte, 1) == 1 && pwrite(open(path, O_WRONLY), bytes, size, at) == (ssize_t)size ? 0 : 1);
	}
	close(told[0]);
	another = told[1];
}

static void let_another_write(void)
{
	int status = 0;
	need(write(another, "x", 1) == 1 && waitpid(another_pid, &status, 0) == another_pid && status == 0,
	     "the other process");
	close(another);
}

static void ways_to_write_before(enum rewind_tracking tracking)
{
	static char text[200], now[300], much[REWIND_MOST_WRITTEN + 1];
	char other[] = "/tmp/rewind_unseen.XXXXXX";
	memset(text, 'f', sizeof text);
	need(rewind_libraries_opened() == NULL, "rewind_libraries_opened");
	source = mkstemp(other);
	int made = mkstemp(path);
	need(source >= 0 && made >= 0 && unlink(other) == 0 && write(source, text, sizeof text) == sizeof text, "mkstemp");
	bool failed = false;
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			own = open(path, O_RDWR | O_TRUNC);
			second = open(path, O_RDWR);
			need(own >= 0 && second >= 0 && write(own, text, sizeof text) == sizeof text, "write");
			ways[i].act();
			size_t size = 0;
			ssize_t there = pread(own, now, sizeof now, 0);
			bool known = rewind_left_in(own, &size) != NULL;
			_exit(known != ways[i].followed || (known && !is_left(own, now, (size_t)there)) ? 2 : 0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (status != 0) {
			fprintf(stderr, "%s: %s\n", ways[i].name, ways[i].followed ? "not followed" : "taken for known");
			failed = true;
		}
	}
	start_another("secret", 6, 2);
	own = open(path, O_RDWR | O_TRUNC);
	second = open(path, O_WRONLY | O_APPEND);
	need(own >= 0 && second >= 0 && write(own, "boot", 4) == 4, "write");
	let_another_write();
	failed |= !is_left(own, "boot", 4);
	need(write(second, "more", 4) == 4 && is_left(own, "bootmore", 8) && write(own, "ed", 2) == 2, "write");
	failed |= !is_left(own, "bootedre", 8);
	need(pwrite(own, much, sizeof much, 0) == sizeof much, "pwrite");
	failed |= rewind_left_in(own, &(size_t){0}) != NULL;
	need(ftruncate(own, 2) == 0 && ftruncate(own, 4) == 0, "ftruncate");
	failed |= !is_left(own, "\0\0\0\0", 4);
	/* As a boot that writes many files and closes them. */
	for (int i = 0; i < 100; i++) {
		char name[] = "/tmp/rewind_unseen.XXXXXX";
		int one = mkstemp(name), again = open(name, O_WRONLY | O_TRUNC);
		need(one >= 0 && again >= 0 && unlink(name) == 0 && write(again, "one", 3) == 3, "mkstemp");
		failed |= !is_left(again, "one", 3);
		close(one);
		close(again);
	}
	failed |= !is_left(own, "\0\0\0\0", 4);
	unlink(path);
	if (failed) {
		wrong("writing to an emptied file");
	}
}

const struct look looks_at_files[] = {
    {"ways to write to a file", ways_to_write},
    {"ways to write to a file before the point", ways_to_write_before},
    {0},
};
