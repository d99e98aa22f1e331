# SPDX-License-Identifier: Apache-2.0
"""Instructions of the program itself."""

from __future__ import annotations

from systola.golden.state import State
from systola.golden.vector import Scale
from systola.golden.window import Window


class Control(State):
    """A part of the machine that waits, runs loops, and sets registers and settings."""

    def nop(self) -> None:
        """Do nothing."""

    def halt(self) -> None:
        """Drop the weight tiles that nothing consumed. `run` ends the program."""
        self._queue.clear()

    def synchronize(self) -> None:
        """Do nothing: here every instruction has completed before the next one starts."""

    def interrupt_host(self, *, code: int) -> None:
        """Note the code for the outcome of the run."""
        self._interrupts.append(code)

    def synchronize_host(self) -> None:
        """Do nothing: there is no host beside this model that could write RESUME."""

    def debug_tag(self, *, tag: int, wait: int) -> None:
        """Note the tag at once: all earlier instructions have completed."""
        self._tags.append(tag)

    def require_machine(self, **operands: int) -> None:
        """Do nothing: the check has compared all `operands` with the machine."""

    def set_register(self, *, register: int, value: int, first: int, second: int) -> None:
        """Set an index register to the sum of two registers and a value."""
        self._scalar.set_register(register, value, first, second)

    def loop(self, *, count: int) -> None:
        """Open a loop that begins with the next instruction."""
        self._scalar.open_loop(count, self._next)

    def end_loop(self) -> None:
        """Go back to the beginning of the innermost loop, or close it."""
        body = self._scalar.end_loop()
        if body is not None:
            self._next = body

    def set_config_window(self, **operands: int) -> None:
        """Set the window of Convolve, Depthwise and Pool."""
        self._window = Window(**operands)

    def set_config_scale(self, **operands: int) -> None:
        """Set the scales of the operands of Vector."""
        self._scale = Scale(**operands)
