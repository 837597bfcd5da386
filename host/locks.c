/*
 * Locks that the boot took and still holds when it is over: flock() on files that it opened, System V semaphores.
 *
 * Under php-fpm each request boots, so each takes such a lock, waits until nobody else has it, and gives it back with
 * its end. It is the same here: the booted process gives its locks back, each request (warm-up requests as well) takes
 * them before its code runs, and what ends the request (rewind, or the end of its process) gives them back. Where it
 * was taken without waiting at the boot (LOCK_NB), requests wait all the same: the application has gone the way of one
 * who got it.
 *
 * In all processes the order is the same, so they cannot wait for each other. Record locks (fcntl) are not among these:
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

/* Both are part of the snapshot. */
static struct file_lock {
	int fd;
	int operation; /* LOCK_SH, LOCK_EX */
	dev_t device;
	ino_t inode;
} * files;
static size_t file_count;
static struct rewind_semaphore semaphores[REWIND_MOST_SEMAPHORES];
static size_t semaphore_count;
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

/* Duplicates of a descriptor hold the same lock, and one of them is enough: it would wait for itself. Two that are none
 * cannot both hold a lock of their own on the same file unless both share it, which changes nothing. */
static bool is_noted(const struct stat *st)
{
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].device == st->st_dev && files[i].inode == st->st_ino) {
			return true;
		}
	}
	return false;
}

static bool note(int fd, void *to)
{
	struct stat st;
	int operation = zygote_is_own(fd) || fstat(fd, &st) != 0 ? 0 : held(fd);
	if (operation != 0 && !is_noted(&st)) {
		files = perealloc(files, (file_count + 1) * sizeof *files, 1);
		files[file_count++] =
		    (struct file_lock){.fd = fd, .operation = operation, .device = st.st_dev, .inode = st.st_ino};
	}
	if (operation != 0) {
		flock(fd, LOCK_UN);
	}
	return true;
}

void locks_lend(void)
{
	too_many |= !zygote_each_fd(note, NULL);
	struct rewind_semaphore changed[REWIND_MOST_SEMAPHORES];
	size_t count = rewind_semaphores(changed);
	too_many |= count == SIZE_MAX;
	for (size_t i = 0; i < count && !too_many; i++) {
		/* What was added (PHP counts who uses a set) is not a lock. */
		struct sembuf back = {
		    .sem_num = (unsigned short)changed[i].number, .sem_op = (short)-changed[i].sum, .sem_flg = SEM_UNDO};
		if (changed[i].sum < 0 && semaphore_count < REWIND_MOST_SEMAPHORES && semop(changed[i].set, &back, 1) == 0) {
			semaphores[semaphore_count++] = changed[i];
		}
	}
}

void locks_give_back(void)
{
	for (size_t i = 0; i < file_count; i++) {
		flock(files[i].fd, LOCK_UN);
	}
	for (size_t i = 0; i < semaphore_count; i++) {
		struct sembuf back = {
		    .sem_num = (unsigned short)semaphores[i].number, .sem_op = (short)-semaphores[i].sum, .sem_flg = SEM_UNDO};
		/* It fails when the set is gone. */
		semop(semaphores[i].set, &back, 1);
	}
}

static void wait_for(struct sembuf *operation, int set)
{
	while (semop(set, operation, 1) != 0) {
		if (errno == EIDRM || errno == EINVAL) {
			return; /* the set was removed, and its locks with it */
		}
		if (errno != EINTR) {
			log_format(HY_LOG_ERROR "A semaphore that the boot held cannot be taken again (%s); this worker ends.",
			           strerror(errno));
			_exit(70);
		}
	}
}

bool locks_too_many(void)
{
	return too_many;
}

bool locks_any(void)
{
	return file_count + semaphore_count > 0;
}

bool locks_are_on(const struct rewind_opening *file)
{
	for (size_t i = 0; i < file_count; i++) {
		struct stat st; /* it may have been opened again */
		if (fstat(files[i].fd, &st) == 0 && st.st_dev == file->device && st.st_ino == file->inode) {
			return true;
		}
	}
	return false;
}

void locks_take(void)
{
	for (size_t i = 0; i < file_count; i++) {
		while (flock(files[i].fd, files[i].operation) != 0) {
			if (errno != EINTR) {
				log_format(HY_LOG_ERROR "A lock that the boot held on a file (descriptor %d) cannot be taken again "
				                        "(%s); this worker ends.",
				           files[i].fd, strerror(errno));
				_exit(70);
			}
		}
	}
	for (size_t i = 0; i < semaphore_count; i++) {
		struct sembuf take = {
		    .sem_num = (unsigned short)semaphores[i].number, .sem_op = semaphores[i].sum, .sem_flg = SEM_UNDO};
		wait_for(&take, semaphores[i].set);
	}
}
