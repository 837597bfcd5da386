/*
 * machine.h for x86-64: saving registers, going back to them, running a function on another stack; and the functions of
 * interpose_calls.c that hand on arguments which they do not know.
 */
#ifdef __x86_64__
#include "interpose.h"

#include <sched.h>
#include <stddef.h>

#undef syscall

_Static_assert(offsetof(struct context, sp) == 56 && offsetof(struct context, mxcsr) == 64 &&
                   offsetof(struct context, x87) == 68,
               "the assembler below counts on it");

__attribute__((naked)) int context_save(struct context *context)
{
	__asm__ volatile("mov %rbx, 0(%rdi)\n"
	                 "mov %rbp, 8(%rdi)\n"
	                 "mov %r12, 16(%rdi)\n"
	                 "mov %r13, 24(%rdi)\n"
	                 "mov %r14, 32(%rdi)\n"
	                 "mov %r15, 40(%rdi)\n"
	                 "mov (%rsp), %rax\n" /* where to return to */
	                 "mov %rax, 48(%rdi)\n"
	                 "lea 8(%rsp), %rax\n" /* the stack pointer after returning */
	                 "mov %rax, 56(%rdi)\n"
	                 "stmxcsr 64(%rdi)\n"
	                 "fnstcw 68(%rdi)\n"
	                 "xor %eax, %eax\n"
	                 "ret\n");
}

__attribute__((naked)) void context_jump(const struct context *context)
{
	__asm__ volatile("mov 0(%rdi), %rbx\n"
	                 "mov 8(%rdi), %rbp\n"
	                 "mov 16(%rdi), %r12\n"
	                 "mov 24(%rdi), %r13\n"
	                 "mov 32(%rdi), %r14\n"
	                 "mov 40(%rdi), %r15\n"
	                 "ldmxcsr 64(%rdi)\n"
	                 "fninit\n" /* registers of x87 are empty between functions */
	                 "fldcw 68(%rdi)\n"
	                 "mov 48(%rdi), %rdx\n"
	                 "mov 56(%rdi), %rsp\n"
	                 "cld\n"
	                 "mov $1, %eax\n"
	                 "jmp *%rdx\n");
}

__attribute__((naked)) void context_on_stack(void *top, void (*run)(void))
{
	__asm__ volatile("mov %rdi, %rsp\n"
	                 "and $-16, %rsp\n"
	                 "xor %ebp, %ebp\n"
	                 "call *%rsi\n"
	                 "hlt\n");
}

/* In assembler, since a call may go on on another stack, or return twice. */
__attribute__((naked)) long interpose_kernel(long number, ...)
{
	__asm__ volatile("mov %rdi, %rax\n"
	                 "mov %rsi, %rdi\n"
	                 "mov %rdx, %rsi\n"
	                 "mov %rcx, %rdx\n"
	                 "mov %r8, %r10\n"
	                 "mov %r9, %r8\n"
	                 "mov 8(%rsp), %r9\n"
	                 "syscall\n"
	                 "cmp $-4095, %rax\n"
	                 "jae 1f\n"
	                 "ret\n"
	                 "1: mov %rax, %rdi\n"
	                 "jmp interpose_call_failed\n");
}

EXPORT __attribute__((naked)) long syscall(long number, ...)
{
	__asm__ volatile("push %rdi\n"
	                 "push %rsi\n"
	                 "push %rdx\n"
	                 "push %rcx\n"
	                 "push %r8\n"
	                 "push %r9\n"
	                 "sub $8, %rsp\n" /* aligned to 16 */
	                 "call interpose_note_call\n"
	                 "add $8, %rsp\n"
	                 "pop %r9\n"
	                 "pop %r8\n"
	                 "pop %rcx\n"
	                 "pop %rdx\n"
	                 "pop %rsi\n"
	                 "pop %rdi\n"
	                 "jmp interpose_kernel\n");
}

EXPORT __attribute__((naked)) pid_t vfork(void)
{
	__asm__ volatile("sub $8, %rsp\n"
	                 "call interpose_libc_vfork\n"
	                 "add $8, %rsp\n"
	                 "jmp *%rax\n");
}

/* It has more arguments than registers; those stay where they are, and are still in them at the call. */
EXPORT __attribute__((naked)) int clone(int (*run)(void *), void *stack, int flags, void *with, ...)
{
	__asm__ volatile("push %rdi\n"
	                 "push %rsi\n"
	                 "push %rdx\n"
	                 "push %rcx\n"
	                 "push %r8\n"
	                 "push %r9\n"
	                 "sub $8, %rsp\n"
	                 "call interpose_libc_clone\n"
	                 "add $8, %rsp\n"
	                 "pop %r9\n"
	                 "pop %r8\n"
	                 "pop %rcx\n"
	                 "pop %rdx\n"
	                 "pop %rsi\n"
	                 "pop %rdi\n"
	                 "mov %rax, %r11\n"
	                 "xor %eax, %eax\n"
	                 "jmp *%r11\n");
}
#endif
