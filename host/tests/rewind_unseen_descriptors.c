/*
 * Attacks on descriptors of the boot: sockets, pipes, files, devices, and their copies.
 */
#include "rewind_unseen.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

/* Another number of the same: the rewinder's copy. */
static int copy_of(int fd)
{
	struct stat wanted, st;
	need(fstat(fd, &wanted) == 0, "fstat");
	for (int other = 0; other < 1024; other++) {
		if (other != fd && fstat(other, &st) == 0 && st.st_ino == wanted.st_ino && st.st_dev == wanted.st_dev) {
			return other;
		}
	}
	wrong("there is no copy");
	return -1;
}
static void write_to_copy(void)
{
	need(write(copy_of(pair[0]), "x", 1) == 1, "write");
}
static void duplicate_copy(void)
{
	need(dup(copy_of(pair[0])) >= 0, "dup");
}
static void duplicate_connection(void)
{
	int fd = dup(pair[0]);
	need(fd >= 0 && write(fd, "x", 1) == 1, "dup");
}
static void duplicate_by_fcntl(void)
{
	int fd = fcntl(pair[0], F_DUPFD_CLOEXEC, 100);
	need(fd >= 0 && write(fd, "x", 1) == 1, "F_DUPFD_CLOEXEC");
}
static void make_stream(void)
{
	FILE *made = fdopen(pair[0], "r+");
	need(made != NULL && fputs("x", made) >= 0 && fflush(made) == 0, "fdopen");
}
static void load_second_libc(void)
{
	need(dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_LAZY | RTLD_DEEPBIND) != NULL, "dlmopen");
}
static void inherit_copy(void)
{
	int copy = copy_of(pair[0]);
	need(fcntl(copy, F_GETFD) == FD_CLOEXEC && fcntl(copy, F_SETFD, 0) == 0, "F_SETFD");
}
static void close_all(void)
{
	closefrom(3);
}
static void close_some(void)
{
	need(close_range((unsigned)file, (unsigned)file, 0) == 0, "close_range");
}
static void open_again(void)
{
	stream = freopen("/dev/null", "r", stream);
}
static void send_file(void)
{
	off_t at = 0;
	need(sendfile(pair[0], file, &at, 10) == 10, "sendfile");
}
static void join_pipes(void)
{
	int ends[2];
	need(pipe(ends) == 0 && write(ends[1], "x", 1) == 1, "pipe");
	need(splice(ends[0], NULL, pair[0], NULL, 1, 0) == 1, "splice");
}
static void receive_checked(void)
{
	ssize_t (*found)(int, void *, size_t, size_t, int);
	char to[10];
	*(void **)&found = dlsym(RTLD_DEFAULT, "__recv_chk");
	need(found != NULL && found(pair[0], to, 1, sizeof to, MSG_DONTWAIT) == -1, "recv");
}
static void count_event(void)
{
	need(eventfd_write(events, 1) == 0, "eventfd_write");
}
static void write_event(void)
{
	uint64_t one = 1;
	need(write(events, &one, sizeof one) == sizeof one, "write");
}
static void write_to_terminal(void)
{
	need(write(terminal, "x", 1) == 1, "write");
}
static void set_terminal(void)
{
	struct termios mode;
	need(tcgetattr(terminal, &mode) == 0 && tcsetattr(terminal, TCSANOW, &mode) == 0, "tcsetattr");
}
static void create_name(void)
{
	need(creat("/proc/self/comm", 0600) >= 0, "creat");
}
static void lock_from_here(void)
{
	need(lockf(file, F_TLOCK, 10) == 0, "lockf");
}

const struct attack attacks_of_descriptors[] = {
    {"closefrom", close_all, REWIND_CONNECTION}, /* the other end of a pair has heard of it */
    {"close_range", close_some, REWIND_SURE},
    {"freopen", open_again, REWIND_SURE},
    {"sendfile", send_file, REWIND_CONNECTION},
    {"splice", join_pipes, REWIND_CONNECTION},
    {"__recv_chk", receive_checked, REWIND_CONNECTION},
    {"write to a copy", write_to_copy, REWIND_CONNECTION},
    {"dup of a copy", duplicate_copy, REWIND_CONNECTION},
    {"dup", duplicate_connection, REWIND_CONNECTION},
    {"F_DUPFD", duplicate_by_fcntl, REWIND_CONNECTION},
    {"fdopen", make_stream, REWIND_CONNECTION},
    {"dlmopen", load_second_libc, REWIND_LIBRARY},
    {"F_SETFD of a copy", inherit_copy, REWIND_SURE},
    {"creat", create_name, REWIND_PROCESS},
    {"lockf", lock_from_here, REWIND_SURE},
    {"eventfd_write", count_event, REWIND_CONNECTION},
    {"eventfd", write_event, REWIND_CONNECTION},
    {"terminal", write_to_terminal, REWIND_CONNECTION},
    {"tcsetattr", set_terminal, REWIND_CONNECTION},
    {0},
};
