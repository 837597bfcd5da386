/*
 * Notes of the files that the boot has open for writing, by which boot_files.c goes: their names, how they were opened,
 * and what is in temporary ones.
 *
 * Left alone are files that PHP code has not opened (but for nameless ones), memory (memfd), and what the server's own
 * output goes to. All notes are kept memory: a rewind leaves them alone.
 */
#include "boot_files.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are put back: of one file, of all together. */
#define MOST_OF_ONE (256l << 10)
#define MOST_KEPT (8l << 20)
/* The kernel's time of a change may be so much behind, in ns. */
#define TICK 20000000l
#define MOST_FILES 2048

static struct boot_file *files;
static size_t file_count;
static uint8_t *kept;
static off_t kept_size;
static char *names; /* of temporary ones, PATH_MAX for each file */

/* Whether one is not what the boot would have. */
static bool *replaced;

size_t boot_files_list(struct boot_file **list)
{
	*list = files;
	return file_count;
}

/* One that leads to a log by the same name, or a temporary one. */
static struct boot_file *find(const struct stat *st, const char *name)
{
	for (size_t i = 0; i < file_count; i++) {
		struct boot_file *file = &files[i];
		if (file->device == st->st_dev && file->inode == st->st_ino &&
		    (file->kind == TEMPORARY || name == NULL || strcmp(file->name, name) == 0)) {
			return file;
		}
	}
	return NULL;
}

static struct boot_file *add(int kind, int fd, const struct stat *st)
{
	if (file_count == MOST_FILES) {
		return NULL; /* decline.c sees to it that there are none beyond */
	}
	struct boot_file *file = &files[file_count++];
	*file = (struct boot_file){
	    .kind = kind, .fd = fd, .device = st->st_dev, .inode = st->st_ino, .mode = st->st_mode & 07777};
	return file;
}

int boot_files_open_again(int fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* What is in it now. False: that is too much. */
static bool keep_bytes(struct boot_file *file, off_t size)
{
	int own = size <= MOST_OF_ONE && kept_size + size <= MOST_KEPT ? boot_files_open_again(file->fd) : -1;
	bool whole = own >= 0 && pread(own, kept + kept_size, (size_t)size, 0) == size;
	if (own >= 0) {
		close(own);
	}
	file->bytes = kept + kept_size;
	file->size = size;
	kept_size += whole ? size : 0;
	return whole;
}

void boot_files_note_rights(struct boot_file *file, const struct stat *st)
{
	file->mode = st->st_mode & 07777;
	file->user = st->st_uid;
	file->group = st->st_gid;
	file->links = st->st_nlink;
}

static void note_temporary(int fd, const struct stat *st, const char *name)
{
	struct boot_file *file = find(st, NULL) == NULL ? add(TEMPORARY, fd, st) : NULL;
	if (file != NULL) {
		file->name = names + (size_t)(file - files) * PATH_MAX;
		snprintf(file->name, PATH_MAX, "%s", name);
		boot_files_note_rights(file, st);
		file->left = *st;
		file->known = keep_bytes(file, st->st_size);
	}
}

/* Those that nobody has opened by a name, or whose names are removed. */
static bool note_nameless(int fd, void *to)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);
	if (!zygote_is_own(fd) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && boot_files_is_nameless(fd, &st) &&
	    (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) && !rewind_is_memfd(fd) && !rewind_is_output(&st)) {
		note_temporary(fd, &st, "");
	}
	return true;
}

/* How the application spells it: PHP resolves links in names that are relative, or URLs. */
static void note_spelling(struct rewind_opening *opening, const char *path)
{
	char directory[PATH_MAX], name[2 * PATH_MAX];
	const char *resource;
	while (strncasecmp(path, "php://filter/", 13) == 0 && (resource = strstr(path, "/resource=")) != NULL) {
		path = resource + strlen("/resource=");
	}
	path += strncasecmp(path, "file://", 7) == 0 ? 7 : 0;
	if (path[0] != '/') {
		snprintf(name, sizeof name, "%s/%s", getcwd(directory, sizeof directory) != NULL ? directory : "", path);
		path = name;
	}
	if (strlen(path) < PATH_MAX && boot_files_leads_to(path, opening->device, opening->inode)) {
		strcpy(opening->name, path);
	}
}

static void note_writer(const struct writer *writer)
{
	struct rewind_opening *opening = rewind_opening_of(writer->fd);
	const zend_string *temporary = boot_files_temporary_name(writer->stream);
	if (boot_files_is_nameless(writer->fd, &writer->st)) {
		return; /* see note_nameless() */
	}
	if (temporary != NULL) {
		note_temporary(writer->fd, &writer->st, ZSTR_VAL(temporary));
		return;
	}
	if (opening == NULL) {
		return; /* such a boot is not rewound */
	}
	if (writer->stream->orig_path != NULL) {
		note_spelling(opening, writer->stream->orig_path);
	}
	opening->kept = true;
	struct boot_file *file = find(&writer->st, opening->name) == NULL ? add(LOG, writer->fd, &writer->st) : NULL;
	if (file != NULL) {
		file->name = opening->name;
		file->opening = opening;
	}
}

void boot_files_note(void)
{
	zend_resource *resource;
	struct writer writer;
	if (replaced == NULL) {
		replaced = rewind_keep(sizeof *replaced);
		files = rewind_keep(MOST_FILES * sizeof *files);
		names = rewind_keep((size_t)MOST_FILES * PATH_MAX);
		kept = rewind_keep(MOST_KEPT);
		if (replaced == NULL || files == NULL || names == NULL || kept == NULL) {
			zygote_failed("no memory for notes of the boot's files");
		}
	}
	file_count = 0;
	kept_size = 0;
	rewind_watch_no_file();
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource)
	{
		if (boot_files_is_writer(resource, &writer)) {
			note_writer(&writer);
		}
	}
	ZEND_HASH_FOREACH_END();
	if (!zygote_each_fd(note_nameless, NULL)) {
		zygote_failed("no descriptor is left to look at the boot's files; raise the limit of open files (LimitNOFILE)");
	}
	bool large = false;
	for (size_t i = 0; i < file_count; i++) {
		if (files[i].kind == TEMPORARY && !files[i].known) {
			large = true;
			(void)rewind_watch_file(&files[i].left); /* of one that is not watched all is doubted */
		}
	}
	if (large) {
		/* A change that the kernel dates back to before now would not be seen. */
		nanosleep(&(struct timespec){.tv_nsec = TICK}, NULL);
	}
	boot_files_tell();
}

void boot_files_note_replaced(void)
{
	*replaced = true;
}

bool boot_files_replaced(void)
{
	return replaced != NULL && *replaced;
}
