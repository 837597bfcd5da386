/*
 * Locks that the boot took on files by flock(), and still holds when it is over.
 *
 * Under php-fpm each request boots, so each takes such a lock, waits until nobody else has it, and gives it back with
 * its end. It is the same here: the booted process gives its locks back, each request (warm-up requests as well) takes
 * them before its code runs, and what ends the request (rewind, or the end of its process) gives them back. Where it
 * was taken without waiting at the boot (LOCK_NB), requests wait all the same: the application has gone the way of one
 * who got it.
 *
 * They are taken in the order in which the boot took them, so processes cannot wait for each other, not even for one
 * that boots at that moment.
 *
 * A boot that holds a System V semaphore is not rewound: the set may be removed at any time, and the boot of a request
 * would make another, which objects of this one do not know. Record locks (fcntl) are not among these: what holds one
 * across requests, such as SQLite, counts on never having lost it; see rewind/process.c.
 */
#include "host.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Part of the snapshot: in the order in which the boot took them. */
static struct lock {
	uint32_t taken_at;
	int fd;
	int operation; /* LOCK_SH, LOCK_EX */
	uint64_t device, inode;
} * locks;
static size_t count;

/* Files that somebody has tried to lock. */
static struct tried {
	int fd;
	uint64_t device, inode;
	uint32_t tries;    /* that were seen until now */
	uint32_t requests; /* of warm-up, that did so */
	bool kept;         /* one of them left it locked */
} * tried;
static size_t tried_count;

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

/* NULL: nobody has tried. */
static struct tried *tried_with(int fd, const struct stat *st)
{
	for (size_t i = 0; i < tried_count; i++) {
		if (tried[i].fd == fd && tried[i].device == st->st_dev && tried[i].inode == st->st_ino) {
			return &tried[i];
		}
	}
	if (rewind_lock_tries(fd) == 0) {
		return NULL;
	}
	tried = perealloc(tried, (tried_count + 1) * sizeof *tried, 1);
	tried[tried_count] = (struct tried){.fd = fd, .device = st->st_dev, .inode = st->st_ino};
	return &tried[tried_count++];
}

static bool is_noted(int fd)
{
	for (size_t i = 0; i < count; i++) {
		if (locks[i].fd == fd) {
			return true;
		}
	}
	return false;
}

static bool note(int fd, void *to)
{
	struct stat st;
	if (zygote_is_own(fd) || fstat(fd, &st) != 0) {
		return true;
	}
	struct tried *one = tried_with(fd, &st);
	if (one != NULL) {
		one->tries = rewind_lock_tries(fd);
	}
	int operation = is_noted(fd) ? 0 : held(fd);
	if (operation != 0) {
		locks = perealloc(locks, (count + 1) * sizeof *locks, 1);
		locks[count++] = (struct lock){.taken_at = rewind_locked_at(fd),
		                               .fd = fd,
		                               .operation = operation,
		                               .device = st.st_dev,
		                               .inode = st.st_ino};
	}
	return true;
}

static int by_time(const void *a, const void *b)
{
	const struct lock *one = a, *other = b;
	return (one->taken_at > other->taken_at) - (one->taken_at < other->taken_at);
}

/* Duplicates of a descriptor hold the same lock: with one of them it is gone. Who took it knows when. */
static void drop_duplicates(size_t of)
{
	size_t left = of + 1;
	for (size_t i = left; i < count; i++) {
		bool same = locks[i].device == locks[of].device && locks[i].inode == locks[of].inode && held(locks[i].fd) == 0;
		if (!same) {
			locks[left++] = locks[i];
		} else if (locks[of].taken_at == 0) {
			locks[of].taken_at = locks[i].taken_at;
		}
	}
	count = left;
}

void locks_lend(void)
{
	const size_t before = count;
	(void)zygote_each_fd(note, NULL); /* where they cannot be listed the boot is declined: see decline_too_much() */
	for (size_t i = 0; i < count; i++) {
		flock(locks[i].fd, LOCK_UN);
		if (i >= before) {
			drop_duplicates(i);
		}
	}
	if (count > 0) {
		qsort(locks, count, sizeof *locks, by_time);
	}
}

static bool give_back(int fd, void *to)
{
	struct stat st;
	if (zygote_is_own(fd) || fstat(fd, &st) != 0) {
		return true;
	}
	struct tried *one = tried_with(fd, &st);
	bool is_held = held(fd) != 0;
	if (one != NULL) {
		uint32_t tries = rewind_lock_tries(fd);
		one->requests += tries != one->tries;
		one->tries = tries;
		one->kept |= is_held;
	}
	if (is_held) {
		flock(fd, LOCK_UN);
	}
	return true;
}

void locks_give_back(void)
{
	(void)zygote_each_fd(give_back, NULL); /* without a descriptor for that there is none for a fork, either */
}

void locks_moved(uint64_t device, uint64_t inode, const struct stat *to)
{
	for (size_t i = 0; i < count; i++) {
		if (locks[i].device == device && locks[i].inode == inode) {
			locks[i].device = to->st_dev;
			locks[i].inode = to->st_ino;
		}
	}
}

const char *locks_left(void)
{
	bool too_many;
	return rewind_holds_semaphore(&too_many) ? "holds a System V semaphore"
	       : too_many                        ? "has changed more System V semaphores than Hayate can tell from those "
	                                           "that it holds"
	                                         : NULL;
}

const char *locks_taken_once(void)
{
	for (size_t i = 0; i < tried_count; i++) {
		const struct tried *one = &tried[i];
		struct stat st;
		if (one->kept && one->requests == 1 && !is_noted(one->fd) && fstat(one->fd, &st) == 0 &&
		    st.st_dev == one->device && st.st_ino == one->inode) {
			return "locked a file, which it keeps open, and the next one did not";
		}
	}
	return NULL;
}

const char *locks_lost(void)
{
	for (size_t i = 0; i < count; i++) {
		struct stat st;
		if (fstat(locks[i].fd, &st) != 0 || st.st_dev != locks[i].device || st.st_ino != locks[i].inode) {
			return "closed a file on which the boot holds a lock";
		}
	}
	return NULL;
}

bool locks_are_on(uint64_t device, uint64_t inode)
{
	for (size_t i = 0; i < count; i++) {
		struct stat st; /* it may have been opened again */
		if (fstat(locks[i].fd, &st) == 0 && st.st_dev == device && st.st_ino == inode) {
			return true;
		}
	}
	return false;
}

void locks_take(void)
{
	for (size_t i = 0; i < count; i++) {
		while (flock(locks[i].fd, locks[i].operation) != 0) {
			if (errno != EINTR) {
				log_format(HY_LOG_ERROR "A lock that the boot held on a file (descriptor %d) cannot be taken again "
				                        "(%s); this worker ends.",
				           locks[i].fd, strerror(errno));
				_exit(70);
			}
		}
	}
}
