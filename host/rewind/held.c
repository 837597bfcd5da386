/*
 * Locks that are held at the point, on files (fcntl(2), flock(2)) and semaphores: what the work has locked is unlocked,
 * what it has lost is taken again, and is in doubt, since somebody else may have had it meanwhile.
 */
#include "internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/wait.h>

/* The number after `*at`, which is moved behind it; -1 when there is none. */
static int64_t number(const char **at)
{
	while (**at == ' ') {
		(*at)++;
	}
	if (**at < '0' || **at > '9') {
		return -1;
	}
	int64_t value = 0;
	for (; **at >= '0' && **at <= '9'; (*at)++) {
		value = value * 10 + (**at - '0');
	}
	return value;
}

#define INFO_SIZE 4096

/* What the kernel says of a descriptor, ended by a zero. Its length, or less than 0. */
static long read_info(int fd, char *text)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	long info = SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	long n = info < 0 ? -1 : SYS3(SYS_read, info, text, INFO_SIZE - 1);
	if (info >= 0) {
		SYS1(SYS_close, info);
	}
	text[n > 0 ? n : 0] = '\0';
	return n;
}

/*
 * What locks this process holds by a descriptor, as fdinfo says it (Documentation/filesystems/proc.rst):
 *
 *   lock:	1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF
 *
 * Record locks (POSIX, OFDLCK) are noted. False when there are more than can be.
 */
bool held_note(int fd, struct descriptor *to)
{
	struct control *c = rewind_control;
	char text[INFO_SIZE];
	long n = read_info(fd, text);
	for (const char *line = text; (line = strstr(line, "\nlock:")) != NULL;) {
		line++;
		to->held = true;
		size_t len = strcspn(line, "\n");
		char one[256];
		snprintf(one, sizeof one, "%.*s", (int)len, line);
		to->flocked |= strstr(one, "FLOCK") != NULL;
		bool open_file = strstr(one, "OFDLCK") != NULL;
		const char *range = strrchr(one, ':');
		if (to->library || range == NULL || !(open_file || strstr(one, "POSIX") != NULL)) {
			continue;
		}
		range++;
		(void)number(&range); /* inode */
		int64_t start = number(&range), last = number(&range);
		if (c->held_count == MAX_HELD || start < 0) {
			return false;
		}
		c->held[c->held_count++] = (struct held){.fd = fd,
		                                         .type = strstr(one, "WRITE") != NULL ? F_WRLCK : F_RDLCK,
		                                         .start = start,
		                                         .end = last < 0 ? INT64_MAX : last + 1,
		                                         .open_file = open_file};
	}
	return n < (long)sizeof text - 1;
}

bool rewind_holds_semaphore(bool *too_many)
{
	const struct control *c = rewind_control;
	*too_many = c->undo_full;
	for (size_t i = 0; i < c->undo_count; i++) {
		/* What was added (PHP counts who uses a set) is not a lock. */
		if (c->undo[i].sum < 0) {
			return true;
		}
	}
	return false;
}

/* Gives up all record locks on a file but those held at the point, as the kernel does when a process ends: those of
 * this process (F_SETLK), or of the open file (F_OFD_SETLK). `through` is the descriptor, or the copy of one that was
 * closed. */
static void unlock(int fd, int through, int whose)
{
	const struct control *c = rewind_control;
	for (int64_t from = 0; from != INT64_MAX;) {
		int64_t to = INT64_MAX, next = INT64_MAX;
		for (size_t i = 0; i < c->held_count; i++) {
			if (c->held[i].fd == fd && c->held[i].end > from && c->held[i].start < to) {
				to = c->held[i].start;
				next = c->held[i].end;
			}
		}
		if (to > from) {
			struct flock gap = {
			    .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = to == INT64_MAX ? 0 : to - from};
			SYS3(SYS_fcntl, through, whose, &gap);
		}
		from = next;
	}
}

/* Up to where a lock reaches that holds this byte, by what the kernel says of the descriptor; 0: none does. */
static int64_t locked_up_to(const char *text, int64_t byte)
{
	for (const char *line = text; (line = strstr(line, "\nlock:")) != NULL;) {
		line++;
		const char *end = strchr(line, '\n'), *range = end;
		while (range != NULL && range > line && range[-1] != ':') {
			range--;
		}
		if (range == NULL || range == line) {
			return 0;
		}
		(void)number(&range); /* inode */
		int64_t start = number(&range), last = number(&range);
		if (start >= 0 && start <= byte && (last < 0 || last >= byte)) {
			return last < 0 ? INT64_MAX : last + 1;
		}
	}
	return 0;
}

/* Each byte of it, by one lock or by several: one that is stronger in its middle has divided it. */
static bool is_held(const char *text, const struct held *held)
{
	int64_t at = held->start;
	do {
		at = locked_up_to(text, at);
	} while (at != 0 && at < held->end);
	return at != 0;
}

/*
 * Record locks that were held at the point. The kernel takes those of a process from it when it closes any descriptor
 * of the same file: they are taken again, but somebody else may have had them meanwhile, and changed what they stand
 * for. One that is stronger now becomes what it was.
 */
void held_restore(void)
{
	struct control *c = rewind_control;
	char text[INFO_SIZE];
	int read_of = -1;
	for (size_t i = 0; i < c->held_count; i++) {
		const struct held *held = &c->held[i];
		if (held->fd != read_of) {
			(void)read_info(held->fd, text);
			read_of = held->fd;
		}
		struct flock again = {.l_type = held->type,
		                      .l_whence = SEEK_SET,
		                      .l_start = held->start,
		                      .l_len = held->end == INT64_MAX ? 0 : held->end - held->start};
		bool lost = !is_held(text, held);
		if (SYS3(SYS_fcntl, held->fd, held->open_file ? F_OFD_SETLK : F_SETLK, &again) != 0 || lost) {
			c->doubt_after = REWIND_DESCRIPTORS;
		}
	}
}

/* Of memory, of all children that somebody has waited for. */
static long childrens_faults(void)
{
	struct rusage of = {.ru_minflt = 0};
	SYS2(SYS_getrusage, RUSAGE_CHILDREN, &of);
	return of.ru_minflt + of.ru_majflt;
}

void held_note_children(void)
{
	rewind_control->childrens_faults = childrens_faults();
}

/* Since the last time that this was asked: such that still run, or that somebody has waited for (they may have made
 * others, which run on: sh -c 'job &'). */
static bool made_children(void)
{
	struct control *c = rewind_control;
	siginfo_t info;
	bool runs = sys6(SYS_waitid, P_ALL, 0, (long)&info, WEXITED | WNOHANG | WNOWAIT | __WALL, 0, 0) == 0;
	long before = c->childrens_faults;
	c->childrens_faults = childrens_faults();
	bool ended = c->childrens_faults != before; /* no process runs without one */
	return runs || ended;
}

/* Gives up what the work has locked by this descriptor, or by a duplicate of it. A child that has it as well keeps the
 * lock, as it would if this process ended: so this one gets the file anew. (That closes a descriptor of it, and with
 * one go the record locks of this process: those are given up by then.) */
static void give_up(int fd, const struct descriptor *d, bool is_locked, bool shared)
{
	int through = d->lost ? d->copy : fd;
	if (shared && is_locked && !d->held && d->copy != 0 && rewind_own_file(d->copy) == 0 &&
	    (d->lost || SYS3(SYS_dup3, d->copy, fd, d->cloexec ? O_CLOEXEC : 0) >= 0)) {
		return;
	}
	unlock(fd, through, F_OFD_SETLK);
	if (!d->flocked) {
		SYS2(SYS_flock, through, LOCK_UN);
	}
	rewind_control->doubt_after = shared && is_locked ? REWIND_DESCRIPTORS : rewind_control->doubt_after;
}

/* By whichever descriptor of the same open file. */
static bool is_locked(int fd)
{
	char text[INFO_SIZE];
	(void)read_info(fd, text);
	return strstr(text, "FLOCK") != NULL || strstr(text, "OFDLCK") != NULL;
}

void rewind_request_ends(void)
{
	rewind_control->ending = true;
}

void rewind_unlock(void)
{
	struct control *c = rewind_control;
	bool by_duplicate = c->any_duplicate && c->locked_other;
	bool shared = (c->any_locked || by_duplicate) && made_children();
	/* A descriptor 0 is standard input: where there is no copy, nothing that matters is unlocked. */
	for (size_t fd = 0; c->any_locked && fd < c->fd_count; fd++) {
		struct descriptor *d = &c->fds[fd];
		if (d->locked) {
			d->locked = false;
			unlock((int)fd, d->lost ? d->copy : (int)fd, F_SETLK);
			give_up((int)fd, d, d->taken, shared);
			d->taken = false;
		}
	}
	/* What a duplicate locked is locked until the original says otherwise. */
	for (size_t fd = 0; by_duplicate && fd < c->fd_count; fd++) {
		const struct descriptor *d = &c->fds[fd];
		if (d->known && !d->held) {
			/* Output belongs to whoever started us as well. */
			bool own = fd > STDERR_FILENO && !d->library;
			give_up((int)fd, d, own && shared && is_locked(d->lost ? d->copy : (int)fd), shared);
		}
	}
	c->any_locked = false;
	c->any_duplicate = c->locked_other = false;
	while (c->undo_count > 0) {
		c->undo_count--;
		short sum = c->undo[c->undo_count].sum;
		if (sum != 0) {
			/* It fails when the set is gone, or was taken by others meanwhile: then there is nothing to undo. */
			struct sembuf back = {.sem_num = (unsigned short)c->undo[c->undo_count].number,
			                      .sem_op = (short)-sum,
			                      .sem_flg = SEM_UNDO | IPC_NOWAIT};
			SYS3(SYS_semop, c->undo[c->undo_count].set, &back, 1);
		}
	}
}
