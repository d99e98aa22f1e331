# SPDX-License-Identifier: Apache-2.0
"""Jobs for the workers of a cluster, in a module that workers can import, unlike pytest's."""

from __future__ import annotations

import os
import signal
import time


def squared(number: int) -> int:
    """Return the square of a number after a short time."""
    time.sleep(0.05)
    return number * number


def ends(number: int) -> int:
    """Kill the worker process in which the job runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fails(number: int) -> int:
    """Raise an exception in the worker."""
    raise KeyError(number)
