"""Connections that the kernel does not hand over for want of something: the front asks again after a pause, and then serves them."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import time

import pytest

from lib import site
from lib.process import temporary_directory, wait_until
from lib.servers import Hayate

# Fails as the kernel would as long as there is a file, and counts how often.
FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	static int (*real)(int, struct sockaddr *, socklen_t *, int);
	if (real == NULL) {
		*(void **)&real = dlsym(RTLD_NEXT, "accept4");
	}
	int calls = open(CALLS, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (calls >= 0) {
		ssize_t written = write(calls, ".", 1);
		(void)written;
		close(calls);
		errno = FAILURE;
		return -1;
	}
	return real(fd, addr, len, flags);
}
"""


@pytest.mark.plain("it is about connections on which nothing is spoken yet")
@pytest.mark.parametrize("failure", ["ENOBUFS", "ENOMEM", "EMFILE", "ENFILE", "EINVAL"])
def test_a_failing_accept_is_repeated_after_a_pause(tmp_path, failure) -> None:
    directory = temporary_directory("accept")
    try:
        calls = directory / "calls"
        (directory / "failing.c").write_text(FAILING)
        defines = [f'-DCALLS="{calls}"', f"-DFAILURE={getattr(errno, failure)}"]
        library = directory / "failing.so"
        subprocess.run(["cc", "-shared", "-fPIC", *defines, "-o", library, directory / "failing.c", "-ldl"], check=True)
        with Hayate(site.make(tmp_path), workers=1, env={"LD_PRELOAD": str(library)}) as server:
            calls.touch()
            calls.chmod(0o666)
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as visitor:
                visitor.sendall(b"GET /plain.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert wait_until(lambda: calls.stat().st_size >= 2, 60), "the library is in force"
                first, begin = calls.stat().st_size, time.monotonic()
                time.sleep(2)
                assert wait_until(lambda: calls.stat().st_size > first), "it is asked again"
                more, passed = calls.stat().st_size - first, time.monotonic() - begin
                assert more <= passed / 0.2 + 2, f"{more} calls in {passed:.1f} s"
                calls.unlink()
                assert visitor.recv(1000).startswith(b"HTTP/1.1 200")
            assert server.logged(os.strerror(getattr(errno, failure)))
            assert server.log().count("cannot be accepted") == 1
    finally:
        shutil.rmtree(directory)
