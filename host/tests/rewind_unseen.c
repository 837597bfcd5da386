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
#include "rewind_unseen.h"

#include "programs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

uint8_t *area, *large, *attached;
void *block;
int file, pair[2], events, terminal;
FILE *stream;
struct notes *notes;

void leave_out(const char *why)
{
	printf("left out: %s: ", why);
	fflush(stdout);
	_exit(LEFT_OUT);
}

void wrong(const char *what)
{
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

void need(bool worked, const char *what)
{
	if (!worked) {
		perror(what);
		_exit(1);
	}
}

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

void tell(const char *line)
{
	wrong(line);
}

void make_state(void)
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
	/* What guards the stack of a thread from glibc 2.42 on, where the kernel can. */
	uint8_t *guarded = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(guarded != MAP_FAILED, "mmap");
	guarded[0] = guarded[2 * PAGE] = 1;
	need(madvise(guarded + PAGE, PAGE, 102 /* MADV_GUARD_INSTALL */) == 0 || errno == EINVAL, "MADV_GUARD_INSTALL");
	/* libc keeps its stack for the next one. */
	pthread_t id;
	uint8_t to;
	need(pthread_create(&id, NULL, write_in_thread, &to) == 0, "pthread_create");
	pthread_join(id, NULL);
}

static bool is_found_later(const struct attack *attack)
{
	return attack->doubt == REWIND_CHILD && !is_in_doubt_at_once(attack);
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

static const struct attack *const attacks[] = {attacks_of_memory, attacks_of_descriptors, attacks_of_children,
                                               attacks_by_number, attacks_of_process};
static const struct look *const looks[] = {looks_before, looks_at_names, looks_at_files};

static int went_wrong, went_well;

/* One attack, or one look, in a process of its own, if it is wanted. */
static void try_one(const struct attack *attack, const struct look *look, const struct arguments *wanted)
{
	const char *name = attack != NULL ? attack->name : look->name;
	enum rewind_tracking tracking = wanted->tracking;
	if (!is_wanted(wanted, name)) {
		return;
	}
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0 && attack != NULL) {
		run(attack, tracking);
	} else if (pid == 0) {
		const char *no = rewind_init();
		notes = no == NULL ? rewind_keep(sizeof *notes) : NULL;
		if (notes == NULL) {
			wrong("no memory");
		}
		look->run(tracking);
		_exit(0);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == LEFT_OUT) {
		printf("%s\n", name);
	} else if (status != 0) {
		printf("%s: %s, status %x\n", name, WTERMSIG(status) == SIGALRM ? "was not over in time" : "failed", status);
		went_wrong++;
	} else {
		went_well++;
	}
}

int main(int argc, char **argv)
{
	struct arguments wanted = arguments(argc, argv);
	for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
		for (const struct attack *one = attacks[i]; one->name != NULL; one++) {
			try_one(one, NULL, &wanted);
		}
	}
	for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
		for (const struct look *one = looks[i]; one->name != NULL; one++) {
			try_one(NULL, one, &wanted);
		}
	}
	printf("%s: %d attacks taken back or in doubt, %d failed\n", tracking_name(wanted.tracking), went_well, went_wrong);
	return went_wrong != 0;
}
