/*
 * machine.h for aarch64: saving registers, going back to them, running a function on another stack; and the functions
 * of interpose_calls.c that hand on arguments which they do not know.
 *
 * GCC has no naked functions for this processor, so they are assembler altogether. They may be called by their address
 * where only marked places may (`bti c`, which older processors take for a NOP).
 */
#ifdef __aarch64__
#include "interpose.h"

#include <stddef.h>

_Static_assert(offsetof(struct context, fp) == 80 && offsetof(struct context, sp) == 96 &&
                   offsetof(struct context, d8_to_d15) == 104 && offsetof(struct context, fpcr) == 168,
               "the assembler below counts on it");

#define FUNCTION(name, visible, body)                                                                                  \
	__asm__(".text\n.balign 16\n.globl " #name "\n." visible " " #name "\n.type " #name ", %function\n" #name ":\n"    \
	        "hint #34\n" body ".size " #name ", .-" #name "\n")
#define OURS "hidden"
/* For all libraries: they find it in the executable before libc's. */
#define OF_ALL "globl"

/* What arguments there may be, around a call; and the frame. */
#define SAVE_ARGUMENTS                                                                                                 \
	"stp x29, x30, [sp, #-80]!\n"                                                                                      \
	"mov x29, sp\n"                                                                                                    \
	"stp x0, x1, [sp, #16]\n"                                                                                          \
	"stp x2, x3, [sp, #32]\n"                                                                                          \
	"stp x4, x5, [sp, #48]\n"                                                                                          \
	"stp x6, x7, [sp, #64]\n"
#define RESTORE_ARGUMENTS                                                                                              \
	"ldp x6, x7, [sp, #64]\n"                                                                                          \
	"ldp x4, x5, [sp, #48]\n"                                                                                          \
	"ldp x2, x3, [sp, #32]\n"                                                                                          \
	"ldp x0, x1, [sp, #16]\n"                                                                                          \
	"ldp x29, x30, [sp], #80\n"

FUNCTION(context_save, OURS,
         "stp x19, x20, [x0, #0]\n"
         "stp x21, x22, [x0, #16]\n"
         "stp x23, x24, [x0, #32]\n"
         "stp x25, x26, [x0, #48]\n"
         "stp x27, x28, [x0, #64]\n"
         "stp x29, x30, [x0, #80]\n"
         "mov x1, sp\n"
         "str x1, [x0, #96]\n"
         "stp d8, d9, [x0, #104]\n"
         "stp d10, d11, [x0, #120]\n"
         "stp d12, d13, [x0, #136]\n"
         "stp d14, d15, [x0, #152]\n"
         "mrs x1, fpcr\n"
         "mrs x2, fpsr\n"
         "stp x1, x2, [x0, #168]\n"
         "mov x0, #0\n"
         "ret\n");

FUNCTION(context_jump, OURS,
         "ldp x19, x20, [x0, #0]\n"
         "ldp x21, x22, [x0, #16]\n"
         "ldp x23, x24, [x0, #32]\n"
         "ldp x25, x26, [x0, #48]\n"
         "ldp x27, x28, [x0, #64]\n"
         "ldp x29, x30, [x0, #80]\n"
         "ldr x1, [x0, #96]\n"
         "mov sp, x1\n"
         "ldp d8, d9, [x0, #104]\n"
         "ldp d10, d11, [x0, #120]\n"
         "ldp d12, d13, [x0, #136]\n"
         "ldp d14, d15, [x0, #152]\n"
         "ldp x1, x2, [x0, #168]\n"
         "msr fpcr, x1\n"
         "msr fpsr, x2\n"
         "mov x0, #1\n"
         "ret\n");

FUNCTION(context_on_stack, OURS,
         "and x0, x0, #-16\n"
         "mov sp, x0\n"
         "mov x29, #0\n"
         "mov x30, #0\n"
         "blr x1\n"
         "brk #0\n");

/* A call may go on on another stack, or return twice. */
FUNCTION(interpose_kernel, OURS,
         "mov x8, x0\n"
         "mov x0, x1\n"
         "mov x1, x2\n"
         "mov x2, x3\n"
         "mov x3, x4\n"
         "mov x4, x5\n"
         "mov x5, x6\n"
         "svc #0\n"
         "cmn x0, #4095\n"
         "b.cs 1f\n"
         "ret\n"
         "1: b interpose_call_failed\n");

FUNCTION(syscall, OF_ALL, SAVE_ARGUMENTS "bl interpose_note_call\n" RESTORE_ARGUMENTS "b interpose_kernel\n");

/* By x16, by which a marked place may be jumped to. */
FUNCTION(vfork, OF_ALL,
         "stp x29, x30, [sp, #-16]!\n"
         "mov x29, sp\n"
         "bl interpose_libc_vfork\n"
         "ldp x29, x30, [sp], #16\n"
         "mov x16, x0\n"
         "br x16\n");

FUNCTION(clone, OF_ALL,
         SAVE_ARGUMENTS "bl interpose_libc_clone\n"
                        "mov x16, x0\n" RESTORE_ARGUMENTS "br x16\n");
#endif
