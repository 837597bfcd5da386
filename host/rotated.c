/*
 * Files that the boot has open for writing and whose names lead elsewhere by now: somebody has rotated a log, or
 * replaced a file. Under php-fpm the boot of each request opens what is there.
 *
 * So each request begins with a look at the names, and such a file is opened again where its name leads, under the same
 * number and at the same place.
 *
 * Not one that the boot emptied ("w"): its name may lead to what the boot of another worker has just made, which is
 * full of what somebody else's request writes. boot_files.c has the worker replaced.
 *
 * Promised: what is opened is what PHP code of the boot has opened by its name; connections, temporary files and what
 * the server's own output goes to are left alone.
 */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct named {
	int fd;
	int flags; /* of open(2); -1: it was to be made anew ("x"), so nothing that is there is taken for it */
	char *name;
} * files;
static size_t count;
/* One could not be opened. */
static bool doubtful;

static bool leads_to(const char *name, int fd)
{
	struct stat there, here;
	return stat(name, &there) == 0 && fstat(fd, &here) == 0 && there.st_dev == here.st_dev &&
	       there.st_ino == here.st_ino;
}

/* By what name it was opened, if that is absolute (a link may lead elsewhere), or where it is. */
static const char *name_of(const php_stream *stream, int fd, char room[PATH_MAX])
{
	if (stream->orig_path != NULL && stream->orig_path[0] == '/' && leads_to(stream->orig_path, fd)) {
		return stream->orig_path;
	}
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, room, PATH_MAX - 1);
	room[n > 0 ? n : 0] = '\0';
	return leads_to(room, fd) ? room : NULL;
}

static void forget(void)
{
	for (size_t i = 0; i < count; i++) {
		pefree(files[i].name, 1);
	}
	count = 0;
	doubtful = false;
}

void rotated_note(void)
{
	forget();
	zend_resource *resource;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		php_stream *stream = resource->type == php_file_le_stream() ? resource->ptr : NULL;
		int fd;
		struct stat st;
		char room[PATH_MAX];
		if (stream == NULL || stream->ops != &php_stream_stdio_ops || stream->wrapper != &php_plain_files_wrapper ||
		    stream->mode[0] == 'w' || strpbrk(stream->mode, "axc+") == NULL || boot_files_is_temporary(stream) ||
		    php_stream_cast(stream, PHP_STREAM_AS_FD_FOR_SELECT | PHP_STREAM_CAST_INTERNAL, (void *)&fd, 0) !=
		        SUCCESS ||
		    fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || rewind_is_output(&st)) {
			continue;
		}
		const char *name = name_of(stream, fd, room);
		if (name != NULL) {
			int flags = fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC);
			files = perealloc(files, (count + 1) * sizeof *files, 1);
			files[count++] =
			    (struct named){.fd = fd,
			                   .flags = stream->mode[0] == 'x' ? -1 : flags | (stream->mode[0] == 'r' ? 0 : O_CREAT),
			                   .name = pestrdup(name, 1)};
		}
	}
	ZEND_HASH_FOREACH_END();
}

void rotated_open(void)
{
	for (size_t i = 0; i < count; i++) {
		if (leads_to(files[i].name, files[i].fd)) {
			continue;
		}
		int flags = files[i].flags;
		int error = flags < 0 ? EEXIST : rewind_replace_file(files[i].fd, files[i].name, flags);
		struct stat st;
		if (error == 0 && !(flags & O_APPEND) && fstat(files[i].fd, &st) == 0 &&
		    lseek(files[i].fd, 0, SEEK_CUR) > st.st_size) {
			/* What the boot wrote before that place is missing; the next one writes it. */
			doubtful = true;
		}
		if (error != 0) {
			log_format(
			    "The file %s, which the boot opened, is another one by now, and cannot be opened: %s. This worker "
			    "is replaced after the request.",
			    files[i].name, strerror(error));
			doubtful = true;
		}
	}
}

bool rotated_doubtful(void)
{
	return doubtful;
}
