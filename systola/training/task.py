# SPDX-License-Identifier: Apache-2.0
"""Describes the task of a program: the network, its exponents, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass

from systola.training.clip import Clip
from systola.training.moments import GRADIENT_BITS, LEAST_TOLD, Decays
from systola.training.stages import Stage, learns

SHIFT, GRADIENT, SPARE, INPUTS = 1, 2, 3, 4
"""Numbers of exponent registers.

- SHIFT: the right shift, in bits, for the results that are written next.
- GRADIENT: the number of fraction bits of the gradient that goes back at the moment.
- SPARE: for short use by any part of a program.
- INPUTS: the first of the registers with the numbers of fraction bits of the stages' inputs."""
STATE = 7
"""Number of the exponent register with the fraction bits of all states of an LSTM, which the update
of its weights needs."""


@dataclass(frozen=True)
class Exponent:
    """A number of fraction bits: a constant, or a constant plus the content of a register.

    `register` is 0 for a constant alone.
    """

    register: int
    value: int


@dataclass(frozen=True)
class Task:
    """A description of everything that the programs of a network depend on, except for the
    samples.
    """

    stages: tuple[Stage, ...]
    input_bits: int
    master_bits: tuple[int, ...]
    """Numbers of fraction bits of the masters (int16 weights) of each tensor, in the order of
    `stages.tensors`."""
    loss: str
    """Name of the loss, one of `loss.LOSSES`."""
    count: int
    """Number of samples in the batch, of which the loss is the mean."""
    learning_rate: float = 0.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    decays: Decays | None = None
    """Decays of the moments of Adam and RMSprop; None for other optimisers."""
    clip: Clip | None = None
    """Largest norm that gradients may have; None for no limit."""
    clip_value: float | None = None
    """Largest magnitude that each number of a gradient may have; None for no limit."""
    largest_weight: float = 0.0
    """Largest of the weights of samples (`sample_weight`); 0 if samples have no weights."""
    stochastic: bool = False
    """Whether the update of the masters is rounded at random."""
    unit_bits: tuple[int, ...] = ()
    """Fraction bits of the units of all stages but the last, for a program that learns nothing. If
    empty, the program measures the units."""
    seed: int = 0
    """Seed of the random masks of Dropout, and of random rounding."""
    core: int = 0
    """Number of this core, counted from 0, among the `cores` cores that share the batch."""
    cores: int = 1
    turn: int = 0
    """Number of this turn, counted from 0, among the `turns` turns in which a core takes its
    samples."""
    turns: int = 1

    @property
    def reads_words(self) -> bool:
        """Whether the program has an instruction for each word's row of the Embedding, as with
        several turns. Such a program can only be built when the words of the batch are known.
        """
        lstm = self.stages[0].lstm
        return self.turns > 1 and lstm is not None and lstm.vocabulary > 0

    @property
    def beside(self) -> int:
        """Number of tensors that are kept beside each tensor of masters: velocities, or moments."""
        if self.decays:
            return 1 + bool(self.decays.first)
        return int(bool(self.momentum))

    def share(self, size: int) -> range:
        """Return the samples of this core in this turn, which are successive samples of the batch.

        The samples are whole blocks of `size`, because the array takes no longer for a whole block.
        The shares of all cores and turns differ by at most one block.
        """
        blocks, turn = -(-self.count // size), self.core * self.turns + self.turn
        first, end = (n * blocks // (self.cores * self.turns) for n in (turn, turn + 1))
        return range(first * size, min(end * size, self.count))


def begin_told(task: Task, tensor: int) -> int:
    """Return the least number of bits that a step reports for a tensor's largest gradient.

    A tensor that learns nothing reports GRADIENT_BITS, which leaves its scales as they are.
    """
    return LEAST_TOLD if learns(task.stages, tensor) else GRADIENT_BITS
