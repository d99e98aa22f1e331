# SPDX-License-Identifier: Apache-2.0
"""From neutral operations to steps on feature maps in the buffer of one machine."""

from __future__ import annotations

from systola.arch.config import Config
from systola.compiler.channels import Channels, channel_layouts
from systola.compiler.errors import CompileError, located
from systola.compiler.feature_map import FeatureMap, Lines, new_map
from systola.compiler.lower_convolution import convolution_step, may_pack, product_step
from systola.compiler.lower_depthwise import depthwise_step
from systola.compiler.lower_lstm import hidden_map, lstm_step
from systola.compiler.lower_pooling import pooling_step
from systola.compiler.lower_vector import binary_steps, constant_map, copy_step, unary_step
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Lstm,
    Node,
    Operations,
    Pooling,
    Product,
    Reshape,
    Slice,
    Unary,
    Value,
)
from systola.compiler.step import Step


class Lowering:
    """The steps for `operations` on a machine, and the maps that they work on.

    Raises CompileError, with number and kind of the operator, for what does not fit the machine.
    """

    def __init__(self, config: Config, operations: Operations) -> None:
        self._config = config
        block = min(config.rows, config.cols)
        for node in operations.nodes:
            for value in (*node.sources, node.result):
                if value.channels * value.pixels > config.buffer_lines * config.line_bytes:
                    raise CompileError(
                        f"{node.operator}: a value of shape {value.shape} takes more than the "
                        f"{config.buffer_lines} lines of the unified buffer"
                    )
        self._layouts = channel_layouts(operations, block)
        self._maps: dict[Value, FeatureMap] = {}
        self.steps: list[Step] = []
        self.layers: list[tuple[Node, tuple[Step, ...]]] = []
        """What the steps of each operation do, for operations that have some."""
        for value in operations.inputs:
            self._maps[value] = self._input_map(value, operations)
        for node in operations.nodes:
            first = len(self.steps)
            with located(node.operator, CompileError):
                self._lower(node)
            if steps := tuple(self.steps[first:]):
                self.layers.append((node, steps))
        self.inputs = tuple(self._maps[value] for value in operations.inputs)
        self.outputs = tuple(self._maps[value] for value in operations.outputs)

    def _input_map(self, value: Value, operations: Operations) -> FeatureMap:
        """Packed, where all that takes it are convolutions that gain from it."""
        height, width = value.grid
        users = [node for node in operations.nodes if value in node.sources]
        if value not in operations.outputs and all(
            isinstance(node, Convolution) and may_pack(self._config, value.channels, node.window)
            for node in users
        ):
            rows = self._config.rows
            pitch = -(-width * value.channels // rows)
            return FeatureMap(
                lines=Lines(value.name, height * pitch),
                height=height,
                width=width,
                plane=0,
                channels=Channels((value.channels,), rows),
                packed=True,
            )
        return new_map(value.name, height, width, self._layouts[value])

    def _result(self, node: Node, like: FeatureMap | None = None) -> FeatureMap:
        """A new map for the result of `node`, with the pixels of `like` where that is given."""
        height, width = (like.height, like.width) if like else node.result.grid
        return new_map(node.result.name, height, width, self._layouts[node.result])

    def _lower(self, node: Node) -> None:
        config = self._config
        sources = [self._maps[source] for source in node.sources]
        source = sources[0] if sources else None
        match node:
            case Convolution():
                _check_whole(node.source, sources[0])
                target = self._result(node)
                step = convolution_step(
                    config,
                    node.operator,
                    sources[0],
                    target,
                    node.weights,
                    node.window,
                    node.fill,
                    node.output,
                )
                self.steps.append(step)
            case Product():
                target = self._result(node)
                self.steps.append(
                    product_step(config, node.operator, sources[0], target, node.layer)
                )
            case DepthwiseConvolution():
                _check_whole(node.source, sources[0])
                target = self._result(node)
                self.steps.append(depthwise_step(config, node, sources[0], target))
            case Pooling():
                _check_whole(node.source, sources[0])
                target = self._result(node)
                self.steps.append(pooling_step(config, node, sources[0], target))
            case Unary():
                target = self._result(node, source)
                self.steps.append(unary_step(config, node, sources[0], target))
            case Binary():
                target = self._binary(node, sources)
            case Lstm():
                _check_whole(node.source, sources[0])
                target = hidden_map(node.result.name, sources[0].pixels, self._layouts[node.result])
                self.steps.append(lstm_step(config, node, sources[0], target))
            case Reshape():
                target = sources[0]
                if node.result.channels == target.channels.count:
                    target = target.grid(*node.result.grid)
            case Slice():
                _check_whole(node.source, sources[0])
                target = _sliced(node, sources[0])
            case Concatenation():
                target = self._concatenation(node, sources)
            case _:
                raise CompileError("this kind of operation is not supported")
        self._maps[node.result] = target

    def _binary(self, node: Binary, sources: list[FeatureMap]) -> FeatureMap:
        like = max(sources, key=lambda each: each.pixels, default=None)
        # With a constant of more pixels than the value, its shape is that of the result.
        if like is not None and like.channels.count == node.result.channels:
            like = None
        target = self._result(node, like)
        operands = tuple(
            self._maps[operand]
            if isinstance(operand, Value)
            else constant_map(f"constants of {node.operator}", operand, target)
            for operand in (node.a, node.b)
        )
        self.steps += binary_steps(self._config, node, (operands[0], operands[1]), target)
        return target

    def _concatenation(self, node: Concatenation, sources: list[FeatureMap]) -> FeatureMap:
        target = self._result(node)
        channels = node.axis == len(node.result.shape) - 1
        start = 0
        for value, source in zip(node.parts, sources, strict=True):
            _check_whole(value, source)
            if channels:
                part = target.cut(start, value.channels)
                start += value.channels
            else:
                part = target.part(start, value.pixels)
                start += value.pixels
            self.steps.append(copy_step(self._config, node.operator, source, part))
        return target


def _check_whole(value: Value, source: FeatureMap) -> None:
    """Raises CompileError where a reshape has made the channels of the map something else."""
    if value.channels != source.channels.count or value.pixels != source.pixels:
        raise CompileError(
            f"its input of shape {value.shape} is a map of {source.pixels} pixels of "
            f"{source.channels.count} channels, which only FULLY_CONNECTED can take otherwise"
        )


def _sliced(node: Slice, source: FeatureMap) -> FeatureMap:
    if node.axis == len(node.source.shape) - 1:
        return source.cut(node.start, node.result.channels).grid(*node.result.grid)
    inner = node.result.pixels // node.result.shape[node.axis]
    part = source.part(node.start * inner, node.result.pixels)
    return part.grid(*node.result.grid)
