# SPDX-License-Identifier: Apache-2.0
"""The state of a translation: all tensors and operations that the translated nodes have made.

An entry describes a tensor of the model, see compiler/onnx/entries.py. A value is an array that
operations take or make. Codes are quantised numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, Transpose
from systola.compiler.moves import moved
from systola.compiler.onnx.entries import (
    Codes,
    Dequantised,
    Entry,
    HostArray,
    Pending,
    Weights,
)
from systola.compiler.onnx.layout import Layout, plain, stored
from systola.compiler.onnx.model import Constant, OnnxNode
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.operations import Node, Reshape, Unary, Value
from systola.compiler.quantise import table_bytes

MAX_ELEMENTS = 1 << 23
"""Largest number of elements of a calculated tensor, with all samples that the model takes at once.
"""
MAX_WEIGHTS = 1 << 24
"""Largest number of elements of a quantised constant, such as the weights of a layer."""
SMALLEST_SCALE, LARGEST_SCALE = 1e-15, 1e15
"""Least and largest scale of a calculated tensor; other scales would make calculations overflow."""


class Scope:
    """A record of the tensors defined so far, and of the operations that calculate them.

    All methods raise ModelError for an unsupported node.
    """

    def __init__(
        self, opset: int, repeat: int, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        """Create a scope without tensors.

        `repeat` is the number of samples that the model takes at once; operations are made for one
        of these samples. `shapes` has known shapes of results by name, with all samples.
        """
        self.opset = opset
        self.repeat = repeat
        self._shapes = shapes or {}
        self.items: list[Node | HostStage] = []
        self.inexact_channels = 0
        self._entries: dict[str, Entry] = {}
        self._from_host: set[Value] = set()
        """Values on the host: inputs of the model, results of the host's operations, and reshaped
        values of both kinds.
        """
        self._moved: dict[tuple[Value, tuple[int, ...], tuple[int, ...]], Value] = {}
        self._reshaped: dict[tuple[Value, tuple[int, ...]], Value] = {}
        self._first_shape: dict[Value, Value] = {}
        """Value before its first change of shape, by each reshaped value made from it."""

    def define(self, name: str, entry: Entry) -> None:
        """Define the tensor `name` by an entry; raise ModelError if its shape is not supported."""
        if isinstance(entry, Codes | Dequantised | HostArray | Pending | Weights):
            shape = entry_shape(entry)
            constant = isinstance(entry, Weights)
            times, most = (1, MAX_WEIGHTS) if constant else (self.repeat, MAX_ELEMENTS)
            if times * math.prod(shape) > most or 0 in shape:
                several = f"{times} times " if times > 1 else ""
                raise ModelError(f"a result of {several}shape {shape} is not supported")
            if times > 1:
                self._check_samples(name, shape)
        else:
            # numpy returns plain numbers in place of arrays without dimensions, so these numbers
            # become arrays again.
            entry = np.asarray(entry)
        self._entries[name] = entry

    def _check_samples(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise ModelError if the tensor `name` cannot be separated into samples.

        `shape` is the tensor's shape for one sample.
        """
        expected = (self.repeat, *shape[1:])
        if shape[:1] != (1,) or self._shapes.get(name, expected) != expected:
            raise ModelError("it mixes samples")

    def add_input(self, value: Value) -> None:
        """Note that `value` is on the host, as it is an input of the model."""
        self._from_host.add(value)

    def result(self, node: OnnxNode, entry: Entry) -> None:
        """Define the first output of a node by an entry; its other outputs stay undefined."""
        self.define(node.outputs[0], entry)

    def entry(self, node: OnnxNode, position: int) -> Entry:
        """Return the entry of the node's input number `position`, counted from 0.

        Raises ModelError if the node does not have this input.
        """
        found = self.optional(node, position)
        if found is None:
            raise ModelError(f"its input {position} is missing")
        return found

    def optional(self, node: OnnxNode, position: int) -> Entry | None:
        """Return the entry of the node's input number `position`, or None if this input is left
        out.
        """
        if position >= len(node.inputs) or not node.inputs[position]:
            return None
        return self.named(node.inputs[position])

    def named(self, name: str) -> Entry:
        """Return the entry of the tensor `name`; raise ModelError if the tensor is not defined."""
        if name not in self._entries:
            raise ModelError(f"its input {name!r} is nothing that is supported")
        return self._entries[name]

    def constant(self, node: OnnxNode, position: int) -> Constant:
        """Return the node's input number `position` as an array; raise ModelError if it is no
        constant.
        """
        entry = self.entry(node, position)
        if isinstance(entry, Weights):
            return entry.numbers
        if not isinstance(entry, np.ndarray):
            raise ModelError(f"its input {position} must be a constant")
        return entry

    def integers(self, node: OnnxNode, position: int) -> list[int]:
        """Return the node's input number `position` as a list of whole numbers.

        The input must be a constant, either a list of at most 64 whole numbers or a single number.
        """
        array = self.constant(node, position)
        if array.dtype.kind not in "iu" or array.size > 64:
            raise ModelError(f"its input {position} must be a short list of whole numbers")
        return [int(value) for value in array.reshape(-1).tolist()]

    def dequantised(self, node: OnnxNode, position: int) -> Dequantised:
        """Return the entry of the node's input number `position`.

        Raises ModelError unless the input comes directly from a DequantizeLinear of calculated
        codes.
        """
        entry = self.entry(node, position)
        if not isinstance(entry, Dequantised) or entry.curve is not None:
            raise ModelError(f"its input {position} must come from a DequantizeLinear")
        return entry

    def codes(self, node: OnnxNode, position: int) -> Codes:
        """Return the entry of the node's input number `position`.

        Raises ModelError unless the input is a calculated tensor of int8 or uint8.
        """
        entry = self.entry(node, position)
        if not isinstance(entry, Codes):
            raise ModelError(f"its input {position} must be a calculated tensor of int8 or uint8")
        return entry

    def quantisation(self, node: OnnxNode, scale: int, zero_point: int) -> Quantisation:
        """Return a quantisation with scale and zero point from two constant inputs of a node.

        `scale` and `zero_point` are the numbers of these inputs, counted from 0.
        """
        scales, zero_points, unsigned = self.scales(node, scale, zero_point)
        if scales.size != 1:
            raise ModelError("it needs one scale, not one for each channel")
        return machine_quantisation(float(scales[0]), int(zero_points[0]), unsigned)

    def scales(
        self, node: OnnxNode, scale: int, zero_point: int, dtype: str = "uint8"
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], bool]:
        """Return a node's scales, a zero point for each scale, and whether the codes are uint8.

        `scale` and `zero_point` are the numbers of the node's inputs for these, counted from 0.
        Scales of 0 are allowed, as channels without weights have a scale of 0 or almost 0. `dtype`
        is the type of the codes for a node without zero points.
        """
        scales = self.constant(node, scale)
        if scales.dtype != np.float32 or scales.ndim > 1:
            raise ModelError(f"its scale must be of float32, not {scales.dtype}")
        scales = scales.reshape(-1).astype(np.float32)
        if not bool(((scales >= 0) & (scales < LARGEST_SCALE)).all()):
            raise ModelError(f"it has a scale that is not between 0 and {LARGEST_SCALE}")
        zero_points = np.zeros(scales.size, np.int64)
        if self.optional(node, zero_point) is not None:
            given = self.constant(node, zero_point)
            dtype = str(given.dtype)
            if given.size not in (1, scales.size):
                raise ModelError("it has not as many zero points as scales")
            zero_points = np.broadcast_to(given.astype(np.int64).reshape(-1), scales.shape)
        if dtype not in ("int8", "uint8", "int32"):
            raise ModelError(f"codes of {dtype} are not supported")
        return scales, zero_points, dtype == "uint8"

    def add(self, item: Node | HostStage) -> None:
        """Append an operation to `items`, and note if the operation's result is on the host."""
        self.items.append(item)
        if isinstance(item, HostStage) or (
            isinstance(item, Reshape) and item.source in self._from_host
        ):
            self._from_host.add(item.result)

    def look_up(
        self, node: OnnxNode, source: Codes, table: NDArray[np.int64], unsigned: bool
    ) -> Codes:
        """Add an operation that replaces each code by its entry in `table`, and return the new
        tensor.

        `table` has an entry for each code, from code -128 on. `unsigned` is True if the model has
        the new codes as uint8.
        """
        result = Value(node.outputs[0], source.value.shape)
        content = table_bytes(table.astype(np.int8))
        self.add(Unary(operator=str(node), source=source.value, result=result, table=content))
        return replace(source, value=result, unsigned=unsigned)

    def arranged(
        self,
        user: object,
        codes: Codes,
        axes: Sequence[int],
        shape: tuple[int, ...],
        *,
        to_host: bool = False,
    ) -> Value:
        """Return the tensor's elements as a value of `shape`, stored with dimensions in the order
        `axes`.

        If the elements are stored in another order, operations that move them are added. `user`
        names the operator that takes the value. With `to_host` the host takes the value, and so the
        host also moves the elements.
        """
        layout = codes.layout.divided(codes.shape)
        if layout is None:
            codes = self.in_order_of_shape(user, codes)
            layout = codes.layout
        wanted = layout.ordered(codes.shape, axes)
        return self._in_order(user, codes.value, layout, wanted, shape, to_host=to_host)

    def in_order_of_shape(self, user: object, codes: Codes) -> Codes:
        """Return the tensor with its elements stored in the order of its shape.

        Operations that move elements are added if needed.
        """
        layout = plain(codes.shape)
        value = self._in_order(user, codes.value, codes.layout, layout, codes.shape)
        return replace(codes, value=value, layout=layout)

    def stored_like(
        self, user: object, codes: Codes, layout: Layout, shape: tuple[int, ...]
    ) -> Value:
        """Return the tensor's elements as a value of `shape`, stored in the order `layout`.

        Operations that move elements are added if needed.
        """
        return self._in_order(user, codes.value, codes.layout, layout, shape)

    def _in_order(
        self,
        user: object,
        value: Value,
        layout: Layout,
        wanted: Layout,
        shape: tuple[int, ...],
        *,
        to_host: bool = False,
    ) -> Value:
        source, target = layout.divided(wanted.factors), wanted.divided(layout.factors)
        if source is None or target is None:
            # The factors of one layout cannot be split to fit the other layout. So elements first
            # move to the order of the shape. In this order the whole tensor counts as one factor,
            # which can be split in any way.
            between = plain(layout.factors)
            value = self._in_order(user, value, layout, between, between.factors)
            whole = plain((math.prod(layout.factors),))
            return self._in_order(user, value, whole, wanted, shape, to_host=to_host)
        if source.order == target.order:
            return self.reshaped(f"reshape for {user}", value, shape)
        order = tuple(source.order.index(factor) for factor in target.order)
        key = (value, source.stored_factors, order)
        if key not in self._moved:
            mover = f"transpose for {user}"
            result = Value(f"{value.name} for {user}", shape)
            if value in self._from_host or to_host:
                function = Transpose(source.stored_factors, order)
                stage = HostStage(
                    operator=mover, sources=(value,), result=result, function=function
                )
                self.add(stage)
            else:
                numbers = np.arange(math.prod(shape)).reshape(source.stored_factors)
                self.move(mover, value, result, numbers.transpose(order))
            self._moved[key] = result
        return self.reshaped(user, self._moved[key], shape)

    def move(
        self,
        user: object,
        source: Value,
        result: Value,
        origin: NDArray[np.int64],
        fill: int = 0,
    ) -> None:
        """Add operations that set each element of `result` to an element of `source` or to `fill`.

        For each element of the result, `origin` has the position of an element in the source,
        counted from 0, or -1 for `fill`.
        """
        for item in moved(str(user), source, result, origin, fill):
            self.add(item)

    def reshaped(self, user: object, value: Value, shape: tuple[int, ...]) -> Value:
        """Return the elements of `value`, in the same order, as a value of `shape`.

        An operation Reshape is added if the shapes differ.
        """
        # The machine may be unable to reshape a value twice. So each Reshape begins at the value
        # before all changes of shape.
        value = self._first_shape.get(value, value)
        if value.shape == shape:
            return value
        assert math.prod(value.shape) == math.prod(shape)
        key = (value, shape)
        if key not in self._reshaped:
            result = Value(f"{value.name} for {user}", shape, value.dtype)
            self.add(Reshape(operator=str(user), source=value, result=result))
            self._reshaped[key] = result
            self._first_shape[result] = value
        return self._reshaped[key]

    def natural(self, user: object, codes: Codes) -> tuple[tuple[int, ...], Value]:
        """Return an order of a tensor's dimensions, and a value with the elements in this order.

        If the elements are stored with the channels last, the order has the channels last, and no
        element moves. Otherwise it is the order of the tensor's shape, and operations that move
        elements are added if needed. The value has the shape that the function value_shape gives.
        """
        rank = len(codes.shape)
        orders = [tuple(range(rank))]
        if rank in (3, 4):
            orders.insert(0, (0, *range(2, rank), 1))
        layout = codes.layout.divided(codes.shape)
        for order in orders:
            if layout is not None and layout.ordered(codes.shape, order).order == layout.order:
                break
        else:
            order = orders[-1]
        return order, self.arranged(user, codes, order, value_shape(codes.shape, order))

    def feature_map(self, node: OnnxNode, codes: Codes) -> Value:
        """Return a tensor of 1 x channels x rows x columns as a value of 1 x rows x columns x
        channels.

        A tensor of 1 x channels x columns becomes a value with a single row.
        """
        shape = codes.shape
        if len(shape) not in (3, 4) or shape[0] != 1:
            raise ModelError(f"a feature map of shape {shape} is not supported")
        axes = (0, 2, 1) if len(shape) == 3 else (0, 2, 3, 1)
        height, width = (1, shape[2]) if len(shape) == 3 else shape[2:]
        return self.arranged(node, codes, axes, (1, height, width, shape[1]))

    def map_result(
        self, name: str, like: Codes, value_shape: tuple[int, ...], unsigned: bool
    ) -> Codes:
        """Return a new tensor for the result of an operator that takes the feature map `like`.

        The new tensor has a dimension for rows only if `like` has one. `value_shape`, 1 x rows x
        columns x channels, is the shape of the new tensor's value.
        """
        _, height, width, channels = value_shape
        if len(like.shape) == 3:
            shape, axes = (1, channels, width), (0, 2, 1)
        else:
            shape, axes = (1, channels, height, width), (0, 2, 3, 1)
        return Codes(Value(name, value_shape), shape, stored(shape, axes), unsigned)


def machine_quantisation(scale: float, zero_point: int, unsigned: bool) -> Quantisation:
    """Return the quantisation for a scale and a zero point of the model.

    With `unsigned`, the zero point is a uint8 and is converted to an int8.
    """
    if scale <= SMALLEST_SCALE:
        raise ModelError(f"it has a scale that is not between {SMALLEST_SCALE} and {LARGEST_SCALE}")
    zero_point -= 128 if unsigned else 0
    if not -128 <= zero_point <= 127:
        raise ModelError("its zero point is no int8 or uint8")
    return Quantisation(np.float32(scale), zero_point, unsigned)


def value_shape(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a value that stores the dimensions of a tensor in the order `order`.

    `shape` is the tensor's shape. Sizes 1 x W x C become the map 1 x 1 x W x C.
    """
    sizes = tuple(shape[axis] for axis in order)
    return (1, *sizes) if len(sizes) == 3 and sizes[0] == 1 else sizes


def entry_shape(entry: Entry) -> tuple[int, ...]:
    """Return the shape of the tensor that an entry describes."""
    match entry:
        case Codes() | Pending():
            return entry.shape
        case Dequantised():
            return entry.codes.shape
        case Weights():
            return entry.codes.shape
        case HostArray():
            return entry.value.shape
        case _:
            return entry.shape
