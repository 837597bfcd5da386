/*
 * Locks that the boot took and still holds when it is over: flock() on files that it opened, System V semaphores.
 *
 * Under php-fpm each request boots, so each takes such a lock, waits until nobody else has it, and gives it back with
 * its end. It is the same here: the booted process gives its locks back, each request (warm-up requests as well) takes
 * them before its code runs, and what ends the request (rewind, or the end of its process) gives them back. Where it
 * was taken without waiting at the boot (LOCK_NB), requests wait all the same: the application has gone the way of one
 * who got it.
 *
 * They are taken in the order in which the boot took them, so processes cannot wait for each other, not even for one
 * that boots at that moment. Record locks (fcntl) are not among these:
 * what holds one across requests, such as SQLite, counts on never having lost it; see rewind/process.c.
 */
#include "host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <unistd.h>

/* Part of the snapshot: in the order in which the boot took them. */
static struct lock {
	uint32_t taken_at;
	/* On a file; -1: it is a semaphore. */
	int fd;
	int operation; /* LOCK_SH, LOCK_EX */
	dev_t device;
	ino_t inode;
	struct rewind_semaphore semaphore;
} * locks;
static size_t count;
static bool too_many;

/* LOCK_SH, LOCK_EX, or 0: what is held by flock() on this open file (Documentation/filesystems/proc.rst, fdinfo). */
static int held(int fd)
{
	char path[64], line[512];
	int found = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *info = fopen(path, "re");
	while (info != NULL && fgets(line, sizeof line, info) != NULL) {
		if (strncmp(line, "lock:", 5) == 0 && strstr(line, "FLOCK") != NULL) {
			found = strstr(line, "WRITE") != NULL ? LOCK_EX : LOCK_SH;
		}
	}
	if (info != NULL) {
		fclose(info);
	}
	return found;
}

/*
 * Duplicates of a descriptor hold the same lock, and one of them is enough: it would wait for itself. Two that are none
 * cannot both hold a lock of their own on the same file unless both share it, which changes nothing.
 */
static struct lock *noted_on(const struct stat *st)
{
	for (size_t i = 0; i < count; i++) {
		if (locks[i].fd >= 0 && locks[i].device == st->st_dev && locks[i].inode == st->st_ino) {
			return &locks[i];
		}
	}
	return NULL;
}

static void add(struct lock lock)
{
	locks = perealloc(locks, (count + 1) * sizeof *locks, 1);
	locks[count++] = lock;
}

static bool note(int fd, void *to)
{
	struct stat st;
	int operation = zygote_is_own(fd) || fstat(fd, &st) != 0 ? 0 : held(fd);
	if (operation == 0) {
		return true;
	}
	struct lock *noted = noted_on(&st);
	uint32_t taken_at = rewind_locked_at(fd);
	if (noted == NULL) {
		add((struct lock){
		    .taken_at = taken_at, .fd = fd, .operation = operation, .device = st.st_dev, .inode = st.st_ino});
	} else {
		/* By a duplicate: who took it knows when. */
		noted->taken_at = noted->taken_at == 0 ? taken_at
		                  : taken_at == 0      ? noted->taken_at
		                                       : MIN(noted->taken_at, taken_at);
	}
	flock(fd, LOCK_UN);
	return true;
}

static void change(const struct rewind_semaphore *semaphore, int by)
{
	struct sembuf operation = {.sem_num = (unsigned short)semaphore->number, .sem_op = (short)by, .sem_flg = SEM_UNDO};
	while (semop(semaphore->set, &operation, 1) != 0) {
		if (errno == EIDRM || errno == EINVAL) {
			return; /* the set was removed, and its locks with it */
		}
		if (errno != EINTR) {
			log_format(HY_LOG_ERROR "A semaphore that the boot held cannot be %s again (%s); this worker ends.",
			           by < 0 ? "taken" : "given back", strerror(errno));
			_exit(70);
		}
	}
}

static int by_time(const void *a, const void *b)
{
	const struct lock *one = a, *other = b;
	return (one->taken_at > other->taken_at) - (one->taken_at < other->taken_at);
}

void locks_lend(void)
{
	too_many |= !zygote_each_fd(note, NULL);
	struct rewind_semaphore changed[REWIND_MOST_SEMAPHORES];
	size_t changes = rewind_semaphores(changed);
	too_many |= changes == SIZE_MAX;
	for (size_t i = 0; i < changes && !too_many; i++) {
		/* What was added (PHP counts who uses a set) is not a lock. */
		if (changed[i].sum < 0) {
			add((struct lock){.taken_at = changed[i].taken_at, .fd = -1, .semaphore = changed[i]});
			change(&changed[i], -changed[i].sum);
		}
	}
	if (count > 0) {
		qsort(locks, count, sizeof *locks, by_time);
	}
}

void locks_give_back(void)
{
	for (size_t i = count; i-- > 0;) {
		if (locks[i].fd >= 0) {
			flock(locks[i].fd, LOCK_UN);
		} else {
			change(&locks[i].semaphore, -locks[i].semaphore.sum);
		}
	}
}

const char *locks_lost(void)
{
	for (size_t i = 0; i < count; i++) {
		struct stat st;
		if (locks[i].fd >= 0 &&
		    (fstat(locks[i].fd, &st) != 0 || st.st_dev != locks[i].device || st.st_ino != locks[i].inode)) {
			return "closed a file on which the boot holds a lock";
		}
	}
	return NULL;
}

bool locks_too_many(void)
{
	return too_many;
}

bool locks_are_on(uint64_t device, uint64_t inode)
{
	for (size_t i = 0; i < count; i++) {
		struct stat st; /* it may have been opened again */
		if (locks[i].fd >= 0 && fstat(locks[i].fd, &st) == 0 && st.st_dev == device && st.st_ino == inode) {
			return true;
		}
	}
	return false;
}

void locks_take(void)
{
	for (size_t i = 0; i < count; i++) {
		while (locks[i].fd >= 0 && flock(locks[i].fd, locks[i].operation) != 0) {
			if (errno != EINTR) {
				log_format(HY_LOG_ERROR "A lock that the boot held on a file (descriptor %d) cannot be taken again "
				                        "(%s); this worker ends.",
				           locks[i].fd, strerror(errno));
				_exit(70);
			}
		}
		if (locks[i].fd < 0) {
			change(&locks[i].semaphore, locks[i].semaphore.sum);
		}
	}
}
