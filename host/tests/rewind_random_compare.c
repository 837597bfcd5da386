/* What a random program is at the point, and whether it is so again after a rewind. */
#include "rewind_random.h"

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

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

void describe(struct memory_of_test *to)
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

void list(DIR *directory, char *to)
{
	const struct dirent *entry;
	size_t len = 0;
	to[0] = '\0';
	while ((entry = readdir(directory)) != NULL && len < LIST) {
		len += (size_t)snprintf(to + len, LIST - len, "%s ", entry->d_name);
	}
}

void compare_directories(void)
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

void compare(void)
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
