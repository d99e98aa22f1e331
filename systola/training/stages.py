# SPDX-License-Identifier: Apache-2.0
"""Describes the stages of a network: a layer with weights each, and the layers up to the next
stage.

Inputs and units are cut into blocks of C numbers, as many as the array has columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systola.training.windows import Window

MOST_STAGES = 5
"""Largest number of stages with exponents in registers. The inputs of each stage but the first take
one of the exponent registers 4 to 7."""
MOST_LSTMS = 2
"""Largest number of LSTMs with exponents in registers: each takes an exponent register."""
GATES = (0, 1, 3, 2)
"""Positions of Keras's gates i, f, g, o in a kernel, counted from 0. The order in a kernel is i, f,
o, g, so that the three gates with a sigmoid are side by side."""
GRU_GATES = (1, 2, 0)
"""Positions of Keras's z, r and candidate in the kernel of a GRU, counted from 0. The order in the
kernel is candidate, z, r. The order in the recurrent kernel is Keras's: z, r, candidate."""
BIAS_LESS = 4
"""Number of fraction bits that the biases of an LSTM have less than its kernel. Some biases begin
at one, and so need more integer bits."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of weights with one number of fraction bits: a kernel and perhaps biases."""

    inputs: int
    units: int
    groups: int = 1
    """Number of equal parts of the inputs: taps of a window, or pixels of a flattened map. Each
    part begins with a new block."""
    order: tuple[int, ...] = (0,)
    """Positions of Keras's equal parts of the units, such as gates, counted from 0. Each part
    begins with a new block."""
    biased: bool = True
    bias_less: int = 0
    """Number of fraction bits that the biases have less than the kernel."""
    segments: tuple[int, ...] = ()
    """Number of channels of each result that a Concatenate has joined to the inputs, the same in
    each group. Each result begins with a new block. Empty if nothing was joined."""


@dataclass(frozen=True)
class Recurrence:
    """The settings of an LSTM or GRU of `units` units over `steps` steps in time.

    With a `vocabulary` above 0 the inputs are words of an Embedding, else numbers. The layer gives
    its last state, or with `sequences` all states.
    """

    steps: int
    units: int
    vocabulary: int = 0
    sequences: bool = False
    gru: bool = False
    """Whether the layer is a GRU (Keras's, with `reset_after=True`). Otherwise the layer is an
    LSTM."""

    @property
    def order(self) -> tuple[int, ...]:
        """Positions of Keras's gates in the kernel, counted from 0."""
        return GRU_GATES if self.gru else GATES


@dataclass(frozen=True)
class Normalization:
    """The settings of a BatchNormalization."""

    momentum: float
    """Fraction of a moving mean or variance that a step keeps; the rest comes from the batch."""
    epsilon: float
    """Number that is added to each variance before the root is taken."""
    frozen: bool = False
    """Whether training normalises by the moving mean and variance, as predict() does, and does not
    change them."""


@dataclass(frozen=True)
class Stage:
    """A stage of a network: a Dense, Conv2D or LSTM, with the layers after it up to the next stage.

    A stage makes `units` sums, each of `inputs` products and a bias. A join (an Add or Concatenate)
    is a stage without weights. A BatchNormalization is two stages: one without weights that
    normalises, and one with gamma and beta.
    """

    inputs: int
    units: int
    relu: bool = False
    softmax: bool = False
    sigmoid: bool = False
    curve: str = ""
    """Name in CURVES of an activation that is looked up in a table, such as tanh. Empty for no such
    activation, and in the last stage."""
    use_bias: bool = True
    """Whether biases are learnt. Otherwise the masters of the biases exist, but stay zero."""
    initializers: tuple[str, ...] = ("glorot_uniform", "zeros")
    """Names of the initialisers of kernel and biases, or of an LSTM's kernel, recurrent kernel and
    embeddings."""
    rate: float = 0.0
    """Rate of the dropout after the stage; 0 for none."""
    groups: int = 1
    """Number of equal parts of the inputs: taps of a window, or pixels of a flattened map. Each
    part begins with a new block."""
    window: Window | None = None
    """Windows of a convolution over its map; None for other stages."""
    pool: Window | None = None
    """Windows of the pooling after the stage; None for no pooling."""
    average: bool = False
    """Whether the pooling takes means; otherwise the pooling takes the largest numbers."""
    row: bool = False
    """Whether the stage is a Conv1D, with maps of height 1."""
    depthwise: bool = False
    """Whether the stage is a DepthwiseConv2D. Each unit is then a channel, and the inputs of a unit
    are the taps of a window in this channel."""
    lstm: Recurrence | None = None
    """Settings of an LSTM or GRU; None for other stages. For an LSTM or GRU, `inputs` are the
    inputs of one step in time, and `units` are the units of all gates."""
    join: str = ""
    """Kind of a stage without weights: "add", "concatenate" or "normalize"; empty for other
    stages."""
    normalized: Normalization | None = None
    """Settings of a stage that normalises; None for other stages."""
    scales: bool = False
    """Whether kernel and biases are gamma and beta of a BatchNormalization. The stage before then
    normalises."""
    frozen: bool = False
    """Whether training leaves kernel and biases as they are."""
    sources: tuple[int, ...] = ()
    """Numbers of the results that are inputs of the stage. Result 0 is the samples, result n is
    made by stage n - 1. If empty, the input is the result of the stage before."""
    segments: tuple[int, ...] = ()
    """Number of channels of each result that is joined in the inputs, or in a Concatenate's units.
    Each result begins with a new block. Empty if nothing is joined."""
    joined: tuple[int, int] | None = None
    """Height and width of the maps that an Add or Concatenate makes; None if a sample is a row of
    numbers."""

    @property
    def tensor(self) -> Tensor:
        """Tensor of kernel and biases. The recurrent kernel of an LSTM is another tensor."""
        if self.lstm:
            return Tensor(self.inputs, self.units, order=self.lstm.order, bias_less=BIAS_LESS)
        biased = not self.join
        return Tensor(self.inputs, self.units, self.groups, biased=biased, segments=self.segments)

    @property
    def activated(self) -> bool:
        """Whether the stage has an activation."""
        return self.relu or self.softmax or self.sigmoid or bool(self.curve)

    @property
    def masked(self) -> bool:
        """Whether the gradient of the units is multiplied by a mask, for ReLU, Dropout or curve."""
        return self.relu or self.rate > 0 or bool(self.curve)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """Shape of the kernel as Keras has it."""
        if self.scales:
            return (self.units,)
        if self.window is None:
            return self.inputs, self.units
        if self.depthwise:
            return *self.window.kernel, self.units, 1
        return *self.window.kernel[self.row :], self.channels, self.units

    @property
    def channels(self) -> int:
        """Number of channels of the maps that the stage takes; for a Dense its number of inputs."""
        if self.depthwise:
            return self.units
        return self.inputs // (self.window.taps if self.window else 1)

    @property
    def counted(self) -> tuple[int, int]:
        """Fan-in and fan-out of the kernel, as Keras's initialisers count them."""
        taps = self.window.taps if self.window else 1
        return (taps * self.units, taps) if self.depthwise else (self.inputs, self.units * taps)

    @property
    def map(self) -> tuple[int, int]:
        """Height and width of the maps that the stage leaves for the next stage; (1, 1) if a sample
        is a row of numbers.
        """
        last = self.pool or self.window
        return last.out if last else self.joined or (1, 1)

    @property
    def maps(self) -> bool:
        """Whether the stage makes maps, with a line for each pixel."""
        return self.window is not None or self.joined is not None


def takes(stages: Sequence[Stage], number: int) -> tuple[int, ...]:
    """Return the numbers of the results that are inputs of a stage, counted as in Stage.sources."""
    return stages[number].sources or (number,)


def takes_state(stages: Sequence[Stage], number: int) -> bool:
    """Return whether a stage takes the results of an LSTM or GRU."""
    at = takes(stages, number)[0]
    return at > 0 and stages[at - 1].lstm is not None


def branched(stages: Sequence[Stage]) -> bool:
    """Return whether the fraction bits of results are kept in the buffer, not in exponent
    registers.

    The buffer keeps the fraction bits for networks with branches, and with more stages or LSTMs
    than registers.
    """
    lstms = sum(stage.lstm is not None for stage in stages)
    # The states of an LSTM take a register, so registers are left for one stage less.
    many = lstms > MOST_LSTMS or len(stages) > MOST_STAGES - bool(lstms)
    return many or any(stage.sources for stage in stages)


def tensors(stages: Sequence[Stage]) -> tuple[Tensor, ...]:
    """Return all weight tensors: one for each stage, then the recurrent kernel and the embeddings
    of each LSTM.
    """
    others = [each for stage in stages for each in _others(stage)]
    return (*(stage.tensor for stage in stages), *others)


def learns(stages: Sequence[Stage], tensor: int) -> bool:
    """Return whether training updates the masters (int16 weights) of a tensor."""
    return tensor >= len(stages) or not (stages[tensor].join or stages[tensor].frozen)


RECURRENT, EMBEDDING = 0, 1
"""Numbers of the first LSTM's recurrent kernel and Embedding among the tensors, counted from 0
after the tensors of all stages."""


def recurrent_tensor(stages: Sequence[Stage], number: int) -> int:
    """Return the number of an LSTM's recurrent kernel among all weight tensors, from 0 as in
    tensors().
    """
    before = sum(len(_others(stage)) for stage in stages[:number])
    return len(stages) + before + RECURRENT


def _others(stage: Stage) -> list[Tensor]:
    if stage.lstm is None:
        return []
    gru = stage.lstm.gru
    order, less = (tuple(range(3)), BIAS_LESS) if gru else (GATES, 0)
    sizes = stage.lstm.units, stage.units
    others = [Tensor(*sizes, order=order, biased=gru, bias_less=less)]
    if stage.lstm.vocabulary:
        others.append(Tensor(stage.lstm.vocabulary, stage.inputs, biased=False))
    return others
