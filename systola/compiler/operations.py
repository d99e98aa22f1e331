# SPDX-License-Identifier: Apache-2.0
"""Neutral operations: the integer arithmetic of a network, for any machine and file format.

Values in the machine are int8, except for biases and multipliers. Values that only the host sees
may have other types. The last dimension of a value counts channels. A value of four dimensions is a
map of 1 x height x width x channels. In other values all dimensions but the last only count pixels.
A code is a quantised number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation, Reduction, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.layer import Layer

MAX_ELEMENTS = 1 << 40
"""Largest number of elements in a value; only damaged files have more."""


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

    def __post_init__(self) -> None:
        """Raise ModelError for more elements than any file describes that is not damaged."""
        if math.prod(self.shape) > MAX_ELEMENTS:
            raise ModelError(f"'{self.name}': so large a shape is not supported: {self.shape}")

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
        """Height and width of the map that the pixels form; the height is 1 for a value that is no
        map.
        """
        if len(self.shape) == 4 and self.shape[0] == 1:
            return self.shape[1], self.shape[2]
        return 1, self.pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantisation:
    """A conversion of sums of 32 bits to results, as the instruction Activate does it.

    A requantisation equals only itself, and no other with the same numbers.
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
    """Table of 256 bytes for the function TABLE, only for convolutions and Binary; None without
    table.

    Entry i belongs to the code with bit pattern i. For results of int16, the bytes are the tables
    of a Curve instead.
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
    """Return the requantisation that leaves sums unchanged: its factor is 2^30 * 2^(1 - 31) = 1."""
    return scalar_requantisation(1 << 30, 1, rounding=Rounding.SINGLE)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A set of windows over a feature map, as Set_Config_Window describes them.

    Each field is a pair of numbers: the first along a column of the map, the second along a row.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    first: tuple[int, int] = (0, 0)
    """Row and column of the first window's first tap, counted from the map's first pixel.

    Negative numbers are positions in the padding before the map.
    """
    out: tuple[int, int]
    """Number of windows along a column of the map, and number of windows along a row."""

    def counts_differ(self, height: int, width: int) -> bool:
        """Return whether some windows reach over the edge of a map of `height` x `width` pixels.

        Such windows have fewer taps inside the map than the others.
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
    """An operation of a network, for any file format, that makes one result from its sources."""

    operator: str
    """Name of the model's operator from which the operation comes, for messages."""
    result: Value

    @property
    @abstractmethod
    def sources(self) -> tuple[Value, ...]:
        """Values that the operation takes; constants are left out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution(Node):
    """An operation that multiplies each window of a map by weights.

    It stands for CONV_2D of TFLite, and for any other operator that makes weighted sums of pixels.
    """

    source: Value
    weights: NDArray[np.int8]
    """Weights: kernel height x kernel width x channels of the source x channels of the result."""
    window: Window
    fill: int
    """Code that pixels outside the map have, which is the zero point of the source."""
    output: Requantisation
    groups: int = 1
    """Number of groups into which the channels of source and result are cut.

    A group of the result uses only the same group of the source. `weights` has all channels, so the
    weights between different groups are 0.
    """
    counts: bool = True
    """False if the operation only moves or adds elements: it then has no multiply-accumulates to
    count.
    """
    zeros: int = 0
    """Number of zeros in `weights` that the network does not have; few_channels.py adds them to
    fill lines.
    """

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Product(Node):
    """An operation that multiplies each row of the source, of `layer.k` elements, by a matrix.

    It stands for FULLY_CONNECTED of TFLite.
    """

    source: Value
    layer: Layer
    wide: bool = False
    """True if results are int16: a row of the result is a pixel of low bytes and a pixel of high
    bytes.
    """

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class CalculatedProduct(Node):
    """An operation that multiplies two calculated matrices of int8: the source by `matrix`.

    The matrix has a pixel for each element of a row of the source. Its zero point is subtracted
    from each code before codes are multiplied, as the zero point of the source is.
    """

    source: Value
    matrix: Value
    zero_points: tuple[int, int]
    """Zero points of the source and of the matrix."""
    output: Requantisation

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source, self.matrix)


@dataclass(frozen=True, kw_only=True, eq=False)
class WideProduct(Node):
    """An operation that multiplies rows of int16 by a matrix of int8, to rows of int16.

    Source and result have the shape rows x 2 x elements: first the low bytes of a row, then the
    high bytes. All zero points are 0.

    With `sums`, the result has the sums of 32 bits, bias included, in place of requantised numbers.
    Each sum then takes two elements of int16, so there are twice as many rows. First come the rows
    with all sums divided by 65536, halves rounded upwards, then the rows with all remainders. No
    sum may be above 2^31 - 2^15 - 1 with `sums`.
    """

    source: Value
    weights: NDArray[np.int8]
    """Weights: elements of the source x elements of the result."""
    output: Requantisation
    taps: int
    """Number of multiply-accumulates that the network has for one element of the result.

    The matrix may have more rows than this.
    """
    sums: bool = False

    @property
    def rows(self) -> int:
        """Number of rows of the source; each row is two pixels."""
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
    """False if the operation only resizes a map: it then has no multiply-accumulates to count."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooling(Node):
    """An operation that reduces each window of a map to a pixel.

    AVERAGE divides a sum by the number of taps inside the map, and rounds halves away from zero.
    With `averages`, requantisations replace the division.
    """

    source: Value
    reduction: Reduction
    window: Window
    output: Requantisation = field(default_factory=identity)
    """Requantisation of the results of MAX and SUM; AVERAGE does not use it."""
    averages: tuple[Requantisation, ...] = ()
    """Requantisations for AVERAGE: entry i is for windows with i + 1 taps inside the map.

    All entries have the same rounding and zero point. Without entries, AVERAGE divides.
    """
    floor: int = -128
    ceiling: int = 127

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Scale:
    """The scale of an operand of Binary.

    Code x becomes (x - `zero_point`) * `multiplier` * 2^(20 - 31 - `shift`).
    """

    zero_point: int
    multiplier: int = 0
    shift: int = 0
    """Number of bits by which the product is shifted to the right."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Binary(Node):
    """An operation on two operands, element by element: ADD, SUBTRACT or MULTIPLY.

    Each operand is a value or an array of constants. A value of one pixel is used for all pixels of
    the result. Constants have the result's shape. With `wide`, operands and result are of int16,
    with low and high bytes as in a WideProduct.
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
    """An operation on each element x: it requantises x - `zero_point`.

    If there is a table, the requantised code is then looked up in the table.
    """

    source: Value
    zero_point: int = 0
    output: Requantisation = field(default_factory=identity)
    table: bytes | None = None
    """Table in the format of Load_Table, from requantised codes to results; None for no table."""

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve(Node):
    """A function of each element of int16; low and high bytes lie as in a WideProduct.

    The function consists of 512 straight lines between 513 given numbers, see docs/transformers.md.
    """

    source: Value
    tables: bytes
    """Tables with the 513 numbers at the ends of the straight lines, in the format of Load_Table.
    """

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
    """An operation that takes `result.shape[axis]` elements along `axis`, from index `start` on.

    The axis is the last one, which counts channels, or all dimensions before it have size 1.
    """

    source: Value
    axis: int
    start: int

    @property
    def sources(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(frozen=True, kw_only=True, eq=False)
class Concatenation(Node):
    """An operation that joins values along `axis`.

    The axis is the last one, which counts channels, or all dimensions before it have size 1.
    """

    parts: tuple[Value, ...]
    axis: int

    @property
    def sources(self) -> tuple[Value, ...]:
        return self.parts


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The weights of one gate of an LSTM, and the requantisations of the gate's two kinds of sums.

    The sums of the inputs and of the hidden state are requantised, and added as the argument of the
    gate's function. The argument is a fixed-point number with 12 fractional bits.
    """

    input_weights: NDArray[np.int8]
    """Weights for the inputs of the LSTM, of shape inputs x cells."""
    input_sums: Requantisation
    recurrent_weights: NDArray[np.int8]
    """Weights for the hidden state, of shape cells x cells."""
    recurrent_sums: Requantisation


@dataclass(frozen=True, kw_only=True, eq=False)
class Lstm(Node):
    """An LSTM over a sequence of pixels, with gates and cells of 16 bits.

    i, f, g and o are the input, forget, cell and output gate. At each step in time the cell is c =
    f * c + i * g, limited to `limit`. The hidden state is h = o * tanh(c). LiteRT's tanh supports
    only some scales of cells. For other scales LiteRT gives h = o * i, and `has_tanh` is False.
    """

    source: Value
    input_gate: Gate
    forget_gate: Gate
    cell_gate: Gate
    output_gate: Gate
    cell_bits: int
    """Number of integer bits of a cell, without the sign; a cell has 15 - `cell_bits` fractional
    bits.
    """
    limit: int
    """Largest absolute value of a cell as an int16; 0 if there is no limit."""
    hidden: Requantisation
    start: int
    """Hidden state before the first step in time, one code for all cells."""
    has_tanh: bool = True
    biases: NDArray[np.int16] | None = None
    """Biases of shape gates x cells, or None; each is added to the argument of a gate's function.

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
    """A variable of the network that stays in the unified buffer from one program to the next.

    `before` is an input of the operations: the variable's value at the start of a program. `after`
    is the variable's value for the next program, an output or another input of the operations.
    """

    before: Value
    after: Value
    leaves: bool
    """True if the value `after` also goes to host memory, False if it only stays in the buffer."""


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
        case CalculatedProduct():
            return node.source.channels * node.result.channels * node.result.pixels
        case WideProduct():
            return node.taps * node.result.channels * node.rows
        case Lstm():
            gate = node.input_gate
            return 4 * node.source.pixels * (gate.input_weights.size + gate.recurrent_weights.size)
        case _:
            return 0


def is_wide(node: Node) -> bool:
    """Return whether an operation works on int16, with low and high bytes in separate pixels."""
    return isinstance(node, WideProduct | Curve) or (isinstance(node, Binary) and node.wide)
