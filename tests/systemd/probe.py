"""What a process may do here, as JSON: for each directive of the unit what came of trying, "yes" or the error's name.

Run as the same user outside the service and, started by a script, inside: what differs is in force.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER_NAMESPACE, LINUX32, TRACE_ME = 0x10000000, 8, 0


def tried(attempt: Callable[[], object]) -> str:
    """In a process of its own, for it may leave its mark on that or kill it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = attempt()
            said = said if isinstance(said, str) else "yes"
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error.errno))
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said or signal.Signals(os.WTERMSIG(status)).name


def call(name: str, *arguments: int) -> None:
    if getattr(LIBC, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def set_the_user_bit() -> None:
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0o4700)


def run_as_root() -> str:
    return "yes" if subprocess.run(["/srv/setuid-id", "-u"], capture_output=True, text=True).stdout.strip() == "0" else "EPERM"


def call_of_another_architecture() -> None:
    """getpid() by the interface of 32-bit programs."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
    got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if got < 0:
        raise OSError(-got, "getpid")


def write_below(*places: str) -> Callable[[], str]:
    def attempt() -> str:
        return "EROFS" if all(os.statvfs(place).f_flag & os.ST_RDONLY for place in places) else "yes"

    return attempt


def see(*places: str) -> Callable[[], str]:
    return lambda: "yes" if any(os.path.exists(place) for place in places) else "ENOENT"


PROBES: dict[str, Callable[[], object]] = {
    "LockPersonality": lambda: call("personality", LINUX32),
    "NoNewPrivileges": run_as_root,
    "PrivateDevices": see("/dev/kmsg", "/dev/vda", "/dev/mem", "/dev/mapper"),
    "PrivateTmp": see("/tmp/witness"),
    "ProtectControlGroups": write_below("/sys/fs/cgroup"),
    "ProtectHome": write_below("/home", "/root"),
    "ProtectHostname": lambda: os.readlink("/proc/self/ns/uts"),
    "ProtectKernelLogs": lambda: "yes" if stat.S_IMODE(os.stat("/proc/kmsg").st_mode) else "EACCES",
    "ProtectKernelModules": lambda: os.listdir("/usr/lib/modules"),
    "ProtectKernelTunables": write_below("/proc/sys", "/sys"),
    "ProtectSystem": write_below("/usr", "/etc"),
    "RestrictAddressFamilies": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "RestrictNamespaces": lambda: call("unshare", NEW_USER_NAMESPACE),
    "RestrictSUIDSGID": set_the_user_bit,
    "SystemCallArchitectures": call_of_another_architecture,
    "SystemCallFilter": lambda: call("ptrace", TRACE_ME, 0, 0, 0),
}

if __name__ == "__main__":
    print(json.dumps({name: tried(probe) for name, probe in PROBES.items()}))
