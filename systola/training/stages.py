# SPDX-License-Identifier: Apache-2.0
"""Describes the stages of a network: a layer of weights each, and layers up to the next stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systola.training.windows import Window

MOST_STAGES = 5
"""Largest number of stages for which the inputs of each stage but the first have an exponent
register of their own, 4 to 7."""
MOST_LSTMS = 2
"""Largest number of LSTMs for which each has an exponent register."""
GATES = (0, 1, 3, 2)
"""Place in a kernel of each of Keras's gates i, f, g, o. In this order, i f o g, the three gates
with a sigmoid are side by side."""
GRU_GATES = (1, 2, 0)
"""Place of Keras's z, r and candidate in the kernel of a GRU. The recurrent kernel has Keras's
order. So z and r are side by side in both kernels. The kernel has the candidate before them, the
recurrent kernel after them."""
BIAS_LESS = 4
"""Number of fraction bits that the biases of an LSTM have less than its other weights, as some
biases begin at one."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of weights with one exponent: a kernel, and a row of biases where there are some."""

    inputs: int
    units: int
    groups: int = 1
    """Number of equal parts of the inputs: taps of a window, or pixels of a flattened map. Each
    part is in blocks of its own."""
    order: tuple[int, ...] = (0,)
    """Place of each of the equal parts of the units, such as gates. Each part is in blocks of its
    own."""
    biased: bool = True
    bias_less: int = 0
    """Number of fraction bits that the biases have less than the kernel."""
    segments: tuple[int, ...] = ()
    """Numbers of channels of the parts of a concatenated input, the same in each group. Each part
    is in blocks of its own. Empty for a single part."""


@dataclass(frozen=True)
class Recurrence:
    """The settings of an LSTM or GRU of `units` units over `steps` steps in time.

    With a `vocabulary` above 0 its inputs are words of an Embedding. It gives its last state, or
    with `sequences` all states.
    """

    steps: int
    units: int
    vocabulary: int = 0
    sequences: bool = False
    gru: bool = False
    """Whether this is a GRU, with the reset after the product with the recurrent kernel."""

    @property
    def order(self) -> tuple[int, ...]:
        """Place of each of the equal parts (gates) of the kernel's units."""
        return GRU_GATES if self.gru else GATES


@dataclass(frozen=True)
class Normalization:
    """The settings of a BatchNormalization."""

    momentum: float
    """The part of a moving mean or variance that is kept in a step."""
    epsilon: float
    """Number that is added to each variance."""
    frozen: bool = False
    """Whether training, too, takes the moving mean and variance and leaves them as they are."""


@dataclass(frozen=True)
class Stage:
    """A stage of a network: a Dense, Conv2D or LSTM, with the layers after it up to the next stage.

    It makes `units` sums of `inputs` numbers and a one for the bias. A join, which is an Add or
    Concatenate, is a stage without weights. A stage that normalises one result has no weights
    either.
    """

    inputs: int
    units: int
    relu: bool = False
    softmax: bool = False
    sigmoid: bool = False
    curve: str = ""
    """Name in CURVES of an activation that is a table, for a stage that is not the last stage;
    empty for none."""
    use_bias: bool = True
    """Whether biases are learnt. If not, their masters exist and stay zero."""
    initializers: tuple[str, ...] = ("glorot_uniform", "zeros")
    """Names of the initialisers of kernel and biases, or of an LSTM's kernel, recurrent kernel and
    embeddings."""
    rate: float = 0.0
    """Rate of the dropout after the stage; 0 for none."""
    groups: int = 1
    """Number of equal parts of the inputs: taps of a window, or pixels of a flattened map. Each
    part is in blocks of its own."""
    window: Window | None = None
    """Windows of a Conv2D, of which the units are channels; None for other stages."""
    pool: Window | None = None
    """Windows of the pooling after the stage; None for no pooling."""
    average: bool = False
    """Whether the pooling takes means. Otherwise it takes the largest numbers."""
    row: bool = False
    """Whether the stage is a Conv1D, with maps of height 1."""
    depthwise: bool = False
    """Whether the stage is a DepthwiseConv2D. Then each unit is a channel, and its inputs
    are taps."""
    lstm: Recurrence | None = None
    """Settings of an LSTM or GRU; None for other stages. For an LSTM or GRU, `inputs` are the
    inputs of one step in time, and `units` are the units of all gates."""
    join: str = ""
    """Kind of a stage without weights: "add", "concatenate" or "normalize"; empty for other
    stages."""
    normalized: Normalization | None = None
    """Settings of a stage that normalises; None for other stages."""
    scales: bool = False
    """Whether kernel and biases are gamma and beta of a BatchNormalization, which the stage before
    begins."""
    frozen: bool = False
    """Whether kernel and biases are not trained."""
    sources: tuple[int, ...] = ()
    """Numbers of the results that the stage takes: 0 for the samples, n for the result of stage n -
    1. If empty, the stage takes the result of the stage before."""
    segments: tuple[int, ...] = ()
    """Numbers of channels of the parts of the inputs, or of a join's units, each in blocks of its
    own. If empty, there is one part."""
    joined: tuple[int, int] | None = None
    """Height and width of the maps that an Add or Concatenate makes; None for rows."""

    @property
    def tensor(self) -> Tensor:
        """Tensor of kernel and biases; for an LSTM without the recurrent kernel."""
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
        """Whether the gradient of the units goes through a mask, of ReLU, Dropout or a curve."""
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
        """Number of inputs of a unit, and number of units that take an input, as Glorot counts
        them.
        """
        taps = self.window.taps if self.window else 1
        return (taps * self.units, taps) if self.depthwise else (self.inputs, self.units * taps)

    @property
    def map(self) -> tuple[int, int]:
        """Height and width of the maps that the stage leaves for the next stage; (1, 1) for
        rows.
        """
        last = self.pool or self.window
        return last.out if last else self.joined or (1, 1)

    @property
    def maps(self) -> bool:
        """Whether the stage makes maps, with a line for each pixel."""
        return self.window is not None or self.joined is not None


def takes(stages: Sequence[Stage], number: int) -> tuple[int, ...]:
    """Return the numbers of the results that a stage takes, as Stage.sources has them."""
    return stages[number].sources or (number,)


def takes_state(stages: Sequence[Stage], number: int) -> bool:
    """Return whether a stage takes the results of an LSTM or GRU."""
    at = takes(stages, number)[0]
    return at > 0 and stages[at - 1].lstm is not None


def branched(stages: Sequence[Stage]) -> bool:
    """Return whether the fraction bits of results are kept in the buffer, not in registers.

    This is so for branches, and for more stages than registers.
    """
    lstms = sum(stage.lstm is not None for stage in stages)
    # The states of an LSTM use the register that the units of one more stage would have.
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
"""Numbers of two tensors of the first LSTM: its recurrent kernel and its Embedding. They are
counted from the first tensor after the tensors of all stages."""


def recurrent_tensor(stages: Sequence[Stage], number: int) -> int:
    """Return the number of an LSTM's recurrent kernel among all weight tensors."""
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
