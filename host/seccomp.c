/*
 * Forbids what the kernel lets any process of a user do to any other of the same user, by number: to set its limits,
 * its priority, its processors. With it a script could stop the front, where that runs as PHP's user.
 *
 * Set once in the zygote, before PHP starts: workers and the programs that PHP starts inherit it, and nobody can take
 * it back. A process may do all this to itself, which the calls know as process 0; a filter cannot know which number is
 * its own, so any other is refused with EPERM. The host's own versions of these functions turn the number of their
 * process into 0 (rewind/interpose_process.c). Reading stays allowed.
 *
 * What else one process does to another, the kernel allows only for whom it may trace (memory, pages, descriptors),
 * and no process of the server can be traced; or by signals, which are isolation.c's.
 *
 * It must name no call that a request of PHP needs: the kernel remembers which calls it need not be asked about, and
 * all others would cost.
 */
#include "host.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/ioprio.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the arguments have to be. */
enum own {
	PROCESS,          /* the first: a process */
	KIND_AND_PROCESS, /* the first says that the second is a process, not a group or a user */
	IO_KIND_AND_PROCESS,
	PROCESS_OR_READ /* or the third is NULL: nothing is set */
};

/* Of 32-bit programs as well, whose numbers are in asm/unistd_32.h of x86, and asm/unistd-eabi.h of ARM. */
#if defined(__x86_64__)
#define OWN AUDIT_ARCH_X86_64
#define NUMBER32(x86, arm) x86
#else
#define OWN AUDIT_ARCH_AARCH64
#define NUMBER32(x86, arm) arm
#endif
static const struct {
	uint32_t number, number32;
	enum own own;
} calls[] = {
    {SYS_prlimit64, NUMBER32(340, 369), PROCESS_OR_READ},      {SYS_setpriority, NUMBER32(97, 97), KIND_AND_PROCESS},
    {SYS_ioprio_set, NUMBER32(289, 314), IO_KIND_AND_PROCESS}, {SYS_sched_setparam, NUMBER32(154, 154), PROCESS},
    {SYS_sched_setscheduler, NUMBER32(156, 156), PROCESS},     {SYS_sched_setaffinity, NUMBER32(241, 241), PROCESS},
    {SYS_sched_setattr, NUMBER32(351, 380), PROCESS},
};

#define CALLS (sizeof calls / sizeof calls[0])
#define STEPS_OF_A_CALL 9
/* Of numbers of the x32 ABI, which hardly any kernel has; elsewhere there are none that high. */
#define X32 0x40000000u

static struct sock_filter program[8 + 2 * (1 + CALLS * STEPS_OF_A_CALL)];
static unsigned short steps;

static void step(uint16_t code, uint32_t with, uint8_t then, uint8_t otherwise)
{
	program[steps++] = (struct sock_filter){.code = code, .k = with, .jt = then, .jf = otherwise};
}

static void load(size_t offset)
{
	step(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* Half an argument. Numbers of processes have 32 bits, whatever stands in the rest. */
static void load_argument(int i, int half)
{
	load(offsetof(struct seccomp_data, args) + (size_t)i * sizeof(uint64_t) + (size_t)half * sizeof(uint32_t));
}

/* Skips so many steps unless it is this. */
static void need(uint32_t value, uint8_t skip)
{
	step(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
}

static void answer(uint32_t with)
{
	step(BPF_RET | BPF_K, with, 0, 0);
}

static void judge(uint32_t number, enum own own)
{
	unsigned short start = steps;
	need(number, 0);
	switch (own) {
	case PROCESS:
		load_argument(0, 0);
		need(0, 1);
		break;
	case KIND_AND_PROCESS:
	case IO_KIND_AND_PROCESS:
		load_argument(0, 0);
		need(own == KIND_AND_PROCESS ? PRIO_PROCESS : IOPRIO_WHO_PROCESS, 3);
		load_argument(1, 0);
		need(0, 1);
		break;
	case PROCESS_OR_READ:
		load_argument(0, 0);
		step(BPF_JMP | BPF_JEQ | BPF_K, 0, 4, 0);
		load_argument(2, 0);
		need(0, 3);
		load_argument(2, 1);
		need(0, 1);
		break;
	}
	answer(SECCOMP_RET_ALLOW);
	answer(SECCOMP_RET_ERRNO | EPERM);
	program[start].jf = (uint8_t)(steps - start - 1);
}

void seccomp_forbid(void)
{
	steps = 0;
	load(offsetof(struct seccomp_data, arch));
	need(OWN, 0);
	unsigned short other = steps;
	load(offsetof(struct seccomp_data, nr));
	step(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1);
	answer(SECCOMP_RET_ERRNO | ENOSYS);
	for (size_t i = 0; i < CALLS; i++) {
		judge(calls[i].number, calls[i].own);
	}
	answer(SECCOMP_RET_ALLOW);
	program[other - 1].jf = (uint8_t)(steps - other);
	load(offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < CALLS; i++) {
		judge(calls[i].number32, calls[i].own);
	}
	answer(SECCOMP_RET_ALLOW);
	const struct sock_fprog whole = {.len = steps, .filter = program};
	/* Without the flag the kernel may make memory accesses slower that could be speculated about. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &whole) != 0) {
		char why[256];
		snprintf(why, sizeof why,
		         "seccomp refuses (%s): scripts may change limits and priority of processes of their user, the front's "
		         "too where it is theirs; give each application a user, and the front one of its own",
		         strerror(errno));
		zygote_remark(why);
	}
}
