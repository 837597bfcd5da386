/*
 * The rewinder against code that changes the boot's memory behind its back: by the kernel, by a child, by another name
 * of a function, by a number.
 *
 *   rewind_unseen [--tracking uffd|soft-dirty] [NAME …]
 *
 * Each attack is a process of its own that does it a few times, each time followed by a rewind and a comparison of all
 * memory, mappings, and of what the attack was after. An attack that cannot be taken back must be in doubt instead.
 * What this kernel does not have is said to be left out.
 *
 * Exits with 0 when all is well, with 77 if this kernel has no tracking.
 */
#include "../rewind/rewind.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <ulimit.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 16
#define LARGE (4ul << 20)
/* Rewinds in all, and before the first attack: by then nothing but the attack makes the rewinder look. */
#define TIMES 10
#define QUIET 6
#define LEFT_OUT 99
/* Newer than some headers. */
#define HY_MADV_POPULATE_WRITE 23
#define HY_MADV_COLLAPSE 25
#define HY_MADV_GUARD_INSTALL 102

static uint8_t *area;     /* of 7s */
static uint8_t *large;    /* the same, aligned to 2 MiB */
static uint8_t *attached; /* System V shared memory */
static void *block;
static int file, pair[2], events, terminal;
static FILE *stream;
static uint8_t child_stack[16384] __attribute__((aligned(16)));
/* Lives outside what is put back. */
static struct notes {
	char maps[1 << 18], maps_now[1 << 18];
	struct stat stream;
	stack_t signal_stack;
	int shared;
	unsigned forks;
} * notes;

static void leave_out(const char *why)
{
	printf("left out: %s: ", why);
	fflush(stdout);
	_exit(LEFT_OUT);
}

static void wrong(const char *what)
{
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

static void need(bool worked, const char *what)
{
	if (!worked) {
		perror(what);
		_exit(1);
	}
}

/* The kernel writes. */

static void read_into(void)
{
	need(pread(file, area + 3 * PAGE + 5, 100, 0) == 100, "pread");
}

static void write_to_itself(void)
{
	char text[] = "written by process_vm_writev";
	struct iovec from = {text, sizeof text}, to = {area + 4 * PAGE, sizeof text};
	need(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof text, "process_vm_writev");
}

static void open_own_memory(void)
{
	int fd = open("/proc/self/mem", O_RDWR);
	need(fd >= 0 && pwrite(fd, "x", 1, (off_t)(uintptr_t)area) == 1, "/proc/self/mem");
}

static void advise(int advice)
{
	if (madvise(area + PAGE, 3 * PAGE, advice) != 0) {
		leave_out(strerror(errno));
	}
}
static void discard(void)
{
	advise(MADV_DONTNEED);
}
static void free_lazily(void)
{
	advise(MADV_FREE);
}
static void populate(void)
{
	advise(HY_MADV_POPULATE_WRITE);
}
static void page_out(void)
{
	advise(MADV_PAGEOUT);
	area[2 * PAGE]++;
}
static void no_fork(void)
{
	advise(MADV_DONTFORK);
}
static void wipe(void)
{
	advise(MADV_WIPEONFORK);
}
static void guard(void)
{
	advise(HY_MADV_GUARD_INSTALL);
}
static void advise_by_pidfd(void)
{
	struct iovec range = {area, PAGE};
	process_madvise(-1, &range, 1, MADV_DONTNEED, 0);
}
static void collapse(void)
{
	/* It may be refused; either way each 4 KiB are tracked. */
	madvise(large, LARGE, HY_MADV_COLLAPSE);
	large[PAGE]++;
}
static void close_and_discard(void)
{
	need(mprotect(area, 4 * PAGE, PROT_NONE) == 0 && madvise(area, 4 * PAGE, MADV_DONTNEED) == 0, "madvise");
}

/* Mappings. */

static void map_over(void)
{
	need(mmap(area, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED, "mmap");
}
static void attach_over(void)
{
	need(shmat(notes->shared, area, SHM_REMAP) == area, "shmat");
}
static void attach(void)
{
	uint8_t *at = shmat(notes->shared, NULL, 0);
	need(at != (void *)-1, "shmat");
	at[0]++;
}
static void detach(void)
{
	shmdt(attached);
}
static void move_over(void)
{
	void *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area) == area, "mremap");
}
static void move_away(void)
{
	if (mremap(area, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED) {
		wrong("memory of the snapshot was moved");
	}
}
static void move_and_keep(void)
{
	uint8_t *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	own[0] = 1;
	need(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED, "mremap");
}
static void turn_pages(void)
{
	/* Of shared mappings only. */
	if (remap_file_pages(area, PAGE, 0, 1, 0) == 0) {
		wrong("private memory was turned");
	}
}
static void unmap(void)
{
	need(munmap(area, 2 * PAGE) == 0, "munmap");
}
static void protect(void)
{
	need(mprotect(area, PAGE, PROT_READ) == 0, "mprotect");
}
static void lower_break(void)
{
	void *now = sbrk(0);
	need(sbrk(-(intptr_t)PAGE) != (void *)-1 && brk(now) == 0, "brk");
}
static void set_break(void)
{
	uint8_t *now = sbrk(0);
	need(brk(now - PAGE) == 0, "brk");
}
static void trim(void)
{
	mallopt(M_TRIM_THRESHOLD, 0);
	free(block);
	malloc_trim(0);
	block = malloc(1 << 20);
	memset(block, 1, 1 << 20);
}
static void *write_in_thread(void *at)
{
	volatile uint8_t deep[100000];
	memset((void *)deep, 3, sizeof deep);
	*(uint8_t *)at = deep[17];
	return NULL;
}
static void run_thread(void)
{
	pthread_t id;
	need(pthread_create(&id, NULL, write_in_thread, area + 5 * PAGE) == 0, "pthread_create");
	pthread_join(id, NULL);
}
static void grow_stack(void)
{
	volatile uint8_t deep[3 << 20];
	for (size_t i = 0; i < sizeof deep; i += PAGE) {
		deep[i] = 1;
	}
	area[0] = deep[PAGE];
}

/* Sockets of the boot. */

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

/* Children. */

static int write_in_child(void *at)
{
	*(volatile uint8_t *)at = 9;
	return 0;
}
static void clone_with_memory(void)
{
	pid_t pid =
	    clone(write_in_child, child_stack + sizeof child_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, area + 6 * PAGE);
	need(pid > 0 && waitpid(pid, NULL, 0) == pid && area[6 * PAGE] == 9, "clone");
}
static void fork_with_memory(void)
{
	pid_t pid = vfork();
	if (pid == 0) {
		*(volatile uint8_t *)(area + 7 * PAGE) = 9;
		_exit(0);
	}
	need(pid > 0 && waitpid(pid, NULL, 0) == pid && area[7 * PAGE] == 9, "vfork");
}

/* Children that are left behind. They read what nobody writes, and end with the process that holds the other end. */

static char *const reader[] = {"cat", NULL};
static int read_in_child(void *unused)
{
	execv("/bin/cat", reader);
	_exit(1);
}
static void leave_fork(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		read_in_child(NULL);
	}
	need(pid > 0, "fork");
}
/* Whose handlers run as well. */
static void note_fork(void)
{
	notes->forks++;
}
static void fork_without_handlers(void)
{
	unsigned before = notes->forks;
	need(pthread_atfork(note_fork, NULL, NULL) == 0, "pthread_atfork");
	pid_t pid = _Fork();
	if (pid == 0) {
		_exit(0);
	}
	need(pid > 0 && waitpid(pid, NULL, 0) == pid && notes->forks == before + 1, "_Fork");
}
static void leave_spawned(void)
{
	need(posix_spawn(&(pid_t){0}, "/bin/cat", NULL, NULL, reader, NULL) == 0, "posix_spawn");
}
static void leave_spawned_by_name(void)
{
	need(posix_spawnp(&(pid_t){0}, "cat", NULL, NULL, reader, environ) == 0, "posix_spawnp");
}
static void leave_popen(void)
{
	need(popen("exec cat", "r") != NULL, "popen");
}
static void leave_clone(void)
{
	need(clone(read_in_child, child_stack + sizeof child_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL) > 0, "clone");
}
static void clone_without_memory(void)
{
	need(clone(read_in_child, child_stack + sizeof child_stack, SIGCHLD, NULL) > 0, "clone");
}

/* By number and by name. */

static void ask_by_number(void)
{
	need(syscall(SYS_getpid) == getpid() && syscall(SYS_kill, -1, 1000) == -1 && errno == EINVAL, "syscall");
}
static void map_by_number(void)
{
	uint8_t *at =
	    (uint8_t *)syscall(SYS_mmap, NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(at != MAP_FAILED, "mmap");
	at[PAGE] = 1;
}
static void unmap_by_number(void)
{
	syscall(SYS_munmap, area, PAGE);
}
static void protect_by_number(void)
{
	syscall(SYS_mprotect, area, PAGE, PROT_READ);
}
static void discard_by_number(void)
{
	syscall(SYS_madvise, area, PAGE, MADV_DONTNEED);
}
static void lower_break_by_number(void)
{
	syscall(SYS_brk, (uint8_t *)sbrk(0) - PAGE);
}
static void close_by_number(void)
{
	syscall(SYS_close, file);
}
static void fork_by_number(void)
{
	pid_t pid = (pid_t)syscall(SYS_fork);
	if (pid == 0) {
		_exit(0);
	}
	need(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
}
static void watch_by_number(void)
{
	syscall(SYS_userfaultfd, O_CLOEXEC);
}
static void unmap_by_version(void)
{
	int (*found)(void *, size_t);
	*(void **)&found = dlvsym(RTLD_DEFAULT, "munmap", "GLIBC_2.2.5");
	need(found != NULL && found(area, PAGE) == 0, "munmap by its version");
	*(void **)&found = dlvsym(dlopen("libc.so.6", RTLD_LAZY), "munmap", "GLIBC_2.2.5");
	need(found != NULL && found(area, PAGE) == 0, "munmap by its version");
	*(void **)&found = dlsym(dlopen("libc.so.6", RTLD_LAZY), "munmap");
	need(found != NULL && found(area, PAGE) == 0, "munmap by its name");
	if (dlvsym(RTLD_DEFAULT, "munmap", "GLIBC_1.0") != NULL || dlsym(RTLD_DEFAULT, "no such function") != NULL) {
		wrong("what does not exist was found");
	}
}

/* What the kernel keeps. */

static void set_timer(void)
{
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
}
static void set_timer_and_delete(void)
{
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	need(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_delete(timer) == 0, "timer_create");
}
static void set_signal_stack(void)
{
	stack_t other = {.ss_sp = area, .ss_size = 8 * PAGE};
	need(sigaltstack(&other, NULL) == 0, "sigaltstack");
}
static void lock_all(void)
{
	mlockall(MCL_CURRENT);
}
static void fill_x87(void)
{
	for (int i = 0; i < 8; i++) {
		__asm__ volatile("fld1");
	}
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

/* Functions of libc's that call the kernel by themselves. */
static void set_three_users(void)
{
	(void)!setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1);
}
static void set_two_groups(void)
{
	(void)!setregid((gid_t)-1, (gid_t)-1);
}
static void set_user_of_files(void)
{
	setfsuid(getuid());
}
static void set_groups_of_user(void)
{
	initgroups("nobody", 65534);
}
static void set_group(void)
{
	setpgrp();
}
static void set_limit(void)
{
	need(ulimit(UL_SETFSIZE, 1l << 40) >= 0, "ulimit");
}
static void set_scheduling(void)
{
	struct sched_param with = {0};
	sched_setparam(0, &with);
}
static void set_processors(void)
{
	cpu_set_t set;
	need(pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 &&
	         pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0,
	     "pthread_setaffinity_np");
}
static void set_keys(void)
{
	(void)!pkey_alloc(0, 0);
}
static void create_name(void)
{
	need(creat("/proc/self/comm", 0600) >= 0, "creat");
}
static void lock_from_here(void)
{
	need(lockf(file, F_TLOCK, 10) == 0, "lockf");
}
static void ignore_children(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
	sigaction(SIGCHLD, &action, NULL);
}
static void block_in_handler(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigfillset(&action.sa_mask);
	sigaction(SIGCHLD, &action, NULL);
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

static const struct attack {
	const char *name;
	void (*act)(void);
	enum rewind_doubt doubt; /* REWIND_SURE: all is put back */
} attacks[] = {
    {"read into", read_into, REWIND_SURE},
    {"process_vm_writev", write_to_itself, REWIND_SURE},
    {"/proc/self/mem", open_own_memory, REWIND_PROCESS},
    {"MADV_DONTNEED", discard, REWIND_SURE},
    {"MADV_FREE", free_lazily, REWIND_SURE},
    {"MADV_POPULATE_WRITE", populate, REWIND_SURE},
    {"MADV_PAGEOUT", page_out, REWIND_SURE},
    {"MADV_DONTFORK", no_fork, REWIND_MAPPINGS},
    {"MADV_WIPEONFORK", wipe, REWIND_MAPPINGS},
    {"MADV_GUARD_INSTALL", guard, REWIND_MAPPINGS},
    {"process_madvise", advise_by_pidfd, REWIND_MAPPINGS},
    {"MADV_COLLAPSE", collapse, REWIND_SURE},
    {"PROT_NONE and MADV_DONTNEED", close_and_discard, REWIND_MAPPINGS},
    {"MAP_FIXED", map_over, REWIND_MAPPINGS},
    {"SHM_REMAP", attach_over, REWIND_MAPPINGS},
    {"shmat", attach, REWIND_SURE},
    {"shmdt", detach, REWIND_SURE},
    {"MREMAP_FIXED", move_over, REWIND_MAPPINGS},
    {"mremap", move_away, REWIND_SURE},
    {"MREMAP_DONTUNMAP", move_and_keep, REWIND_SURE},
    {"remap_file_pages", turn_pages, REWIND_SURE},
    {"munmap", unmap, REWIND_SURE},
    {"mprotect", protect, REWIND_MAPPINGS},
    {"sbrk", lower_break, REWIND_MAPPINGS},
    {"brk", set_break, REWIND_MAPPINGS},
    {"malloc_trim", trim, REWIND_SURE},
    {"thread", run_thread, REWIND_SURE},
    {"stack", grow_stack, REWIND_SURE},
    {"clone", clone_with_memory, REWIND_SURE},
    {"vfork", fork_with_memory, REWIND_SURE},
    {"fork left", leave_fork, REWIND_CHILD},
    {"posix_spawn left", leave_spawned, REWIND_CHILD},
    {"posix_spawnp left", leave_spawned_by_name, REWIND_CHILD},
    {"popen left", leave_popen, REWIND_CHILD},
    {"clone left", leave_clone, REWIND_CHILD},
    {"clone without memory", clone_without_memory, REWIND_CHILD},
    {"_Fork", fork_without_handlers, REWIND_SURE},
    {"syscall getpid", ask_by_number, REWIND_SURE},
    {"syscall mmap", map_by_number, REWIND_SURE},
    {"syscall munmap", unmap_by_number, REWIND_PROCESS},
    {"syscall mprotect", protect_by_number, REWIND_PROCESS},
    {"syscall madvise", discard_by_number, REWIND_PROCESS},
    {"syscall brk", lower_break_by_number, REWIND_PROCESS},
    {"syscall close", close_by_number, REWIND_PROCESS},
    {"syscall fork", fork_by_number, REWIND_PROCESS},
    {"syscall userfaultfd", watch_by_number, REWIND_PROCESS},
    {"dlvsym", unmap_by_version, REWIND_SURE},
    {"timer_create", set_timer, REWIND_PROCESS},
    {"timer_delete", set_timer_and_delete, REWIND_SURE},
    {"sigaltstack", set_signal_stack, REWIND_SURE},
    {"mlockall", lock_all, REWIND_PROCESS},
    {"x87", fill_x87, REWIND_SURE},
    {"closefrom", close_all, REWIND_DESCRIPTORS},
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
    {"setresuid", set_three_users, REWIND_PROCESS},
    {"setregid", set_two_groups, REWIND_PROCESS},
    {"setfsuid", set_user_of_files, REWIND_PROCESS},
    {"initgroups", set_groups_of_user, REWIND_PROCESS},
    {"setpgrp", set_group, REWIND_PROCESS},
    {"ulimit", set_limit, REWIND_PROCESS},
    {"sched_setparam", set_scheduling, REWIND_PROCESS},
    {"pthread_setaffinity_np", set_processors, REWIND_PROCESS},
    {"pkey_alloc", set_keys, REWIND_PROCESS},
    {"creat", create_name, REWIND_PROCESS},
    {"lockf", lock_from_here, REWIND_SURE},
    {"SA_NOCLDWAIT", ignore_children, REWIND_SURE},
    {"sa_mask", block_in_handler, REWIND_SURE},
    {"eventfd_write", count_event, REWIND_CONNECTION},
    {"eventfd", write_event, REWIND_CONNECTION},
    {"terminal", write_to_terminal, REWIND_CONNECTION},
    {"tcsetattr", set_terminal, REWIND_CONNECTION},
};
#define ATTACKS (sizeof attacks / sizeof attacks[0])

/* Addresses and permissions; not the stack, which may have grown. */
static void describe_maps(char *to)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;
	while ((n = read(fd, to + len, sizeof notes->maps - 1 - len)) > 0) {
		len += (size_t)n;
	}
	close(fd);
	to[len] = '\0';
	char *stack = strstr(to, "[stack]");
	if (stack != NULL) {
		while (stack > to && stack[-1] != '\n') {
			stack--;
		}
		*stack = '\0';
	}
}

static void all_sevens(const char *what, const uint8_t *at, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (at[i] != 7) {
			fprintf(stderr, "%s is %d at %zu\n", what, at[i], i);
			_exit(1);
		}
	}
}

static void compare(void)
{
	all_sevens("the area", area, PAGES * PAGE);
	all_sevens("the large area", large, LARGE);
	describe_maps(notes->maps_now);
	if (strcmp(notes->maps, notes->maps_now) != 0) {
		fprintf(stderr, "--- before\n%s--- after\n%s", notes->maps, notes->maps_now);
		wrong("mappings differ");
	}
	struct stat now;
	if (fstat(fileno(stream), &now) != 0 || now.st_ino != notes->stream.st_ino || fcntl(file, F_GETFD) < 0 ||
	    fcntl(pair[0], F_GETFD) < 0) {
		wrong("descriptors differ");
	}
	stack_t signal_stack;
	sigaltstack(NULL, &signal_stack);
	if (signal_stack.ss_sp != notes->signal_stack.ss_sp || signal_stack.ss_flags != notes->signal_stack.ss_flags) {
		wrong("stacks of signals differ");
	}
	struct sigaction children;
	need(sigaction(SIGCHLD, NULL, &children) == 0, "sigaction");
	if (children.sa_handler != SIG_DFL || children.sa_flags != 0 || sigismember(&children.sa_mask, SIGHUP)) {
		wrong("signals of children are treated otherwise");
	}
	/* As somebody else sees it: of its own a process hears nothing. */
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) {
		wrong("the file is locked");
	}
	volatile long double x = 1.5L, y = x * 2;
	if (y != 3) {
		wrong("no room in the registers of x87");
	}
	struct shmid_ds segment;
	if (shmctl(notes->shared, IPC_STAT, &segment) != 0 || segment.shm_nattch != 1) {
		wrong("shared memory is attached more often, or not any more");
	}
	if (rewind_doubt_after() != REWIND_SURE) {
		wrong("a doubt on the way");
	}
}

static void tell(const char *line)
{
	wrong(line);
}

static void make_state(void)
{
	char name[] = "/tmp/rewind_unseen.XXXXXX", text[200];
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t *twice = mmap(NULL, 2 * LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(area != MAP_FAILED && twice != MAP_FAILED, "mmap");
	large = (uint8_t *)(((uintptr_t)twice + LARGE - 1) & ~(LARGE - 1));
	memset(area, 7, PAGES * PAGE);
	memset(large, 7, LARGE);
	file = mkstemp(name);
	memset(text, 'f', sizeof text);
	need(file >= 0 && write(file, text, sizeof text) == sizeof text && unlink(name) == 0, "mkstemp");
	need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	events = eventfd(0, EFD_CLOEXEC);
	terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	need(events >= 0 && terminal >= 0, "eventfd, posix_openpt");
	/* Standard input of those that are left behind. */
	int ends[2];
	need(pipe2(ends, O_CLOEXEC) == 0 && dup2(ends[0], STDIN_FILENO) == STDIN_FILENO, "pipe2");
	stream = fopen("/proc/self/exe", "r");
	need(stream != NULL, "fopen");
	notes->shared = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
	attached = shmat(notes->shared, NULL, 0);
	need(attached != (void *)-1, "shmat");
	shmctl(notes->shared, IPC_RMID, NULL); /* it goes with the process */
	free(malloc(8 << 20));                 /* what could be trimmed */
	block = malloc(1 << 20);
	memset(block, 5, 1 << 20);
	/* libc keeps its stack for the next one. */
	pthread_t id;
	uint8_t to;
	need(pthread_create(&id, NULL, write_in_thread, &to) == 0, "pthread_create");
	pthread_join(id, NULL);
}

/* The rewind finds a child; but this one is in doubt at once, since it has the descriptors as well. */
static bool is_found_later(const struct attack *attack)
{
	return attack->doubt == REWIND_CHILD && attack->act != clone_without_memory;
}

static void run(const struct attack *attack, enum rewind_tracking tracking)
{
	const char *failed = rewind_init();
	notes = failed == NULL ? rewind_keep(sizeof *notes) : NULL;
	if (notes == NULL) {
		wrong(failed == NULL ? "no memory" : failed);
	}
	/* So many times longer where the processor is emulated. */
	const char *patience = getenv("HAYATE_TEST_PATIENCE");
	alarm(60 * (patience != NULL && atoi(patience) > 1 ? (unsigned)atoi(patience) : 1));
	make_state();
	rewind_verify(1, tell);
	failed = rewind_snapshot(tracking, NULL, 0);
	if (failed != NULL) {
		wrong(failed);
	}
	long passed = rewind_point();
	if (passed < 0) {
		wrong(rewind_error());
	}
	if (passed == 0) {
		describe_maps(notes->maps);
		need(fstat(fileno(stream), &notes->stream) == 0, "fstat");
		sigaltstack(NULL, &notes->signal_stack);
	} else {
		/* The rewind itself looks for children. */
		bool left = is_found_later(attack) && passed > QUIET;
		if ((rewind_doubt_after() == REWIND_CHILD) != left) {
			wrong("a child that is left behind is not the doubt after the rewind");
		}
		if (left) {
			_exit(0);
		}
		compare();
	}
	if (passed == TIMES) {
		_exit(0);
	}
	if (passed >= QUIET) {
		attack->act();
	}
	enum rewind_doubt doubt = rewind_doubt();
	if (passed >= QUIET && doubt != (is_found_later(attack) ? REWIND_SURE : attack->doubt)) {
		fprintf(stderr, "doubt %d, expected %d\n", doubt, attack->doubt);
		_exit(1);
	}
	if (doubt != REWIND_SURE) {
		_exit(0);
	}
	rewind_back();
}

/* What is found before a snapshot, or between a fork and the tracking of the child. */

static void memory_that_no_child_has(enum rewind_tracking tracking)
{
	make_state();
	if (rewind_loses_memory()) {
		wrong("nothing was lost");
	}
	need(madvise(area, PAGE, MADV_DONTFORK) == 0 && rewind_loses_memory(), "MADV_DONTFORK");
}

static void file_that_ends_early(enum rewind_tracking tracking)
{
	make_state();
	if (madvise(area, PAGE, 22) != 0) {
		leave_out("no MADV_POPULATE_READ"); /* Linux 5.14 */
	}
	need(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0) != MAP_FAILED, "mmap");
	if (rewind_snapshot(tracking, NULL, 0) == NULL) {
		wrong("memory was copied that does not exist");
	}
}

static void huge_pages(enum rewind_tracking tracking)
{
	if (mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED) {
		leave_out("no huge pages are set aside");
	}
	make_state();
	if (rewind_snapshot(tracking, NULL, 0) == NULL) {
		wrong("huge pages were taken for small ones");
	}
}

static void no_room_for_a_snapshot(enum rewind_tracking tracking)
{
	make_state();
	struct rlimit limit;
	need(mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED &&
	         getrlimit(RLIMIT_AS, &limit) == 0,
	     "mmap");
	long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	need(statm != NULL && fscanf(statm, "%ld", &pages) == 1, "/proc/self/statm");
	fclose(statm);
	limit.rlim_cur = (rlim_t)pages * PAGE + (32 << 20);
	need(setrlimit(RLIMIT_AS, &limit) == 0, "RLIMIT_AS");
	const char *failed = rewind_snapshot(tracking, NULL, 0);
	if (failed == NULL || strcmp(failed, "no memory for the snapshot") != 0) {
		wrong(failed == NULL ? "there was room" : failed);
	}
	/* As each request does, which is served by a fork then. */
	rewind_amend(area, "8", 1);
	need(area[0] == '8', "rewind_amend");
}

/* libc has many functions by several names. Whatever is one that the host replaces is the host's by each of them. */
static void each_name_of_a_function(enum rewind_tracking tracking)
{
	extern const char __executable_start, _end;
	struct link_map *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL, *named_close = NULL;
	need(libc != NULL, "libc");
	for (const Elf64_Dyn *one = libc->l_ld; one->d_tag != DT_NULL; one++) {
		symbols = one->d_tag == DT_SYMTAB ? (const Elf64_Sym *)one->d_un.d_ptr : symbols;
		names = one->d_tag == DT_STRTAB ? (const char *)one->d_un.d_ptr : names;
	}
	/* The names follow the symbols, as linkers lay them out. */
	size_t count = (size_t)(names - (const char *)symbols) / sizeof *symbols, replaced = 0, twins = 0;
	for (size_t i = 0; i < count; i++) {
		const char *own = dlsym(RTLD_DEFAULT, names + symbols[i].st_name), *name = names + symbols[i].st_name;
		bool function = ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF;
		if (!function || own < &__executable_start || own >= &_end) {
			continue;
		}
		replaced++;
		for (size_t k = 0; k < count; k++) {
			const char *other = names + symbols[k].st_name;
			if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC || symbols[k].st_value != symbols[i].st_value) {
				continue;
			}
			const char *found = dlsym(libc, other), *default_one = dlsym(RTLD_DEFAULT, other);
			bool ours = found >= &__executable_start && found < &_end && default_one >= &__executable_start &&
			            default_one < &_end;
			if (!ours) {
				fprintf(stderr, "%s() is libc's, %s() is not\n", other, name);
				_exit(1);
			}
			twins += strcmp(other, name) != 0;
			named_close = strcmp(other, "__close") == 0 ? other : named_close;
		}
	}
	if (replaced < 100 || twins < 20 || named_close == NULL) {
		wrong("libc's names were not found");
	}
}

/*
 * What a process is to the kernel is set by functions whose names say so. Each that this libc has is the host's, or is
 * among those of which somebody has looked at what they do. A newer libc may have others: then this fails.
 */
static void each_function_that_sets_something(enum rewind_tracking tracking)
{
	static const char *const beginnings[] = {
	    "set",      "sched_set", "pthread_set", "pkey_",       "creat",  "lockf",     "initgroups", "ulimit",
	    "eventfd_", "tcset",     "tcflush",     "tcflow",      "tcsend", "chroot",    "iopl",       "ioperm",
	    "prlimit",  "nice",      "unshare",     "personality", "sigset", "sigignore", "sigvec"};
	/* Memory only, the world outside, or (at the end) the mask of signals, which is put back. */
	static const char *const harmless[] = {"setbuf",
	                                       "setbuffer",
	                                       "setlinebuf",
	                                       "setvbuf",
	                                       "setenv",
	                                       "setlocale",
	                                       "setjmp",
	                                       "setcontext",
	                                       "setlogmask",
	                                       "setstate",
	                                       "setstate_r",
	                                       "setaliasent",
	                                       "setfsent",
	                                       "setgrent",
	                                       "sethostent",
	                                       "setmntent",
	                                       "setnetent",
	                                       "setnetgrent",
	                                       "setprotoent",
	                                       "setpwent",
	                                       "setrpcent",
	                                       "setservent",
	                                       "setsgent",
	                                       "setspent",
	                                       "setttyent",
	                                       "setusershell",
	                                       "setutent",
	                                       "setutxent",
	                                       "setdomainname",
	                                       "sethostid",
	                                       "sethostname",
	                                       "settimeofday",
	                                       "setxattr",
	                                       "setlogin",
	                                       "pthread_setspecific",
	                                       "pthread_setattr_default_np",
	                                       "pthread_setcancelstate",
	                                       "pthread_setcanceltype",
	                                       "pthread_setconcurrency",
	                                       "pkey_get",
	                                       "sigsetmask"};
	extern const char __executable_start, _end;
	struct link_map *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	const Elf64_Sym *symbols = NULL;
	const char *names = NULL;
	need(libc != NULL, "libc");
	for (const Elf64_Dyn *one = libc->l_ld; one->d_tag != DT_NULL; one++) {
		symbols = one->d_tag == DT_SYMTAB ? (const Elf64_Sym *)one->d_un.d_ptr : symbols;
		names = one->d_tag == DT_STRTAB ? (const char *)one->d_un.d_ptr : names;
	}
	size_t count = (size_t)(names - (const char *)symbols) / sizeof *symbols, found = 0, missing = 0;
	for (size_t i = 0; i < count; i++) {
		const char *name = names + symbols[i].st_name;
		bool sets = false, known = false;
		for (size_t k = 0; k < sizeof beginnings / sizeof beginnings[0]; k++) {
			sets |= strncmp(name, beginnings[k], strlen(beginnings[k])) == 0;
		}
		for (size_t k = 0; k < sizeof harmless / sizeof harmless[0]; k++) {
			known |= strcmp(name, harmless[k]) == 0;
		}
		if (!sets || ELF64_ST_TYPE(symbols[i].st_info) != STT_FUNC || symbols[i].st_shndx == SHN_UNDEF) {
			continue;
		}
		const char *own = dlsym(RTLD_DEFAULT, name);
		found++;
		if (!known && own != NULL && (own < &__executable_start || own >= &_end)) {
			fprintf(stderr, "%s() is libc's, and nobody has said what it does\n", name);
			missing++;
		}
	}
	if (found < 60 || missing > 0) {
		wrong("not all functions of libc's that set something are known");
	}
}

static bool is_swapped(const void *at)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);
	need(pread(fd, &entry, sizeof entry, (off_t)((uintptr_t)at / PAGE * sizeof entry)) == sizeof entry, "pagemap");
	close(fd);
	return entry >> 62 & 1;
}

static void swapped_before_tracking(enum rewind_tracking tracking)
{
	make_state();
	rewind_verify(1, tell);
	const char *failed = rewind_snapshot(tracking, NULL, 0);
	if (failed != NULL) {
		wrong(failed);
	}
	rewind_noticed();
	pid_t pid = fork();
	if (pid == 0) {
		/* What a handler of fork() may write. */
		area[3 * PAGE] = 8;
		madvise(area, PAGES * PAGE, MADV_PAGEOUT);
		if (!is_swapped(area + 3 * PAGE)) {
			_exit(LEFT_OUT);
		}
		failed = rewind_adopt();
		if (failed != NULL) {
			wrong(failed);
		}
		long passed = rewind_point();
		if (passed < 0) {
			wrong(rewind_error());
		}
		if (area[3 * PAGE] != 8) {
			wrong("what was written before the tracking is not part of the snapshot");
		}
		if (passed == TIMES) {
			_exit(0);
		}
		area[3 * PAGE]++;
		rewind_back();
	}
	int status = 0;
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == LEFT_OUT) {
		leave_out("no swap");
	}
	need(status == 0, "the child");
}

static const struct {
	const char *name;
	void (*run)(enum rewind_tracking tracking);
} others[] = {
    {"fork without memory", memory_that_no_child_has},
    {"file that ends early", file_that_ends_early},
    {"huge pages", huge_pages},
    {"each name of a function", each_name_of_a_function},
    {"each function that sets something", each_function_that_sets_something},
    {"no room for a snapshot", no_room_for_a_snapshot},
    {"swapped before tracking", swapped_before_tracking},
};
#define OTHERS (sizeof others / sizeof others[0])

static bool is_chosen(const char *name, char **names, int count)
{
	for (int i = 0; i < count; i++) {
		if (strcmp(names[i], name) == 0) {
			return true;
		}
	}
	return count == 0;
}

int main(int argc, char **argv)
{
	char why[256];
	enum rewind_tracking tracking = rewind_probe(why, sizeof why);
	int names = 1;
	if (argc >= 3 && strcmp(argv[1], "--tracking") == 0) {
		tracking = strcmp(argv[2], "uffd") == 0 ? REWIND_UFFD : REWIND_SOFT_DIRTY;
		names = 3;
	}
	if (tracking == REWIND_FORK) {
		fprintf(stderr, "this kernel has no tracking: %s\n", why);
		return 77;
	}
	int failed = 0, passed = 0;
	for (size_t i = 0; i < ATTACKS + OTHERS; i++) {
		const char *name = i < ATTACKS ? attacks[i].name : others[i - ATTACKS].name;
		if (!is_chosen(name, argv + names, argc - names)) {
			continue;
		}
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0 && i < ATTACKS) {
			run(&attacks[i], tracking);
		} else if (pid == 0) {
			const char *no = rewind_init();
			notes = no == NULL ? rewind_keep(sizeof *notes) : NULL;
			if (notes == NULL) {
				wrong("no memory");
			}
			others[i - ATTACKS].run(tracking);
			_exit(0);
		}
		int status = 0;
		waitpid(pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == LEFT_OUT) {
			printf("%s\n", name);
		} else if (status != 0) {
			printf("%s: %s, status %x\n", name, WTERMSIG(status) == SIGALRM ? "was not over in time" : "failed",
			       status);
			failed++;
		} else {
			passed++;
		}
	}
	printf("%s: %d attacks taken back or in doubt, %d failed\n", tracking == REWIND_UFFD ? "uffd" : "soft-dirty",
	       passed, failed);
	return failed != 0;
}
