# SPDX-License-Identifier: Apache-2.0
"""The stages of a network: a layer of weights each, with what follows it up to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systola.training.windows import Window

MOST_STAGES = 5
"""The inputs of all but the first have an exponent register each, 4 to 7."""
MOST_LSTMS = 2
"""LSTMs with an exponent register each."""
GATES = (0, 1, 3, 2)
"""Where the gates of Keras, i f g o, stand here: those with a sigmoid side by side."""
BIAS_LESS = 4
"""Fraction bits that the biases of an LSTM have less than its other weights: they begin at one."""


@dataclass(frozen=True)
class Tensor:
    """Weights that have one exponent: a kernel, and a row of biases where there are some."""

    inputs: int
    units: int
    groups: int = 1
    """Equal parts of the inputs, each in blocks of its own: taps, or pixels of a flattened map."""
    order: tuple[int, ...] = (0,)
    """Equal parts of the units, each in blocks of its own: the place of each."""
    biased: bool = True
    bias_less: int = 0
    """Fraction bits that the biases have less."""
    segments: tuple[int, ...] = ()
    """Channels of parts of each group, each in blocks of its own; empty: one part."""


@dataclass(frozen=True)
class Recurrence:
    """An LSTM of `units` over `steps`, its inputs words where there is a vocabulary.

    It gives its last state, or with `sequences` all of them.
    """

    steps: int
    units: int
    vocabulary: int = 0
    sequences: bool = False


@dataclass(frozen=True)
class Stage:
    """One Dense, Conv2D or LSTM: `units` sums of `inputs` numbers and a one for the bias."""

    inputs: int
    units: int
    relu: bool = False
    softmax: bool = False
    sigmoid: bool = False
    curve: str = ""
    """The name in CURVES of the activation of a stage that is not the last one; empty: none."""
    use_bias: bool = True
    """Whether biases are learnt; else their masters are there, and stay zero."""
    initializers: tuple[str, ...] = ("glorot_uniform", "zeros")
    """The names of fresh weights: of the kernel and of the biases; of an LSTM those of kernel,
    recurrent kernel and embeddings."""
    rate: float = 0.0
    """Of the dropout after it; 0: none."""
    groups: int = 1
    """Equal parts of the inputs, each in blocks of its own: taps, or pixels of a flattened map."""
    window: Window | None = None
    """Of a Conv2D; the units are channels then."""
    pool: Window | None = None
    """Of the pooling after it."""
    average: bool = False
    """Whether the pooling takes means: else it takes the largest."""
    row: bool = False
    """Whether it is a Conv1D: its maps have the height 1."""
    depthwise: bool = False
    """Whether it is a DepthwiseConv2D: each unit is a channel of the inputs, which are taps."""
    lstm: Recurrence | None = None
    """Of an LSTM; the inputs are those of a step then, the units those of all gates."""
    join: str = ""
    """"add" or "concatenate": it has no weights then, and joins what it takes."""
    sources: tuple[int, ...] = ()
    """Numbers of the results that it takes, 0 for the samples, n for those of stage n - 1; empty:
    the result before."""
    segments: tuple[int, ...] = ()
    """Channels of the parts of its inputs, of a join those of its units: each in blocks of its own.
    Empty: one part."""
    joined: tuple[int, int] | None = None
    """Height and width of the maps that a join makes; None: rows."""

    @property
    def tensor(self) -> Tensor:
        """Its kernel and biases; of an LSTM those for the inputs."""
        if self.lstm:
            return Tensor(self.inputs, self.units, order=GATES, bias_less=BIAS_LESS)
        biased = not self.join
        return Tensor(self.inputs, self.units, self.groups, biased=biased, segments=self.segments)

    @property
    def activated(self) -> bool:
        """Whether it has an activation."""
        return self.relu or self.softmax or self.sigmoid or bool(self.curve)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """As Keras has it."""
        if self.window is None:
            return self.inputs, self.units
        if self.depthwise:
            return *self.window.kernel, self.units, 1
        return *self.window.kernel[self.row :], self.channels, self.units

    @property
    def channels(self) -> int:
        """Channels of the maps that it takes; of a Dense its inputs."""
        if self.depthwise:
            return self.units
        return self.inputs // (self.window.taps if self.window else 1)

    @property
    def counted(self) -> tuple[int, int]:
        """Inputs of a unit, and units that an input is in, as Glorot counts them."""
        taps = self.window.taps if self.window else 1
        return (taps * self.units, taps) if self.depthwise else (self.inputs, self.units * taps)

    @property
    def map(self) -> tuple[int, int]:
        """Height and width of what a Conv2D leaves for the next stage, or of a join's maps."""
        last = self.pool or self.window
        return last.out if last else self.joined or (1, 1)

    @property
    def maps(self) -> bool:
        """Whether it makes maps, a line for each pixel."""
        return self.window is not None or self.joined is not None


def takes(stages: Sequence[Stage], number: int) -> tuple[int, ...]:
    """Return the numbers of the results that a stage takes, see Stage.sources."""
    return stages[number].sources or (number,)


def branched(stages: Sequence[Stage]) -> bool:
    """Whether the exponents of results are kept in the buffer: of branches, and of many stages."""
    lstms = sum(stage.lstm is not None for stage in stages)
    # The states of an LSTM have the register that the units of one more stage would have.
    many = lstms > MOST_LSTMS or len(stages) > MOST_STAGES - bool(lstms)
    return many or any(stage.sources for stage in stages)


def tensors(stages: Sequence[Stage]) -> tuple[Tensor, ...]:
    """All that is learnt: a tensor for each stage, then the others of each LSTM."""
    others = [each for stage in stages for each in _others(stage)]
    return (*(stage.tensor for stage in stages), *others)


RECURRENT, EMBEDDING = 0, 1
"""The others of an LSTM that is the first stage, counted from the number of stages on."""


def recurrent_tensor(stages: Sequence[Stage], number: int) -> int:
    """Return the number of the tensor with the recurrent kernel of an LSTM."""
    before = sum(len(_others(stage)) for stage in stages[:number])
    return len(stages) + before + RECURRENT


def _others(stage: Stage) -> list[Tensor]:
    if stage.lstm is None:
        return []
    others = [Tensor(stage.lstm.units, stage.units, order=GATES, biased=False)]
    if stage.lstm.vocabulary:
        others.append(Tensor(stage.lstm.vocabulary, stage.inputs, biased=False))
    return others
