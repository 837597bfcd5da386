/*
 * Which files the boot left open for writing, and whether requests can find them as a boot of their own would
 * (boot_files.c). A log they can, and a temporary file. With any other the boot of each request would do something with
 * what it finds then: empty it, read it, write it anew. What exactly, and what of it was meant for the next visitor,
 * nobody but the application knows. So such a boot is not rewound: see boot_files_left().
 *
 * It looks at streams and descriptors, and changes nothing.
 */
#include "boot_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

bool boot_files_leads_to(const char *name, uint64_t device, uint64_t inode)
{
	struct stat now;
	return stat(name, &now) == 0 && now.st_dev == device && now.st_ino == inode;
}

/* As php_stdio_stream_data of main/streams/plain_wrapper.c begins (PHP 7.4 and later). */
struct plain_file {
	FILE *file;
	int fd;
	unsigned flags; /* the lowest bit: it is a pipe of popen() */
	int lock_flag;
	const zend_string *temporary_name;
};

const zend_string *boot_files_temporary_name(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return file->temporary_name;
}

bool boot_files_has_buffer(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return file->file != NULL;
}

bool boot_files_is_program(const php_stream *stream)
{
	const struct plain_file *file = stream->abstract;
	return stream->ops == &php_stream_stdio_ops && file->flags & 1;
}

/* What lies there is no file of anybody's. */
static bool is_kernels(int fd)
{
	struct statfs fs;
	return fstatfs(fd, &fs) == 0 && (fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC);
}

bool boot_files_is_writer(zend_resource *resource, struct writer *to)
{
	php_stream *stream = resource->ptr;
	if (stream == NULL || resource->type != php_file_le_stream() || stream->ops != &php_stream_stdio_ops) {
		return false;
	}
	/* Not php_stream_cast(): that does not go with filters. */
	const struct plain_file *plain = stream->abstract;
	to->stream = stream;
	to->fd = plain->file != NULL ? fileno(plain->file) : plain->fd;
	return fstat(to->fd, &to->st) == 0 && S_ISREG(to->st.st_mode) && (to->flags = fcntl(to->fd, F_GETFL)) != -1 &&
	       (to->flags & O_ACCMODE) != O_RDONLY && !rewind_is_output(&to->st) && !is_kernels(to->fd);
}

/* Who reads on finds what the file held in the boot, or begins at what is another place by then. */
static bool was_read(const struct writer *writer)
{
	const php_stream *stream = writer->stream;
	return stream->readpos != stream->writepos ||
	       (writer->st.st_size > 0 && lseek(writer->fd, 0, SEEK_CUR) >= writer->st.st_size);
}

/* Nobody can open it: the boot has removed its name, or it never had one. One whose name somebody else has removed is
 * what the next one with that name will be. */
bool boot_files_is_nameless(int fd, const struct stat *st)
{
	const struct rewind_opening *opening = rewind_opening_of(fd);
	return st->st_nlink == 0 && (opening == NULL || opening->moved);
}

/* What a boot does that rotates a log by its size, or makes a cache of many files: the next one has nothing to do. */
static const char EMPTIED[] = "and emptied or replaced it";
static const char UNSURE[] = "and emptied, removed or renamed so many others that this may be one of them";

/* What it is, beyond a log or a temporary file; NULL: nothing. */
static const char *more_than_a_log(const struct writer *writer)
{
	const struct rewind_opening *opening = rewind_opening_of(writer->fd);
	const zend_string *temporary = boot_files_temporary_name(writer->stream);
	if (boot_files_is_nameless(writer->fd, &writer->st) ||
	    (temporary != NULL && boot_files_leads_to(ZSTR_VAL(temporary), writer->st.st_dev, writer->st.st_ino))) {
		return NULL;
	}
	return !(writer->flags & O_APPEND) ? "other than to append"
	       : opening == NULL           ? "in a way that Hayate has not seen"
	       : opening->moved            ? "and gave it another name"
	       : opening->emptied          ? EMPTIED
	       : opening->unsure           ? UNSURE
	       : (writer->flags & O_ACCMODE) == O_RDWR && was_read(writer)
	           ? "to read as well, and it was read from, or stands at its end"
	       : opening->otherwise                                            ? "and wrote to it by another descriptor"
	       : opening->touched && writer->stream->writefilters.head != NULL ? "and wrote to it through a filter"
	                                                                       : NULL;
}

const char *boot_files_left(bool *now_and_then)
{
	static char why[512];
	zend_resource *resource;
	struct writer writer;
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		const char *more = boot_files_is_writer(resource, &writer) ? more_than_a_log(&writer) : NULL;
		if (more != NULL) {
			char path[64], target[300];
			snprintf(path, sizeof path, "/proc/self/fd/%d", writer.fd);
			ssize_t n = readlink(path, target, sizeof target - 1);
			target[n > 0 ? n : 0] = '\0';
			snprintf(why, sizeof why, "left the file %s open for writing, %s", target, more);
			if (now_and_then != NULL) {
				*now_and_then = more == EMPTIED || more == UNSURE;
			}
			return why;
		}
	}
	ZEND_HASH_FOREACH_END();
	return NULL;
}
