# SPDX-License-Identifier: Apache-2.0
"""The jobs of cluster workers, in a module that workers can import, unlike pytest's modules."""

from __future__ import annotations

import os
import signal
import time


def squared(number: int) -> int:
    """Return the square, after a while."""
    time.sleep(0.05)
    return number * number


def ends(number: int) -> int:
    """End the worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fails(number: int) -> int:
    """Raise an exception."""
    raise KeyError(number)
