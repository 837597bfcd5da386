/*
 * SQLite connections of the boot. SQLite is a library and files: what it knows is put back with the memory, but locks
 * on the files, and what a statement that was not read to its end has written, are outside.
 *
 * So a request ends for them as it does where it had opened them: statements that it left half-read are ended, which
 * commits what they wrote, and a transaction that it left open is rolled back. And a boot that leaves a connection in
 * the middle of something is not rewound: each request would trust in a lock that no process holds any more.
 *
 * In WAL mode a connection holds locks as long as it is open, which tell others that they must not remove its log. The
 * kernel takes them from a process that closes any descriptor of the same file. SQLite knows that and postpones it;
 * a rewind cannot, and a script that reads the file does not. So a worker that has lost them, or would, is replaced.
 *
 * Whoever replaces or removes a database by its name means the next boot as well: a worker whose connections lead to
 * the one before takes no further request, and another one boots. So such a boot is private.
 *
 * Connections are noted as they are opened, by whatever library: the host has its own sqlite3_open() and its kin, which
 * call SQLite's (the executable's symbols come first).
 */
#include "host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

EXPORT int sqlite3_open(const char *path, sqlite3 **to);
EXPORT int sqlite3_open_v2(const char *path, sqlite3 **to, int flags, const char *vfs);
EXPORT int sqlite3_close(sqlite3 *connection);
EXPORT int sqlite3_close_v2(sqlite3 *connection);

/* SQLite's own, looked up when the first connection is opened. */
static struct {
	int (*open)(const char *, sqlite3 **);
	int (*open_v2)(const char *, sqlite3 **, int, const char *);
	int (*close)(sqlite3 *);
	int (*close_v2)(sqlite3 *);
	sqlite3_stmt *(*next_stmt)(sqlite3 *, sqlite3_stmt *);
	int (*stmt_busy)(sqlite3_stmt *);
	int (*reset)(sqlite3_stmt *);
	int (*get_autocommit)(sqlite3 *);
	const char *(*db_filename)(sqlite3 *, const char *);
	const char *(*db_name)(sqlite3 *, int); /* SQLite 3.39 */
	int (*release_memory)(sqlite3 *);
	int (*file_control)(sqlite3 *, const char *, int, void *);
	int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
} library;

/* What a name led to. */
struct file {
	char path[PATH_MAX];
	dev_t device;
	ino_t inode;
};

static bool note_file(struct file *file, const char *path)
{
	struct stat st;
	int n = snprintf(file->path, sizeof file->path, "%s", path);
	if (n < 0 || (size_t)n >= sizeof file->path || stat(path, &st) != 0) {
		return false;
	}
	file->device = st.st_dev;
	file->inode = st.st_ino;
	return true;
}

/* Those that are open. */
static struct connection {
	sqlite3 *is;
	/* The name that the application opened it by, absolute; NULL: none is known. Links of it are resolved in what
	 * PHP gives to SQLite, and in what SQLite tells. */
	struct file *given;
} * connections;
static size_t connection_count, of_boot;

static bool find(void)
{
	if (library.exec != NULL) {
		return true;
	}
	void *found = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_NOLOAD);
	if (found == NULL) {
		return false;
	}
	*(void **)&library.open = dlsym(found, "sqlite3_open");
	*(void **)&library.open_v2 = dlsym(found, "sqlite3_open_v2");
	*(void **)&library.close = dlsym(found, "sqlite3_close");
	*(void **)&library.close_v2 = dlsym(found, "sqlite3_close_v2");
	*(void **)&library.next_stmt = dlsym(found, "sqlite3_next_stmt");
	*(void **)&library.stmt_busy = dlsym(found, "sqlite3_stmt_busy");
	*(void **)&library.reset = dlsym(found, "sqlite3_reset");
	*(void **)&library.get_autocommit = dlsym(found, "sqlite3_get_autocommit");
	*(void **)&library.db_filename = dlsym(found, "sqlite3_db_filename");
	*(void **)&library.db_name = dlsym(found, "sqlite3_db_name");
	*(void **)&library.release_memory = dlsym(found, "sqlite3_db_release_memory");
	*(void **)&library.file_control = dlsym(found, "sqlite3_file_control");
	*(void **)&library.exec = dlsym(found, "sqlite3_exec");
	return library.exec != NULL;
}

/* Locks of a connection of the boot: what the kernel says of the descriptors of its files, opened once. */
#define MAX_FILES 16
static struct {
	char path[PATH_MAX];
	int info; /* of /proc/self/fdinfo */
} locked[MAX_FILES];
static size_t locked_count;
/* There are more, which nobody watches: then no request's end is sure of them. */
static bool too_many;
/* The request opened a connection of its own to such a file. */
static bool opened_again;

static bool is_locked_file(const char *path)
{
	for (size_t i = 0; path != NULL && i < locked_count; i++) {
		if (strcmp(locked[i].path, path) == 0) {
			return true;
		}
	}
	return false;
}

static bool holds_locks(int info)
{
	char text[1024];
	ssize_t n = pread(info, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "\nlock:") != NULL;
}

/* Descriptors of database files and of what lies beside them: NAME, NAME-wal, NAME-shm. */
static void note_locked_files(const char *database)
{
	DIR *fds = opendir("/proc/self/fd");
	const struct dirent *entry;
	while (fds != NULL && (entry = readdir(fds)) != NULL) {
		char path[PATH_MAX], info[64];
		ssize_t n = readlinkat(dirfd(fds), entry->d_name, path, sizeof path - 1);
		if (n <= 0) {
			continue;
		}
		path[n] = '\0';
		if (strncmp(path, database, strlen(database)) != 0) {
			continue;
		}
		snprintf(info, sizeof info, "/proc/self/fdinfo/%s", entry->d_name);
		int fd = open(info, O_RDONLY | O_CLOEXEC);
		too_many |= fd < 0;
		if (fd >= 0 && holds_locks(fd) && locked_count == MAX_FILES) {
			too_many = true;
			close(fd);
		} else if (fd >= 0 && holds_locks(fd)) {
			memcpy(locked[locked_count].path, path, (size_t)n + 1);
			locked[locked_count++].info = fd;
		} else if (fd >= 0) {
			close(fd);
		}
	}
	if (fds != NULL) {
		closedir(fds);
	}
}

bool sqlite_loses_locks(void)
{
	if (too_many) {
		return true;
	}
	for (size_t i = 0; i < locked_count; i++) {
		if (opened_again || !holds_locks(locked[i].info)) {
			return true;
		}
	}
	return false;
}

/* Of a URI (sqlite.org/uri.html) the path; with escapes in it SQLite's own name for the file has to do. */
static struct file *given_name(const char *path)
{
	char whole[2 * PATH_MAX];
	bool uri = strncmp(path, "file:", 5) == 0;
	path += uri ? 5 : 0;
	path += uri && strncmp(path, "//localhost/", 12) == 0 ? 11 : uri && strncmp(path, "///", 3) == 0 ? 2 : 0;
	size_t n = uri ? strcspn(path, "?#") : strlen(path), start = 0;
	if (path[0] != '/') {
		if (getcwd(whole, PATH_MAX) == NULL) {
			return NULL;
		}
		start = strlen(whole);
		whole[start++] = '/';
	}
	if (n == 0 || n >= PATH_MAX || (uri && memchr(path, '%', n) != NULL)) {
		return NULL;
	}
	memcpy(whole + start, path, n);
	whole[start + n] = '\0';
	struct file *given = malloc(sizeof *given);
	if (given != NULL && !note_file(given, whole)) {
		free(given);
		given = NULL;
	}
	return given;
}

static char *(*php_expand_filepath)(const char *, char *);
/* What PHP has resolved last, and to what: that is how its extensions come to the name that they give to SQLite. */
static char resolved_from[PATH_MAX], resolved_to[PATH_MAX];
static bool at_point; /* what is opened from now on is a request's */

__attribute__((constructor)) static void look_up(void)
{
	*(void **)&php_expand_filepath = dlsym(RTLD_NEXT, "expand_filepath");
}

PHPAPI char *expand_filepath(const char *path, char *room)
{
	char *result = php_expand_filepath(path, room);
	if (!at_point && result != NULL) {
		snprintf(resolved_from, sizeof resolved_from, "%s", path);
		snprintf(resolved_to, sizeof resolved_to, "%s", result);
	}
	return result;
}

static int opened(int result, sqlite3 **to, const char *path)
{
	opened_again |= locked_count > 0 && result == 0 && is_locked_file(library.db_filename(*to, "main"));
	/* SQLite gives a connection, to be closed, with most errors as well. */
	if (to != NULL && *to != NULL) {
		struct connection *more = realloc(connections, (connection_count + 1) * sizeof *connections);
		if (more != NULL) {
			connections = more;
			connections[connection_count++] =
			    (struct connection){.is = *to,
			                        .given = path == NULL || at_point         ? NULL
			                                 : strcmp(path, resolved_to) == 0 ? given_name(resolved_from)
			                                                                  : given_name(path)};
		}
	}
	return result;
}

static void closing(const sqlite3 *connection)
{
	for (size_t i = 0; i < connection_count; i++) {
		if (connections[i].is == connection) {
			free(connections[i].given);
			of_boot -= i < of_boot;
			connection_count--;
			memmove(&connections[i], &connections[i + 1], (connection_count - i) * sizeof *connections);
			return;
		}
	}
}

int sqlite3_open(const char *path, sqlite3 **to)
{
	return find() ? opened(library.open(path, to), to, path) : 1; /* SQLITE_ERROR */
}

int sqlite3_open_v2(const char *path, sqlite3 **to, int flags, const char *vfs)
{
	return find() ? opened(library.open_v2(path, to, flags, vfs), to, path) : 1;
}

int sqlite3_close(sqlite3 *connection)
{
	int result = find() ? library.close(connection) : 1;
	if (result == 0) {
		closing(connection); /* else it is busy, and open */
	}
	return result;
}

int sqlite3_close_v2(sqlite3 *connection)
{
	closing(connection);
	return find() ? library.close_v2(connection) : 1;
}

/* A file of a connection, which has one for each database that is attached to it; those in memory have none. */
struct database {
	char name[256], path[PATH_MAX];
	struct database *next;
};

static void add_database(struct database **list, const char *name, const char *path)
{
	if (name == NULL || path == NULL || path[0] == '\0') {
		return;
	}
	struct database *one = pemalloc(sizeof *one, 1);
	snprintf(one->name, sizeof one->name, "%s", name);
	snprintf(one->path, sizeof one->path, "%s", path);
	one->next = *list;
	*list = one;
}

/* A row of PRAGMA database_list: number, name, file. */
static int note_database(void *to, int columns, char **values, char **names)
{
	if (columns >= 3) {
		add_database(to, values[1], values[2]);
	}
	return 0;
}

static struct database *databases_of(sqlite3 *connection)
{
	struct database *list = NULL;
	const char *name;
	/* An authorizer, which may be PHP code, is asked of a PRAGMA, and may deny it. */
	for (int i = 0; library.db_name != NULL && (name = library.db_name(connection, i)) != NULL; i++) {
		add_database(&list, name, library.db_filename(connection, name));
	}
	if (library.db_name == NULL) {
		library.exec(connection, "PRAGMA database_list", note_database, &list, NULL);
		if (list == NULL) {
			add_database(&list, "main", library.db_filename(connection, "main"));
		}
	}
	return list;
}

static struct database *after(struct database *one)
{
	struct database *next = one->next;
	pefree(one, 1);
	return next;
}

static int note_mode(void *to, int columns, char **values, char **names)
{
	*(bool *)to = columns > 0 && values[0] != NULL && strcmp(values[0], "exclusive") == 0;
	return 0;
}

static bool is_exclusive(sqlite3 *connection, const char *name)
{
	char question[600] = "PRAGMA \"";
	size_t len = strlen(question);
	for (const char *c = name; *c != '\0'; c++) {
		question[len++] = *c;
		if (*c == '"') {
			question[len++] = *c;
		}
	}
	snprintf(question + len, sizeof question - len, "\".locking_mode");
	bool exclusive = false;
	library.exec(connection, question, note_mode, &exclusive, NULL);
	return exclusive;
}

const char *sqlite_left_open(void)
{
	static char why[512];
	why[0] = '\0';
	for (size_t i = 0; i < connection_count; i++) {
		sqlite3 *connection = connections[i].is;
		/* Asked first: each question is a statement, too, which is over with its answer. */
		bool busy = false, transaction = !library.get_autocommit(connection);
		for (sqlite3_stmt *one = NULL; (one = library.next_stmt(connection, one)) != NULL;) {
			busy |= library.stmt_busy(one) != 0;
		}
		for (struct database *one = databases_of(connection); one != NULL; one = after(one)) {
			const char *what = transaction                           ? "a transaction open in"
			                   : busy                                ? "a statement half-read in"
			                   : is_exclusive(connection, one->name) ? "an exclusive lock on"
			                                                         : NULL;
			if (what != NULL) {
				snprintf(why, sizeof why, "left %s the SQLite database %.400s", what, one->path);
			}
		}
	}
	return why[0] == '\0' ? NULL : why;
}

/* What the names of the boot's databases led to. */
static struct file *files;
static size_t file_count;

static bool leads_elsewhere(const struct file *file)
{
	struct stat st;
	return stat(file->path, &st) != 0 || st.st_dev != file->device || st.st_ino != file->inode;
}

bool sqlite_is_replaced(void)
{
	for (size_t i = 0; i < file_count; i++) {
		if (leads_elsewhere(&files[i])) {
			return true;
		}
	}
	return false;
}

static bool is_current(void)
{
	return !sqlite_is_replaced();
}

static void add_file(const struct file *file)
{
	files = perealloc(files, (file_count + 1) * sizeof *files, 1);
	files[file_count++] = *file;
	hy_is_current = is_current;
}

/* Somebody was quicker than the end of the boot: the name leads elsewhere already, or nowhere. */
static bool has_moved(sqlite3 *connection, const char *name)
{
	const int SQLITE_FCNTL_HAS_MOVED = 20;
	int moved = 0;
	return library.file_control != NULL &&
	       library.file_control(connection, name, SQLITE_FCNTL_HAS_MOVED, &moved) == 0 && moved != 0;
}

void sqlite_note(void)
{
	static struct file file;
	of_boot = connection_count;
	file_count = 0;
	for (size_t i = 0; i < of_boot; i++) {
		for (struct database *one = databases_of(connections[i].is); one != NULL; one = after(one)) {
			bool exists = note_file(&file, one->path);
			if (has_moved(connections[i].is, one->name)) {
				file.inode = 0; /* that of no file */
				add_file(&file);
			} else if (exists) {
				add_file(&file);
			}
		}
		if (connections[i].given != NULL) {
			add_file(connections[i].given);
		}
		/* A request would believe pages that were read now, should a copy of the file from before, put in its place,
		 * have been written to as often since. */
		if (library.release_memory != NULL) {
			library.release_memory(connections[i].is);
		}
	}
}

void sqlite_note_locks(void)
{
	at_point = true;
	for (size_t i = 0; i < of_boot; i++) {
		for (struct database *one = databases_of(connections[i].is); one != NULL; one = after(one)) {
			note_locked_files(one->path);
		}
	}
}

const char *sqlite_unshareable(void)
{
	for (size_t i = 0; i < connection_count; i++) {
		struct database *one = databases_of(connections[i].is);
		if (one != NULL) {
			while (one != NULL) {
				one = after(one);
			}
			return "opened a SQLite database, which somebody may replace";
		}
	}
	return NULL;
}

void sqlite_end_request(void)
{
	for (size_t i = of_boot; i-- > 0;) {
		sqlite3 *connection = connections[i].is;
		/* The newest first, as PHP frees objects. */
		for (sqlite3_stmt *one = NULL; (one = library.next_stmt(connection, one)) != NULL;) {
			if (library.stmt_busy(one)) {
				library.reset(one);
			}
		}
		if (!library.get_autocommit(connection)) {
			library.exec(connection, "ROLLBACK", NULL, NULL, NULL);
		}
	}
}
