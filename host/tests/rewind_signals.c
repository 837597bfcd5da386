/*
 * Signals that come while memory is put back, and what a piece of work changes of how they are treated.
 *
 *   rewind_signals [--tracking uffd|soft-dirty] [NAME …]
 *
 * Each program is a process that another one sends signals all the while:
 *
 *   storm   the boot's handler looks whether what it sees is whole: either no work has begun, and all is as at the
 *           snapshot, or some has. While a rollback puts page after page back, neither is so
 *   mask    each piece of work finds the boot's mask, handlers and the boot's own handler by name, and changes one of
 *           them, in each way there is; in between are pieces that change nothing
 *   leaves  the boot's handler is left by longjmp(3), which leaves its signal blocked
 *   arrive  each signal is answered by the boot's handler before the next one is sent: none is lost, nor who has sent
 *           it, nor its value
 *   blocked the boot blocks two signals, and each piece of work leaves some of them pending
 *   stack   the boot's handler runs on an alternate stack, and each piece of work gives it another one, in memory of
 *           its own
 *
 * Exits with 0 when all is well, with 77 if this kernel has no tracking.
 */
#include "programs.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Some of these names are old. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define PAGE 4096ul
#define PAGES 40
#define SECONDS 1
#define LONGEST 60

/* Lives outside what is put back. */
static struct notes {
	unsigned long handled, amid; /* signals, and those of them that came within a piece of work */
	unsigned long rewinds;
	pid_t sender;
} * notes;
static volatile uint8_t *pages;
static sigjmp_buf out;

static void fail(const char *what)
{
	fprintf(stderr, "%s, after %lu rewinds and %lu signals\n", what, notes->rewinds, notes->handled);
	kill(notes->sender, SIGKILL);
	_exit(1);
}

static void differs(const char *line)
{
	fail(line);
}

/* The first byte of a page says that work has begun, the second is its work. */
static volatile uint8_t *begun(size_t n)
{
	return &pages[n * PAGE];
}

static volatile uint8_t *worked(size_t n)
{
	return &pages[n * PAGE + PAGE / 2];
}

static void look(int signal, siginfo_t *info, void *context)
{
	notes->handled++;
	notes->amid += *begun(0);
	for (size_t n = 0; n < PAGES; n++) {
		for (size_t other = 0; *begun(n) == 0 && other < PAGES; other++) {
			if (*worked(other) != 0) {
				fail("a handler ran on memory that was half put back");
			}
		}
	}
}

static void storm(long done)
{
	for (size_t n = 0; n < PAGES; n++) {
		*begun(n) = 1;
	}
	for (size_t n = 0; n < PAGES; n++) {
		*worked(n) = 1;
	}
}

static void count(int signal)
{
	notes->handled++;
}

static void expect_as_in_the_boot(void)
{
	sigset_t mask;
	struct sigaction one, two;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaction(SIGUSR1, NULL, &one);
	sigaction(SIGUSR2, NULL, &two);
	if (sigismember(&mask, SIGUSR1) || sigismember(&mask, SIGUSR2) || sigismember(&mask, SIGURG)) {
		fail("a signal is blocked");
	}
	if (one.sa_sigaction != look || !(one.sa_flags & SA_SIGINFO)) {
		fail("another handler of the first signal");
	}
	if (two.sa_handler != count || (two.sa_flags & SA_SIGINFO)) {
		fail("another handler of the second signal");
	}
}

static void change_something(long done)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGURG);
	expect_as_in_the_boot();
	switch (done % 16) {
	case 0:
		sigprocmask(SIG_BLOCK, &set, NULL);
		break;
	case 2:
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		break;
	case 4:
		sighold(SIGURG);
		break;
	case 6:
		if ((void *)signal(SIGUSR1, SIG_IGN) != (void *)look) {
			fail("signal() returned another handler");
		}
		break;
	case 8:
		if (signal(SIGUSR2, SIG_IGN) != count) {
			fail("signal() returned another handler");
		}
		break;
	case 10:
		sigblock(1 << (SIGURG - 1));
		break;
	case 12:
		sigset(SIGURG, SIG_HOLD);
		break;
	default:
		break;
	}
}

static void leave(int signal)
{
	notes->handled++;
	if (*begun(0) == 1) {
		siglongjmp(out, 1);
	}
}

static void be_left(long done)
{
	sigset_t mask;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	if (sigismember(&mask, SIGUSR1)) {
		fail("a signal is blocked");
	}
	if (sigsetjmp(out, 0) == 0) {
		*begun(0) = 1;
		for (int i = 0; i < 1000; i++) {
			*worked(0) = (uint8_t)i;
		}
	}
	*begun(0) = 2;
}

static int answers[2];

static void answer(int signal, siginfo_t *info, void *context)
{
	if (info->si_value.sival_int != (int)notes->handled || (notes->sender != 0 && info->si_pid != notes->sender)) {
		fail("a signal came otherwise than it was sent");
	}
	notes->handled++;
	ssize_t written = write(answers[1], "", 1);
	(void)written;
}

static void change_stack(long done)
{
	const size_t size = 64ul << 10;
	stack_t stack = {.ss_size = size};
	stack.ss_sp = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack.ss_sp != MAP_FAILED && done % 2 == 0) {
		sigaltstack(&stack, NULL);
	}
	storm(done);
}

static void do_nothing(long done)
{
	*worked(0) = 1;
}

static void leave_pending(long done)
{
	sigset_t pending;
	sigpending(&pending);
	if (sigismember(&pending, SIGRTMIN + 3) || sigismember(&pending, SIGWINCH)) {
		fail("a signal that was blocked waited for the next piece of work");
	}
	for (long i = 0; i < done % 4; i++) {
		raise(SIGRTMIN + 3);
	}
	raise(SIGWINCH);
}

static const struct {
	const char *name;
	void (*work)(long done);
	void (*handler)(int);
} programs[] = {{"storm", storm, NULL},       {"mask", change_something, NULL}, {"leaves", be_left, leave},
                {"arrive", do_nothing, NULL}, {"blocked", leave_pending, NULL}, {"stack", change_stack, NULL}};
#define PROGRAMS (sizeof programs / sizeof programs[0])

/* With `each` one after the other. */
static pid_t send_signals(bool each)
{
	pid_t to = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		union sigval value = {0};
		for (; sigqueue(to, SIGUSR1, value) == 0; value.sival_int++) {
			for (volatile int i = 0; !each && i < 500; i++) {
			}
			/* Where a signal costs more than what is between two, nothing else would ever be done. */
			if (!each && value.sival_int % 1024 == 1023) {
				nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
			}
			struct pollfd answered = {.fd = answers[0], .events = POLLIN};
			char byte;
			if (each && (poll(&answered, 1, -1) != 1 || read(answers[0], &byte, 1) != 1)) {
				_exit(1);
			}
		}
		_exit(0);
	}
	return pid;
}

static struct timespec began;

/* After a second, if enough has come; on a busy machine that takes longer. */
static bool is_over(bool has_amid)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	long seconds = now.tv_sec - began.tv_sec;
	bool enough = notes->rewinds >= 100 && notes->handled >= 100 && (notes->amid > 0 || !has_amid);
	if (seconds > LONGEST && !enough) {
		fail("too little has come");
	}
	return seconds > SECONDS && enough;
}

static void run(size_t program, enum rewind_tracking tracking)
{
	const char *wrong = rewind_init();
	notes = wrong == NULL ? rewind_keep(sizeof *notes) : NULL;
	pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (notes == NULL || pages == MAP_FAILED) {
		fprintf(stderr, "%s\n", wrong == NULL ? "no memory" : wrong);
		_exit(1);
	}
	memset((void *)pages, 0, PAGES * PAGE);
	struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO | SA_RESTART};
	if (programs[program].handler != NULL) {
		action = (struct sigaction){.sa_handler = programs[program].handler};
	}
	if (programs[program].work == do_nothing) {
		action.sa_sigaction = answer;
	}
	action.sa_flags |= programs[program].work == change_stack ? SA_ONSTACK : 0;
	sigaction(SIGUSR1, &action, NULL);
	if (programs[program].work == leave_pending) {
		sigset_t blocked;
		sigemptyset(&blocked);
		sigaddset(&blocked, SIGRTMIN + 3);
		sigaddset(&blocked, SIGWINCH);
		sigprocmask(SIG_BLOCK, &blocked, NULL);
	}
	signal(SIGUSR2, count);
	if (pipe(answers) != 0) {
		fail("no pipe");
	}
	notes->sender = send_signals(programs[program].work == do_nothing);
	rewind_verify(100, differs);
	clock_gettime(CLOCK_MONOTONIC, &began);
	wrong = rewind_snapshot(tracking, NULL, 0);
	long done = wrong == NULL ? rewind_point() : -1;
	if (done < 0) {
		fail(wrong != NULL ? wrong : rewind_error());
	}
	notes->rewinds = (unsigned long)done;
	if (is_over(programs[program].work == storm)) {
		/* Where each waits for the one before, none comes any more once one was lost. */
		unsigned long handled = notes->handled;
		for (int ms = 0; notes->handled == handled; ms++) {
			if (ms == 5000) {
				fail("a signal was lost");
			}
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		}
		kill(notes->sender, SIGKILL);
		printf("%s: %lu signals, %lu of them within work, %lu rewinds\n", programs[program].name, notes->handled,
		       notes->amid, notes->rewinds);
		fflush(stdout);
		_exit(0);
	}
	programs[program].work(done);
	rewind_back();
}

int main(int argc, char **argv)
{
	struct arguments read = arguments(argc, argv);
	bool failed = false;
	for (size_t i = 0; i < PROGRAMS; i++) {
		if (is_wanted(&read, programs[i].name)) {
			failed |= program_fails(programs[i].name, i, read.tracking, run);
		}
	}
	return failed;
}
