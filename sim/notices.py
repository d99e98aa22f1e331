# SPDX-License-Identifier: Apache-2.0
"""What a user is told while something takes long: lines on stderr, and signs of life."""

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
    """How much the user wants to know."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


_chosen = Level.NORMAL

listeners: list[Callable[[str], None]] = []
"""Who else is told: where stderr goes nowhere, as in tests."""


def choose_level(level: Level) -> None:
    """Sets how much is shown from now on."""
    global _chosen
    _chosen = level


def is_quiet() -> bool:
    """Whether no progress is to be shown."""
    return _chosen == Level.QUIET


def notice(text: str, level: Level = Level.NORMAL) -> None:
    """Prints a line, where lines of that level are wanted."""
    if _chosen < level:
        return
    print(f"systola: {text}", file=sys.stderr, flush=True)
    for listener in listeners:
        listener(text)


@contextmanager
def sign_of_life(what: str) -> Generator[None]:
    """Says now and then that `what` still goes on, until the end."""
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
