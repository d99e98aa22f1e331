# SPDX-License-Identifier: Apache-2.0
"""Calls of functions in separate processes, which may crash or hang without harm to the tests.

`Isolation` starts a process that forks once for each call. So a call costs some milliseconds, and
never finds state that another call has left. The tests' own process is not forked, because it may
have threads.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import TracebackType
from typing import Any, BinaryIO

CPU_SECONDS = 60
"""Seconds of processor time after which a call is ended, however busy the machine is."""
SECONDS = 1200
"""Seconds of real time after which a call is ended; it may wait for an event that never comes."""
_LENGTH = struct.Struct("<q")

Steps = Callable[..., Iterator[Any]]
"""Type of a function that Isolation can call, a generator of results."""


class Isolation:
    """A context manager that calls a function in separate processes, and ends them on exit."""

    def __init__(self, function: Steps) -> None:
        self._function = f"{function.__module__}:{function.__name__}"

    def __enter__(self) -> Isolation:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self._function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        # Leaving the block closes the streams of the process, so the process ends.
        with self._process:
            pass

    def call(self, *arguments: Any) -> tuple[list[Any], int]:
        """Call the function in a new process; return its items and the process's wait status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        _send(self._process.stdin, arguments)
        return _received(self._process.stdout)


def _send(stream: BinaryIO, item: Any) -> None:
    data = pickle.dumps(item)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _received(stream: BinaryIO) -> Any:
    """Return the next item that `_send` has written; raise EOFError if no item comes."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def _serve(function: Steps) -> None:
    """Read calls from standard input, and make each in a forked process; write all results."""
    # Output of libraries on stdout and stderr must not get between the results that are sent.
    answers = os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    while True:
        try:
            arguments = _received(sys.stdin.buffer)
        except EOFError:
            return
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            with os.fdopen(write_end, "wb") as found:
                resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, resource.RLIM_INFINITY))
                signal.alarm(SECONDS)
                for item in function(*arguments):
                    _send(found, item)
            os._exit(0)
        os.close(write_end)
        items: list[Any] = []
        with os.fdopen(read_end, "rb") as found:
            while True:
                try:
                    items.append(_received(found))
                except EOFError:
                    break
        _, status = os.waitpid(child, 0)
        _send(answers, (items, status))


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    _serve(getattr(import_module(module), name))
