/*
 * Files that the boot opens for writing: by what name each was opened, how, what the boot had done to that name before,
 * and what this process has written to it since. What is in a file tells none of this: somebody may have renamed it,
 * another boot may empty it at that moment, and requests of other workers write to it.
 *
 * One note for each file (device and inode), whoever opens it. Where several names lead to it the first one counts,
 * unless a later opening empties it.
 *
 * Promised: what is told was written by this process, byte by byte, or it is said that this is not sure. Notes are kept
 * memory: a fork takes them along, rewinds leave them alone, and at the point they are what they are. errno stays what
 * it was.
 */
#include "interpose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* What lies there is no file of anybody's. */
static const char *const no_files[] = {"/proc/", "/sys/", "/dev/fd/", "/dev/std"};

static bool may_be_file(const char *path)
{
	for (size_t i = 0; i < sizeof no_files / sizeof no_files[0]; i++) {
		if (strncmp(path, no_files[i], strlen(no_files[i])) == 0) {
			return false;
		}
	}
	return true;
}

static bool noting(void)
{
	const struct control *c = rewind_control;
	return c != NULL && !c->active && c->openings != NULL;
}

static struct rewind_opening *find_file(uint64_t device, uint64_t inode)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->opening_count; i++) {
		if (c->openings[i].inode == inode && c->openings[i].device == device) {
			return &c->openings[i];
		}
	}
	return NULL;
}

/* The note of the file that is open under this number; NULL: there is none. */
static struct rewind_opening *find(int fd)
{
	struct stat st;
	return SYS2(SYS_fstat, fd, &st) == 0 ? find_file(st.st_dev, st.st_ino) : NULL;
}

static bool is_open(const struct rewind_opening *one, int fd)
{
	struct stat st;
	return SYS2(SYS_fstat, fd, &st) == 0 && st.st_dev == one->device && st.st_ino == one->inode;
}

/* Files that the boot has closed: their notes are free for others. */
static void sweep(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->opening_count; i++) {
		c->openings[i].used = is_open(&c->openings[i], c->openings[i].fd);
	}
	for (long fd = 0, behind = 0; behind < 1024; fd++) {
		struct stat st;
		if (SYS2(SYS_fstat, fd, &st) != 0) {
			behind++;
			continue;
		}
		behind = 0;
		struct rewind_opening *one = find_file(st.st_dev, st.st_ino);
		if (one != NULL) {
			one->used = true;
		}
	}
	for (size_t i = 0; i < c->opening_count; i++) {
		if (!c->openings[i].used) {
			c->openings[i].device = c->openings[i].inode = 0;
		}
	}
}

static void forget_bytes(struct rewind_opening *one)
{
	if (one->bytes != NULL && one->size > 0) {
		memset(one->bytes, 0, one->size < REWIND_MOST_WRITTEN ? one->size : REWIND_MOST_WRITTEN);
	}
	one->start = one->size = 0;
}

static void reset(struct rewind_opening *one)
{
	forget_bytes(one);
	*one = (struct rewind_opening){.bytes = one->bytes, .name = one->name, .end = -1};
	one->name[0] = '\0';
}

/* A note that is free. NULL: all files of so many notes are open. */
static struct rewind_opening *take(void)
{
	struct control *c = rewind_control;
	for (int pass = 0; pass < 2; pass++) {
		if (c->opening_count < REWIND_MOST_OPENINGS) {
			size_t i = c->opening_count++;
			c->openings[i].name = c->opening_names + i * PATH_MAX;
			return &c->openings[i];
		}
		struct rewind_opening *freed = find_file(0, 0);
		if (freed != NULL) {
			return freed;
		}
		sweep();
	}
	return NULL;
}

/* That of a file which the boot has closed. */
static uint8_t *free_room(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; i < c->opening_count; i++) {
		struct rewind_opening *from = &c->openings[i];
		uint8_t *bytes = from->bytes;
		if (from->inode == 0 && bytes != NULL) {
			forget_bytes(from);
			from->bytes = NULL;
			return bytes;
		}
	}
	return NULL;
}

/* Where the bytes of this one are kept; NULL: there is no room. */
static uint8_t *room_for(struct rewind_opening *one)
{
	struct control *c = rewind_control;
	if (one->bytes == NULL && c->opening_rooms == REWIND_MOST_ROOMS) {
		one->bytes = free_room();
		if (one->bytes == NULL) {
			sweep();
			one->bytes = free_room();
		}
	} else if (one->bytes == NULL) {
		one->bytes = rewind_keep(REWIND_MOST_WRITTEN);
		c->opening_rooms += one->bytes != NULL;
	}
	return one->bytes;
}

/* The directory of `path`, and what follows it; false: that cannot be said. */
static bool split(int at, const char *path, struct place_name *to)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash == NULL ? path : slash + 1;
	char directory[PATH_MAX];
	size_t len = slash == NULL ? 0 : (size_t)(slash - path) + 1;
	struct stat st;
	if (len >= sizeof directory || strlen(base) >= sizeof to->base || base[0] == '\0') {
		return false;
	}
	memcpy(directory, path, len);
	directory[len] = '\0';
	if (SYS4(SYS_newfstatat, at, len == 0 ? "." : directory, &st, 0) != 0) {
		return false;
	}
	to->device = st.st_dev;
	to->inode = st.st_ino;
	strcpy(to->base, base);
	return true;
}

static uint64_t add(uint64_t hash, const void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u; /* FNV-1a */
	}
	return hash;
}

static uint64_t number_of(const struct place_name *name)
{
	uint64_t hash = add(14695981039346656037u, &name->device, sizeof name->device);
	return add(add(hash, &name->inode, sizeof name->inode), name->base, strlen(name->base));
}

/* The boot has removed what had this name. Whether it always does, or only what has become too old or too large, nobody
 * knows: see openings_opened(). */
static void note_removed(int at, const char *path)
{
	struct control *c = rewind_control;
	struct place_name name;
	if (split(at, path, &name)) {
		c->removed[c->removed_count++ % REWIND_MOST_REMOVED] = number_of(&name);
	}
}

static bool was_removed(int at, const char *path)
{
	const struct control *c = rewind_control;
	struct place_name name;
	if (c->removed_count == 0 || !split(at, path, &name)) {
		return false;
	}
	uint64_t number = number_of(&name);
	for (size_t i = 0; i < REWIND_MOST_REMOVED && i < c->removed_count; i++) {
		if (c->removed[i] == number) {
			return true;
		}
	}
	return false;
}

/* `path` as an absolute one, links and all. "": that cannot be said, or nothing there is a file. */
static void name_it(int at, const char *path, char to[PATH_MAX])
{
	size_t len = 0;
	to[0] = '\0';
	if (path[0] != '/') {
		char link[64];
		snprintf(link, sizeof link, "/proc/self/fd/%d", at);
		long n = at == AT_FDCWD ? SYS2(SYS_getcwd, to, PATH_MAX - 1) - 1
		                        : SYS4(SYS_readlinkat, AT_FDCWD, link, to, PATH_MAX - 2);
		if (n <= 0 || to[0] != '/') {
			to[0] = '\0';
			return;
		}
		len = (size_t)n;
		to[len++] = '/';
	}
	if (len + strlen(path) >= PATH_MAX) {
		to[0] = '\0';
		return;
	}
	strcpy(to + len, path);
	if (!may_be_file(to)) {
		to[0] = '\0';
	}
}

void rewind_opening_name(struct rewind_opening *one, const char *path)
{
	if (one->name[0] != '\0' && !one->renamed && path[0] == '/' && strlen(path) < PATH_MAX && may_be_file(path)) {
		strcpy(one->name, path);
		one->renamed = true;
	}
}

/* Before an opening: it makes the file. */
bool openings_missing(int at, const char *path, int flags)
{
	struct stat st;
	return (flags & O_CREAT) && noting() && SYS4(SYS_newfstatat, at, path, &st, 0) == -ENOENT;
}

/* Some filters of system calls know no statx(2), and some file systems no time of birth. */
static bool look(int fd, struct statx *to)
{
	struct stat st;
	if (sys6(SYS_statx, fd, (long)"", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, (long)to, 0) == 0) {
		return true;
	}
	if (SYS2(SYS_fstat, fd, &st) != 0) {
		return false;
	}
	*to = (struct statx){.stx_mode = (uint16_t)st.st_mode,
	                     .stx_ino = st.st_ino,
	                     .stx_size = (uint64_t)st.st_size,
	                     .stx_dev_major = major(st.st_dev),
	                     .stx_dev_minor = minor(st.st_dev)};
	return true;
}

/*
 * What a warm-up request empties that the boot leaves as it is, requests of visitors empty as well: it is theirs.
 *
 * A file that was not there, was made, closed, and is opened otherwise now: each boot may make it anew, or only one
 * that finds none. The next boot will show that, for it finds one.
 */
void openings_opened(int fd, int at, const char *path, int flags, bool missing)
{
	char name[PATH_MAX];
	struct statx st;
	bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
	if (fd < 0 || !noting() || !writes || (flags & O_PATH) || (flags & O_TMPFILE) == O_TMPFILE) {
		return;
	}
	name_it(at, path, name);
	if (name[0] == '\0' || !look(fd, &st) || !S_ISREG(st.stx_mode)) {
		return;
	}
	uint64_t device = makedev(st.stx_dev_major, st.stx_dev_minor);
	uint64_t born = st.stx_mask & STATX_BTIME ? (uint64_t)st.stx_btime.tv_sec * 1000000000u + st.stx_btime.tv_nsec : 0;
	struct rewind_opening *one = find_file(device, st.stx_ino);
	/* A file that the boot has closed may be gone, and its number another one's. */
	bool fresh = one == NULL || one->born != born || (born == 0 && !is_open(one, one->fd));
	one = one != NULL ? one : take();
	if (one == NULL) {
		return;
	}
	if (fresh) {
		reset(one);
		one->device = device;
		one->inode = st.stx_ino;
		one->born = born;
	}
	bool theirs = rewind_control->boot_over && !fresh && !one->anew;
	bool empties = ((flags & O_TRUNC) || ((flags & O_CREAT) && (flags & O_EXCL))) && !theirs;
	/* One that is only written to, as a log, is not taken for one that each boot makes anew. */
	bool removed = (flags & O_CREAT) && (empties || (flags & O_ACCMODE) == O_RDWR) && !theirs && was_removed(at, path);
	empties |= removed;
	if (fresh || empties) {
		strcpy(one->name, name);
		one->flags = flags;
		one->removed = removed;
		one->nameless = one->renamed = false;
		one->late = rewind_control->boot_over;
		one->made = missing;
		one->maker = fd;
		one->perhaps = false;
	} else if (one->anew && one->made && !one->removed && (one->maker == fd || !is_open(one, one->maker))) {
		one->perhaps = true;
	}
	if (empties) {
		forget_bytes(one);
		one->anew = true;
		/* What was written so is gone; unless somebody, as another boot at this moment, was here before. */
		one->unseen = st.stx_size > 0;
		one->end = -1;
	}
	one->fd = fd;
}

/* What requests of the boot's own have written to a file that others write to as well is none of its next boot's. */
static bool notes_bytes(const struct rewind_opening *one)
{
	return one->anew || !rewind_control->boot_over;
}

static void note_bytes(struct rewind_opening *one, const void *from, size_t len, size_t at)
{
	size_t end = at + len;
	uint8_t *bytes = at < REWIND_MOST_WRITTEN ? room_for(one) : NULL;
	if (bytes != NULL) {
		size_t room = REWIND_MOST_WRITTEN - at;
		memcpy(bytes + at, from, len < room ? len : room);
	} else if (at < REWIND_MOST_WRITTEN) {
		one->unseen = true;
	}
	one->size = one->size < end ? end : one->size;
}

void openings_wrote(int fd, const void *from, size_t len, off_t at)
{
	struct stat st;
	struct rewind_opening *one = SYS2(SYS_fstat, fd, &st) == 0 ? find_file(st.st_dev, st.st_ino) : NULL;
	if (one == NULL) {
		return;
	}
	bool appends = (SYS3(SYS_fcntl, fd, F_GETFL, 0) & O_APPEND) != 0;
	/* pwrite(2) moves no position, and appends where all that is written is appended. */
	long end = at < 0 ? SYS3(SYS_lseek, fd, 0, SEEK_CUR) : appends ? st.st_size : at + (long)len;
	if (end < (long)len) {
		one->unseen = true;
		return;
	}
	uint64_t start = (uint64_t)end - len;
	/* At the end that was asked for, which is another one in another file. */
	bool behind = appends || (one->end > 0 && (int64_t)start == one->end);
	if (appends || (int64_t)start == one->end) {
		one->end = end;
	}
	if (!notes_bytes(one)) {
		return;
	}
	if (one->cut_to > 0 && (uint64_t)end > one->cut_to) {
		one->anew = one->perhaps = true;
	}
	if (one->anew) {
		/* The end of what this process wrote: somebody else may have written behind it. */
		note_bytes(one, from, len, appends ? one->size : start);
	} else if (behind && (one->size == 0 || one->appended)) {
		one->appended = true;
		note_bytes(one, from, len, one->size);
	} else if (!one->appended && one->size == 0) {
		one->start = start;
		note_bytes(one, from, len, 0);
	} else if (!one->appended && start >= one->start && start <= one->start + one->size) {
		note_bytes(one, from, len, start - one->start);
	} else {
		one->unseen = true;
	}
}

/* So much is left of the bytes that were written. */
static void shorten(struct rewind_opening *one, size_t to)
{
	size_t kept = one->size < REWIND_MOST_WRITTEN ? one->size : REWIND_MOST_WRITTEN;
	if (one->bytes != NULL && to < kept) {
		memset(one->bytes + to, 0, kept - to);
	}
	one->size = to;
}

/*
 * A file that is not this process' alone is made so long. Where that cuts off more than this process has written there,
 * each boot does so, or only one that finds something wrong with it; the next boot will show that, since only the first
 * kind cuts where nothing is to be cut off.
 */
static void cut(struct rewind_opening *one, uint64_t size, uint64_t before)
{
	bool at_end = one->appended ? one->end == (int64_t)before : one->start + one->size == before;
	if (!one->appended && !one->unseen && one->start == 0 && one->size >= size && size <= before) {
		shorten(one, size);
		one->anew = true; /* all that is left is what this process wrote */
	} else if (size == before && one->end != (int64_t)size) {
		one->cut_to = size;
	} else if (size < before && at_end && before - size <= one->size) {
		shorten(one, one->size - (before - size));
	} else if (size < before) {
		one->anew = one->perhaps = true;
	}
}

/* `before`: how large it was, unless it was emptied. */
void openings_truncated(int fd, off_t size, off_t before)
{
	struct rewind_opening *one = find(fd);
	if (one == NULL || (rewind_control->boot_over && !one->anew)) {
		return;
	}
	if (size == 0) {
		forget_bytes(one);
		one->anew = true;
		one->made &= !one->perhaps; /* whoever made it, this boot empties it */
		one->unseen = one->perhaps = one->appended = false;
		one->cut_to = 0;
	} else if (one->anew) {
		shorten(one, (size_t)size);
	} else {
		cut(one, (uint64_t)size, (uint64_t)before);
	}
	one->end = -1;
}

/* Nothing more was there to be read, or the end was asked for. */
void openings_at_end(int fd)
{
	struct rewind_opening *one = find(fd);
	if (one != NULL) {
		one->end = SYS3(SYS_lseek, fd, 0, SEEK_CUR);
	}
}

/* Where it begins is not its end, though it may be empty. */
void openings_at_start(int fd)
{
	struct rewind_opening *one = find(fd);
	if (one != NULL && one->end == 0) {
		one->end = -1;
	}
}

void openings_unseen(int fd, bool lasts)
{
	struct rewind_opening *one = find(fd);
	if (one != NULL) {
		one->unseen |= !lasts;
		one->lasts |= lasts;
	}
}

/* It has the descriptors of this process, and knows names of files. */
void openings_child(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; noting() && i < c->opening_count; i++) {
		c->openings[i].lasts = true;
	}
}

void rewind_child_made(void)
{
	openings_child();
}

/* The file that has this name, if there is a note of it. Names that a warm-up request gives to a file of the boot, as
 * one that puts it where somebody else takes it, are none of the boot's. */
static struct rewind_opening *find_named(int at, const char *path, uint64_t *links)
{
	struct stat st;
	if (!noting() || SYS4(SYS_newfstatat, at, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		return NULL;
	}
	*links = st.st_nlink;
	struct rewind_opening *one = S_ISREG(st.st_mode) ? find_file(st.st_dev, st.st_ino) : NULL;
	return one != NULL && one->late == rewind_control->boot_over ? one : NULL;
}

static bool has_name(const struct rewind_opening *one, int at, const char *path)
{
	struct place_name here, there;
	return one->name[0] != '\0' && split(at, path, &here) && split(AT_FDCWD, one->name, &there) &&
	       here.device == there.device && here.inode == there.inode && strcmp(here.base, there.base) == 0;
}

static int unlinking(int at, const char *path, int flags)
{
	uint64_t links = 0;
	struct rewind_opening *one = flags & AT_REMOVEDIR ? NULL : find_named(at, path, &links);
	long failed = SYS3(SYS_unlinkat, at, path, flags);
	if ((failed == 0 || failed == -ENOENT) && !(flags & AT_REMOVEDIR) && noting()) {
		note_removed(at, path);
	}
	if (failed != 0) {
		errno = (int)-failed;
		return -1;
	}
	if (one != NULL && (links == 1 || has_name(one, at, path))) {
		one->nameless = true;
	}
	return 0;
}

EXPORT int unlink(const char *path)
{
	return unlinking(AT_FDCWD, path, 0);
}

EXPORT int unlinkat(int at, const char *path, int flags)
{
	return unlinking(at, path, flags);
}

EXPORT int remove(const char *path)
{
	return unlinking(AT_FDCWD, path, 0) == 0 ? 0 : errno == EISDIR ? unlinking(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}

static bool leads_to(const char *path, const struct rewind_opening *one)
{
	struct stat st;
	return SYS4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && st.st_dev == one->device && st.st_ino == one->inode;
}

/* Where the kernel has it. "": it does not say. */
static void path_of(int fd, char path[PATH_MAX])
{
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	long n = SYS4(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = '\0';
}

/* The boot has renamed a directory: files below it have other names by now. */
static void follow_directory(int at, const char *path)
{
	struct control *c = rewind_control;
	char directory[PATH_MAX], name[PATH_MAX];
	long fd = SYS4(SYS_openat, at, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0) {
		return;
	}
	path_of((int)fd, directory);
	SYS1(SYS_close, fd);
	size_t len = strlen(directory);
	for (size_t i = 0; i < c->opening_count; i++) {
		struct rewind_opening *one = &c->openings[i];
		if (one->inode == 0 || one->name[0] == '\0' || one->late != c->boot_over || leads_to(one->name, one) ||
		    !is_open(one, one->fd)) {
			continue;
		}
		path_of(one->fd, name);
		if (len > 0 && strncmp(name, directory, len) == 0 && name[len] == '/' && leads_to(name, one)) {
			strcpy(one->name, name);
			one->renamed = true;
		}
	}
}

/* A name that the boot gives: what had it before it is gone, and so each boot would have it. */
static int renaming(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	uint64_t links;
	struct rewind_opening *one = find_named(from_at, from, &links), *over = find_named(to_at, to, &links);
	long failed = sys6(SYS_renameat2, from_at, (long)from, to_at, (long)to, flags, 0);
	if (failed != 0) {
		errno = (int)-failed;
		return -1;
	}
	if (noting() && flags == 0) {
		if (over != NULL && over != one && has_name(over, to_at, to)) {
			over->nameless = true;
		}
		if (one != NULL && over != one) {
			name_it(to_at, to, one->name);
			one->removed = one->anew;
			one->renamed = true;
			one->nameless = one->name[0] == '\0';
		} else if (one == NULL) {
			follow_directory(to_at, to);
		}
	}
	return 0;
}

EXPORT int rename(const char *from, const char *to)
{
	return renaming(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int renameat(int from_at, const char *from, int to_at, const char *to)
{
	return renaming(from_at, from, to_at, to, 0);
}

EXPORT int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	return renaming(from_at, from, to_at, to, flags);
}

/* The name that the boot gave last stays, where it removes the one before. */
static int linking(int from_at, const char *from, int to_at, const char *to, int flags)
{
	uint64_t links;
	struct rewind_opening *one = find_named(from_at, from, &links);
	long failed = sys6(SYS_linkat, from_at, (long)from, to_at, (long)to, flags, 0);
	if (failed != 0) {
		errno = (int)-failed;
		return -1;
	}
	if (one != NULL && one->anew) {
		name_it(to_at, to, one->name);
		one->removed |= was_removed(to_at, to);
		one->renamed = true;
		one->nameless = one->name[0] == '\0';
	}
	return 0;
}

EXPORT int link(const char *from, const char *to)
{
	return linking(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
	return linking(from_at, from, to_at, to, flags);
}

EXPORT off_t lseek(int fd, off_t to, int whence)
{
	long at = SYS3(SYS_lseek, fd, to, whence);
	if (at < 0) {
		errno = (int)-at;
		return -1;
	}
	if (to == 0 && whence != SEEK_CUR && interpose_boot_writes()) {
		(whence == SEEK_END ? openings_at_end : openings_at_start)(fd);
	}
	return at;
}
EXPORT off64_t lseek64(int fd, off64_t to, int whence) __attribute__((alias("lseek")));
off64_t llseek(int fd, off64_t to, int whence);
EXPORT off64_t llseek(int fd, off64_t to, int whence)
{
	return lseek(fd, to, whence);
}

const char *openings_begin(void)
{
	struct control *c = rewind_control;
	c->opening_names = rewind_keep((size_t)REWIND_MOST_OPENINGS * PATH_MAX);
	struct rewind_opening *openings = rewind_keep(REWIND_MOST_OPENINGS * sizeof *openings);
	c->removed = rewind_keep(REWIND_MOST_REMOVED * sizeof *c->removed);
	c->openings = c->opening_names == NULL || c->removed == NULL ? NULL : openings;
	return c->openings == NULL ? "no memory for notes of the boot's files" : NULL;
}

void rewind_boot_over(bool over)
{
	if (rewind_control != NULL) {
		rewind_control->boot_over = over;
	}
}

void openings_settle(void)
{
	struct control *c = rewind_control;
	for (size_t i = 0; c->openings != NULL && i < c->opening_count; i++) {
		struct rewind_opening *one = &c->openings[i];
		if (!one->kept) {
			SYS3(SYS_madvise, one->name, PATH_MAX, MADV_DONTNEED);
			if (one->bytes != NULL) {
				SYS3(SYS_madvise, one->bytes, REWIND_MOST_WRITTEN, MADV_DONTNEED);
			}
			one->device = one->inode = 0;
		}
	}
}

static long open_it(const char *name, int flags, mode_t mode)
{
	/* A pipe would wait for somebody who reads it; and so does a lease, which is worth to be waited for. */
	long fd = SYS4(SYS_openat, AT_FDCWD, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
	struct stat st;
	if (fd == -EWOULDBLOCK && SYS4(SYS_newfstatat, AT_FDCWD, name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
		fd = SYS4(SYS_openat, AT_FDCWD, name, flags | O_CLOEXEC | O_NOCTTY, mode);
	}
	return fd;
}

/* One that was not there. What the boot gave it as rights is given again, whatever the umask. */
static long make_it(const char *name, int flags, mode_t mode)
{
	long fd = open_it(name, flags | O_CREAT | O_EXCL, mode & 0777);
	struct stat st;
	if (fd >= 0 && SYS2(SYS_fstat, fd, &st) == 0 && (st.st_mode & 0777) != (mode & 0777)) {
		SYS2(SYS_fchmod, fd, mode & 0777);
	}
	return fd;
}

static long open_or_make(const char *name, int flags, mode_t mode)
{
	long fd = -ENOENT;
	for (int tries = 0; tries < 4 && (fd == -ENOENT || fd == -EEXIST); tries++) {
		fd = open_it(name, flags, 0);
		if (fd == -ENOENT) {
			fd = make_it(name, flags, mode);
		}
	}
	/* A link that leads nowhere: what it leads to is made. */
	return fd == -EEXIST ? open_it(name, flags | O_CREAT, mode & 0777) : fd;
}

int rewind_opening_again(const struct rewind_opening *one, mode_t mode)
{
	int flags = one->flags & (O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC | O_NOFOLLOW);
	bool exclusive = (one->flags & O_CREAT) && (one->flags & O_EXCL);
	struct stat st;
	long fd = -EEXIST;
	if (one->removed) {
		for (int tries = 0; tries < 16 && fd == -EEXIST; tries++) {
			SYS3(SYS_unlinkat, AT_FDCWD, one->name, 0);
			fd = make_it(one->name, flags, mode);
		}
	} else if (exclusive) {
		/* Its own name, which has got another one beside. */
		if (SYS4(SYS_newfstatat, AT_FDCWD, one->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == one->device &&
		    st.st_ino == one->inode) {
			SYS3(SYS_unlinkat, AT_FDCWD, one->name, 0);
		}
		fd = make_it(one->name, flags, mode);
	} else {
		fd = one->flags & O_CREAT ? open_or_make(one->name, flags, mode) : open_it(one->name, flags, 0);
	}
	if (fd >= 0 && (SYS2(SYS_fstat, fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))) {
		SYS1(SYS_close, fd);
		return -EINVAL;
	}
	return (int)fd;
}

struct rewind_opening *rewind_opening_of(const struct stat *st)
{
	const struct control *c = rewind_control;
	return c == NULL || c->openings == NULL ? NULL : find_file(st->st_dev, st->st_ino);
}

struct rewind_opening *rewind_opening_make(int fd, const struct stat *st)
{
	struct rewind_opening *one = noting() ? find_file(st->st_dev, st->st_ino) : NULL;
	if (one == NULL && noting() && (one = take()) != NULL) {
		reset(one);
		one->device = st->st_dev;
		one->inode = st->st_ino;
		one->fd = fd;
	}
	return one;
}

bool rewind_opening_read(struct rewind_opening *one, int fd, size_t size)
{
	forget_bytes(one);
	one->anew = true;
	one->size = size;
	return size <= REWIND_MOST_WRITTEN && (size == 0 || room_for(one) != NULL) &&
	       (size == 0 || pread(fd, one->bytes, size, 0) == (ssize_t)size);
}

const uint8_t *rewind_left_in(int fd, size_t *size)
{
	static const uint8_t nothing[1];
	const struct control *c = rewind_control;
	const struct rewind_opening *one = c == NULL || c->openings == NULL ? NULL : find(fd);
	if (one == NULL || !one->anew || one->unseen || one->lasts || one->perhaps || one->size > REWIND_MOST_WRITTEN) {
		return NULL;
	}
	*size = one->size;
	return one->bytes != NULL ? one->bytes : nothing;
}
