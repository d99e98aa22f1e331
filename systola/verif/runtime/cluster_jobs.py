# SPDX-License-Identifier: Apache-2.0
"""Jobs for tests with a cluster's workers, which can import this module, but no test module."""

from __future__ import annotations

import os
import signal
import time


def squared(number: int) -> int:
    """Return the square of a number after 0.05 s."""
    time.sleep(0.05)
    return number * number


def ends(number: int) -> int:
    """Kill the worker process in which the job runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fails(number: int) -> int:
    """Raise a KeyError with the job's number in the worker process."""
    raise KeyError(number)
