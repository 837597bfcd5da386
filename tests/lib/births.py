"""A zygote's workers from their first instruction on. Only root may trace what is not dumpable."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator

from lib.process import wait_until


class Births:
    """A zygote's next workers, from now on, each before it has run one instruction. A context manager. See ptrace(2)."""

    SEIZE, GO_ON, LEAVE, MESSAGE, FORKS, ANY_CHILD, TO_CALL = 0x4206, 7, 17, 0x4201, 2, 0x40000000, 24

    def __init__(self, zygote: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long
        self._zygote = zygote
        self._has_born = False
        self._ask(self.SEIZE, zygote, self.FORKS)

    def __enter__(self) -> Births:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._has_born:
            self._ask(self.LEAVE, self._zygote)

    def _ask(self, request: int, pid: int, data: int | None = None) -> None:
        if self._libc.ptrace(request, pid, None, data) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def _hears_of(self, pid: int) -> int:
        heard: list[int] = []

        def comes() -> bool:
            known, status = os.waitpid(pid, self.ANY_CHILD | os.WNOHANG)
            if known:
                heard.append(status)
            return bool(known)

        assert wait_until(comes, interval=0.001), f"process {pid} does nothing"
        return heard[0]

    def _wait(self) -> int:
        if self._has_born:
            self._ask(self.GO_ON, self._zygote)
        while True:
            status = self._hears_of(self._zygote)
            assert os.WIFSTOPPED(status), "the zygote is dead"
            if status >> 16:
                break
            self._ask(self.GO_ON, self._zygote, os.WSTOPSIG(status))
        self._has_born = True
        child = ctypes.c_ulong()
        self._ask(self.MESSAGE, self._zygote, ctypes.addressof(child))
        self._hears_of(child.value)
        return child.value

    def next(self, signal_number: int) -> int:
        """Waits for a worker and sends it a signal. The zygote stands still then, until the next call or the end."""
        child = self._wait()
        os.kill(child, signal_number)
        if signal_number == signal.SIGKILL:
            # Its parent hears of it when this process has.
            self._hears_of(child)
        else:
            self._ask(self.LEAVE, child)
        return child

    def calls(self) -> Iterator[int]:
        """Waits for a worker, and stops it at the beginning and the end of each system call: yields its number each time, as often as is asked."""
        child = self._wait()
        passed = 0
        try:
            while True:
                yield child
                self._ask(self.TO_CALL, child, passed)
                status = self._hears_of(child)
                assert os.WIFSTOPPED(status), "the worker is dead"
                passed = 0 if os.WSTOPSIG(status) == signal.SIGTRAP else os.WSTOPSIG(status)
        finally:
            self._ask(self.LEAVE, child)
