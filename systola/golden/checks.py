# SPDX-License-Identifier: Apache-2.0
"""The checks that stop an instruction before it has any effect."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.built_for import machine_operands
from systola.arch.features import unavailable
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    LOOP_DEPTH,
    WEIGHT_READS_IN_FLIGHT,
    Fault,
    Instruction,
    Opcode,
)
from systola.golden import ranges
from systola.golden.ranges import Access
from systola.golden.state import State
from systola.golden.window import UNSET


class Checks(State):
    """The checks of the instruction set, which look at effective operands and the state before the
    instruction.
    """

    def _failed(self, cause: Fault, opcode: Opcode, at: Mapping[str, int]) -> int | None:
        """Return the content of FAULT_ADDRESS if the check for `cause` fails, else None."""
        config = self.config
        match cause:
            case Fault.OTHER_MACHINE:
                return None if at == machine_operands(config) else 0
            case Fault.UNAVAILABLE:
                return int(opcode) if unavailable(config, opcode, at) else None
            case Fault.WINDOW:
                return None if self._window_fits(opcode, at) else 0
            case Fault.BUFFER_RANGE:
                regions = ranges.buffer_lines(opcode, at, self._window, config.rows)
                return next((r.start for r in regions if r.stop > config.buffer_lines), None)
            case Fault.OVERLAP:
                *sources, result = ranges.buffer_lines(opcode, at, self._window, config.rows)
                if opcode == Opcode.VECTOR:
                    if ranges.one_line(at["operation"], at["function"]):
                        sources = sources[:1]
                    sources = [source for source in sources if source != result]
                meets = any(s.start < result.stop and result.start < s.stop for s in sources)
                return result.start if meets else None
            case Fault.ACCUMULATOR_RANGE:
                rows = ranges.accumulator_rows(opcode, at, self._window)
                if not ranges.uses_accumulators(opcode, at):
                    return None
                return rows.start if rows.stop > config.accumulator_rows else None
            case Fault.PARAMETER_RANGE:
                entries = ranges.parameter_entries(opcode, at, self._window)
                return entries.start if entries.stop > config.parameter_entries else None
            case Fault.TABLE_RANGE:
                tables = ranges.tables(opcode, at)
                return tables.start if tables.stop > config.tables else None
            case Fault.HOST_WINDOW:
                span = ranges.host_bytes(opcode, at, config)
                return span.start if span.stop > self._host.size else None
            case Fault.WEIGHT_WINDOW:
                return at["tile"] if at["tile"] + at["count"] > len(self._tiles) else None
            case Fault.WEIGHT_OVERFLOW if opcode == Opcode.MATRIX_MULTIPLY:
                return at["weights"] if at["from_buffer"] and self._queue else None
            case Fault.WEIGHT_OVERFLOW:
                # Tiles are consumed in order. So if the oldest of the last WEIGHT_READS_IN_FLIGHT
                # Read_Weights has tiles left, all later Read_Weights have tiles left, too. The
                # queue has a range for each Read_Weights with tiles left.
                return at["tile"] if len(self._queue) >= WEIGHT_READS_IN_FLIGHT else None
            case Fault.WEIGHT_UNDERFLOW:
                queued = sum(len(span) for span in self._queue)
                return queued if ranges.tiles_consumed(opcode, at, self._window) > queued else None
            case Fault.LOOP:
                loops_open = self._scalar.loops_open
                if opcode == Opcode.LOOP:
                    bad = loops_open == LOOP_DEPTH or at["count"] == 0
                else:
                    bad = loops_open == 0
                return loops_open if bad else None
            case _:
                raise ValueError(f"{cause.name} is no check of an instruction")

    def _window_fits(self, opcode: Opcode, at: Mapping[str, int]) -> bool:
        """Return whether the window is set and suits the instruction."""
        window = self._window
        if window is UNSET:
            return False
        if opcode == Opcode.CONVOLVE and at["channels"]:
            return at["k_tiles"] == 1 and window.fits_packed(at["channels"], self.config.rows)
        if opcode == Opcode.DEPTHWISE and window.taps > DEPTHWISE_TAPS:
            return False
        return window.width <= window.pitch

    def accesses(self, entry: Instruction, operands: Mapping[str, int]) -> list[Access]:
        """Return the parts of the unified buffer and the accumulators that the instruction uses."""
        return ranges.accesses(entry, operands, self._window, self.config.rows)
