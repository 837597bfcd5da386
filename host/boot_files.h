/*
 * What boot_files.c, boot_files_left.c, boot_files_notes.c and boot_files_told.c share. What others may call is in
 * host.h.
 */
#ifndef HAYATE_BOOT_FILES_H
#define HAYATE_BOOT_FILES_H

#include "host.h"

#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

/* A log or a temporary file of the boot: boot_files.c says what they are. */
struct boot_file {
	enum { LOG, TEMPORARY } kind;
	int fd; /* one of its numbers */
	uint64_t device, inode;
	char *name;                           /* absolute; "": it has none */
	const struct rewind_opening *opening; /* how it was opened; not of a temporary one */
	bool said;                            /* that it cannot be opened */
	mode_t mode;
	/* Of a temporary one: */
	uid_t user;
	gid_t group;
	nlink_t links;
	bool known; /* these bytes were in it */
	const uint8_t *bytes;
	off_t size;
	struct stat left; /* when it held what it should, at the time of `looked`; 0: never */
	time_t looked;
};

/* A stream of a file that is written to, and nothing more. */
struct writer {
	php_stream *stream;
	int fd, flags; /* of fcntl(F_GETFL) */
	struct stat st;
};

/* boot_files_left.c */
bool boot_files_leads_to(const char *name, uint64_t device, uint64_t inode);
/* PHP's tmpfile() has a name until it is closed. What is opened by a name that tempnam() made looks like one, but PHP
 * does not remove it. */
const zend_string *boot_files_temporary_name(const php_stream *stream);
/* False: it is something else. */
bool boot_files_is_writer(zend_resource *resource, struct writer *to);

/* boot_files_notes.c */
/* Those that are noted; their number. */
size_t boot_files_list(struct boot_file **list);
/* A second descriptor, also where the first was opened for writing only, or for appending. -1: that is not allowed. */
int boot_files_open_again(int fd);
void boot_files_note_rights(struct boot_file *file, const struct stat *st);
void boot_files_note_replaced(void); /* one is not what the boot would have */

/* boot_files_told.c: of a worker, for the zygote */
void boot_files_tell(void);

#endif
