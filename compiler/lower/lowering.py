# SPDX-License-Identifier: Apache-2.0
"""From neutral operations to steps on feature maps in the buffer of one machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.compiler.errors import CompileError, located
from systola.compiler.layout import tiles
from systola.compiler.lower.bands import Band, cut, needed, window_of
from systola.compiler.lower.batching import Batch
from systola.compiler.lower.channels import Channels, channel_layouts
from systola.compiler.lower.convolution import (
    ConvolutionStep,
    convolution_step,
    may_pack,
    product_step,
)
from systola.compiler.lower.depthwise import depthwise_blocks, depthwise_steps
from systola.compiler.lower.feature_map import FeatureMap, Lines, new_map
from systola.compiler.lower.gather import gather_step
from systola.compiler.lower.host_view import (
    HostView,
    LoadStep,
    StoreStep,
    input_view,
    output_view,
    spill_view,
)
from systola.compiler.lower.lstm import hidden_map, lstm_step
from systola.compiler.lower.overlap import hidden_cycles, interleaved
from systola.compiler.lower.pooling import pooling_step
from systola.compiler.lower.step import Step
from systola.compiler.lower.vector import binary_steps, constant_map, copy_step, unary_step
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

Home = FeatureMap | HostView
"""Where a value is."""
Windowed = Convolution | DepthwiseConvolution | Pooling


@dataclass(frozen=True)
class Spill:
    """What does not stay in the buffer."""

    values: frozenset[Value] = frozenset()
    """Values that are in host memory."""
    bands: Mapping[Value, int] = field(default_factory=dict[Value, int])
    """For results of operations on such values, in how many bands of rows they are calculated."""
    overlap: bool = True
    """Operations may be interleaved, for which more values are there at one time."""
    constants: bool = False
    """Constants are loaded each time that they are used."""


@dataclass(frozen=True)
class Part:
    """Operations that are executed one after the other for `samples` samples at a time."""

    samples: int
    inputs: dict[Value, HostView]
    outputs: dict[Value, HostView]
    before: list[Step]
    """The steps in front of the layers."""
    layers: list[tuple[Node, list[Step]]]
    """What the steps of each operation do, for operations that have some."""
    behind: list[Step]


class Lowering:
    """The steps for `operations` on a machine, and the maps that they work on.

    A map for a batch has a row for each pixel, with that pixel of all samples. Raises CompileError,
    with number and kind of the operator, for what does not fit the machine.
    """

    def __init__(
        self, config: Config, operations: Operations, samples: int, batch: Batch, spill: Spill
    ) -> None:
        self._config = config
        self._samples = samples
        self._at_once = 1
        self._spill = spill
        self._outputs = operations.outputs
        self._layouts = channel_layouts(operations, min(config.rows, config.cols))
        self._homes: dict[Value, Home] = {}
        self._taps: dict[bytes, Lines] = {}
        self.host_end = 0
        """Bytes of host memory for inputs, outputs and what is spilled."""
        self.steps: list[Step] = []
        """Of all parts."""
        self.values: dict[Lines, Value] = {}
        """Lines that hold a whole value, and could do so in host memory."""
        self.bands: dict[Lines, tuple[Value, int]] = {}
        """Lines that hold a band, the value it is for, and into how many rows that can be cut."""
        self.spilled: dict[Value, int] = {}
        """Values in host memory, and the bytes that they take."""
        self._gathered: dict[Value, FeatureMap] = {}
        self.parts: list[Part] = []
        """One for each sample, one for each batch of samples, or both."""
        if alone := [node for node in operations.nodes if node not in batch.nodes]:
            self.parts.append(self._part(operations, alone, batch))
        self.batch_begins = len(self.steps)
        """The first step for a batch."""
        if batch.nodes:
            self._at_once = batch.size
            self._homes.update(self._gathered)
            self.parts.append(self._part(operations, batch.nodes, batch))

    def _part(self, operations: Operations, nodes: Sequence[Node], batch: Batch) -> Part:
        first = len(self.steps)
        wanted = {source for node in nodes for source in node.sources} - self._homes.keys()
        inputs = {
            value: self._input(value, operations) for value in operations.inputs if value in wanted
        }
        before = self.steps[first:]
        begin = len(self.steps)
        self._layers = layers = list[tuple[Node, list[Step]]]()
        for node in nodes:
            with located(node.operator, CompileError):
                self._lower(node)
            done = begin + sum(len(steps) for _, steps in layers)
            if steps := self.steps[done:]:
                layers.append((node, steps))
        if self._at_once < batch.size:
            layers[-1][1].extend(self._gather(layers[-1][0], batch))
        results = {node.result for node in nodes}
        first = len(self.steps)
        outputs = {value: self._output(value) for value in operations.outputs if value in results}
        return Part(self._at_once, inputs, outputs, before, layers, self.steps[first:])

    def _gather(self, node: Node, batch: Batch) -> list[Step]:
        """The steps, as the end of `node`, for what one sample leaves for its batch."""
        first = len(self.steps)
        for value in dict.fromkeys(source for each in batch.nodes for source in each.sources):
            if value in self._homes:
                home = self._homes[value]
                if isinstance(home, HostView):
                    home = self._loaded(node, home, self.steps)
                step = gather_step(self._config, node.operator, home, batch.size)
                self._gathered[value] = step.target
                self.steps.append(step)
        return self.steps[first:]

    def _grid(self, value: Value) -> tuple[int, int]:
        """Height and width of the map of a value."""
        return value.grid if self._at_once == 1 else (value.pixels, self._at_once)

    def _input(self, value: Value, operations: Operations) -> HostView:
        source = self._input_map(value, operations)
        view = input_view(self._config, source, self.host_end, self._times)
        self._take_host(view)
        if value in self._spill.values:
            self._homes[value] = view
        else:
            self._may_spill(value, source)
            self._homes[value] = source
            self.steps.append(LoadStep(operator="the input", source=view, target=source))
        return view

    def _output(self, value: Value) -> HostView:
        home = self._homes[value]
        if isinstance(home, HostView) and value in self._spill.values:
            return home
        like = home.whole_map(value.name) if isinstance(home, HostView) else home
        view = output_view(self._config, like, self.host_end, self._times)
        self._take_host(view)
        if isinstance(home, FeatureMap):
            self.steps.append(StoreStep(operator="the output", source=home, target=view))
        else:
            # A part of a value that is in host memory.
            node = Unary(operator="the output", result=value, source=value)
            self._elementwise(node, [home], view)
        return view

    @property
    def _times(self) -> int:
        """How often the present part is executed."""
        return tiles(self._samples, self._at_once)

    def _may_spill(self, value: Value, source: FeatureMap) -> None:
        """A value of a batch stays: a smaller batch takes less room, too."""
        if self._at_once == 1:
            self.values[source.lines] = value

    def _take_host(self, view: HostView) -> None:
        end = view.matrix.offset + view.matrix.size
        self.host_end = tiles(end, HOST_PAGE_BYTES) * HOST_PAGE_BYTES

    def _input_map(self, value: Value, operations: Operations) -> FeatureMap:
        """Packed, where all that takes it are convolutions that gain from it."""
        height, width = self._grid(value)
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

    def _lower(self, node: Node) -> None:
        homes = [self._homes[source] for source in node.sources]
        match node:
            case Reshape():
                home = homes[0]
                if node.result.channels == home.channels.count:
                    home = home.grid(*self._grid(node.result))
                self._homes[node.result] = home
            case Slice():
                self._check_whole(node.source, homes[0])
                self._homes[node.result] = self._sliced(node, homes[0])
            case Concatenation():
                target = self._homes[node.result] = self._target(node, homes)
                self._concatenation(node, homes, target)
            case _:
                target = self._homes[node.result] = self._target(node, homes)
                self._calculate(node, homes, target)

    def _target(self, node: Node, homes: list[Home]) -> Home:
        """A new map for the result of `node`, or a place in host memory."""
        channels = self._layouts[node.result]
        height, width = self._grid(node.result)
        match node:
            case Lstm():
                target = hidden_map(node.result.name, node.source.pixels, self._at_once, channels)
            case Unary():
                target = new_map(node.result.name, homes[0].height, homes[0].width, channels)
            case Binary():
                like = max(homes, key=lambda each: each.pixels, default=None)
                # With a constant of more pixels than the value, its shape is that of the result.
                if like is not None and like.channels.count != node.result.channels:
                    height, width = like.height, like.width
                target = new_map(node.result.name, height, width, channels)
            case _:
                target = new_map(node.result.name, height, width, channels)
        if node.result not in self._spill.values:
            self._may_spill(node.result, target)
            return target
        if node.result in self._outputs:
            view = output_view(self._config, target, self.host_end, self._times)
        else:
            view = spill_view(self._config, target, self.host_end)
            self.spilled[node.result] = view.matrix.size
        self._take_host(view)
        return view

    def _calculate(self, node: Node, homes: list[Home], target: Home) -> None:
        if isinstance(node, Windowed | Lstm):
            self._check_whole(node.sources[0], homes[0])
        maps = [home for home in homes if isinstance(home, FeatureMap)]
        if isinstance(target, FeatureMap) and len(maps) == len(homes):
            if isinstance(node, DepthwiseConvolution) and (before := self._maker(node.source)):
                self._follow(before, node, maps[0], target)
            else:
                self.steps += self._steps(node, maps, target)
        elif isinstance(node, Windowed):
            self._windows(node, homes[0], target)
        elif isinstance(node, Unary | Binary):
            self._elementwise(node, homes, target)
        else:
            self._whole(node, homes, target)

    def _steps(self, node: Node, sources: list[FeatureMap], target: FeatureMap) -> list[Step]:
        """The steps for `node` on maps in the buffer."""
        config, samples = self._config, self._at_once
        match node:
            case Convolution():
                return [
                    convolution_step(
                        config,
                        node.operator,
                        sources[0],
                        target,
                        node.weights,
                        node.window,
                        node.fill,
                        node.output,
                    )
                ]
            case Product():
                layer = node.layer
                return [product_step(config, node.operator, sources[0], target, layer, samples)]
            case DepthwiseConvolution():
                return depthwise_steps(config, node, sources[0], target, self._taps)
            case Pooling():
                return [pooling_step(config, node, sources[0], target)]
            case Unary():
                return [unary_step(config, node, sources[0], target)]
            case Binary():
                maps = iter(sources)
                a, b = (
                    next(maps)
                    if isinstance(operand, Value)
                    else constant_map(f"constants of {node.operator}", operand, target, samples)
                    for operand in (node.a, node.b)
                )
                return binary_steps(config, node, (a, b), target, samples)
            case Lstm():
                return [lstm_step(config, node, sources[0], target, samples)]
            case _:
                raise CompileError("this kind of operation is not supported")

    def _maker(self, value: Value) -> ConvolutionStep | None:
        """What made `value` just now, if it can do so block by block."""
        if not self._spill.overlap or not self._layers:
            return None
        node, steps = self._layers[-1]
        if node.result is not value or len(steps) != 1:
            return None
        (step,) = steps
        if not isinstance(step, ConvolutionStep) or step.target.channels.blocks == 1:
            return None
        fits = step.target.pixels <= self._config.accumulator_rows
        return step if fits and hidden_cycles(step) else None

    def _follow(
        self,
        before: ConvolutionStep,
        node: DepthwiseConvolution,
        source: FeatureMap,
        target: FeatureMap,
    ) -> None:
        """`node` behind the convolution before it, block by block."""
        convolution, _ = self._layers.pop()
        self.steps.pop()
        blocks = depthwise_blocks(
            self._config, node, source, target, self._taps, hidden_cycles(before)
        )
        first, rest = interleaved(before, blocks)
        self._layers.append((convolution, first))
        self.steps += (*first, *rest)

    def _concatenation(self, node: Concatenation, homes: list[Home], target: Home) -> None:
        channels = node.axis == len(node.result.shape) - 1
        start = 0
        for value, home in zip(node.parts, homes, strict=True):
            self._check_whole(value, home)
            if channels:
                part = target.cut(start, value.channels)
                start += value.channels
            else:
                part = target.part(start, home.pixels)
                start += home.pixels
            if isinstance(home, FeatureMap) and isinstance(part, FeatureMap):
                self.steps.append(copy_step(self._config, node.operator, home, part))
            else:
                copy = Unary(operator=node.operator, result=node.result, source=value)
                self._elementwise(copy, [home], part)

    def _windows(self, node: Windowed, source: Home, target: Home) -> None:
        """The windows of `node`, some rows of the result at a time."""

        def piece(band: Band) -> tuple[list[Step], list[Step]]:
            loads: list[Step] = []
            origin = 0
            if isinstance(source, HostView):
                rows = needed(node.window, source.height, band)
                origin = rows.first
                here = self._loaded(node, source.band(rows.first, rows.count), loads)
            else:
                here = source
            part = replace(node, window=window_of(node.window, band, origin))
            return loads, self._stored(node, target, band, lambda to: self._steps(part, [here], to))

        self._in_bands(node, target.height, piece)

    def _elementwise(self, node: Unary | Binary, homes: list[Home], target: Home) -> None:
        """`node`, some pixels at a time."""
        pixels = target.pixels
        target = target.grid(pixels, 1)

        def piece(band: Band) -> tuple[list[Step], list[Step]]:
            loads: list[Step] = []
            maps: list[FeatureMap] = []
            for home in homes:
                one = home.pixels == 1
                if isinstance(home, HostView):
                    view = home if one else home.grid(pixels, 1).band(band.first, band.count)
                    maps.append(self._loaded(node, view, loads))
                else:
                    maps.append(home if one else home.part(band.first, band.count))
            part = _part_of(node, band)
            return loads, self._stored(node, target, band, lambda to: self._steps(part, maps, to))

        self._in_bands(node, pixels, piece)

    def _whole(self, node: Node, homes: list[Home], target: Home) -> None:
        """A `node` that cannot be cut."""
        loads: list[Step] = []
        maps = [
            self._loaded(node, home, loads) if isinstance(home, HostView) else home
            for home in homes
        ]
        self.steps += loads
        if isinstance(target, FeatureMap):
            self.steps += self._steps(node, maps, target)
            return
        whole = target.whole_map(node.result.name)
        if isinstance(node, Lstm):
            whole = hidden_map(node.result.name, whole.pixels, 1, whole.channels)
        self.steps += self._steps(node, maps, whole)
        self.steps.append(StoreStep(operator=node.operator, source=whole, target=target))

    def _in_bands(
        self, node: Node, rows: int, piece: Callable[[Band], tuple[list[Step], list[Step]]]
    ) -> None:
        """The pieces one after the other; what one loads is loaded before the one in front ends."""
        pieces = [piece(band) for band in cut(rows, self._spill.bands.get(node.result, 1))]
        for lines in {lines for loads, work in pieces for lines in _lines_of((*loads, *work))}:
            if lines not in self.values and lines.content is None:
                self.bands[lines] = (node.result, rows)
        self.steps += pieces[0][0]
        for number, (_, work) in enumerate(pieces):
            if number + 1 < len(pieces):
                self.steps += pieces[number + 1][0]
            self.steps += work

    def _loaded(self, node: Node, view: HostView, loads: list[Step]) -> FeatureMap:
        here = view.whole_map(f"part of the input of {node.operator}")
        loads.append(LoadStep(operator=node.operator, source=view, target=here))
        return here

    def _stored(
        self,
        node: Node,
        target: Home,
        band: Band,
        steps: Callable[[FeatureMap], list[Step]],
    ) -> list[Step]:
        """What `steps` calculates for a band of `target`, and its way to host memory."""
        if isinstance(target, FeatureMap):
            return steps(target.band(band.first, band.count))
        view = target.band(band.first, band.count)
        here = view.whole_map(f"part of the result of {node.operator}")
        return [
            *steps(here),
            StoreStep(operator=node.operator, source=here, target=view),
        ]

    def _sliced(self, node: Slice, source: Home) -> Home:
        height, width = self._grid(node.result)
        if node.axis == len(node.source.shape) - 1:
            return source.cut(node.start, node.result.channels).grid(height, width)
        inner = height * width // node.result.shape[node.axis]
        return source.part(node.start * inner, height * width).grid(height, width)

    def _check_whole(self, value: Value, source: Home) -> None:
        """Raises CompileError where a reshape has made the channels of the map something else."""
        pixels = source.pixels // self._at_once
        if value.channels != source.channels.count or value.pixels != pixels:
            raise CompileError(
                f"its input of shape {value.shape} is a map of {pixels} pixels of "
                f"{source.channels.count} channels, which only FULLY_CONNECTED can take otherwise"
            )


def _lines_of(steps: tuple[Step, ...]) -> list[Lines]:
    return [lines for step in steps for lines in (*step.reads, *step.writes)]


def _part_of(node: Unary | Binary, band: Band) -> Unary | Binary:
    """`node` for some pixels only."""
    if isinstance(node, Unary):
        return node
    a, b = (
        operand
        if isinstance(operand, Value)
        else operand.reshape(-1, operand.shape[-1])[band.first : band.first + band.count]
        for operand in (node.a, node.b)
    )
    return replace(node, a=a, b=b)
