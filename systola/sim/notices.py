# SPDX-License-Identifier: Apache-2.0
"""The lines on stderr that inform a user of long work, with signs of life."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import IntEnum
from threading import Event, Thread

INTERVAL = 15.0
"""Seconds from one sign of life to the next."""


class Level(IntEnum):
    """An amount of information that the user wants."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_chosen = Level.NORMAL

listeners: list[Callable[[str], None]] = []
"""Functions that get each line, too, for places where nobody reads stderr, such as tests."""


def choose_level(level: Level) -> None:
    """Set the amount of information shown from now on."""
    global _chosen
    _chosen = level


def is_quiet() -> bool:
    """Return whether progress must not be shown."""
    return _chosen == Level.QUIET


def notice(text: str, level: Level = Level.NORMAL) -> None:
    """Print a line, if the user wants lines of that level."""
    if _chosen < level:
        return
    print(f"systola: {text}", file=sys.stderr, flush=True)
    for listener in listeners:
        listener(text)


@contextmanager
def sign_of_life(what: str) -> Generator[None]:
    """Print now and then that `what` still goes on, until the end of the context."""
    started = time.monotonic()
    ended = Event()

    def tell() -> None:
        while not ended.wait(INTERVAL):
            notice(f"{what}: {time.monotonic() - started:.0f} s so far")

    thread = Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
