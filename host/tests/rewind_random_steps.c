/* What a random program does between two rewinds. */
#include "rewind_random.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <iconv.h>
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

void count_signal(int signal)
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

void write_somewhere(void)
{
	int i = (int)below(AREAS);
	if (test->areas[i].at == NULL) {
		return;
	}
	size_t from = below(test->areas[i].size), len = below(3) == 0 ? below(test->areas[i].size - from) + 1 : 1;
	memset(test->areas[i].at + from, (int)random_number(), len < test->areas[i].size - from ? len : 1);
}

void one_step(void)
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
			signal(10 + (int)below(2) * 2, count_signal);
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
