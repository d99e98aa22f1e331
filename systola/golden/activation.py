# SPDX-License-Identifier: Apache-2.0
"""Instructions of the activation unit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation, Reduction, Rounding, Source
from systola.golden.curves import curve_of, looked_up, on_curve
from systola.golden.partition import partition_planes
from systola.golden.ranges import is_partition, one_line
from systola.golden.requantise import (
    Integers,
    activate,
    activate_wide,
    clamped,
    parameter_entry,
    requantise,
)
from systola.golden.state import State
from systola.golden.training import magnitude_bits
from systola.golden.vector import depthwise_sums, pooled, quotient_sums, vector_sums


class ActivationUnit(State):
    """A unit that requantises, applies functions, pools, and computes element by element."""

    def activate(
        self,
        *,
        accumulator: int,
        buffer: int,
        rows: int,
        n_tiles: int,
        parameter: int,
        function: int,
        rounding: int,
        zero_point: int,
        ceiling: int,
        table: int,
        wide: int,
        accumulate: int,
        exponent: int,
        stochastic: int,
    ) -> None:
        """Requantise accumulator rows, apply the function and write buffer lines."""
        shape = n_tiles, rows, self.config.cols
        sums = self.accumulators[accumulator : accumulator + n_tiles * rows].reshape(shape)
        entries = range(parameter, parameter + n_tiles)
        dither = self._generators.dither(n_tiles * rows).reshape(shape) if stochastic else None
        y = self._requantised(sums, entries, rounding, exponent, dither)
        if wide:
            addend: Integers | int = zero_point
            if accumulate:
                addend = self._values(buffer, n_tiles, rows, True)[:, :, : self.config.cols]
            self._store_wide(buffer, self._activated_wide(y, function, addend, table))
        else:
            self._store(buffer, self._activated(y, function, zero_point, ceiling, table))

    def depthwise(
        self,
        *,
        buffer: int,
        taps: int,
        destination: int,
        blocks: int,
        parameter: int,
        function: int,
        rounding: int,
        zero_point: int,
        ceiling: int,
        fill: int,
    ) -> None:
        """Convolve each channel with its own kernel and requantise the sums."""
        window, cols = self._window, self.config.cols
        kernels = self._lines(taps, blocks, window.taps)[:, :, :cols]
        for b in range(blocks):
            lines = self.buffer[buffer + b * window.map_lines :, :cols]
            sums = depthwise_sums(lines, kernels[b], window, fill)
            y = self._requantised(sums, parameter + b, rounding)
            result = self._activated(y, function, zero_point, ceiling, 0)
            self._store(destination + b * window.windows, result)

    def pool(
        self,
        *,
        buffer: int,
        destination: int,
        blocks: int,
        parameter: int,
        reduction: int,
        rounding: int,
        zero_point: int,
        floor: int,
        ceiling: int,
    ) -> None:
        """Reduce the taps of each window and requantise the result."""
        window, cols = self._window, self.config.cols
        for b in range(blocks):
            lines = self.buffer[buffer + b * window.map_lines :, :cols]
            sums, inside = pooled(lines, window, Reduction(reduction))
            y = np.empty(sums.shape, np.int64)
            entries = np.zeros_like(inside)
            if reduction == Reduction.AVERAGE:
                entries = np.maximum(inside, 1) - 1
            for entry in np.unique(entries).tolist():
                chosen = entries == entry
                y[chosen] = self._requantised(sums[chosen], parameter + entry, rounding)
            result = clamped(y + zero_point, floor, ceiling).astype(np.int8)
            self._store(destination + b * window.windows, result)

    def vector(
        self,
        *,
        operation: int,
        buffer: int,
        operand: int,
        destination: int,
        rows: int,
        parameter: int,
        function: int,
        rounding: int,
        zero_point: int,
        table: int,
        wide_operands: int,
        wide: int,
        accumulate: int,
        exponent: int,
    ) -> None:
        """Compute with the elements of one or two operands and requantise the results."""
        cols = self.config.cols
        a = self._values(buffer, 1, rows, bool(wide_operands))[0, :, :cols]
        b = None
        if operation != Operation.COPY:
            lines = 1 if one_line(operation, function) else rows
            b = self._values(operand, 1, lines, bool(wide_operands))[0, :, :cols]
        scale = self._scale
        if function == Function.QUOTIENT and operation == Operation.COPY:
            sums = looked_up(a, scale.zero_a, self.tables, table)
        elif b is not None and one_line(operation, function):
            sums = looked_up(a, scale.zero_a + b[0].astype(np.int64), self.tables, table)
        elif b is not None and function == Function.QUOTIENT:
            sums = quotient_sums(a, b, scale)
        else:
            sums = vector_sums(Operation(operation), a, b, scale, 16 if wide_operands else 11)
        if is_partition(accumulate, wide):
            self.parameters[parameter] = partition_planes(sums)
            return
        y = self._requantised(sums, parameter, rounding, exponent)
        if not wide:
            result = self._activated(y, function, zero_point, scale.ceiling, table)
            self._store(destination, result)
            return
        addend: Integers | int = zero_point
        if accumulate:
            addend = self._values(destination, 1, rows, True)[0, :, :cols]
        result = self._activated_wide(y, function, addend, table)
        if function in (Function.NONE, Function.QUOTIENT) and scale.limit:
            result = np.clip(result, -scale.limit, scale.limit)
        self._store_wide(destination, result)

    def measure(
        self,
        *,
        source: int,
        exponent: int,
        accumulator: int,
        buffer: int,
        rows: int,
        bits: int,
        first: int,
        second: int,
        third: int,
        value: int,
    ) -> None:
        """Set an exponent register."""
        result = self._exponents.total(first, second, third, value)
        if source == Source.ACCUMULATORS:
            sums = self.accumulators[accumulator : accumulator + rows]
            result = max(result, magnitude_bits(sums) - bits)
        elif source == Source.LINES:
            values = self._values(buffer, 1, rows, True)[0, :, : self.config.cols]
            result = max(result, magnitude_bits(values) - bits)
        self._exponents.set(exponent, result)

    def transpose(self, *, buffer: int, destination: int, count: int, step: int) -> None:
        """Transpose tiles of lines."""
        size = self.config.cols
        tiles = np.empty((count, size, size), np.int8)
        for t in range(count):
            tiles[t] = self.buffer[buffer + t * step :][:size].T
        self._store(destination, tiles)

    def random(self, *, destination: int, rows: int, seed: int, counter: int) -> None:
        """Fill lines with random bytes."""
        self._store(destination, self._generators.lines(rows, seed, counter))

    def _requantised(
        self,
        sums: NDArray[np.int32],
        entries: int | range,
        rounding: int,
        exponent: int = 0,
        dither: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Compute y of Activate: sums (..., C) need one entry, and sums (n, rows, C) n entries."""
        if isinstance(entries, range):
            planes = self.parameters[entries.start : entries.stop, np.newaxis]
        else:
            planes = self.parameters[entries]
        entry = parameter_entry(planes)
        if exponent:
            left, right = map(np.int64, self._exponents.shifts(exponent))
            entry = entry._replace(left=left, right=right)
        return requantise(sums, *entry, rounding=Rounding(rounding), dither=dither)

    def _activated(
        self, y: NDArray[np.int64], function: int, zero_point: int, ceiling: int, table: int
    ) -> NDArray[np.int8]:
        """Compute the int8 results of Activate."""
        lookup = self.tables[table] if function == Function.TABLE else None
        return activate(y, Function(function), zero_point, ceiling, lookup)

    def _activated_wide(
        self, y: NDArray[np.int64], function: int, addend: Integers | int, table: int
    ) -> NDArray[np.int16]:
        """Compute the int16 results of Activate."""
        if function == Function.TABLE:
            v = activate_wide(y, Function.NONE, addend, table)
            return on_curve(v, curve_of(self.tables, table))
        return activate_wide(y, Function(function), addend, table)
