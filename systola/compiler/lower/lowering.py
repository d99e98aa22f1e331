# SPDX-License-Identifier: Apache-2.0
"""The lowering of neutral operations to steps on feature maps in the buffer of one machine.

A step is a piece of the program. A spilled value is kept in host memory, because the buffer has no
room for it. A band is some rows of a map, on which an operation with spilled values works at a
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.compiler.errors import CompileError, located
from systola.compiler.layout import tiles
from systola.compiler.lower.arrival import arrival
from systola.compiler.lower.attempts import Attempts, Home
from systola.compiler.lower.bands import (
    Band,
    Elementwise,
    Windowed,
    cut,
    needed,
    part_of,
    window_of,
    with_window,
)
from systola.compiler.lower.batch_rows import BatchRows
from systola.compiler.lower.batching import Batch
from systola.compiler.lower.beside import pixels_beside
from systola.compiler.lower.channels import Channels, channel_layouts
from systola.compiler.lower.convolution import may_pack
from systola.compiler.lower.early_blocks import begin_early
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
from systola.compiler.lower.joined import joining, places
from systola.compiler.lower.keeping import ring_map, ring_step, rings, turns_of
from systola.compiler.lower.lstm import hidden_map
from systola.compiler.lower.node_steps import node_steps
from systola.compiler.lower.overlap import Made, in_pieces
from systola.compiler.lower.parts import Part, Spill
from systola.compiler.lower.pooling import PoolingStep
from systola.compiler.lower.step import Step
from systola.compiler.lower.vector import copy_step
from systola.compiler.lower.waiting import Waiting, early_poolings
from systola.compiler.lower.wide_product import LINES, columns_of
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Convolution,
    Curve,
    DepthwiseConvolution,
    Kept,
    Lstm,
    Node,
    Operations,
    Pooling,
    Product,
    Reshape,
    Slice,
    Unary,
    Value,
    WideProduct,
    Window,
    is_wide,
)

INPUTS_AHEAD = 2
"""Number of operations, the present one included, with inputs that are already loaded from host
memory.
"""


class Lowering:
    """A translation of `operations` to steps on a machine, and to the maps that these steps use.

    The constructor makes all steps. In a map for a batch, a row holds the same row of pixels of all
    samples side by side. If no operation of the batch has windows, each pixel is such a row. The
    constructor raises CompileError, with number and kind of the operator, if an operation does not
    fit the machine.
    """

    def __init__(
        self,
        config: Config,
        operations: Operations,
        samples: int,
        batch: Batch,
        spill: Spill,
        attempts: Attempts | None = None,
    ) -> None:
        """Turn `operations` into steps.

        `attempts` has the steps of earlier attempts, which the constructor uses again where it can.
        The offsets of places in host memory are then not final.
        """
        self._attempts = attempts or Attempts()
        self._config = config
        self._samples = samples
        self._at_once = 1
        windows = any(isinstance(node, Convolution | Pooling) for node in batch.nodes)
        self._rows = BatchRows(1, together=windows)
        self._spill = spill
        self._outputs = operations.to_host
        self._kept_after = {each.after for each in operations.kept}
        self._used = Counter(source for node in operations.nodes for source in node.sources)
        self._users: dict[Value, list[Node]] = {}
        for node in operations.nodes:
            for source in node.sources:
                self._users.setdefault(source, []).append(node)
        self._makers = {node.result: node.operator for node in operations.nodes}
        self._layouts = channel_layouts(operations, min(config.rows, config.cols))
        self._homes: dict[Value, Home] = {}
        self._joined: dict[Value, Concatenation] = {}
        """Concatenations that are the only users of a value. The key is this value.

        The value may be made directly at its place in the concatenation's result.
        """
        self._wholes: dict[Value, Home] = {}
        """Places of the results of the concatenations in `_joined`. The key is the result.

        A place is chosen when the first part of the result is made.
        """
        self.host_end = 0
        """Number of bytes of host memory for inputs, outputs and spilled values."""
        self.steps: list[Step] = []
        """Steps of all parts of the program."""
        self.values: dict[Lines, Value] = {}
        """Values in the buffer that could be in host memory. The key is the Lines object that holds
        the whole value.
        """
        self.bands: dict[Lines, tuple[Value, int]] = {}
        """Values that are cut into bands, each with its number of rows.

        The key is the Lines object that holds a band. A value can be cut into as many bands as it
        has rows.
        """
        self.spilled: dict[Value, int] = {}
        """Number of bytes that each spilled value takes in host memory."""
        self._gathered: dict[Value, FeatureMap] = {}
        self._rows_of: dict[Value, tuple[Value, ...]] = {}
        """Values that together are the rows of a concatenation's result, in order. The key is the
        result.

        Only results that are made without a copy are included.
        """
        self.rings = rings(operations)
        """Rings, which module keeping describes, among the variables. The key is a variable's value
        before a sample.
        """
        self.kept = {each.before: self._kept_map(each.before) for each in operations.kept}
        """Maps of the variables that stay in the buffer from one program to the next. The key is a
        variable's value before a sample.
        """
        self._homes.update(self.kept)
        self.parts: list[Part] = []
        """Parts of the program: one for single samples, one for batches of samples, or both."""
        if alone := [node for node in operations.nodes if node not in batch.nodes]:
            self.parts.append(self._part(operations, alone, batch))
        self.batch_begins = len(self.steps)
        """Position in `steps`, from 0, of the first step that works on a whole batch.

        Without a batch, the position is the number of all steps.
        """
        if batch.nodes:
            self._at_once = batch.size
            self._rows = BatchRows(batch.size, together=windows)
            self._homes.update(self._gathered)
            self.parts.append(self._part(operations, batch.nodes, batch))

    def _part(self, operations: Operations, nodes: Sequence[Node], batch: Batch) -> Part:
        inputs: dict[Value, HostView] = {}
        outputs: dict[Value, HostView] = {}
        if self._at_once > 1:
            nodes = early_poolings(nodes)
        waiting = Waiting()
        uses = self._first_uses(operations.inputs, nodes)
        made = (*uses, *(node.result for node in nodes))
        alone = {value for value in made if self._used[value] == 1 and value not in self._outputs}
        self._joined = joining(nodes, alone) if self._spill.overlap else {}

        def load(before: int) -> None:
            for value, number in uses.items():
                if number < before and value not in inputs:
                    inputs[value] = self._input(value, operations)

        first = len(self.steps)
        load(INPUTS_AHEAD)
        before = self.steps[first:]
        begin = len(self.steps)
        self._layers = layers = list[tuple[Node, list[Step]]]()
        last = nodes[-1].result
        turns = turns_of(operations)
        for number, node in enumerate(nodes):
            if waiting.is_needed(node):
                self._finish(waiting)
            load(number + INPUTS_AHEAD)
            with located(node.operator, CompileError):
                self._lower(node)
            done = begin + sum(len(steps) for _, steps in layers)
            if len(self.steps) == done + 1:
                self.steps[done] = begin_early(self.steps, self._config.queue_depth)
            if node.result in self._outputs and node.result is not last:
                outputs[node.result] = self._output(node.result)
            elif self._at_once > 1 and isinstance(node, Pooling) and node.result is not last:
                waiting.hold(node, [s for s in self.steps[done:] if isinstance(s, PoolingStep)])
                self.steps[done:] = [s for s in self.steps[done:] if not isinstance(s, PoolingStep)]
            self._keep(turns.get(number, ()))
            self.steps[done:done] = waiting.hidden_by(self.steps[done:])
            if steps := self.steps[done:]:
                layers.append((node, steps))
        self._finish(waiting)
        if self._at_once < batch.size:
            layers[-1][1].extend(self._gather(layers[-1][0], batch))
        first = len(self.steps)
        if last in self._outputs:
            outputs[last] = self._output(last)
        self._keep(turns.get(len(nodes), ()))
        return Part(self._at_once, inputs, outputs, before, layers, self.steps[first:])

    def _kept_map(self, value: Value) -> FeatureMap:
        """Return the map of a variable that stays in the buffer."""
        ring = self.rings.get(value)
        if ring is None:
            new = new_map(value.name, *value.grid, self._layouts[value])
            return self._attempts.map(value, new)
        whole = ring.joining.result
        new = ring_map(ring, new_map(whole.name, *whole.grid, self._layouts[whole]))
        self._wholes[whole] = place = self._attempts.map(whole, new)
        found = dict(places(ring.joining, place, self._rows))[value]
        assert isinstance(found, FeatureMap)
        return found

    def _keep(self, variables: Sequence[Kept]) -> None:
        """Append the steps that give variables in the buffer their values for the next program."""
        for each in variables:
            if ring := self.rings.get(each.before):
                place = self._wholes[ring.joining.result]
                assert isinstance(place, FeatureMap)
                self.steps.append(ring_step(self._config, ring, place))
                continue
            copy = Unary(
                operator=f"variable {each.before.name}", result=each.before, source=each.after
            )
            self._elementwise(copy, [self._homes[each.after]], self.kept[each.before])

    def _finish(self, waiting: Waiting) -> None:
        """Append the remaining steps of the pooling in `waiting`, if there is one.

        The pooling was held back to fill gaps between convolutions.
        """
        for node, steps in waiting.rest():
            self.steps += steps
            self._layers.append((node, steps))

    def _first_uses(self, inputs: Sequence[Value], nodes: Sequence[Node]) -> dict[Value, int]:
        """Return the position in `nodes` of the first user of each input without a place yet."""
        uses: dict[Value, int] = {}
        for number, node in enumerate(nodes):
            for source in node.sources:
                if source in inputs and source not in self._homes:
                    uses.setdefault(source, number)
        return uses

    def _in_place(self, value: Value, like: FeatureMap) -> FeatureMap | None:
        """Return the place of `value` in a concatenation's result.

        Returns None if `value` cannot be made directly at this place. The concatenation must be the
        only user of `value`, and the place must suit a map with the layout of `like`.
        """
        node = self._joined.get(value)
        if node is None or node.result in self._spill.values:
            return None
        if node.result not in self._wholes:
            self._wholes[node.result] = self._target(node, [])
        place = dict(places(node, self._wholes[node.result], self._rows))[value]
        assert isinstance(place, FeatureMap)
        # A map of an LSTM's hidden states has lines before its first pixel, so it is not `alike`.
        alike = like.plane == like.pixels == place.pixels and like.channels == place.channels
        return place.grid(like.height, like.width) if alike else None

    def _gather(self, node: Node, batch: Batch) -> list[Step]:
        """Return the steps that copy values of one sample into the maps of their batch.

        The steps follow `node`, the last operation on single samples.
        """
        first = len(self.steps)
        for value in dict.fromkeys(source for each in batch.nodes for source in each.sources):
            if value in self._homes:
                home = self._homes[value]
                if isinstance(home, HostView):
                    home = self._loaded(node, home, self.steps)
                if not self._rows.together:
                    home = home.grid(home.pixels, 1)
                elif value.channels == home.channels.count:
                    home = home.grid(*self._rows.of(value))
                step = gather_step(self._config, node.operator, home, batch.size)
                self._gathered[value] = step.target
                self.steps.append(step)
        return self.steps[first:]

    def _input(self, value: Value, operations: Operations) -> HostView:
        source = self._attempts.map(value, self._input_map(value, operations))
        view = input_view(self._config, source, self.host_end, self._times)
        self._take_host(view)
        view = self._attempts.view(value, view)
        if value in self._spill.values:
            self._homes[value] = view
        else:
            name = f"the input of {self._users[value][0].operator}"
            self._may_spill(value, source)
            self._homes[value] = source
            self.steps.append(LoadStep(operator=name, source=view, target=source))
        return view

    def _output(self, value: Value) -> HostView:
        home = self._homes[value]
        if isinstance(home, HostView) and value in self._spill.values:
            return home
        name = f"the result of {self._makers[value]}"
        like = home.whole_map(value.name) if isinstance(home, HostView) else home
        view = output_view(self._config, like, self.host_end, self._times)
        self._take_host(view)
        if isinstance(home, FeatureMap):
            self.steps.append(StoreStep(operator=name, source=home, target=view))
        else:
            # The output is a part of another value that is in host memory. So this part is read
            # into the buffer, and written to a place of its own.
            node = Unary(operator=name, result=value, source=value)
            self._elementwise(node, [home], view)
        return view

    @property
    def _times(self) -> int:
        """Number of times that the present part of the program runs for all samples."""
        return tiles(self._samples, self._at_once)

    def _may_spill(self, value: Value, source: FeatureMap) -> None:
        """Note that a value in the buffer could be in host memory instead.

        Values of a batch are not noted, since the compiler makes room for these values by a smaller
        batch.
        """
        if self._at_once == 1:
            self.values.setdefault(source.lines, value)

    def _take_host(self, view: HostView) -> None:
        end = view.matrix.offset + view.matrix.size
        self.host_end = tiles(end, HOST_PAGE_BYTES) * HOST_PAGE_BYTES

    def _input_map(self, value: Value, operations: Operations) -> FeatureMap:
        """Return a new map in the buffer for an input.

        The map is packed if all users of the input are convolutions that gain by a packed map.
        """
        users = [node for node in operations.nodes if value in node.sources]
        if value not in (*self._outputs, *self._kept_after) and all(
            isinstance(node, Convolution) and may_pack(self._config, value.channels, node.window)
            for node in users
        ):
            rows, (height, width) = self._config.rows, value.grid
            pitch = -(-width * value.channels // rows)
            return FeatureMap(
                lines=Lines(value.name, self._at_once * height * pitch),
                height=self._at_once * height,
                width=width,
                plane=0,
                channels=Channels((value.channels,), rows),
                packed=True,
            )
        source = new_map(value.name, *self._rows.grid(value), self._layouts[value])
        return self._in_place(value, source) or source

    def _lower(self, node: Node) -> None:
        homes = [self._homes[source] for source in node.sources]
        match node:
            case Reshape():
                home = homes[0]
                # Rows of a batch keep their width, as rows of different samples alternate.
                if node.result.channels == home.channels.count and not self._rows.apart:
                    home = home.grid(*self._rows.grid(node.result))
                self._homes[node.result] = home
            case Slice():
                self._check_whole(node.source, homes[0])
                self._rows.check(node.source, homes[0])
                self._rows.check_axis(node.source, node.axis)
                self._homes[node.result] = self._sliced(node, homes[0])
            case Concatenation():
                target = self._wholes.get(node.result) or self._target(node, homes)
                self._homes[node.result] = target
                first = len(self.steps)
                self._concatenation(node, homes, target)
                if len(self.steps) == first and node.axis == len(node.result.shape) - 3:
                    self._rows_of[node.result] = node.parts
            case _:
                target = self._homes[node.result] = self._target(node, homes)
                self._calculate(node, homes, target)

    def _target(self, node: Node, homes: list[Home]) -> Home:
        """Return a new map in the buffer, or a place in host memory, for the result of `node`."""
        channels = self._layouts[node.result]
        height, width = self._rows.grid(node.result)
        match node:
            case Lstm():
                target = hidden_map(node.result.name, node.source.pixels, self._at_once, channels)
            case Unary():
                target = new_map(node.result.name, homes[0].height, homes[0].width, channels)
            case Binary():
                like = max(homes, key=lambda each: each.pixels, default=None)
                # If an operand was reshaped, its map has other channels than the result's shape:
                # the result then gets the rows of this map. Else the result's own shape holds, as a
                # constant may have more pixels than the operand.
                if like is not None and like.channels.count != node.result.channels:
                    height, width = like.height, like.width
                target = new_map(node.result.name, height, width, channels)
            case Product(wide=True):
                target = new_map(node.result.name, 1, 2 * self._at_once, channels)
            case Convolution() if (beside := self._beside(node, homes[0])) > 1:
                line = Channels((self._config.cols,), self._config.cols)
                target = new_map(node.result.name, height, width // beside, line)
                target = replace(target, beside=beside)
            case _:
                target = new_map(node.result.name, height, width, channels)
        if node.result not in self._spill.values:
            target = self._attempts.map(node.result, target)
            target = self._in_place(node.result, target) or target
            self._may_spill(node.result, target)
            return target
        if node.result in self._outputs:
            view = output_view(self._config, target, self.host_end, self._times)
        else:
            view = spill_view(self._config, target, self.host_end)
            self.spilled[node.result] = view.matrix.size
        self._take_host(view)
        return self._attempts.view(node.result, view)

    def _beside(self, node: Convolution, source: Home) -> int:
        """Return how many pixels of a convolution's result are to share a line.

        The number is above 1 only for results that leave the buffer without further use on the
        machine.
        """
        stays = (
            self._used[node.result]
            or node.result in self._spill.values
            or node.result in self._kept_after
        )
        each = Window(kernel=(1, 1), dilation=node.window.dilation, out=node.source.grid)
        if stays or node.window != each or isinstance(source, HostView):
            return 1
        return pixels_beside(self._config, source, node.weights)

    def _calculate(self, node: Node, homes: list[Home], target: Home) -> None:
        if isinstance(node, Windowed | Lstm):
            self._check_whole(node.sources[0], homes[0])
        self._rows.check_node(node, homes)
        maps = [home for home in homes if isinstance(home, FeatureMap)]
        if (
            isinstance(node, DepthwiseConvolution | Pooling)
            and isinstance(target, FeatureMap)
            and maps
            and self._at_once == 1
            and self._spill.overlap
        ):
            parts = self._rows_of.get(node.source, (node.source,))
            made = Made(self._config, parts, self._layers, self.steps)
            taps, ahead = self._attempts.taps, self._ahead(node)
            if in_pieces(made, node, maps[0], target, taps, ahead):
                return
        key = node, tuple(homes), target, self._spill.bands.get(node.result, 1)
        if key not in self._attempts.steps:
            first = len(self.steps)
            self._make_steps(node, homes, target)
            steps = self.steps[first:]
            lines = {each for step in steps for each in (*step.reads, *step.writes)}
            bands = {each: self.bands[each] for each in lines if each in self.bands}
            self._attempts.steps[key] = steps, bands
            return
        steps, bands = self._attempts.steps[key]
        self.steps += steps
        self.bands |= bands

    def _make_steps(self, node: Node, homes: list[Home], target: Home) -> None:
        maps = [home for home in homes if isinstance(home, FeatureMap)]
        if isinstance(target, FeatureMap) and len(maps) == len(homes):
            self.steps += self._steps(node, maps, target)
        elif isinstance(node, Windowed):
            self._windows(node, homes[0], target)
        elif isinstance(node, Unary | Binary | Curve) or (
            isinstance(node, WideProduct) and not node.sums
        ):
            self._elementwise(node, homes, target)
        elif isinstance(node, WideProduct) and isinstance(target, HostView):
            self._sums(node, homes[0], target)
        else:
            self._whole(node, homes, target)

    def _steps(self, node: Node, sources: list[FeatureMap], target: FeatureMap) -> list[Step]:
        """Return the steps for `node` with all its sources and its result in the buffer."""
        taps, hidden = self._attempts.taps, self._ahead(node)
        return node_steps(self._config, node, sources, target, self._at_once, taps, hidden)

    def _ahead(self, node: Node) -> int:
        """Return the cycles that the array works for the next operation while `node` runs.

        The next operation must be a convolution that takes the result of `node`, a depthwise
        convolution. The array starts this convolution with blocks of channels that are complete.
        Otherwise the method returns 0. It also returns 0 if a third operation takes the
        convolution's results block by block, as the cycles count for the third operation.
        """
        if not isinstance(node, DepthwiseConvolution):
            return 0
        users = self._users.get(node.result, [])
        if len(users) != 1 or not isinstance(users[0], Convolution):
            return 0
        takers = self._users.get(users[0].result, [])
        if any(isinstance(taker, DepthwiseConvolution | Pooling) for taker in takers):
            return 0
        blocks, tile = self._layouts[node.result].blocks, arrival(self._config)
        if node.result.pixels < tile:
            # The array waits for tiles, as each takes longer to arrive than the array uses it.
            return blocks * self._layouts[users[0].result].blocks * tile
        return (blocks - 1) * node.result.pixels

    def _concatenation(self, node: Concatenation, homes: list[Home], target: Home) -> None:
        self._rows.check_axis(node.result, node.axis)
        for home, (value, part) in zip(homes, places(node, target, self._rows), strict=True):
            self._check_whole(value, home)
            self._rows.check(value, home)
            if isinstance(home, FeatureMap) and isinstance(part, FeatureMap):
                if home.lines is not part.lines:
                    self.steps.append(copy_step(self._config, node.operator, home, part))
            else:
                copy = Unary(operator=node.operator, result=node.result, source=value)
                self._elementwise(copy, [home], part)

    def _windows(self, node: Windowed, source: Home, target: Home) -> None:
        """Append the steps for an operation on windows, in bands of rows of the result."""

        def piece(band: Band) -> tuple[list[Step], list[Step]]:
            loads: list[Step] = []
            origin = 0
            if isinstance(source, HostView):
                rows = needed(node.window, source.height, band)
                origin = rows.first
                here = self._loaded(node, source.band(rows.first, rows.count), loads)
            else:
                here = source
            part = with_window(node, window_of(node.window, band, origin))
            return loads, self._stored(node, target, band, lambda to: self._steps(part, [here], to))

        self._in_bands(node, target.height, piece)

    def _elementwise(self, node: Elementwise, homes: list[Home], target: Home) -> None:
        """Append the steps for an element-wise operation, in bands of pixels.

        For int16, two lines with the low and high bytes count as one pixel.
        """
        lines = 2 if is_wide(node) else 1
        pixels = target.pixels // lines
        target = target.grid(pixels, lines)

        def piece(band: Band) -> tuple[list[Step], list[Step]]:
            loads: list[Step] = []
            maps: list[FeatureMap] = []
            for home in homes:
                one = home.pixels == 1
                if isinstance(home, HostView):
                    view = home if one else home.grid(pixels, lines).band(band.first, band.count)
                    maps.append(self._loaded(node, view, loads))
                else:
                    first, count = lines * band.first, lines * band.count
                    maps.append(home if one else home.part(first, count))
            part = part_of(node, band)
            return loads, self._stored(node, target, band, lambda to: self._steps(part, maps, to))

        self._in_bands(node, pixels, piece)

    def _sums(self, node: WideProduct, source: Home, target: HostView) -> None:
        """Append the steps for sums of int16 in host memory, in groups of blocks of channels.

        A group takes all rows, so that each weight tile is loaded once. Rows are cut into bands if
        a source in host memory takes more than half of the buffer. They are cut into more bands if
        more parts are needed than there are blocks.
        """
        channels, rows = target.channels, node.rows
        parts, bands = self._spill.bands.get(node.result, 1), 1
        if isinstance(source, HostView):
            bands = tiles(2 * source.pixels * source.channels.blocks, self._config.buffer_lines)
        bands = min(max(bands, tiles(parts, channels.blocks)), rows)
        pieces: list[tuple[list[Step], list[Step]]] = []
        for band in cut(rows, bands):
            loads: list[Step] = []
            first, count = LINES * band.first, LINES * band.count
            here = source.part(first, count)
            if isinstance(here, HostView):
                here = self._loaded(node, here, loads)
            for group in cut(channels.blocks, tiles(parts, bands)):
                start = group.first * channels.block
                stop = min(start + group.count * channels.block, channels.count)
                view = target.cut(start, stop - start)
                part = columns_of(node, slice(start, stop))
                whole = view.part(0, 2 * count).whole_map(f"part of the result of {node.operator}")
                work = self._steps(part, [here], whole)
                for half in range(2):
                    to = view.part(half * LINES * rows + first, count)
                    made = whole.part(half * count, count)
                    work.append(StoreStep(operator=node.operator, source=made, target=to))
                pieces.append((loads, work))
                loads = []
        self._take_pieces(node, rows * channels.blocks, pieces)

    def _whole(self, node: Node, homes: list[Home], target: Home) -> None:
        """Append the steps for an operation that cannot be cut into bands.

        Sources in host memory are loaded whole, and the result is stored whole.
        """
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
        """Append the steps for a result of `rows` rows, band by band.

        `piece` returns two lists of steps for a band: loads of its inputs, and the work.
        """
        bands = cut(rows, self._spill.bands.get(node.result, 1))
        self._take_pieces(node, rows, [piece(band) for band in bands])

    def _take_pieces(
        self, node: Node, most: int, pieces: Sequence[tuple[list[Step], list[Step]]]
    ) -> None:
        """Append the steps of an operation in pieces, of which there may be `most`.

        Each piece has two lists of steps: loads of its inputs, and the work. The loads of a piece
        come before the work on the previous piece.
        """
        steps = [step for loads, work in pieces for step in (*loads, *work)]
        for lines in {lines for step in steps for lines in (*step.reads, *step.writes)}:
            if lines not in self.values and lines.content is None:
                self.bands[lines] = (node.result, most)
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
        """Return the steps that make a band of `target`.

        If `target` is in host memory, the steps also write the band there.
        """
        if isinstance(target, FeatureMap):
            return steps(target.band(band.first, band.count))
        view = target.band(band.first, band.count)
        here = view.whole_map(f"part of the result of {node.operator}")
        return [
            *steps(here),
            StoreStep(operator=node.operator, source=here, target=view),
        ]

    def _sliced(self, node: Slice, source: Home) -> Home:
        height, width = self._rows.grid(node.result)
        if node.axis == len(node.source.shape) - 1:
            return source.cut(node.start, node.result.channels).grid(height, width)
        inner = height * width // node.result.shape[node.axis]
        return source.part(node.start * inner, height * width).grid(height, width)

    def _check_whole(self, value: Value, source: Home) -> None:
        """Raise CompileError if a reshape has changed the pixels or channels of the map in
        `source`.
        """
        pixels = source.pixels // self._at_once
        if value.channels != source.channels.count or value.pixels != pixels:
            raise CompileError(
                f"its input of shape {value.shape} is a map of {pixels} pixels of "
                f"{source.channels.count} channels, which only FULLY_CONNECTED can take otherwise"
            )
