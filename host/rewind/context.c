/* Registers: saving them, going back to them, and running a function on another stack. System V ABI, x86-64. */
#include "internal.h"

#include <stddef.h>

_Static_assert(offsetof(struct context, rsp) == 56 && offsetof(struct context, mxcsr) == 64 &&
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
