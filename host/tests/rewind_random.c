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
#include "../rewind/rewind.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <iconv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define AREAS 24
#define FILES 6
/* In some seeds each file is opened so often. */
#define MOST_OPEN 420
#define DIRECTORIES 3
#define LIST 2000
#define BLOCKS 200
#define TEXT (256ul << 10)

/* Lives outside what is put back. */
struct memory_of_test {
	uint64_t random;
	unsigned seed;
	long rewinds, steps;
	long doubts;
	char last[64];
	struct {
		uint8_t *at, *copy;
		size_t size;
	} areas[AREAS];
	char maps[TEXT], fds[TEXT];
	char cwd[512];
	mode_t umask;
	sigset_t mask;
	struct sigaction actions[32];
	void *brk;
	char locale[128], environment[128];
	int rounding;
	char name[16];
	/* What is left to read of each directory at the point. */
	char rest[DIRECTORIES][LIST];
};
static struct memory_of_test *test;
static const char *breaking = "";

static uint8_t statics[3 * PAGE];
static uint8_t initialised[2 * PAGE] = {1, 2, 3};
static __thread char thread_local_state[256];
static void *blocks[BLOCKS];
static int files[MOST_OPEN];
static size_t open_files;
static DIR *directories[DIRECTORIES];
/* A record lock on it is held at the point. */
static int locked_file;
static FILE *stream;

static uint64_t random_number(void)
{
	/* xorshift64*, Vigna 2016 */
	uint64_t x = test->random;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	test->random = x;
	return x * 2685821657736338717ull;
}
static size_t below(size_t n)
{
	return (size_t)(random_number() % n);
}

static void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fprintf(stderr, "seed %u, rewind %ld, after '%s': ", test->seed, test->rewinds, test->last);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	_exit(1);
}

static void read_all(const char *path, char *to, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;
	while ((n = read(fd, to + len, room - 1 - len)) > 0) {
		len += (size_t)n;
	}
	to[len] = '\0';
	close(fd);
}

/* Mappings as one line per stretch of equal permissions; the stack and what the rewinder keeps are not compared. */
static void describe_maps(char *to)
{
	static char text[TEXT];
	read_all("/proc/self/maps", text, sizeof text);
	unsigned long at_end = 0;
	char at_permissions[8] = "";
	size_t len = 0;
	to[0] = '\0';
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		unsigned long start, end;
		char permissions[8];
		if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) != 3 || strstr(line, "[stack]") != NULL) {
			continue;
		}
		if (start != at_end || strcmp(permissions, at_permissions) != 0) {
			len += (size_t)snprintf(to + len, TEXT - len, "%s%lx %s", len == 0 ? "" : "\n", start, permissions);
		}
		at_end = end;
		strcpy(at_permissions, permissions);
	}
}

/* Locks as the kernel lists them, without the number that each line begins with; of files in use only. */
static void describe_locks(int fd, char *to, size_t room)
{
	char path[64], text[8192];
	size_t len = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	read_all(path, text, sizeof text);
	to[0] = '\0';
	for (const char *line = text; (line = strstr(line, "\nlock:")) != NULL && len < room; line++) {
		const char *kind = strpbrk(line + 7, "PFO");
		len += (size_t)snprintf(to + len, room - len, " [%.*s]", (int)strcspn(kind, "\n"), kind);
	}
}

static void describe_fds(char *to)
{
	size_t len = 0;
	for (int fd = 0; fd < 1024; fd++) {
		struct stat st;
		if (fstat(fd, &st) != 0) {
			continue;
		}
		bool file = fd != 2 && S_ISREG(st.st_mode) && st.st_size == 10000;
		char locks[4096];
		describe_locks(fd, locks, sizeof locks);
		len +=
		    (size_t)snprintf(to + len, TEXT - len, "%d %lx:%lx%s at %ld flags %d %x\n", fd, st.st_dev, st.st_ino, locks,
		                     file ? (long)lseek(fd, 0, SEEK_CUR) : 0L, fcntl(fd, F_GETFD), fcntl(fd, F_GETFL));
	}
}

static void describe(struct memory_of_test *to)
{
	describe_maps(to->maps);
	describe_fds(to->fds);
	if (getcwd(to->cwd, sizeof to->cwd) == NULL) {
		strcpy(to->cwd, "?");
	}
	to->umask = umask(0);
	umask(to->umask);
	sigprocmask(SIG_BLOCK, NULL, &to->mask);
	for (int i = 1; i < 32; i++) {
		sigaction(i, NULL, &to->actions[i]);
	}
	to->brk = sbrk(0);
	snprintf(to->locale, sizeof to->locale, "%s", setlocale(LC_ALL, NULL));
	snprintf(to->environment, sizeof to->environment, "%s", getenv("HY_RANDOM") ? getenv("HY_RANDOM") : "-");
	to->rounding = fegetround();
	prctl(PR_GET_NAME, to->name);
}

static void same_text(const char *what, const char *before, const char *after)
{
	if (strcmp(before, after) != 0) {
		fprintf(stderr, "--- %s before\n%s\n--- after\n%s\n", what, before, after);
		fail("%s differ", what);
	}
}

static void list(DIR *directory, char *to)
{
	const struct dirent *entry;
	size_t len = 0;
	to[0] = '\0';
	while ((entry = readdir(directory)) != NULL && len < LIST) {
		len += (size_t)snprintf(to + len, LIST - len, "%s ", entry->d_name);
	}
}

static void compare_directories(void)
{
	char found[LIST];
	for (int i = 0; i < DIRECTORIES; i++) {
		list(directories[i], found);
		same_text("what is left of a directory", test->rest[i], found);
		rewinddir(directories[i]);
		list(directories[i], found);
		same_text("a directory from its beginning", test->rest[0], found);
	}
}

static void compare(void)
{
	struct memory_of_test *after = test + 1;
	describe(after);
	same_text("mappings", test->maps, after->maps);
	same_text("descriptors", test->fds, after->fds);
	same_text("working directories", test->cwd, after->cwd);
	same_text("locales", test->locale, after->locale);
	same_text("environments", test->environment, after->environment);
	if (test->umask != after->umask) {
		fail("umask %o, was %o", after->umask, test->umask);
	}
	if (memcmp(&test->mask, &after->mask, sizeof(uint64_t)) != 0) {
		fail("signal masks differ");
	}
	for (int i = 1; i < 32; i++) {
		if (test->actions[i].sa_handler != after->actions[i].sa_handler) {
			fail("disposition of signal %d differs", i);
		}
	}
	if (test->brk != after->brk) {
		fail("break %p, was %p", after->brk, test->brk);
	}
	same_text("names", test->name, after->name);
	compare_directories();
	if (test->rounding != after->rounding) {
		fail("rounding mode differs");
	}
	for (int i = 0; i < AREAS; i++) {
		if (test->areas[i].at != NULL && memcmp(test->areas[i].at, test->areas[i].copy, test->areas[i].size) != 0) {
			size_t at = 0;
			while (test->areas[i].at[at] == test->areas[i].copy[at]) {
				at++;
			}
			fail("area %d of %zu bytes differs at %zu", i, test->areas[i].size, at);
		}
	}
	enum rewind_doubt doubt = rewind_doubt_after();
	if (doubt != REWIND_SURE) {
		fail("the rewinder found doubt %d on the way", doubt);
	}
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

static void handler(int signal)
{
	statics[signal] ^= 1;
}

static void *thread(void *arg)
{
	memset(arg, 7, 100);
	return NULL;
}

static uint8_t use_stack(size_t bytes, int depth)
{
	volatile uint8_t local[8192];
	memset((void *)local, (int)bytes, sizeof local);
	return depth == 0 ? local[bytes % sizeof local] : (uint8_t)(use_stack(bytes + 1, depth - 1) ^ local[17]);
}

static void write_somewhere(void)
{
	int i = (int)below(AREAS);
	if (test->areas[i].at == NULL) {
		return;
	}
	size_t from = below(test->areas[i].size), len = below(3) == 0 ? below(test->areas[i].size - from) + 1 : 1;
	memset(test->areas[i].at + from, (int)random_number(), len < test->areas[i].size - from ? len : 1);
}

static void one_step(void)
{
	static const char *const names[] = {"write",        "write",       "write",
	                                    "malloc",       "free",        "big malloc",
	                                    "map",          "unmap own",   "unmap of snapshot",
	                                    "stack",        "open",        "close of snapshot",
	                                    "dup2",         "read",        "chdir",
	                                    "flags",        "umask",       "mask",
	                                    "action",       "environment", "locale",
	                                    "dlopen",       "thread",      "child",
	                                    "discard",      "remap",       "stream",
	                                    "timer",        "rounding",    "iconv",
	                                    "thread local", "directory",   "unwritten zero",
	                                    "read on",      "begin again", "position",
	                                    "lock",         "record lock", "name"};
	size_t which = below(sizeof names / sizeof names[0]);
	snprintf(test->last, sizeof test->last, "%s", names[which]);
	const char *name = names[which];
	test->steps++;
	size_t b = below(BLOCKS);
	if (strcmp(name, "write") == 0) {
		write_somewhere();
	} else if (strcmp(name, "malloc") == 0) {
		blocks[b] = realloc(blocks[b], below(20000) + 1);
		memset(blocks[b], 3, 1);
	} else if (strcmp(name, "free") == 0) {
		free(blocks[b]);
		blocks[b] = NULL;
	} else if (strcmp(name, "big malloc") == 0) {
		free(blocks[b]);
		size_t size = below(8u << 20) + 1;
		blocks[b] = malloc(size);
		memset(blocks[b], 1, size);
	} else if (strcmp(name, "map") == 0) {
		size_t size = (below(40) + 1) * PAGE;
		uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(at, 9, below(size));
	} else if (strcmp(name, "unmap own") == 0) {
		uint8_t *at = mmap(NULL, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		munmap(at + 2 * PAGE, (below(3) + 1) * PAGE);
		munmap(at, PAGE);
	} else if (strcmp(name, "unmap of snapshot") == 0) {
		int i = (int)below(AREAS);
		if (test->areas[i].at != NULL && ((uintptr_t)test->areas[i].at & (PAGE - 1)) == 0) {
			munmap(test->areas[i].at, test->areas[i].size);
		}
	} else if (strcmp(name, "stack") == 0) {
		statics[1] = use_stack(below(1000), (int)below(60));
	} else if (strcmp(name, "open") == 0) {
		int fd = open("/dev/null", O_RDWR);
		if (below(2)) {
			fcntl(fd, F_DUPFD, 300 + (int)below(200));
		}
		if (below(2)) {
			close(fd);
		}
	} else if (strcmp(name, "close of snapshot") == 0) {
		close(files[below(open_files)]);
		if (below(2)) {
			statics[0] = (uint8_t)open("/dev/zero", O_RDONLY);
		}
	} else if (strcmp(name, "dup2") == 0) {
		dup2(1, files[below(open_files)]);
	} else if (strcmp(name, "read") == 0) {
		if (read(files[below(open_files)], statics + 100, below(200)) < 0) {
			statics[2]++;
		}
	} else if (strcmp(name, "chdir") == 0) {
		if (chdir("/") != 0) {
			statics[2]++;
		}
	} else if (strcmp(name, "flags") == 0) {
		fcntl(files[below(open_files)], F_SETFL, (long)(below(2) ? O_NONBLOCK : O_APPEND));
		fcntl(files[below(open_files)], F_SETFD, (long)below(2));
	} else if (strcmp(name, "umask") == 0) {
		umask((mode_t)below(0777));
	} else if (strcmp(name, "mask") == 0) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, 10 + (int)below(3));
		sigprocmask(SIG_BLOCK, &set, NULL);
	} else if (strcmp(name, "action") == 0) {
		if (below(2)) {
			signal(10 + (int)below(2) * 2, handler);
		} else {
			struct sigaction action = {.sa_handler = SIG_IGN};
			sigaction(SIGUSR1, &action, NULL);
		}
	} else if (strcmp(name, "environment") == 0) {
		char value[20];
		snprintf(value, sizeof value, "%zu", below(1000));
		setenv(below(2) ? "HY_RANDOM" : "HY_OTHER", value, 1);
	} else if (strcmp(name, "locale") == 0) {
		setlocale(LC_ALL, below(2) ? "C.UTF-8" : "POSIX");
	} else if (strcmp(name, "dlopen") == 0) {
		void *library = dlopen(below(2) ? "libresolv.so.2" : "libnss_files.so.2", RTLD_NOW);
		if (library != NULL && below(2)) {
			dlclose(library);
		}
	} else if (strcmp(name, "thread") == 0) {
		pthread_t id;
		pthread_create(&id, NULL, thread, statics + 512);
		pthread_join(id, NULL);
	} else if (strcmp(name, "child") == 0) {
		pid_t child = fork();
		if (child == 0) {
			_exit(3);
		}
		if (below(2)) {
			waitpid(child, NULL, 0);
		} else {
			siginfo_t info; /* left for the rewinder to reap */
			waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
		}
	} else if (strcmp(name, "discard") == 0) {
		int i = (int)below(AREAS);
		if (test->areas[i].at != NULL && ((uintptr_t)test->areas[i].at & (PAGE - 1)) == 0) {
			madvise(test->areas[i].at, test->areas[i].size, MADV_DONTNEED);
		}
	} else if (strcmp(name, "remap") == 0) {
		uint8_t *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mremap(at, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
		if (mremap(test->areas[3].at, test->areas[3].size, test->areas[3].size + PAGE, MREMAP_MAYMOVE) != MAP_FAILED) {
			fail("memory of the snapshot could be moved");
		}
	} else if (strcmp(name, "stream") == 0) {
		if (below(4) == 0) {
			fclose(stream);
			stream = fopen("/dev/null", "w");
		} else {
			fprintf(stream, "%zu\n", below(100000));
		}
	} else if (strcmp(name, "timer") == 0) {
		struct itimerval soon = {.it_value = {.tv_sec = 100}};
		setitimer(ITIMER_PROF, &soon, NULL);
	} else if (strcmp(name, "rounding") == 0) {
		fesetround(FE_UPWARD);
	} else if (strcmp(name, "iconv") == 0) {
		iconv_t conversion = iconv_open(below(2) ? "UTF-16" : "ISO-8859-15", "UTF-8");
		if (conversion != (iconv_t)-1 && below(2)) {
			iconv_close(conversion);
		}
	} else if (strcmp(name, "thread local") == 0) {
		thread_local_state[below(sizeof thread_local_state)]++;
		errno = (int)below(100);
	} else if (strcmp(name, "directory") == 0) {
		DIR *directory = opendir("/");
		if (directory != NULL && below(2)) {
			closedir(directory);
		}
	} else if (strcmp(name, "read on") == 0) {
		for (size_t n = below(8); n > 0; n--) {
			readdir(directories[below(DIRECTORIES)]);
		}
	} else if (strcmp(name, "begin again") == 0) {
		rewinddir(directories[below(DIRECTORIES)]);
	} else if (strcmp(name, "position") == 0) {
		lseek(files[below(open_files)], (off_t)below(9000), SEEK_SET);
	} else if (strcmp(name, "lock") == 0) {
		flock(files[below(open_files)], (below(2) ? LOCK_EX : LOCK_SH) | LOCK_NB);
	} else if (strcmp(name, "record lock") == 0) {
		/* Beside the one that is held, or more than it. */
		struct flock lock = {.l_type = below(2) ? F_WRLCK : F_RDLCK, .l_start = (off_t)below(500), .l_len = 20};
		if (lock.l_start > 80 && lock.l_start < 110) {
			lock.l_type = F_WRLCK;
		}
		fcntl(below(2) ? locked_file : files[below(open_files)], F_SETLK, &lock);
	} else if (strcmp(name, "name") == 0) {
		prctl(PR_SET_NAME, below(2) ? "one" : "another");
	} else {
		/* A page that nobody ever wrote is written for the first time. */
		test->areas[5].at[below(test->areas[5].size)] = 1;
	}
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
	snprintf(path, sizeof path, "%s/file0", directory);
	locked_file = open(path, O_RDWR);
	/* A private mapping of a file. */
	know_area(19, mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, files[0], 0), 2 * PAGE);
	stream = fopen("/dev/null", "w");
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(below(3000) + 1);
	}
	signal(SIGUSR2, handler);
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
	if (chdir("/") == 0) {
		rmdir(directory);
	}
	if (!failed) {
		printf("%u seeds, %s, %ld rewinds each: all as it was\n", seeds,
		       tracking == REWIND_UFFD ? "uffd" : "soft-dirty", rewinds);
	}
	return failed;
}
