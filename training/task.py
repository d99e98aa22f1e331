# SPDX-License-Identifier: Apache-2.0
"""What a program is written for: the network, its exponents, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass

from systola.training.clip import Clip
from systola.training.moments import GRADIENT_BITS, LEAST_TOLD, Decays
from systola.training.stages import Stage

SHIFT, GRADIENT, SPARE, INPUTS = 1, 2, 3, 4
"""Exponent registers: of the next shift, of the gradient, for a moment, of inputs from here on."""
STATE = 7
"""Exponent register with the fraction bits of all states of an LSTM, as the update takes them."""


@dataclass(frozen=True)
class Exponent:
    """Fraction bits that are a constant, or that with what a register holds."""

    register: int
    value: int


@dataclass(frozen=True)
class Task:
    """Everything that the programs of a network depend on, but for the samples."""

    stages: tuple[Stage, ...]
    input_bits: int
    master_bits: tuple[int, ...]
    """Fraction bits of the masters of each stage."""
    loss: str
    """One of `losses.LOSSES`."""
    count: int
    """Samples in the batch: the loss is their mean."""
    learning_rate: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    decays: Decays | None = None
    """The decays of the moments of Adam and RMSprop; None for other optimisers."""
    clip: Clip | None = None
    """The norm at which gradients are cut off; None: they are not."""
    clip_value: float | None = None
    """The magnitude at which each number of a gradient is cut off; None: it is not."""
    largest_weight: float = 0.0
    """Of all samples; 0 where they have no weights."""
    stochastic: bool = False
    """Whether the update of the masters is rounded at random."""
    unit_bits: tuple[int, ...] = ()
    """Fraction bits of the units, of all stages but the last one, where nothing is learnt; none:
    measured as in a step."""
    seed: int = 0
    """Of the masks of Dropout, and of random rounding."""
    core: int = 0
    """Of `cores` that share the batch, see `share`."""
    cores: int = 1
    turn: int = 0
    """Of `turns` in which a core takes its samples, see `share`."""
    turns: int = 1

    @property
    def reads_words(self) -> bool:
        """Whether a program reads the row of each word, which must be known then."""
        lstm = self.stages[0].lstm
        return self.turns > 1 and lstm is not None and lstm.vocabulary > 0

    @property
    def beside(self) -> int:
        """Number of tensors that are kept beside each one of masters: velocities, or moments."""
        if self.decays:
            return 1 + bool(self.decays.first)
        return int(bool(self.momentum))

    def share(self, size: int) -> range:
        """Return the samples of the core in this turn, neighbours in the batch.

        They are whole blocks of `size`, because the array takes no longer for a whole one. No core
        or turn has more than one block more than another.
        """
        blocks, turn = -(-self.count // size), self.core * self.turns + self.turn
        first, end = (n * blocks // (self.cores * self.turns) for n in (turn, turn + 1))
        return range(first * size, min(end * size, self.count))


def begin_told(task: Task, tensor: int) -> int:
    """Return the bits of a largest gradient that a step tells where it sees none: of a join, which
    has no weights, as many as change nothing."""
    stage = task.stages[tensor] if tensor < len(task.stages) else None
    return GRADIENT_BITS if stage and stage.join else LEAST_TOLD
