# SPDX-License-Identifier: Apache-2.0
"""What a network calculates, in integers, whatever machine and file format: the neutral operations.

What the machine calculates is int8 but for biases and multipliers; what only the host sees may have
other types. The last dimension of a value counts channels, a value of four dimensions is
1 x height x width x channels; other dimensions are merely pixels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation, Reduction, Rounding
from systola.compiler.layer import Layer


@dataclass(frozen=True, eq=False)
class Value:
    """An array that operations take and give; each object is another one."""

    name: str
    shape: tuple[int, ...]
    """Of one sample."""
    dtype: str = "int8"
    """In numpy's spelling."""

    @property
    def channels(self) -> int:
        """Size of the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def pixels(self) -> int:
        """Product of all other dimensions."""
        return math.prod(self.shape[:-1])

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the map that the pixels form."""
        if len(self.shape) == 4 and self.shape[0] == 1:
            return self.shape[1], self.shape[2]
        return 1, self.pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantisation:
    """A step from sums of 32 bits to results, as Activate does it; each object is another one."""

    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    """One value per channel, or one for all, in each of the three; as Layer has them."""
    rounding: Rounding = Rounding.DOUBLE
    zero_point: int = 0
    function: Function = Function.NONE
    ceiling: int = 127
    table: bytes | None = None
    """For TABLE, as Layer has it; convolutions and Binary can have one."""


def scalar_requantisation(
    multiplier: int,
    shift: int,
    *,
    bias: int = 0,
    rounding: Rounding = Rounding.DOUBLE,
    zero_point: int = 0,
    function: Function = Function.NONE,
    ceiling: int = 127,
) -> Requantisation:
    """The same for all channels."""
    return Requantisation(
        bias=np.array([bias], np.int32),
        multiplier=np.array([multiplier], np.int32),
        shift=np.array([shift], np.int32),
        rounding=rounding,
        zero_point=zero_point,
        function=function,
        ceiling=ceiling,
    )


def identity() -> Requantisation:
    """Results equal to the sums: 2^30 * 2^(1 - 31) = 1."""
    return scalar_requantisation(1 << 30, 1, rounding=Rounding.SINGLE)


@dataclass(frozen=True, kw_only=True)
class Window:
    """Windows over a feature map, as Set_Config_Window has them; pairs are (y, x)."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)
    """Row and column of the first window; negative for padding."""
    out: tuple[int, int]
    """Windows along a column and along a row."""

    def counts_differ(self, height: int, width: int) -> bool:
        """Whether some windows have more taps inside a map of that size than others."""
        return any(
            first < 0 or first + (out - 1) * stride + (kernel - 1) * dilation >= size
            for first, out, stride, kernel, dilation, size in zip(
                self.first,
                self.out,
                self.stride,
                self.kernel,
                self.dilation,
                (height, width),
                strict=True,
            )
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Node(ABC):
    """One operation."""

    operator: str
    """The operator it comes from, for messages."""
    result: Value

    @property
    @abstractmethod
    def sources(self) -> tuple[Value, ...]:
        """The values that it takes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution(Node):
    """Each window times weights: CONV_2D, and whatever else is linear in the pixels."""

    source: Value
    weights: NDArray[np.int8]
    """Kernel height x kernel width x channels of the source x channels of the result."""
    window: Window
    fill: int
    """What lies outside the map: zero point of the source."""
    output: Requantisation
    groups: int = 1
    """Parts that the channels of source and result are cut into; weights between others are 0."""
    counts: bool = True
    """False where it only moves or adds, which are no multiply-accumulates of the network."""
    zeros: int = 0
    """Zeros among the weights that only fill lines, and are none of the network's."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Product(Node):
    """FULLY_CONNECTED: the elements of the source, `layer.k` to a row, times a matrix."""

    source: Value
    layer: Layer
    wide: bool = False
    """Results of int16: one row, as a pixel of low bytes and one of high bytes."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthwiseConvolution(Node):
    """Each channel convolved with a kernel of its own."""

    source: Value
    weights: NDArray[np.int8]
    """Kernel height x kernel width x channels."""
    window: Window
    fill: int
    output: Requantisation

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooling(Node):
    """Each window reduced to a pixel.

    AVERAGE divides by the taps inside, half away from zero, unless there are `averages`.
    """

    source: Value
    reduction: Reduction
    window: Window
    output: Requantisation = field(default_factory=identity)
    """For MAX and SUM."""
    averages: tuple[Requantisation, ...] = ()
    """For AVERAGE: what becomes of the sum of 1, 2, ... taps, alike but for the numbers."""
    floor: int = -128
    ceiling: int = 127

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Scale:
    """How an operand of Binary is scaled: x * multiplier * 2^(20 - 31 - shift)."""

    zero_point: int
    multiplier: int = 0
    shift: int = 0
    """To the right."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Binary(Node):
    """ADD, SUBTRACT or MULTIPLY of two operands, each a value or constants.

    A value of one pixel serves for all pixels of the result; constants have the result's shape.
    """

    operation: Operation
    a: Value | NDArray[np.int8]
    b: Value | NDArray[np.int8]
    scale_a: Scale
    scale_b: Scale
    output: Requantisation

    @property
    def sources(self) -> tuple[Value, ...]:
        return tuple(operand for operand in (self.a, self.b) if isinstance(operand, Value))


@dataclass(frozen=True, kw_only=True, eq=False)
class Unary(Node):
    """A function of each element: requantisation of x - zero point, or a table."""

    source: Value
    zero_point: int = 0
    output: Requantisation = field(default_factory=identity)
    table: bytes | None = None
    """As Load_Table has it; looked up with the requantised value."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(Node):
    """The same elements in the same order in another shape."""

    source: Value

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Slice(Node):
    """`result.shape[axis]` elements from `start` along one axis.

    The axis is that of the channels, or no dimension in front of it is larger than 1.
    """

    source: Value
    axis: int
    start: int

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Concatenation(Node):
    """Values one behind the other along an axis, which is one that Slice could have."""

    parts: tuple[Value, ...]
    axis: int

    @property
    def sources(self) -> tuple[Value, ...]:
        return self.parts


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One gate of an LSTM; its argument is a fixed-point number with 12 fractional bits."""

    input_weights: NDArray[np.int8]
    """Inputs x cells."""
    input_sums: Requantisation
    recurrent_weights: NDArray[np.int8]
    """Cells x cells."""
    recurrent_sums: Requantisation


@dataclass(frozen=True, kw_only=True, eq=False)
class Lstm(Node):
    """An LSTM over a sequence of pixels, with gates and cells of 16 bits.

    At each step c = f * c + i * g, limited to `limit`, and h = o * tanh(c). Without `has_tanh` it
    is h = o * i: that is what LiteRT makes of cells with a scale that its tanh does not know.
    """

    source: Value
    input_gate: Gate
    forget_gate: Gate
    cell_gate: Gate
    output_gate: Gate
    cell_bits: int
    """Integer bits of the cells, sign not counted; negative for cells that are all small."""
    limit: int
    """Bound of the cells; 0 for none."""
    hidden: Requantisation
    start: int
    """Hidden state before the first step."""
    has_tanh: bool = True
    biases: NDArray[np.int16] | None = None
    """Gates x cells: what the sums of a gate are added to, as its argument. With these h goes from
    step to step as int16 with 15 fractional bits, 0 before the first one; `hidden` makes the
    results of it. Sums and products are divided with halves upwards."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.input_gate.input_weights.shape[1]

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Operations:
    """Operations in an order in which they can be executed: what one program calculates."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample."""
        return sum(node_macs(node) for node in self.nodes)


def node_macs(node: Node) -> int:
    """Multiply-accumulates of one operation."""
    match node:
        case Convolution():
            macs = (node.weights.size - node.zeros) // node.groups * node.result.pixels
            return macs if node.counts else 0
        case DepthwiseConvolution():
            return node.weights.size * node.result.pixels
        case Product():
            return node.layer.weights.size * node.result.pixels
        case Lstm():
            gate = node.input_gate
            return 4 * node.source.pixels * (gate.input_weights.size + gate.recurrent_weights.size)
        case _:
            return 0
