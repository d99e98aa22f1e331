# SPDX-License-Identifier: Apache-2.0
"""Moves of elements after changes of shape, for operations that need them.

A change of shape leaves elements in their places in the buffer, and costs nothing. So a reshaped
value may have another number of channels in a buffer line than in its shape. An operation may need
a line for each pixel of the new shape. Then a move puts the elements into such lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from systola.compiler.host_stage import Concatenate, HostStage
from systola.compiler.moves import repacked
from systola.compiler.operations import (
    Binary,
    CalculatedProduct,
    Concatenation,
    Convolution,
    Curve,
    DepthwiseConvolution,
    Lstm,
    Node,
    Pooling,
    Product,
    Reshape,
    Slice,
    Unary,
    Value,
    WideProduct,
)
from systola.compiler.partition import Item, Translation, needs_host


def with_whole_maps(translation: Translation) -> Translation:
    """Return `translation` with the moves that reshaped values need.

    An operation that needs a line for each pixel of a reshaped value has a move before it.
    """
    return replace(translation, items=tuple(_Packer(translation).items))


class _Packer:
    def __init__(self, translation: Translation) -> None:
        self.items: list[Item] = []
        self._host = set(translation.inputs)
        """Inputs and values made by the host, which can write them in the lines of any shape."""
        self._channels: dict[Value, int] = {}
        """Map from a reshaped value to its number of channels in a buffer line.

        A value is in the map only if this number differs from the channels of its shape.
        """
        self._whole: dict[Value, Value] = {}
        for item in translation.items:
            self._add(item)

    def _add(self, item: Item) -> None:
        if isinstance(item, HostStage) or (isinstance(item, Reshape) and item.source in self._host):
            self._host.add(item.result)
        elif isinstance(item, Reshape | Unary):
            self._note(item.result, self._found(item.source))
        elif isinstance(item, Product):
            if item.layer.k % self._found(item.source):
                item = _with_sources(item, {item.source: self._packed(item, item.source)})
        elif isinstance(item, Binary) and len(item.sources) == 1 and _alike(item):
            self._note(item.result, self._found(item.sources[0]))
        elif isinstance(item, Concatenation) and not all(
            self._packs_on_machine(source) for source in item.sources
        ):
            item = HostStage(
                operator=item.operator,
                sources=item.sources,
                result=item.result,
                function=Concatenate(item.axis),
            )
            self._host.add(item.result)
        else:
            changed = {source: self._packed(item, source) for source in item.sources}
            if any(source is not value for source, value in changed.items()):
                item = _with_sources(item, changed)
        self.items.append(item)

    def _packs_on_machine(self, value: Value) -> bool:
        if value not in self._channels:
            return True
        channels = self._channels[value]
        base = Value(value.name, (value.pixels * value.channels // channels, channels))
        return not needs_host(repacked("", base, value))

    def _note(self, value: Value, channels: int) -> None:
        if channels != value.channels:
            self._channels[value] = channels

    def _found(self, value: Value) -> int:
        return self._channels.get(value, value.channels)

    def _packed(self, node: Node, value: Value) -> Value:
        """Return a value that has the elements of `value`, and a buffer line for each pixel.

        If `value` has other lines, a move before `node` makes a new value. Otherwise `value` itself
        is returned.
        """
        if value not in self._channels:
            return value
        if value not in self._whole:
            channels = self._channels[value]
            size = value.pixels * value.channels
            base = Value(f"{value.name} as it lies", (size // channels, channels))
            result = Value(f"{value.name} packed", value.shape)
            self.items.append(Reshape(operator=node.operator, source=value, result=base))
            self.items += repacked(node.operator, base, result)
            self._whole[value] = result
        return self._whole[value]


def _alike(node: Binary) -> bool:
    """Return whether the value that `node` takes has as many elements as the result.

    `node` must take one value only; its other operand is constant, or the same value.
    """
    (value,) = node.sources
    return value.pixels * value.channels == node.result.pixels * node.result.channels


def _with_sources(node: Node, values: Mapping[Value, Value]) -> Node:
    match node:
        case (
            Convolution()
            | Product()
            | WideProduct()
            | DepthwiseConvolution()
            | Pooling()
            | Slice()
            | Lstm()
            | Unary()
            | Curve()
            | Reshape()
        ):
            return replace(node, source=values[node.source])
        case CalculatedProduct():
            return replace(node, source=values[node.source], matrix=values[node.matrix])
        case Binary():
            a = values[node.a] if isinstance(node.a, Value) else node.a
            b = values[node.b] if isinstance(node.b, Value) else node.b
            return replace(node, a=a, b=b)
        case Concatenation():
            return replace(node, parts=tuple(values[part] for part in node.parts))
        case _:
            return node
