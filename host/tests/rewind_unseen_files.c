/*
 * Ways to write to a file: of one that is watched each is seen, and none that only reads is taken for one; of one that
 * was opened before the point it is known what was done with it.
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
	bool writes, noted; /* noted: with the descriptor, before the point */
} ways[] = {
    {"write", by_write, true, true},       {"a second descriptor", by_second, true, false},
    {"pwrite", by_pwrite, true, true},     {"pwritev", by_pwritev, true, true},
    {"pwritev2", by_pwritev2, true, true}, {"ftruncate", by_ftruncate, true, true},
    {"truncate", by_truncate, true, true}, {"copy_file_range", by_copying, true, true},
    {"sendfile", by_sendfile, true, true}, {"posix_fallocate", by_fallocate, true, true},
    {"its name", by_name, true, false},    {"O_TRUNC", by_emptying, true, true},
    {"fopen", by_fopen, true, false},      {"fdopen", by_fdopen, true, true},
    {"dup", by_duplicate, true, false},    {"F_DUPFD", by_duplicate_fcntl, true, false},
    {"mmap", by_mapping, true, true},      {"a number", by_number, true, false},
    {"reading", by_reading, false, false},
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

/* What is noted of a file that was opened before the point, by letters. */
static const char *noted(int fd)
{
	static char letters[8];
	const struct rewind_opening *one = rewind_opening_of(fd);
	char *to = letters;
	if (one == NULL) {
		return "-";
	}
	*to = '\0';
	to = stpcpy(to, one->touched ? "t" : "");
	to = stpcpy(to, one->emptied ? "e" : "");
	to = stpcpy(to, one->otherwise ? "o" : "");
	to = stpcpy(to, one->moved ? "m" : "");
	stpcpy(to, one->late ? "l" : "");
	return letters;
}

static bool failed;

static void expect(const char *what, int fd, const char *letters)
{
	const char *found = noted(fd);
	if (strcmp(found, letters) != 0) {
		fprintf(stderr, "%s: expected \"%s\", found \"%s\"\n", what, letters, found);
		failed = true;
	}
}

static void by_the_boot(void)
{
	char other[] = "/tmp/rewind_unseen.XXXXXX";
	own = open(path, O_RDWR);
	expect("opened", own, "");
	expect("opened to read", open(path, O_RDONLY), "-");
	need(rename(path, other) == 0, "rename");
	expect("renamed", own, "m");
	second = open(path, O_RDWR | O_CREAT, 0600);
	expect("another one with the name", second, "e");
	need(unlink(path) == 0, "unlink");
	expect("unlinked", second, "em");
	expect("made after that", open(path, O_RDWR | O_CREAT, 0600), "e");
	int emptied = open(path, O_WRONLY | O_TRUNC);
	expect("opened to be emptied", emptied, "");
	expect("opened after that", open(path, O_RDWR | O_APPEND), "e");
	need(close(emptied) == 0 && open(path, O_RDONLY) == emptied, "open");
	expect("the number of another one", emptied, "-");
	own = open(path, O_RDWR);
	int copy = dup(own);
	need(write(copy, "x", 1) == 1 && close(copy) == 0, "write");
	expect("written to by a duplicate", own, "eo");
	rewind_boot_over(true);
	need(write(own, "x", 1) == 1 && ftruncate(own, 0) == 0, "write");
	expect("written to by a warm-up request", own, "eo");
	expect("opened by a warm-up request", open(path, O_RDWR), "el");
	need(unlink(path) == 0 && unlink(other) == 0, "unlink");
}

static void ways_to_write_before(enum rewind_tracking tracking)
{
	static char text[200];
	char other[] = "/tmp/rewind_unseen.XXXXXX";
	memset(text, 'f', sizeof text);
	need(rewind_libraries_opened() == NULL, "rewind_libraries_opened");
	source = mkstemp(other);
	int made = mkstemp(path);
	need(source >= 0 && made >= 0 && unlink(other) == 0 && write(source, text, sizeof text) == sizeof text, "mkstemp");
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		need(pwrite(made, text, sizeof text, 0) == sizeof text, "pwrite");
		pid_t pid = fork();
		if (pid == 0) {
			own = open(path, O_RDWR);
			second = open(path, O_RDWR);
			need(own >= 0 && second >= 0 && noted(own)[0] == '\0', "open");
			ways[i].act();
			_exit((noted(own)[0] != '\0') == ways[i].noted ? 0 : 2);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (status != 0) {
			fprintf(stderr, "%s: %s\n", ways[i].name, ways[i].noted ? "not noted" : "noted");
			failed = true;
		}
	}
	by_the_boot();
	if (failed) {
		wrong("what is done to files before the point");
	}
}

const struct look looks_at_files[] = {
    {"ways to write to a file", ways_to_write},
    {"ways to write to a file before the point", ways_to_write_before},
    {0},
};
