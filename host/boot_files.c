/*
 * Files that the boot has open for writing. Under php-fpm the boot of each request opens them, so a request begins with
 * what a boot of its own would find:
 *
 *   LOG        opened to append: the file that has the name now. Logs are rotated.
 *   TEMPORARY  nobody else has it (tmpfile(), php://temp that has outgrown the memory, SQLite's, a file whose name was
 *              removed): it holds what the boot and the warm-up requests left in it, and nothing else.
 *
 * A boot that has left others is not rewound (boot_files_left.c).
 *
 * At the beginning of a request boot_files_look() asks once by each name, and opens again what is another file by now;
 * that takes the place of the old one under all its numbers. Logs that are locked are looked at before the request
 * takes its locks, and the others afterwards, for until then they belong to who had the locks.
 *
 * What tells that nothing was written to a temporary file is the time of the last change; it is believed when it is
 * some seconds old. One of which the bytes are too many to be kept is left alone, and who writes to it costs the
 * worker.
 *
 * Where a log cannot be opened it goes on in the old file, and the next request tries again. Where a temporary file
 * cannot be put back the worker ends; where somebody has removed one whose bytes are not kept, after the request.
 */
#include "boot_files.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are compared at once. */
#define PART (16l << 10)
/* So old a change is believed to be the last, in seconds. */
#define OLD 3

struct in_place {
	const struct boot_file *file;
	struct stat there;
	char path[64];
	size_t count; /* so many descriptors */
	int error;
};

static bool put_in_place(int fd, void *to)
{
	struct in_place *in = to;
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	struct rewind_opening *opening = rewind_opening_of(fd);
	bool by_another_name = opening != NULL && in->file->opening != NULL && strcmp(opening->name, in->file->name) != 0;
	if (!zygote_is_own(fd) && flags >= 0 && !(flags & O_PATH) && !by_another_name && fstat(fd, &st) == 0 &&
	    st.st_dev == in->file->device && st.st_ino == in->file->inode) {
		in->error = rewind_replace_file(fd, in->path, flags & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC));
		in->count += in->error == 0;
		if (in->error == 0 && opening != NULL) {
			opening->device = in->there.st_dev;
			opening->inode = in->there.st_ino;
		}
	}
	return in->error == 0;
}

/* Its name was drawn by chance: what has it now is the one before, or what a request has made of it. */
static int make_temporary(const struct boot_file *file)
{
	int fd = -EEXIST;
	for (int tries = 0; tries < 16 && fd == -EEXIST; tries++) {
		unlink(file->name);
		fd = rewind_make_file(file->name, file->mode);
	}
	return fd;
}

/* Opens again what now has the name. 0, or the errno of what failed: then nothing has changed, or, with `halfway`, some
 * of it. */
static int open_anew(struct boot_file *file, bool *halfway)
{
	if (file->kind == TEMPORARY && (!file->known || file->name[0] == '\0')) {
		return EFBIG;
	}
	int again = file->kind == TEMPORARY ? make_temporary(file) : rewind_opening_again(file->opening, file->mode);
	struct in_place in = {.file = file};
	if (again < 0) {
		return -again;
	}
	if (fstat(again, &in.there) != 0) {
		in.error = errno;
	} else {
		snprintf(in.path, sizeof in.path, "/proc/self/fd/%d", again);
		in.error = zygote_each_fd(put_in_place, &in) ? in.error : EMFILE;
		*halfway = in.error != 0 && in.count > 0;
	}
	if (in.error == 0) {
		locks_moved(file->device, file->inode, &in.there);
		file->device = in.there.st_dev;
		file->inode = in.there.st_ino;
		if (file->kind == TEMPORARY) {
			boot_files_note_rights(file, &in.there);
		}
		file->left = (struct stat){0};
		file->said = false;
	}
	close(again);
	return in.error;
}

static void cannot_be_opened(struct boot_file *file, int error, bool halfway)
{
	/* Of one whose bytes are not kept nobody else has taken them: whoever wrote to it cost the worker. */
	bool ends = file->kind == TEMPORARY && (halfway || error != EFBIG);
	if (!file->said) {
		log_format(HY_LOG_ERROR
		           "The file %s, which the boot opened, is another one by now, and cannot be opened as the boot "
		           "opened it: %s. %s",
		           file->name, error == EFBIG ? "what the boot wrote to it is too much to be kept" : strerror(error),
		           file->kind == LOG ? "What requests write goes to the one before, until it can be opened."
		           : ends            ? "This worker ends."
		                             : "This worker is replaced after the request.");
	}
	file->said = true;
	if (ends) {
		_exit(70);
	}
	if (file->kind == TEMPORARY) {
		boot_files_note_replaced();
	}
}

/* What is there is what this process has open. A temporary one nobody has given another name, or to others. */
static bool is_there(const struct boot_file *file, struct stat *there)
{
	if (file->kind == TEMPORARY && file->name[0] == '\0') {
		return fstat(file->fd, there) == 0;
	}
	if ((file->kind == TEMPORARY ? lstat(file->name, there) : stat(file->name, there)) != 0 ||
	    there->st_dev != file->device || there->st_ino != file->inode) {
		return false;
	}
	return file->kind != TEMPORARY || (there->st_nlink <= file->links && (there->st_mode & 07777) == file->mode &&
	                                   there->st_uid == file->user && there->st_gid == file->group);
}

static void look_at(struct boot_file *file, bool *anew)
{
	bool halfway = false;
	struct stat there;
	if (!is_there(file, &there)) {
		int error = open_anew(file, &halfway);
		*anew = true;
		if (error != 0) {
			cannot_be_opened(file, error, halfway);
		}
	}
}

void boot_files_look(enum boot_files which)
{
	struct boot_file *files;
	size_t count = boot_files_list(&files);
	bool anew = false;
	for (size_t i = 0; i < count; i++) {
		bool locked = which != BOOT_FILES_ALL && locks_are_on(files[i].device, files[i].inode);
		if (which == BOOT_FILES_ALL || locked == (which == BOOT_FILES_LOCKED)) {
			look_at(&files[i], &anew);
		}
	}
	if (anew) {
		boot_files_tell();
	}
}

void boot_files_follow(void)
{
	struct boot_file *files;
	size_t count = boot_files_list(&files);
	for (size_t i = 0; i < count; i++) {
		struct boot_file *file = &files[i];
		struct stat there;
		bool halfway = false;
		/* One that is not there is made in the request, which may have locks for that. */
		if (file->kind == LOG && !locks_are_on(file->device, file->inode) && !is_there(file, &there) &&
		    stat(file->name, &there) == 0) {
			(void)open_anew(file, &halfway);
		}
	}
}

static bool is_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_unchanged(const struct stat *now, const struct stat *before)
{
	return now->st_ino == before->st_ino && now->st_dev == before->st_dev && now->st_size == before->st_size &&
	       is_time(now->st_mtim, before->st_mtim) && is_time(now->st_ctim, before->st_ctim);
}

/* Whether it holds what the boot left in it, and nothing else. */
static bool holds(const struct boot_file *file, int own)
{
	struct stat now;
	if (fstat(own, &now) != 0 || now.st_size != file->size) {
		return false;
	}
	uint8_t part[PART];
	for (off_t at = 0; at < file->size; at += PART) {
		size_t len = (size_t)MIN(PART, file->size - at);
		if (pread(own, part, len, at) != (ssize_t)len || memcmp(part, file->bytes + at, len) != 0) {
			return false;
		}
	}
	return true;
}

static void cut(const struct boot_file *file, int fd, off_t size)
{
	while (ftruncate(fd, size) != 0) {
		if (errno != EINTR) {
			log_format(HY_LOG_ERROR "A file of the boot (descriptor %d) cannot be cut back to what the boot left in it "
			                        "(%s); this worker ends.",
			           file->fd, strerror(errno));
			_exit(70);
		}
	}
}

/* What of the boot's bytes could be written is what is in the file; the next request tries again. */
static void put_back(const struct boot_file *file, int own)
{
	off_t done = 0;
	int error = 0;
	while (done < file->size && error == 0) {
		ssize_t n = pwrite(own, file->bytes + done, (size_t)(file->size - done), done);
		done += MAX(n, 0);
		error = n > 0 || (n < 0 && errno == EINTR) ? 0 : n == 0 ? ENOSPC : errno;
	}
	cut(file, own, done);
	if (error != 0) {
		log_format("A file of the boot (descriptor %d) has %jd of the %jd bytes that the boot left in it: the others "
		           "cannot be written again (%s).",
		           file->fd, (intmax_t)done, (intmax_t)file->size, strerror(error));
	}
}

static void renew(struct boot_file *file)
{
	struct stat now;
	if (fstat(file->fd, &now) == 0 && is_unchanged(&now, &file->left) &&
	    file->left.st_ctim.tv_sec + OLD < file->looked) {
		return;
	}
	int own = boot_files_open_again(file->fd);
	if (own < 0) {
		cannot_be_opened(file, errno, false);
	}
	/* What is written after this is not older. */
	file->looked = time(NULL);
	if (fstat(own, &file->left) != 0) {
		file->left = (struct stat){0};
	}
	if (!holds(file, own)) {
		put_back(file, own);
		file->left = (struct stat){0};
	}
	close(own);
}

/* What a request has written to a temporary file need not wait on the disk for the next one. A file that it has given
 * to others stays whole. */
void boot_files_settle(void)
{
	struct boot_file *files;
	size_t count = boot_files_list(&files);
	bool anew = false;
	for (size_t i = 0; i < count; i++) {
		struct boot_file *file = &files[i];
		struct stat there;
		if (file->kind != TEMPORARY || !file->known) {
			continue;
		}
		if (!is_there(file, &there)) {
			look_at(file, &anew);
		} else if (there.st_size > file->size && there.st_nlink <= 1) {
			cut(file, file->fd, file->size);
		}
	}
	if (anew) {
		boot_files_tell();
	}
}

void boot_files_renew(void)
{
	struct boot_file *files;
	size_t count = boot_files_list(&files);
	for (size_t i = 0; i < count; i++) {
		if (files[i].kind == TEMPORARY && files[i].known) {
			renew(&files[i]);
		}
	}
}

bool boot_files_written(void)
{
	struct boot_file *files;
	size_t count = boot_files_list(&files);
	for (size_t i = 0; i < count; i++) {
		const struct boot_file *file = &files[i];
		struct stat now;
		if (file->kind == TEMPORARY && !file->known &&
		    (rewind_was_written(&file->left) || fstat(file->fd, &now) != 0 || !is_unchanged(&now, &file->left))) {
			return true;
		}
	}
	return false;
}
