# SPDX-License-Identifier: Apache-2.0
"""A writer of random instructions for a machine with training."""

from __future__ import annotations

from systola.arch.isa import EXPONENT_REGISTERS, REGISTERS, Opcode, Source
from systola.verif.kit.program_state import ATTEMPTS
from systola.verif.kit.program_writer import ProgramWriter

TRAINING = (Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)


class TrainingWriter(ProgramWriter):
    """A writer of random instructions that also has the instructions and modes of training."""

    def matrix_multiply(self) -> None:
        """Write a MatrixMultiply, with weights from the buffer if this is legal.

        Weights from the buffer need an empty weight queue.
        """
        if not self.config.training or self.queued or self.rng.random() < 0.4:
            super().matrix_multiply()
            return
        rng, lines, opcode = self.rng, self.spans.lines, Opcode.MATRIX_MULTIPLY
        wide_vectors, wide_weights = rng.randrange(2), rng.randrange(2)
        tiles = lines.size // (self.config.rows << wide_weights)
        if not tiles:
            return
        k_tiles = rng.randint(1, min(3, tiles))
        n_tiles = rng.randint(1, min(3, tiles // k_tiles))
        limit = min(
            lines.size // (k_tiles << wide_vectors), self.spans.accumulators.size // n_tiles
        )
        rows = min(self.rows(9), limit)
        self.emit(
            opcode,
            self.region(opcode, "buffer", lines, rows * k_tiles << wide_vectors),
            self.region(opcode, "accumulator", self.spans.accumulators, rows * n_tiles),
            self.region(
                opcode, "weights", lines, self.config.rows * k_tiles * n_tiles << wide_weights
            ),
            rows=rows,
            k_tiles=k_tiles,
            n_tiles=n_tiles,
            accumulate=rng.randrange(2),
            wide_vectors=wide_vectors,
            wide_weights=wide_weights,
            from_buffer=1,
        )

    def measure(self) -> None:
        rng, opcode = self.rng, Opcode.MEASURE
        source = rng.choice(list(Source))
        rows = min(self.rows(9), self.spans.lines.size // 2, self.spans.accumulators.size)
        regions = []
        if source == Source.ACCUMULATORS:
            regions.append(self.region(opcode, "accumulator", self.spans.accumulators, rows))
        elif source == Source.LINES:
            regions.append(self.region(opcode, "buffer", self.spans.lines, 2 * rows))
        self.emit(
            opcode,
            *regions,
            source=source,
            exponent=rng.randint(1, EXPONENT_REGISTERS - 1),
            rows=rows,
            bits=rng.choice((7, rng.randint(0, 31))),
            first=rng.choice((0, rng.randrange(EXPONENT_REGISTERS))),
            second=rng.choice((0, rng.randrange(EXPONENT_REGISTERS))),
            third=rng.choice((0, rng.randrange(EXPONENT_REGISTERS))),
            value=rng.choice((0, rng.randint(-8, 8), self.number(-128, 127))),
        )

    def transpose(self) -> None:
        rng, lines, opcode, size = self.rng, self.spans.lines, Opcode.TRANSPOSE, self.config.cols
        for _ in range(ATTEMPTS):
            count = rng.randint(1, 3)
            step = rng.choice((size, rng.randint(0, 2 * size)))
            read = (count - 1) * step + size
            if max(read, count * size) > lines.size:
                continue
            source = self.region(opcode, "buffer", lines, read)
            result = self.region(opcode, "destination", lines, count * size)
            if result.apart(source):
                self.emit(opcode, source, result, count=count, step=step)
                return

    def random(self) -> None:
        rng, opcode, lines = self.rng, Opcode.RANDOM, self.spans.lines
        rows = min(self.rows(9), lines.size)
        self.emit(
            opcode,
            self.region(opcode, "destination", lines, rows),
            rows=rows,
            seed=self.number(0, (1 << 31) - 1),
            counter=self.number(0, (1 << 32) - 1),
            counter_register=rng.choice((0, rng.randrange(REGISTERS))),
        )
