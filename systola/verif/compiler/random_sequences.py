# SPDX-License-Identifier: Apache-2.0
"""Random networks of operators on sequences, in TensorFlow Lite's format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systola.verif.compiler.lstm_operator import add_lstm
from systola.verif.compiler.model_writer import ModelWriter

ACTIONS = ("dense", "lstm", "slice_steps", "slice_cells", "join", "binary", "curve")
MOST_STEPS, MOST_CELLS = 12, 40


@dataclass(frozen=True)
class Sequence:
    """A sequence in a model: a tensor of shape 1 x steps x cells."""

    tensor: int
    steps: int
    cells: int
    scale: float
    zero_point: int


class RandomSequences:
    """A random chain of operators on a sequence, in half of the cases after a convolution."""

    def __init__(
        self, rng: np.random.Generator, operators: int, samples: int, *, lstm: bool = True
    ) -> None:
        """Make a random chain of operators; without `lstm` none of them is an LSTM.

        An LSTM needs 16-bit modes, which not every machine has.
        """
        self.rng, self.writer = rng, ModelWriter()
        steps, cells = int(rng.integers(1, MOST_STEPS + 1)), int(rng.integers(1, 20))
        self.current = self._sequence(steps, cells)
        first = self.current
        shape: tuple[int, ...] = (1, steps, cells)
        if rng.integers(2):
            shape = (1, 1, steps, cells)
            first = self._convolution(shape)
        for _ in range(operators):
            action = str(rng.choice(ACTIONS))
            getattr(self, action if lstm or action != "lstm" else "dense")()
        self.content = self.writer.content([first.tensor], [self.current.tensor])
        self.samples = rng.integers(-128, 128, (samples, *shape), dtype=np.int8)

    def _sequence(
        self, steps: int, cells: int, like: Sequence | None = None, **fixed: float
    ) -> Sequence:
        """Return a new sequence with a scale and a zero point.

        Both values come from `fixed`, else from the sequence `like`, else at random.
        """
        scale = float(np.float32(10 ** self.rng.uniform(-2.2, -1.2)))
        zero_point = int(self.rng.integers(-128, 128))
        if like:
            scale, zero_point = like.scale, like.zero_point
        scale = fixed.get("scale", scale)
        zero_point = int(fixed.get("zero_point", zero_point))
        tensor = self.writer.tensor((1, steps, cells), "int8", scale, zero_point)
        return Sequence(tensor, steps, cells, scale, zero_point)

    def _convolution(self, shape: tuple[int, ...]) -> Sequence:
        """Add a convolution that makes the sequence `current`; return the convolution's input."""
        rng, target = self.rng, self.current
        scale = float(np.float32(rng.uniform(0.005, 0.05)))
        source = Sequence(self.writer.tensor(shape, "int8", scale, 3), *shape[2:], scale, 3)
        map_ = self.writer.tensor(shape, "int8", target.scale, target.zero_point)
        weights = rng.integers(-127, 128, (shape[3], 1, 3, shape[3]), dtype=np.int8)
        spread = source.scale * 5500 * np.sqrt(3 * shape[3]) / (target.scale * 50)
        self.writer.weighted(
            "CONV_2D",
            source.tensor,
            map_,
            weights,
            np.zeros(shape[3], np.int32),
            float(np.float32(1 / spread)),
            0,
            strideH=1,
            strideW=1,
        )
        self._reshape(map_, target)
        return source

    def _reshape(self, source: int, target: Sequence) -> None:
        shape = np.array([1, target.steps, target.cells], np.int32)
        sizes = self.writer.tensor((3,), "int32", data=shape)
        self.writer.operator("RESHAPE", [source, sizes], [target.tensor])

    def dense(self) -> None:
        """Add a FULLY_CONNECTED on each step, or on groups of steps that are joined to one step."""
        rng, source = self.rng, self.current
        at_once = int(rng.choice([n for n in (1, 2, 3, source.steps) if source.steps % n == 0]))
        if at_once > 1:
            source = self._sequence(source.steps // at_once, at_once * source.cells, source)
            self._reshape(self.current.tensor, source)
        n = int(rng.integers(1, MOST_CELLS))
        self.current = self._sequence(source.steps, n)
        spread = source.scale * 5500 * np.sqrt(source.cells) / (self.current.scale * 50)
        self.writer.fully_connected(
            source.tensor,
            self.current.tensor,
            rng.integers(-127, 128, (n, source.cells), dtype=np.int8),
            rng.integers(-9000, 9000, n, dtype=np.int32),
            float(np.float32(1 / spread)),
        )

    def lstm(self) -> None:
        source, cells = self.current, int(self.rng.integers(1, MOST_CELLS))
        result = add_lstm(
            self.rng, self.writer, source.tensor, source.scale, (source.steps, source.cells, cells)
        )
        scale, zero_point = self.writer.quantization(result)
        self.current = Sequence(result, source.steps, cells, scale, zero_point)

    def slice_steps(self) -> None:
        low, high = sorted(self.rng.integers(0, self.current.steps + 1, 2).tolist())
        self.current = self._slice(1, low, max(high, low + 1) if low < self.current.steps else None)

    def slice_cells(self) -> None:
        self.current = self._slice(2, 0, int(self.rng.integers(1, self.current.cells + 1)))

    def _slice(self, axis: int, low: int, high: int | None) -> Sequence:
        source = self.current
        if high is None:
            return source
        begin, end = [0, 0, 0], [1, source.steps, source.cells]
        begin[axis], end[axis] = low, high
        result = self._sequence(end[1] - begin[1], end[2] - begin[2], source)
        bounds = [
            self.writer.tensor((3,), "int32", data=np.array(each, np.int32))
            for each in (begin, end, [1, 1, 1])
        ]
        self.writer.operator("STRIDED_SLICE", [source.tensor, *bounds], [result.tensor])
        return result

    def join(self) -> None:
        """Add a CONCATENATION of the sequence with its second half in time, or with itself."""
        source, axis = self.current, int(self.rng.integers(1, 3))
        part = self._slice(1, source.steps // 2, source.steps) if axis == 1 else source
        steps, cells = source.steps, source.cells
        if axis == 1:
            steps += part.steps
        else:
            cells += part.cells
        if steps > MOST_STEPS or cells > 2 * MOST_CELLS:
            return
        self.current = self._sequence(steps, cells, source)
        self.writer.operator(
            "CONCATENATION", [source.tensor, part.tensor], [self.current.tensor], axis=axis
        )

    def binary(self) -> None:
        """Add ADD, SUB or MUL of the sequence and a constant, one of its own steps, or itself."""
        rng, source = self.rng, self.current
        match int(rng.integers(3)):
            case 0:
                shape = (1, source.steps, source.cells) if rng.integers(2) else (source.cells,)
                data = rng.integers(-128, 128, shape, dtype=np.int8)
                other = self.writer.tensor(shape, "int8", 0.02, int(rng.integers(-9, 9)), data)
            case 1:
                step = int(rng.integers(source.steps))
                other = self._slice(1, step, step + 1).tensor
            case _:
                other = source.tensor
        pair = [source.tensor, other]
        self.current = self._sequence(source.steps, source.cells)
        kind = str(rng.choice(["ADD", "SUB", "MUL"]))
        self.writer.operator(kind, pair if rng.integers(2) else pair[::-1], [self.current.tensor])

    def curve(self) -> None:
        source = self.current
        self.current = self._sequence(source.steps, source.cells, scale=1 / 256, zero_point=-128)
        self.writer.operator("LOGISTIC", [source.tensor], [self.current.tensor])
