/*
 * The rewinder without PHP: random programs, each followed by a rewind and a full comparison with what was there.
 *
 *   rewind_random [--tracking uffd|soft-dirty] [--seeds N] [--first SEED] [--rewinds N] [--break NAME]
 *
 * Each seed is a process that makes itself a random state (memory, files, signals), reaches the point, and then again
 * and again does random things to all of it, rewinds, and compares: its own memory with a copy that the rewinder knows
 * nothing of, all tracked memory with the rewinder's copy, mappings, descriptors, their offsets and locks, what is left
 * to read of directories, working directory, umask, signal mask and dispositions, break, environment and locale. Half
 * of the seeds take the snapshot in a parent that goes on changing itself and reach the point in a forked child.
 * --break leaves one thing out on purpose, to show that the comparison notices. Exits with 0 when all is well, prints
 * seed and step otherwise.
 */
#include "rewind_random.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct memory_of_test *test;
static const char *breaking = "";

uint8_t statics[3 * PAGE];
uint8_t initialised[2 * PAGE] = {1, 2, 3};
__thread char thread_local_state[256];
void *blocks[BLOCKS];
int files[MOST_OPEN];
size_t open_files;
DIR *directories[DIRECTORIES];
/* A record lock on it is held at the point. */
int locked_file;
FILE *stream;

uint64_t random_number(void)
{
	/* xorshift64*, Vigna 2016 */
	uint64_t x = test->random;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	test->random = x;
	return x * 2685821657736338717ull;
}
size_t below(size_t n)
{
	return (size_t)(random_number() % n);
}

void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fprintf(stderr, "seed %u, rewind %ld, after '%s': ", test->seed, test->rewinds, test->last);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	_exit(1);
}

static void *keep(size_t size)
{
	void *at = rewind_keep(size);
	if (at == NULL) {
		fail("no kept memory");
	}
	return at;
}

static void know_area(int i, void *at, size_t size)
{
	test->areas[i].at = at;
	test->areas[i].size = size;
	test->areas[i].copy = keep(size);
}

static void make_state(const char *directory)
{
	for (int i = 0; i < 12; i++) {
		size_t size = (below(64) + 1) * PAGE;
		uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (i != 5 && below(3) != 0) {
			for (size_t p = 0; p < size; p += below(3) * PAGE + 1) {
				at[p] = (uint8_t)random_number();
			}
		}
		know_area(i, at, size);
	}
	for (int i = 12; i < 16; i++) {
		size_t size = below(100000) + 1;
		know_area(i, malloc(size), size);
		memset(test->areas[i].at, i, size);
	}
	know_area(16, statics, sizeof statics);
	know_area(17, initialised, sizeof initialised);
	know_area(18, thread_local_state, sizeof thread_local_state);
	char path[600];
	open_files = below(4) == 0 ? MOST_OPEN : FILES;
	for (size_t i = 0; i < open_files; i++) {
		snprintf(path, sizeof path, "%s/file%zu", directory, i % FILES);
		files[i] = open(path, O_RDWR | O_CREAT | (i % 2 ? O_CLOEXEC : 0) | (i % 3 == 2 ? O_APPEND : 0), 0600);
		if (files[i] < 0 || ftruncate(files[i], 10000) != 0) {
			fail("cannot make %s", path);
		}
		lseek(files[i], (off_t)below(5000), SEEK_SET);
	}
	/* Of no other descriptor: closing one would lose the lock, which is a doubt. */
	snprintf(path, sizeof path, "%s/locked", directory);
	locked_file = open(path, O_RDWR | O_CREAT, 0600);
	for (int i = 0; i < DIRECTORIES; i++) {
		DIR *other = opendir(directory);
		directories[i] = opendir(directory);
		if (other == NULL || directories[i] == NULL) {
			fail("cannot open %s", directory);
		}
		/* Not begun, begun, read to the end. */
		for (size_t n = i == 0 ? 0 : i == 1 ? below(5) + 1 : 1000; n > 0; n--) {
			readdir(other);
			readdir(directories[i]);
		}
		list(other, test->rest[i]);
		closedir(other);
	}
	/* A private mapping of a file. */
	know_area(19, mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, files[0], 0), 2 * PAGE);
	stream = fopen("/dev/null", "w");
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(below(3000) + 1);
	}
	signal(SIGUSR2, count_signal);
}

static void tell(const char *line)
{
	ssize_t n = write(2, line, strlen(line));
	n = write(2, "\n", 1);
	(void)n;
}

/* Of a child: it shares no position with its parent and siblings. */
static void own_files(void)
{
	for (size_t i = 0; i < open_files; i++) {
		if (rewind_own_file(files[i]) != 0) {
			fail("file %zu cannot be opened again", i);
		}
	}
	for (int i = 0; i < DIRECTORIES; i++) {
		if (rewind_own_file(dirfd(directories[i])) != 0) {
			fail("directory %d cannot be opened again", i);
		}
	}
	if (rewind_own_file(locked_file) != 0) {
		fail("the locked file cannot be opened again");
	}
}

static void live(long rewinds)
{
	/* Record locks are not inherited. */
	struct flock held = {.l_type = F_RDLCK, .l_start = 100, .l_len = 10};
	if (fcntl(locked_file, F_SETLK, &held) != 0) {
		fail("cannot lock a file");
	}
	long passed = rewind_point();
	if (passed < 0) {
		fail("%s", rewind_error());
	}
	test->rewinds = passed;
	if (passed == 0) {
		for (int i = 0; i < AREAS; i++) {
			if (test->areas[i].at != NULL) {
				memcpy(test->areas[i].copy, test->areas[i].at, test->areas[i].size);
			}
		}
		describe(test);
		compare_directories();
	} else {
		compare();
	}
	if (passed == rewinds) {
		_exit(0);
	}
	/* Sometimes the same few writes again and again, so that pages become hot. */
	if (below(2)) {
		for (int i = 0; i < 5; i++) {
			statics[(size_t)i * 100]++;
			initialised[(size_t)i]++;
			blocks[0] = realloc(blocks[0], 100);
		}
	}
	size_t steps = below(12);
	for (size_t i = 0; i < steps; i++) {
		one_step();
	}
	if (strcmp(breaking, "memory") == 0 && passed == 3) {
		/* What an unseen write would look like. */
		test->areas[16].copy[5] ^= 1;
	}
	if (strcmp(breaking, "descriptor") == 0 && passed == 3) {
		syscall(SYS_close, files[1]);
	}
	if (strcmp(breaking, "position") == 0 && passed == 3) {
		syscall(SYS_close, dirfd(directories[1]));
	}
	if (strcmp(breaking, "lock") == 0 && passed == 3) {
		struct flock lock = {.l_type = F_WRLCK, .l_start = 1000, .l_len = 1};
		syscall(SYS_fcntl, locked_file, F_SETLK, &lock);
	}
	if (strcmp(breaking, "thread") == 0 && passed == 3) {
		pthread_t id;
		pthread_create(&id, NULL, (void *(*)(void *))(void *)pause, NULL);
	}
	enum rewind_doubt doubt = rewind_doubt();
	if (doubt != REWIND_SURE) {
		fail("doubt %d", doubt);
	}
	rewind_back();
}

/* A child's own work, which becomes part of its snapshot: it writes, throws away, maps anew, and uses what was unused.
 */
static void extend(uint8_t *spare)
{
	for (size_t n = below(20) + 1; n > 0; n--) {
		int i = (int)below(12);
		uint8_t *at = test->areas[i].at;
		size_t size = test->areas[i].size, b = below(BLOCKS);
		switch (below(7)) {
		case 0:
			blocks[b] = realloc(blocks[b], below(3) == 0 ? below(4u << 20) + 1 : below(20000) + 1);
			memset(blocks[b], 8, 1);
			break;
		case 1:
			free(blocks[b]);
			blocks[b] = NULL;
			break;
		case 2:
			madvise(at, size, MADV_DONTNEED);
			break;
		case 3:
			/* Another mapping at the same place, or at a part of it. */
			at += below(size / PAGE) * PAGE;
			size = test->areas[i].size - (size_t)(at - test->areas[i].at);
			mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			if (below(2)) {
				at[below(size)] = (uint8_t)random_number();
			}
			break;
		default:
			write_somewhere();
		}
	}
	size_t size = (below(64) + 1) * PAGE;
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(at, 11, below(size));
	know_area(20, at, size);
	memset(spare + 3 * PAGE, 12, PAGE + 1);
	know_area(21, spare + 3 * PAGE, 2 * PAGE);
	struct rewind_range unused = {(uintptr_t)spare + 6 * PAGE, (uintptr_t)spare + 12 * PAGE};
	const char *wrong = rewind_extend(&unused, 1);
	if (wrong != NULL) {
		fail("%s", wrong);
	}
	write_somewhere();
}

static int run_seed(unsigned seed, enum rewind_tracking tracking, long rewinds, const char *directory)
{
	const char *wrong = rewind_init();
	if (wrong != NULL) {
		fprintf(stderr, "%s\n", wrong);
		return 1;
	}
	test = rewind_keep(2 * sizeof *test);
	test->random = seed * 0x9e3779b97f4a7c15ull + 1;
	test->seed = seed;
	rewind_verify(1, tell);
	make_state(directory);
	/* Pages that mean nothing: written, and not compared. */
	uint8_t *spare = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rewind_range unused = {(uintptr_t)spare + 2 * PAGE, (uintptr_t)spare + 9 * PAGE};
	wrong = rewind_snapshot(tracking, &unused, 1);
	if (wrong != NULL) {
		fprintf(stderr, "%s\n", wrong);
		return 1;
	}
	if (seed % 2 == 0) {
		live(rewinds);
	}
	for (int child = 0; child < 3; child++) {
		/* The parent lives on between the forks. */
		write_somewhere();
		blocks[child] = malloc(1000);
		statics[4000 + child] = 5;
		rewind_noticed();
		pid_t pid = fork();
		if (pid == 0) {
			wrong = rewind_adopt();
			if (wrong != NULL) {
				fail("%s", wrong);
			}
			own_files();
			write_somewhere();
			test->random += (uint64_t)child * 77;
			if (tracking == REWIND_UFFD && below(3) != 0) {
				extend(spare);
			}
			live(rewinds);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (status != 0) {
			fprintf(stderr, "seed %u, child %d: status %x\n", seed, child, status);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned seeds = 40, first = 1;
	long rewinds = 25;
	enum rewind_tracking tracking = REWIND_OFF;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--tracking") == 0) {
			tracking = strcmp(argv[i + 1], "uffd") == 0 ? REWIND_UFFD : REWIND_SOFT_DIRTY;
		} else if (strcmp(argv[i], "--seeds") == 0) {
			seeds = (unsigned)atoi(argv[i + 1]);
		} else if (strcmp(argv[i], "--first") == 0) {
			first = (unsigned)atoi(argv[i + 1]);
		} else if (strcmp(argv[i], "--rewinds") == 0) {
			rewinds = atol(argv[i + 1]);
		} else if (strcmp(argv[i], "--break") == 0) {
			breaking = argv[i + 1];
		} else {
			fprintf(stderr, "unknown option %s\n", argv[i]);
			return 2;
		}
	}
	char why[256];
	if (tracking == REWIND_OFF) {
		tracking = rewind_probe(why, sizeof why);
		if (tracking == REWIND_FORK) {
			fprintf(stderr, "this kernel has no tracking: %s\n", why);
			return 77;
		}
	}
	const char *temporary = getenv("TMPDIR");
	char directory[512];
	snprintf(directory, sizeof directory, "%.400s/rewind_random.XXXXXX", temporary == NULL ? "/tmp" : temporary);
	if (mkdtemp(directory) == NULL || chdir(directory) != 0) {
		perror("a temporary directory");
		return 1;
	}
	int failed = 0;
	for (unsigned seed = first; seed < first + seeds && !failed; seed++) {
		pid_t pid = fork();
		if (pid == 0) {
			_exit(run_seed(seed, tracking, rewinds, directory));
		}
		int status;
		waitpid(pid, &status, 0);
		if (status != 0) {
			fprintf(stderr, "seed %u failed: status %x\n", seed, status);
			failed = 1;
		}
	}
	char path[600];
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "%s/file%d", directory, i);
		unlink(path);
	}
	snprintf(path, sizeof path, "%s/locked", directory);
	unlink(path);
	if (chdir("/") == 0) {
		rmdir(directory);
	}
	if (!failed) {
		printf("%u seeds, %s, %ld rewinds each: all as it was\n", seeds,
		       tracking == REWIND_UFFD ? "uffd" : "soft-dirty", rewinds);
	}
	return failed;
}
