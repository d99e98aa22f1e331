# SPDX-License-Identifier: Apache-2.0
"""Neutral operations: the integer arithmetic of a network, for any machine and file format.

Values in the machine are int8, except for biases and multipliers. Values that only the host sees
may have other types. The last dimension of a value counts channels. A value of four dimensions is 1
x height x width x channels; in other values all dimensions but the last are merely pixels.
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
    """An array that operations of a network take or make.

    Two objects are different values, even with the same name and shape.
    """

    name: str
    shape: tuple[int, ...]
    """Shape of the array for one sample."""
    dtype: str = "int8"
    """Type of the elements in numpy's spelling."""

    @property
    def channels(self) -> int:
        """Number of channels, which is the size of the last dimension."""
        return self.shape[-1] if self.shape else 1

    @property
    def pixels(self) -> int:
        """Number of pixels, which is the product of all dimensions but the last."""
        return math.prod(self.shape[:-1])

    @property
    def grid(self) -> tuple[int, int]:
        """Height and width of the map that the pixels form."""
        if len(self.shape) == 4 and self.shape[0] == 1:
            return self.shape[1], self.shape[2]
        return 1, self.pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantisation:
    """A conversion of sums of 32 bits to results, as the instruction Activate does it.

    Objects are equal only if they are the same object.
    """

    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    """Exponents: the sums are multiplied by multiplier * 2^(shift - 31).

    `bias`, `multiplier` and `shift` each have one value per channel, or one for all channels.
    """
    rounding: Rounding = Rounding.DOUBLE
    zero_point: int = 0
    function: Function = Function.NONE
    ceiling: int = 127
    table: bytes | None = None
    """Table for function TABLE, only for convolutions and Binary: entry i for the code with bit
    pattern i.

    For results of int16 it has the tables of a Curve instead.
    """


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
    """Return a requantisation that is the same for all channels."""
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
    """Return the requantisation with results equal to the sums: 2^30 * 2^(1 - 31) = 1."""
    return scalar_requantisation(1 << 30, 1, rounding=Rounding.SINGLE)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A set of windows over a feature map, as Set_Config_Window describes them; pairs of numbers
    are (y, x).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)
    """Row and column of the first window's first tap; negative for padding."""
    out: tuple[int, int]
    """Number of windows along a column and along a row of the map."""

    def counts_differ(self, height: int, width: int) -> bool:
        """Return whether some windows reach over the edge of a map of this size, and so have fewer
        taps inside.
        """
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
    """A neutral operation of a network, which makes one result from its sources."""

    operator: str
    """Operator of the network to which the operation belongs, for messages."""
    result: Value

    @property
    @abstractmethod
    def sources(self) -> tuple[Value, ...]:
        """Values that the operation takes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution(Node):
    """An operation that multiplies each window of a map by weights.

    It stands for CONV_2D, and for any other operation that is linear in the pixels.
    """

    source: Value
    weights: NDArray[np.int8]
    """Weights: kernel height x kernel width x channels of the source x channels of the result."""
    window: Window
    fill: int
    """Value of pixels outside the map, which is the zero point of the source."""
    output: Requantisation
    groups: int = 1
    """Number of groups into which the channels of source and result are cut.

    Weights from one group to another are 0.
    """
    counts: bool = True
    """False if the operation only moves or adds, which does not count as multiply-accumulates."""
    zeros: int = 0
    """Number of zero weights that only fill lines of the buffer, and are not in the network."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Product(Node):
    """An operation that multiplies the source by a matrix, row by row of `layer.k` elements.

    It stands for FULLY_CONNECTED.
    """

    source: Value
    layer: Layer
    wide: bool = False
    """True if results are int16: a row is a pixel of low bytes and a pixel of high bytes."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class WideProduct(Node):
    """An operation that multiplies rows of int16 by a matrix of int8, to rows of int16.

    Source and result have the shape rows x 2 x elements: first the low bytes of a row, then the
    high bytes. All zero points are 0.

    With `sums`, the result has the sums themselves, which have 32 bits with their bias, in twice as
    many rows. First come all sums divided by 65536, halves upwards, then all remainders. No sum may
    be above 2^31 - 2^15 - 1 with `sums`.
    """

    source: Value
    weights: NDArray[np.int8]
    """Weights: elements of the source x elements of the result."""
    output: Requantisation
    taps: int
    """Number of multiply-accumulates that count for an element of the result; the weights beyond
    these are 0.
    """
    sums: bool = False

    @property
    def rows(self) -> int:
        """Number of rows of the source."""
        return self.source.pixels // 2

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthwiseConvolution(Node):
    """An operation that convolves each channel with a kernel of its own."""

    source: Value
    weights: NDArray[np.int8]
    """Weights: kernel height x kernel width x channels."""
    window: Window
    fill: int
    output: Requantisation
    counts: bool = True
    """False if the operation only resizes, which does not count as multiply-accumulates."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooling(Node):
    """An operation that reduces each window of a map to a pixel.

    AVERAGE divides by the number of taps inside the map, half away from zero, unless there are
    `averages`.
    """

    source: Value
    reduction: Reduction
    window: Window
    output: Requantisation = field(default_factory=identity)
    """Requantisation of the results of MAX and SUM."""
    averages: tuple[Requantisation, ...] = ()
    """Requantisations of AVERAGE for 1, 2, ... taps inside the map; empty for a plain division.

    All have the same rounding and zero point.
    """
    floor: int = -128
    ceiling: int = 127

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Scale:
    """The scale of an operand of Binary: code x becomes x * multiplier * 2^(20 - 31 - shift).

    The zero point is subtracted from the code first.
    """

    zero_point: int
    multiplier: int = 0
    shift: int = 0
    """Shift to the right, in bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Binary(Node):
    """An operation on two operands, each a value or constants: ADD, SUBTRACT or MULTIPLY.

    A value of one pixel serves for all pixels of the result. Constants have the result's shape.
    With `wide`, operands and result are of int16, with low and high bytes as in a WideProduct.
    """

    operation: Operation
    a: Value | NDArray[np.int8]
    b: Value | NDArray[np.int8]
    scale_a: Scale
    scale_b: Scale
    output: Requantisation
    wide: bool = False

    @property
    def sources(self) -> tuple[Value, ...]:
        return tuple(operand for operand in (self.a, self.b) if isinstance(operand, Value))


@dataclass(frozen=True, kw_only=True, eq=False)
class Unary(Node):
    """An operation on each element: a requantisation of x - zero point, then a lookup if there is a
    table.
    """

    source: Value
    zero_point: int = 0
    output: Requantisation = field(default_factory=identity)
    table: bytes | None = None
    """Table in the format of Load_Table, looked up with the requantised value; None for no
    table.
    """

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve(Node):
    """A function of each element of int16; low and high bytes lie as in a WideProduct.

    The function is 512 straight lines between 513 numbers, see docs/transformers.md.
    """

    source: Value
    tables: bytes
    """Tables with the 513 numbers, in the format of Load_Table."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(Node):
    """An operation that gives the same elements in the same order another shape."""

    source: Value

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Slice(Node):
    """An operation that takes `result.shape[axis]` elements, from `start` on, along one axis.

    The axis is the axis of the channels, or all dimensions before it have size 1.
    """

    source: Value
    axis: int
    start: int

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Concatenation(Node):
    """An operation that joins values along an axis.

    The axis is the axis of the channels, or all dimensions before it have size 1.
    """

    parts: tuple[Value, ...]
    axis: int

    @property
    def sources(self) -> tuple[Value, ...]:
        return self.parts


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The weights of one gate of an LSTM, and the requantisations of the gate's sums.

    The argument of the gate's function is a fixed-point number with 12 fractional bits.
    """

    input_weights: NDArray[np.int8]
    """Weights of the inputs: inputs x cells."""
    input_sums: Requantisation
    recurrent_weights: NDArray[np.int8]
    """Weights of the hidden state: cells x cells."""
    recurrent_sums: Requantisation


@dataclass(frozen=True, kw_only=True, eq=False)
class Lstm(Node):
    """An LSTM over a sequence of pixels, with gates and cells of 16 bits.

    At each step in time the cell is c = f * c + i * g, limited to `limit`. The hidden state is h =
    o * tanh(c). Without `has_tanh`, it is h = o * i: LiteRT gives this result for cells with a
    scale that its tanh does not know.
    """

    source: Value
    input_gate: Gate
    forget_gate: Gate
    cell_gate: Gate
    output_gate: Gate
    cell_bits: int
    """Number of integer bits of the cells, without the sign; negative if all cells are small."""
    limit: int
    """Largest absolute value of the cells; 0 if there is no limit."""
    hidden: Requantisation
    start: int
    """Hidden state before the first step in time, the same for all cells."""
    has_tanh: bool = True
    biases: NDArray[np.int16] | None = None
    """Biases, gates x cells, or None; a bias is added to the sums that make a gate's argument.

    With biases, h goes from step to step as int16 with 15 fractional bits, and is 0 before the
    first step. `hidden` turns h into the results. Divisions of sums and products then round halves
    upwards.
    """

    @property
    def cells(self) -> int:
        """Number of cells, which is the number of channels of the result."""
        return self.input_gate.input_weights.shape[1]

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Kept:
    """A variable that stays in the unified buffer from one program to the next.

    `before` is an input of the operations, with the variable's value. `after`, another input or an
    output of the operations, is the value for the next program.
    """

    before: Value
    after: Value
    leaves: bool
    """True if the value `after` also goes to host memory."""


@dataclass(frozen=True)
class Operations:
    """The operations that one program calculates, in an order in which they can be executed."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    kept: tuple[Kept, ...] = ()

    @property
    def from_host(self) -> tuple[Value, ...]:
        """Inputs that come from host memory, and not from a variable in the buffer."""
        stay = {each.before for each in self.kept}
        return tuple(value for value in self.inputs if value not in stay)

    @property
    def to_host(self) -> tuple[Value, ...]:
        """Outputs that go to host memory, and not only into a variable in the buffer."""
        stay = {each.after for each in self.kept if not each.leaves}
        return tuple(value for value in self.outputs if value not in stay)

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates of all operations for one sample."""
        return sum(node_macs(node) for node in self.nodes)


def node_macs(node: Node) -> int:
    """Return the number of multiply-accumulates of one operation for one sample."""
    match node:
        case Convolution():
            macs = (node.weights.size - node.zeros) // node.groups * node.result.pixels
            return macs if node.counts else 0
        case DepthwiseConvolution():
            return node.weights.size * node.result.pixels if node.counts else 0
        case Product():
            return node.layer.weights.size * node.result.pixels
        case WideProduct():
            return node.taps * node.result.channels * node.rows
        case Lstm():
            gate = node.input_gate
            return 4 * node.source.pixels * (gate.input_weights.size + gate.recurrent_weights.size)
        case _:
            return 0


def is_wide(node: Node) -> bool:
    """Return whether an operation works on int16, with low and high bytes in pairs of pixels."""
    return isinstance(node, WideProduct | Curve) or (isinstance(node, Binary) and node.wide)
