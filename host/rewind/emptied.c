/*
 * Files that the boot empties (O_TRUNC): what it has written to each since, kept beside the file. The boot of another
 * worker may empty the same file at that moment, and requests of other workers may write to it: what is in the file is
 * then not what this boot has left there.
 *
 * Promised: what is told is what this process wrote, byte by byte, or nothing. Written in a way that is not followed
 * here (through memory, by libc's FILE, by a child), or larger than REWIND_MOST_EMPTIED, a file is told of as unknown.
 * errno stays what it was.
 */
#include "interpose.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The note of the file that is open under this number; NULL: nothing is noted of it. */
static struct emptied *find(int fd)
{
	struct control *c = rewind_control;
	struct stat st;
	if (SYS2(SYS_fstat, fd, &st) != 0) {
		return NULL;
	}
	for (size_t i = 0; i < c->emptied_count; i++) {
		if (c->emptied[i].device == st.st_dev && c->emptied[i].inode == st.st_ino) {
			return &c->emptied[i];
		}
	}
	return NULL;
}

/* One that nobody needs any more: the boot has closed that file. NULL: there is none. */
static struct emptied *find_free(void)
{
	struct control *c = rewind_control;
	if (c->emptied_count < MAX_EMPTIED) {
		struct emptied *fresh = &c->emptied[c->emptied_count];
		fresh->bytes = fresh->bytes != NULL ? fresh->bytes : rewind_keep(REWIND_MOST_EMPTIED);
		c->emptied_count += fresh->bytes != NULL;
		return fresh->bytes != NULL ? fresh : NULL;
	}
	for (size_t i = 0; i < MAX_EMPTIED; i++) {
		struct emptied *old = &c->emptied[i];
		struct stat st;
		if (SYS2(SYS_fstat, old->fd, &st) != 0 || st.st_dev != old->device || st.st_ino != old->inode) {
			old->unseen = false;
			return old;
		}
	}
	return NULL;
}

static void cut(struct emptied *file, size_t size)
{
	size_t end = file->size < REWIND_MOST_EMPTIED ? file->size : REWIND_MOST_EMPTIED;
	if (size < end) {
		memset(file->bytes + size, 0, end - size);
	}
	file->size = size;
}

void interpose_emptied(int fd)
{
	struct control *c = rewind_control;
	struct stat st;
	if (fd < 0 || c == NULL || c->active || c->libraries_fds == NULL || SYS2(SYS_fstat, fd, &st) != 0 ||
	    !S_ISREG(st.st_mode)) {
		return;
	}
	struct emptied *file = find(fd);
	if (file == NULL) {
		file = find_free();
	}
	if (file != NULL) {
		cut(file, 0);
		file->device = st.st_dev;
		file->inode = st.st_ino;
		file->fd = fd;
	}
}

void emptied_wrote(int fd, const void *from, size_t len, off_t at)
{
	struct emptied *file = find(fd);
	if (file == NULL) {
		return;
	}
	/* The end of what this process wrote: somebody else may have written behind it. */
	bool appends = (SYS3(SYS_fcntl, fd, F_GETFL, 0) & O_APPEND) != 0;
	long end = appends ? (long)(file->size + len) : at >= 0 ? at + (long)len : SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	if (end < (long)len) {
		file->unseen = true;
		return;
	}
	size_t start = (size_t)end - len;
	if (start < REWIND_MOST_EMPTIED) {
		size_t room = REWIND_MOST_EMPTIED - start;
		memcpy(file->bytes + start, from, len < room ? len : room);
	}
	file->size = file->size < (size_t)end ? (size_t)end : file->size;
}

void emptied_truncated(int fd, off_t size)
{
	struct emptied *file = find(fd);
	if (file != NULL) {
		cut(file, (size_t)size);
	}
}

void emptied_unseen(int fd)
{
	struct emptied *file = find(fd);
	if (file != NULL) {
		file->unseen = true;
	}
}

void emptied_forget(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->emptied_count; i++) {
		SYS3(SYS_madvise, c->emptied[i].bytes, REWIND_MOST_EMPTIED, MADV_DONTNEED);
	}
	c->emptied_count = 0;
}

const uint8_t *rewind_left_in(int fd, size_t *size)
{
	const struct control *c = rewind_control;
	const struct emptied *file = c == NULL || c->active ? NULL : find(fd);
	if (file == NULL || file->unseen || file->size > REWIND_MOST_EMPTIED) {
		return NULL;
	}
	*size = file->size;
	return file->bytes;
}
