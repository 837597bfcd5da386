/*
 * What differs between processors: system calls without libc, and registers. What cannot be said in C is in
 * machine_x86_64.c and machine_aarch64.c, of which one is compiled. (page.c has instructions of its own for each.)
 */
#ifndef HAYATE_REWIND_MACHINE_H
#define HAYATE_REWIND_MACHINE_H

#include <stdint.h>

/* Registers that a function leaves as it found them, by the System V ABI. The offsets are those files'. */
#if defined(__x86_64__)
struct context {
	uint64_t rbx, rbp, r12, r13, r14, r15, rip, sp;
	uint32_t mxcsr;
	uint16_t x87;
};
#elif defined(__aarch64__)
struct context {
	uint64_t x19_to_x28[10], fp, lr, sp, d8_to_d15[8], fpcr, fpsr;
};
#else
#error "the rewinder saves and restores registers of x86-64 and aarch64 only"
#endif

/* Returns 0, and 1 when context_jump() comes back to it. */
int context_save(struct context *context) __attribute__((returns_twice, noinline));
void context_jump(const struct context *context) __attribute__((noreturn, noinline));
void context_on_stack(void *top, void (*run)(void)) __attribute__((noreturn, noinline));

/* There as well, since they hand on arguments that they do not know: interpose_kernel(), syscall(), vfork(), clone().
 * They ask these of interpose_calls.c. */
void interpose_note_call(long number, long a, long b, long d, long e);
long interpose_call_failed(long result);
void *interpose_libc_vfork(void);
void *interpose_libc_clone(int (*run)(void *), void *stack, int flags, void *with);

/* Returns what the kernel returns: -errno on failure. */
static inline long sys6(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall"
	                 : "=a"(result)
	                 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
	                 : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
#endif
}

#endif
