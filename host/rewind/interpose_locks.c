/*
 * Locks on files, and System V semaphores.
 */
#include "interpose.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <unistd.h>

/* libc's own, looked up before the point. */
static int (*libc_lockf)(int, int, off_t);
static int (*libc_semctl)(int, int, int, ...);

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&libc_lockf = interpose_next("lockf");
	*(void **)&libc_semctl = interpose_next("semctl");
}

/* Locks on files that the boot opened. One of a library that was held at the point belongs to whoever took it
 * (opcache), and may be taken and given back by the same. */
static void locking(int fd)
{
	struct control *c = watching();
	struct descriptor *d = c == NULL ? NULL : descriptor_of(fd);
	if (d != NULL && !(d->held && d->library)) {
		d->locked = c->any_locked = true;
	} else if (d == NULL && c != NULL) {
		c->locked_other = true;
	}
}

/* Record locks: what was held at the point and is given up cannot be said to have been held all the time. */
void interpose_locking_record(int fd, const struct flock *lock)
{
	struct control *c = watching();
	locking(fd);
	if (c == NULL || lock == NULL) {
		return;
	}
	for (size_t i = 0; i < c->held_count; i++) {
		const struct held *held = &c->held[i];
		bool weaker = lock->l_type == F_UNLCK || lock->l_type < held->type;
		int64_t end = lock->l_len == 0 ? INT64_MAX : lock->l_start + lock->l_len;
		bool apart = lock->l_whence == SEEK_SET && (lock->l_start >= held->end || end <= held->start);
		if (held->fd == fd && weaker && !apart) {
			c->doubt = REWIND_DESCRIPTORS;
		}
	}
}

void interpose_locked(int fd, bool locked)
{
	struct descriptor *d = watching() == NULL ? NULL : descriptor_of(fd);
	if (d != NULL) {
		d->taken = locked;
	}
}

EXPORT int flock(int fd, int operation)
{
	locking(fd);
	int failed = (int)syscall(SYS_flock, fd, operation);
	struct control *c = rewind_control;
	if (failed == 0) {
		interpose_locked(fd, !(operation & LOCK_UN));
	}
	if (failed == 0 && c != NULL && !c->active && c->openings != NULL && fd < REWIND_MOST_OPENINGS) {
		struct rewind_opening *one = &c->openings[fd];
		int kind = operation & (LOCK_SH | LOCK_EX);
		/* One that is held already keeps its place; where it becomes another kind the kernel may have given it up. */
		one->locked_at = kind == 0 ? 0 : kind == one->locked ? one->locked_at : ++c->lock_count;
		one->locked = kind;
	}
	if (c != NULL && !c->active && c->openings != NULL && (operation & LOCK_UN) == 0 && fd >= 0 &&
	    fd < REWIND_MOST_OPENINGS) {
		c->openings[fd].lock_tries++;
	}
	return failed;
}

uint32_t rewind_locked_at(int fd)
{
	const struct control *c = rewind_control;
	return c == NULL || c->openings == NULL || fd < 0 || fd >= REWIND_MOST_OPENINGS ? 0 : c->openings[fd].locked_at;
}

uint32_t rewind_lock_tries(int fd)
{
	const struct control *c = rewind_control;
	return c == NULL || c->openings == NULL || fd < 0 || fd >= REWIND_MOST_OPENINGS ? 0 : c->openings[fd].lock_tries;
}

/* A record lock from where the file is, by other names of what to do (lockf(3)). */
EXPORT int lockf(int fd, int what, off_t len)
{
	static const short types[] = {[F_ULOCK] = F_UNLCK, [F_LOCK] = F_WRLCK, [F_TLOCK] = F_WRLCK};
	if (what != F_ULOCK && what != F_LOCK && what != F_TLOCK) {
		return libc_lockf(fd, what, len); /* a question */
	}
	struct flock lock = {.l_type = types[what], .l_whence = SEEK_CUR, .l_len = len};
	interpose_locking_record(fd, &lock);
	return (int)syscall(SYS_fcntl, fd, what == F_LOCK ? F_SETLKW : F_SETLK, &lock);
}
EXPORT int lockf64(int fd, int what, off_t len) __attribute__((alias("lockf")));

/* System V semaphores: one that a request holds is given back, as by the kernel at the end of a process. */

static void note_undo(int set, const struct sembuf *operations, size_t count)
{
	struct control *c = rewind_control; /* before the point as well: see rewind_holds_semaphore() */
	for (size_t n = 0; c != NULL && n < count; n++) {
		if (!(operations[n].sem_flg & SEM_UNDO) || operations[n].sem_op == 0) {
			continue;
		}
		size_t i = 0;
		while (i < c->undo_count && (c->undo[i].set != set || c->undo[i].number != (short)operations[n].sem_num)) {
			i++;
		}
		if (i == MOST_SEMAPHORES) {
			c->undo_full |= !c->active;
			c->doubt = REWIND_PROCESS;
			return;
		}
		if (i == c->undo_count) {
			c->undo_count++;
			c->undo[i].set = set;
			c->undo[i].number = (short)operations[n].sem_num;
			c->undo[i].sum = 0;
		}
		c->undo[i].sum = (short)(c->undo[i].sum + operations[n].sem_op);
	}
}

EXPORT int semtimedop(int set, struct sembuf *operations, size_t count, const struct timespec *timeout)
{
	int result = (int)syscall(SYS_semtimedop, set, operations, count, timeout);
	if (result == 0) {
		note_undo(set, operations, count);
	}
	return result;
}

EXPORT int semop(int set, struct sembuf *operations, size_t count)
{
	return semtimedop(set, operations, count, NULL);
}

/* The kernel undoes nothing at a set that is gone, nor at a semaphore that was given a value. */
EXPORT int semctl(int set, int number, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *with = va_arg(rest, void *); /* a union of that size, if any */
	va_end(rest);
	int result = libc_semctl(set, number, command, with);
	struct control *c = rewind_control;
	bool all = command == IPC_RMID || command == SETALL;
	for (size_t i = 0; c != NULL && result >= 0 && (all || command == SETVAL) && i < c->undo_count; i++) {
		if (c->undo[i].set == set && (all || c->undo[i].number == number)) {
			c->undo[i].sum = 0;
		}
	}
	return result;
}
