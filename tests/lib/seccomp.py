"""The seccomp filter that a container of Docker's has by default, to be had without a container: all system calls are refused but those that are listed.

A process has it by `Filter.apply`, and so has whatever it starts. `Filter.watch` lets the tests see what was refused. For runc the same is written as
a profile of the OCI's (`profile`). Alone in what it imports: tests/container uses it in another Debian.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator

#: What everybody may call by the profile of Docker and containerd: moby/profiles v0.2.3 (2026-05-06), containerd of 2026-08-22, but for calls that
#: only programs of 32 bits have.
ALLOWED = """
    accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown clock_adjtime clock_getres clock_gettime clock_nanosleep
    close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
    epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_mark fchdir fchmod
    fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid
    getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname
    getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy
    io_getevents io_pgetevents io_setup io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self
    lchown lgetxattr link linkat listen listmount listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack
    membarrier memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open
    mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep
    newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv
    preadv2 prlimit64 process_mrelease pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
    remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
    sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
    sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address
    setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid setxattr
    setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice stat statfs statmount statx symlink symlinkat sync
    sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat uretprobe utime utimensat utimes vfork vmsplice wait4 waitid
    write writev
""".split()
#: Since Linux 4.8, and on x86-64.
ALLOWED += ["arch_prctl", "modify_ldt", "process_vm_readv", "process_vm_writev", "ptrace"]
#: AF_ALG, AF_VSOCK.
REFUSED_FAMILIES = (38, 40)
#: PER_LINUX, PER_LINUX32, both with UNAME26, and the question which it is.
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
#: CLONE_NEWNS and all other kinds of namespaces.
NAMESPACES = 0x7E020000
#: What containers of Docker's may by default (capabilities(7)): chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw,
#: sys_chroot, mknod, audit_write, setfcap.
CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})

EPERM, ENOSYS = 1, 38
_OPERATORS = {"SCMP_CMP_LT": 2, "SCMP_CMP_EQ": 4, "SCMP_CMP_GT": 6, "SCMP_CMP_MASKED_EQ": 7}
_ALLOW, _ERRNO, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
#: linux/seccomp.h: SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER; what is received and sent, and by which ioctl.
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_NOTICE, _ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101


def profile(also: tuple[str, ...] = (), chroot: bool = False) -> dict:
    """As of the OCI's runtime specification. `also` are allowed besides; `chroot` is for containers with CAP_SYS_CHROOT."""

    def when(name: str, index: int, value: int, operator: str, second: int = 0) -> dict:
        argument = {"index": index, "value": value, "valueTwo": second, "op": operator}
        return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": [argument]}

    low, high = REFUSED_FAMILIES
    names = [*ALLOWED, *also, *(["chroot"] if chroot else [])]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            {"names": names, "action": "SCMP_ACT_ALLOW"},
            when("socket", 0, low, "SCMP_CMP_LT"),
            when("socket", 0, low + 1, "SCMP_CMP_EQ"),
            when("socket", 0, high, "SCMP_CMP_GT"),
            *(when("personality", 0, value, "SCMP_CMP_EQ") for value in PERSONALITIES),
            # No namespace: libc falls back to this from clone3(), whose arguments no filter can see.
            when("clone", 0, NAMESPACES, "SCMP_CMP_MASKED_EQ"),
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
        ],
    }


class _Compare(ctypes.Structure):
    _fields_ = [("index", ctypes.c_uint), ("operator", ctypes.c_int), ("value", ctypes.c_uint64), ("second", ctypes.c_uint64)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


def _library() -> ctypes.CDLL:
    """Every Debian has it, for apt."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_char_p
    return library


class Filter:
    """Of that profile, for programs of this machine's kind."""

    def __init__(self, *also: str, root: bool = False) -> None:
        self._root = root
        library = _library()
        context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | EPERM)))
        for rule in profile(also, chroot=root)["syscalls"]:
            action = _ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else _ERRNO | rule["errnoRet"]
            compared = [(a["index"], _OPERATORS[a["op"]], a["value"], a["valueTwo"]) for a in rule.get("args", [])]
            arguments = (_Compare * len(compared))(*compared)
            for name in rule["names"]:
                number = library.seccomp_syscall_resolve_name(name.encode())
                # Newer than this library, or of another kind of processor: refused, as by a container engine of that age.
                if number < 0:
                    continue
                if library.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(compared), arguments) != 0:
                    raise OSError(f"libseccomp does not take the rule for {name}")
        with tempfile.TemporaryFile() as file:
            library.seccomp_export_bpf(context, file.fileno())
            file.seek(0)
            self._steps = file.read()
        library.seccomp_release(context)
        self._call = library.seccomp_syscall_resolve_name(b"seccomp")

    def apply(self) -> None:
        """To be called in a process before it executes a program (`preexec_fn`). Root keeps what Docker leaves to it."""
        self._load(self._steps, 0)

    def _load(self, steps: bytes, flags: int) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        if self._root:
            for capability in range(64):
                if capability not in CAPABILITIES:
                    libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        code = ctypes.create_string_buffer(steps, len(steps))
        program = _Program(len(steps) // 8, ctypes.addressof(code))
        result = libc.syscall(self._call, _SET_MODE_FILTER, flags, ctypes.byref(program))
        if result < 0:
            raise OSError(ctypes.get_errno(), "seccomp")
        return result

    @contextlib.contextmanager
    def watch(self, refused: set[str]) -> Iterator[Callable[[], None]]:
        """In place of `apply`, for one process: names of what is refused are in the set from then on."""
        # The same program, but that this process is asked where EPERM would be the answer.
        steps = self._steps.replace(struct.pack("=HBBI", 0x06, 0, 0, _ERRNO | EPERM), struct.pack("=HBBI", 0x06, 0, 0, _NOTIFY))
        ours, theirs = socket.socketpair()
        # Else a process that is refused would wait for ever.
        answering = threading.Thread(target=self._answer, args=(ours, refused), daemon=True)
        answering.start()

        def apply() -> None:
            listener = self._load(steps, _NEW_LISTENER)
            theirs.sendmsg([b"l"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])

        try:
            yield apply
        finally:
            theirs.close()
            answering.join(60)
            ours.close()

    @staticmethod
    def _answer(ours: socket.socket, refused: set[str]) -> None:
        _, passed, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
        if not passed:
            return
        (listener,) = array.array("i", passed[0][2][:4])
        library, ready = _library(), select.poll()
        ready.register(listener, select.POLLIN)
        try:
            # POLLHUP: no process has the filter any more.
            while ready.poll()[0][1] & select.POLLIN:
                notice = bytearray(_NOTICE.size)
                try:
                    fcntl.ioctl(listener, _RECEIVE, notice)
                    identity, _, _, number, architecture, *_ = _NOTICE.unpack(notice)
                    name = library.seccomp_syscall_resolve_num_arch(ctypes.c_uint32(architecture), number)
                    refused.add(name.decode() if name else str(number))
                    fcntl.ioctl(listener, _SEND, _ANSWER.pack(identity, 0, -EPERM, 0))
                except FileNotFoundError:
                    pass  # it has ended, or was interrupted and asks again
        finally:
            os.close(listener)
