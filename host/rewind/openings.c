/*
 * Files that the boot opens for writing: by what name and how each was opened, and what the boot itself has done to the
 * file or to its name. From this the host knows which of them can be opened again as the boot opened them.
 *
 * One note for each descriptor, from when it is opened until it is closed. Names of files that the boot empties are
 * noted as well, since it does so each time.
 *
 * Promised: what is not noted is not known, and says so. Notes are kept memory: a fork takes them along, and rewinds
 * leave them alone. errno stays what it was.
 */
#include "interpose.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static bool noting(void)
{
	const struct control *c = rewind_control;
	return c != NULL && !c->active && c->openings != NULL;
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

static bool number_of(int at, const char *path, uint64_t *to)
{
	struct place_name name;
	if (!split(at, path, &name)) {
		return false;
	}
	uint64_t hash = add(14695981039346656037u, &name.device, sizeof name.device);
	hash = add(hash, &name.inode, sizeof name.inode);
	*to = add(hash, name.base, strlen(name.base));
	return true;
}

static void note_number(uint64_t number)
{
	struct control *c = rewind_control;
	c->emptied[c->emptied_count++ % REWIND_MOST_EMPTIED] = number;
}

static void note_emptied_name(int at, const char *path)
{
	uint64_t number;
	if (number_of(at, path, &number)) {
		note_number(number);
	}
}

static bool was_emptied(int at, const char *path)
{
	const struct control *c = rewind_control;
	uint64_t number;
	if (c->emptied_count == 0 || !number_of(at, path, &number)) {
		return false;
	}
	for (size_t i = 0; i < REWIND_MOST_EMPTIED && i < c->emptied_count; i++) {
		if (c->emptied[i] == number) {
			return true;
		}
	}
	return false;
}

/* `path` as an absolute one, links and all. False: that cannot be said. */
static bool name_it(int at, const char *path, char to[PATH_MAX])
{
	size_t len = 0;
	if (path[0] != '/') {
		char link[64];
		snprintf(link, sizeof link, "/proc/self/fd/%d", at);
		long n = at == AT_FDCWD ? SYS2(SYS_getcwd, to, PATH_MAX - 1) - 1
		                        : SYS4(SYS_readlinkat, AT_FDCWD, link, to, PATH_MAX - 2);
		if (n <= 0 || to[0] != '/') {
			return false;
		}
		len = (size_t)n;
		to[len++] = '/';
	}
	if (len + strlen(path) >= PATH_MAX) {
		return false;
	}
	strcpy(to + len, path);
	return true;
}

static bool leads_to(const char *path, const struct rewind_opening *one)
{
	struct stat st;
	return SYS4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && st.st_dev == one->device && st.st_ino == one->inode;
}

/* What a warm-up request does to a file that the boot opened, requests of visitors do as well: it is not the boot's. */
static bool is_of_now(const struct rewind_opening *one)
{
	return one->noted && one->late == rewind_control->boot_over;
}

/* All that are open of a file. */
static void note_emptied_file(const struct stat *st)
{
	struct control *c = rewind_control;
	for (size_t fd = 0; fd < c->opening_count; fd++) {
		struct rewind_opening *one = &c->openings[fd];
		if (is_of_now(one) && one->inode == st->st_ino && one->device == st->st_dev) {
			one->emptied = true;
		}
	}
}

/* Before an opening: whether it makes the file, where it would empty one that is there. */
bool openings_missing(int at, const char *path, int flags)
{
	struct stat st;
	return (flags & O_CREAT) && (flags & O_TRUNC) && noting() && SYS4(SYS_newfstatat, at, path, &st, 0) == -ENOENT;
}

void openings_opened(int fd, int at, const char *path, int flags, bool missing)
{
	struct control *c = rewind_control;
	struct stat st;
	if (fd < 0 || fd >= REWIND_MOST_OPENINGS || !noting()) {
		return;
	}
	struct rewind_opening *one = &c->openings[fd];
	*one = (struct rewind_opening){.name = one->name};
	bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
	char name[PATH_MAX];
	if (!writes || (flags & O_PATH) || (flags & O_TMPFILE) == O_TMPFILE || SYS2(SYS_fstat, fd, &st) != 0 ||
	    !S_ISREG(st.st_mode) || !name_it(at, path, name)) {
		return;
	}
	if (flags & O_TRUNC) {
		note_emptied_file(&st);
	}
	/* What was not there a boot may make so, or only one that finds none. */
	if ((flags & O_TRUNC) && !missing) {
		note_emptied_name(at, path);
	}
	*one = (struct rewind_opening){.device = st.st_dev,
	                               .inode = st.st_ino,
	                               .flags = flags,
	                               .noted = true,
	                               .late = c->boot_over,
	                               .emptied = !(flags & O_TRUNC) && was_emptied(at, path),
	                               .unsure = !(flags & O_TRUNC) && c->emptied_count > REWIND_MOST_EMPTIED,
	                               .name = c->opening_names + (size_t)fd * PATH_MAX};
	strcpy(one->name, name);
	c->opening_count = c->opening_count <= (size_t)fd ? (size_t)fd + 1 : c->opening_count;
}

void openings_wrote(int fd)
{
	struct control *c = rewind_control;
	struct stat st;
	if (!noting() || c->opening_count == 0) {
		return;
	}
	if (fd >= 0 && (size_t)fd < c->opening_count && c->openings[fd].noted) {
		c->openings[fd].touched |= is_of_now(&c->openings[fd]);
		return;
	}
	/* A duplicate, as libraries that compress make of one. */
	if (SYS2(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode)) {
		for (size_t i = 0; i < c->opening_count; i++) {
			struct rewind_opening *one = &c->openings[i];
			one->otherwise |= is_of_now(one) && one->inode == st.st_ino && one->device == st.st_dev;
		}
	}
}

void openings_closed(int fd)
{
	struct control *c = rewind_control;
	if (noting() && fd >= 0 && fd < REWIND_MOST_OPENINGS) {
		c->openings[fd] = (struct rewind_opening){.name = c->openings[fd].name};
	}
}

void openings_truncated(int fd, const char *path)
{
	struct stat st;
	if (!noting()) {
		return;
	}
	if (path != NULL) {
		note_emptied_name(AT_FDCWD, path);
	}
	if (path != NULL ? SYS4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 : SYS2(SYS_fstat, fd, &st) == 0) {
		note_emptied_file(&st);
	}
}

/* Names are about to be changed, or were: files that were led to, and are not any more, have others now. */
static void note_names(bool changed)
{
	const struct control *c = rewind_control;
	for (size_t fd = 0; noting() && fd < c->opening_count; fd++) {
		struct rewind_opening *one = &c->openings[fd];
		if (is_of_now(one)) {
			bool leads = leads_to(one->name, one);
			one->moved |= changed && one->led && !leads;
			one->led = leads;
		}
	}
}

static int done(long failed)
{
	if (failed == 0) {
		note_names(true);
		return 0;
	}
	errno = (int)-failed;
	return -1;
}

/* A name that is about to be given up; once it is, its directory may be another one by the path. */
struct given_up {
	bool known;
	uint64_t number;
};

static struct given_up name_to_give_up(int at, const char *path)
{
	struct given_up name = {.known = false};
	name.known = noting() && number_of(at, path, &name.number);
	return name;
}

/*
 * Who then opens it to append begins an empty file, or one that was made beside it, each time. A call that failed gave
 * nothing up; but what it did not find a later boot may have made.
 */
static void note_given_up(struct given_up name, long failed)
{
	if (name.known && (failed == 0 || failed == -ENOENT)) {
		note_number(name.number);
	}
}

static int unlinking(int at, const char *path, int flags)
{
	struct given_up name = name_to_give_up(at, path);
	note_names(false);
	long failed = SYS3(SYS_unlinkat, at, path, flags);
	note_given_up(name, failed);
	return done(failed);
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

static int renaming(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
	struct given_up old = name_to_give_up(from_at, from), new = name_to_give_up(to_at, to);
	note_names(false);
	long failed = sys6(SYS_renameat2, from_at, (long)from, to_at, (long)to, flags, 0);
	/* Where a directory is missing, it is not the file that was not found. */
	if (failed == 0 || (old.known && new.known)) {
		note_given_up(old, failed);
		note_given_up(new, failed);
	}
	return done(failed);
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

const char *openings_begin(void)
{
	struct control *c = rewind_control;
	c->opening_names = rewind_keep((size_t)REWIND_MOST_OPENINGS * PATH_MAX);
	c->emptied = rewind_keep(REWIND_MOST_EMPTIED * sizeof *c->emptied);
	struct rewind_opening *openings = rewind_keep(REWIND_MOST_OPENINGS * sizeof *openings);
	c->openings = c->opening_names == NULL || c->emptied == NULL ? NULL : openings;
	return c->openings == NULL ? "no memory for notes of the boot's files" : NULL;
}

void rewind_boot_over(bool over)
{
	if (rewind_control != NULL) {
		rewind_control->boot_over = over;
	}
}

/* Of thousands that a boot has opened and closed again the names are no longer needed. */
void openings_settle(void)
{
	struct control *c = rewind_control;
	for (size_t fd = 0; c->openings != NULL && fd < c->opening_count; fd++) {
		struct rewind_opening *one = &c->openings[fd];
		if (one->noted && !one->kept) {
			SYS3(SYS_madvise, one->name, PATH_MAX, MADV_DONTNEED);
			one->noted = false;
		}
	}
}

struct rewind_opening *rewind_opening_of(int fd)
{
	const struct control *c = rewind_control;
	struct stat st;
	if (c == NULL || fd < 0 || (size_t)fd >= c->opening_count || SYS2(SYS_fstat, fd, &st) != 0) {
		return NULL;
	}
	struct rewind_opening *one = &c->openings[fd];
	return one->noted && one->device == st.st_dev && one->inode == st.st_ino ? one : NULL;
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

int rewind_make_file(const char *name, mode_t mode)
{
	long fd = open_it(name, O_RDWR | O_CREAT | O_EXCL, mode & 0777);
	struct stat st;
	/* Whatever the umask is. */
	if (fd >= 0 && SYS2(SYS_fstat, fd, &st) == 0 && (st.st_mode & 0777) != (mode & 0777)) {
		SYS2(SYS_fchmod, fd, mode & 0777);
	}
	return (int)fd;
}

int rewind_opening_again(const struct rewind_opening *one, mode_t mode)
{
	int flags = one->flags & (O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC | O_NOFOLLOW);
	struct stat st;
	long fd = open_it(one->name, flags, 0);
	for (int tries = 0; tries < 4 && fd == -ENOENT && one->flags & O_CREAT; tries++) {
		fd = rewind_make_file(one->name, mode);
		if (fd == -EEXIST) {
			/* Somebody was faster, or it is a link that leads nowhere: what it leads to is made. */
			fd = open_it(one->name, flags | O_CREAT, mode & 0777);
		} else if (fd >= 0) {
			SYS1(SYS_close, fd);
			fd = open_it(one->name, flags, 0);
		}
	}
	if (fd >= 0 && (SYS2(SYS_fstat, fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode)))) {
		SYS1(SYS_close, fd);
		return -EINVAL;
	}
	return (int)fd;
}
