# SPDX-License-Identifier: Apache-2.0
"""A writer of faulting instructions that exist for training alone."""

from __future__ import annotations

from systola.arch.isa import Fault, Opcode, Source
from systola.verif.kit.single_instructions import SingleInstructions


class TrainingFaults(SingleInstructions):
    """A writer of instructions that cause one of FAULTS, on a machine with training."""

    FAULTS = (Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE, Fault.OVERLAP, Fault.WEIGHT_OVERFLOW)

    def write(self, fault: Fault) -> None:
        """Write an instruction for training that causes `fault`, one of FAULTS."""
        getattr(self, f"_{fault.name.lower()}")()

    def _buffer_range(self) -> None:
        rng, lines, size = self._rng, self._config.buffer_lines, self._config.rows
        count = rng.choice((1, 2, rng.randint(1, 8)))
        opcode = rng.choice(
            (Opcode.MATRIX_MULTIPLY, Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)
        )
        match opcode:
            case Opcode.MATRIX_MULTIPLY:
                wide = rng.randrange(2)
                first = lines - (count * size << wide) + 1
                how = rng.choice(({"k_tiles": count}, {"n_tiles": count}))
                at = {"from_buffer": 1, "wide_weights": wide, **how}
                self._one(opcode, **at, **self._value(opcode, "weights", max(0, first)))
            case Opcode.MEASURE:
                at = {"source": Source.LINES, "rows": count}
                self._one(opcode, **at, **self._value(opcode, "buffer", lines - 2 * count + 1))
            case Opcode.RANDOM:
                at = self._value(opcode, "destination", lines - count + 1)
                self._one(opcode, **at, rows=count)
            case _:
                name, step = "destination", rng.randrange(1 << 10)
                first = lines - count * size + 1
                if rng.random() < 0.5:
                    name, first = "buffer", lines - (count - 1) * step - size + 1
                at = {"buffer": 0, "destination": 0, "count": count, "step": step}
                self._one(opcode, **{**at, **self._value(opcode, name, max(0, first))})

    def _accumulator_range(self) -> None:
        opcode, rows = Opcode.MEASURE, self._rng.randint(1, 8)
        first = self._config.accumulator_rows - rows + 1
        at = self._value(opcode, "accumulator", first)
        self._one(opcode, **at, source=Source.ACCUMULATORS, rows=rows)

    def _overlap(self) -> None:
        rng, size = self._rng, self._config.rows
        count, step = rng.randint(1, 3), rng.randint(0, 2 * size)
        source = self._writer.spans.lines.start + 3 * size
        read, written = (count - 1) * step + size, count * size
        last = min(source + read - 1, self._config.buffer_lines - written)
        result = rng.randint(source - written + 1, last)
        at = {"buffer": source, "destination": max(0, result)}
        self._one(Opcode.TRANSPOSE, **at, count=count, step=step)

    def _weight_overflow(self) -> None:
        """Write a MatrixMultiply with weights from the buffer while weight tiles are queued."""
        if not self._writer.queued:
            self._writer.queue_weights(1)
        self._one(Opcode.MATRIX_MULTIPLY, from_buffer=1, accumulate=1)
