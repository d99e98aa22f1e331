# SPDX-License-Identifier: Apache-2.0
"""What workers of a cluster are asked to do: in a module that they find as pytest's they do not."""

from __future__ import annotations

import os
import signal
import time


def squared(number: int) -> int:
    """The square, after a while."""
    time.sleep(0.05)
    return number * number


def ends(number: int) -> int:
    """The end of the worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fails(number: int) -> int:
    """An exception."""
    raise KeyError(number)
