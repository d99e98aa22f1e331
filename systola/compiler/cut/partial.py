# SPDX-License-Identifier: Apache-2.0
"""The search for the operators that the machine runs, and the compilation of the pieces.

A part is an operator of the model file. A piece, or segment, is a group of parts that run together,
on the machine or in an interpreter on the host. A part's text is its position and kind, such as
"node 3 (Conv)".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from systola.arch.config import Config
from systola.compiler.cut.placement import Place, Placement
from systola.compiler.cut.segments import Graph, Segment
from systola.compiler.cut.source import Part, Source
from systola.compiler.errors import CompileError, ModelError, result_name
from systola.compiler.host_stage import HostStage, View
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import CompiledNetwork, DeviceStage, Network, compile_network
from systola.compiler.operations import Operations, Value
from systola.compiler.printable import printable
from systola.runtime.interpreters import MissingInterpreterError

_FOLLOWS = "it stays with operators of the host: it takes their numbers, or a variable is shared"
_BETWEEN = "the host does this between programs"
_IDLE = "its piece has no products: moving the data to the machine is more work"
ALONE = 16
"""Number of failed compilations, at the start of a search, that move only refused operators to the
host. A later failure also moves operators of the same segment with results as large or larger.
"""


@dataclass(frozen=True, eq=False)
class _Piece:
    """A segment, with the network or the model file that calculates its results.

    `work` is a Network for the machine, or a stage with a model file for an interpreter. `first` is
    the network compiled for one sample, or None if the segment runs in an interpreter.
    """

    segment: Segment
    work: Network | InterpretedStage
    first: CompiledNetwork | None


@dataclass(frozen=True, eq=False)
class PartialNetwork:
    """A network cut into pieces, some for the machine and some for an interpreter on the host.

    The pieces are chosen for machines of one configuration.
    """

    source: Source
    pieces: tuple[_Piece, ...]
    placement: tuple[Placement, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Inputs of the whole network."""
        return tuple(self.source.values[tensor] for tensor in self.source.inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Outputs of the whole network."""
        return tuple(self.source.values[tensor] for tensor in self.source.outputs)

    @property
    def networks(self) -> tuple[Network, ...]:
        """Networks of all pieces that run on the machine."""
        return tuple(each.work for each in self.pieces if isinstance(each.work, Network))

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates that the machine does for one sample."""
        return sum(network.macs for network in self.networks)

    @property
    def inexact_channels(self) -> int:
        """Number of channels with results that may differ slightly from the interpreter's results.

        In such a channel no multiplier of a parameter entry gives all results exactly.
        """
        return sum(network.translation.inexact_channels for network in self.networks)

    def compiled(self, config: Config, samples: int) -> CompiledNetwork:
        """Return the network compiled for `samples` samples.

        Raises CompileError if a piece does not fit the machine.
        """
        source = self.source
        values = {tensor: source.values[tensor] for tensor in source.inputs}
        stages: list[HostStage | DeviceStage | InterpretedStage] = []
        for piece in self.pieces:
            sources = tuple(values[tensor] for tensor in piece.segment.inputs)
            if isinstance(piece.work, InterpretedStage):
                stage = replace(piece.work, sources=sources)
                stages.append(stage)
                results = stage.results
            else:
                compiled = piece.first if samples == 1 else None
                compiled = compiled or compile_network(config, piece.work, samples)
                same = dict(zip(compiled.sources, sources, strict=True))
                stages += (_with_sources(stage, same) for stage in compiled.stages)
                results = tuple(same.get(value, value) for value in compiled.results)
            for tensor, value in zip(piece.segment.outputs, results, strict=True):
                values[tensor] = known = source.values[tensor]
                if value.shape != known.shape:
                    stages.append(_view(value, known))
                elif value is not known:
                    values[tensor] = value
        inputs = tuple(values[tensor] for tensor in source.inputs)
        outputs = tuple(values[tensor] for tensor in source.outputs)
        return CompiledNetwork(samples, inputs, outputs, tuple(stages))


def _view(source: Value, result: Value) -> HostStage:
    name = f"shape of {result.name}"
    return HostStage(operator=name, sources=(source,), result=result, function=View())


def _with_sources(
    stage: HostStage | DeviceStage | InterpretedStage, same: Mapping[Value, Value]
) -> HostStage | DeviceStage | InterpretedStage:
    return replace(stage, sources=tuple(same.get(value, value) for value in stage.sources))


def cut_network(config: Config, source: Source) -> PartialNetwork | None:
    """Return a network cut into pieces for the machine and pieces for the interpreter.

    Returns None if no piece would run on the machine and no tensor is of int16. A network with
    tensors of int16 is returned even if all pieces run on the host. Raises ModelError if the
    interpreter is needed and not installed, or refuses the network.
    """
    missing: MissingInterpreterError | None = None
    try:
        source.check_interpreter()
    except MissingInterpreterError as error:
        missing = error
    found = _Cut(config, source, Graph(source))
    segments = found.segments()
    if not source.of_int16 and not any(segment.on_machine for segment in segments):
        return None
    if missing and not all(segment.on_machine for segment in segments):
        raise missing
    for tensor in (*source.inputs, *source.outputs):
        if tensor not in source.values:
            raise ModelError(f"the type or shape of tensor '{tensor}' is not known before it runs")
    pieces = tuple(found.piece(segment) for segment in segments)
    return PartialNetwork(source, pieces, _place_parts(source, found.host, pieces))


class _Cut:
    """A search for the operators of a network that the machine can run.

    At the start all operators are for the machine, except operators that cannot be translated. Step
    by step, operators move to the host if their segment cannot be translated or compiled, or has no
    products.
    """

    def __init__(self, config: Config, source: Source, graph: Graph) -> None:
        self._config = config
        self._source = source
        self._graph = graph
        self._networks: dict[Segment, Network] = {}
        self._compiled: dict[Segment, CompiledNetwork] = {}
        self._alone = 0
        """Number of compilations so far in which a segment did not fit the machine."""
        self.host: dict[int, str] = {}
        """Operators that run on the host. The key is the operator's position in the file, counted
        from 0, and the value is the reason.
        """
        self._refuse(graph.parts, source.refused())

    def segments(self) -> tuple[Segment, ...]:
        """Move operators to the host until all segments of the machine can be compiled.

        Returns the segments of machine and host in the order of execution.
        """
        while True:
            for index in self._graph.with_followers(self.host.keys()):
                self.host.setdefault(index, _FOLLOWS)
            segments = self._graph.segments(self.host.keys())
            machine = [segment for segment in segments if segment.on_machine]
            idle = [segment for segment in machine if not segment.macs]
            if idle and any(segment.macs for segment in segments):
                for segment in idle:
                    self._refuse(segment.parts, {}, _IDLE)
            elif not self._refused_by(self._translate, machine) and not self._refused_by(
                self._compile, machine
            ):
                return segments

    def _refused_by(self, step: Callable[[Segment], None], machine: Sequence[Segment]) -> bool:
        """Call `step`, a translation or a compilation, with each segment of the machine.

        Operators that cause an error in `step` move to the host. Returns whether there was an
        error.
        """
        refused = False
        for segment in machine:
            try:
                step(segment)
            except (CompileError, ModelError) as error:
                refused = True
                self._refuse(segment.parts, error.refused, str(error))
        return refused

    def _translate(self, segment: Segment) -> None:
        if segment not in self._networks:
            self._networks[segment] = self._source.network(
                segment.parts, segment.inputs, segment.outputs
            )

    def _compile(self, segment: Segment) -> None:
        if segment not in self._compiled:
            network = self._networks[segment]
            try:
                self._compiled[segment] = compile_network(self._config, network, 1)
            except CompileError as error:
                raise CompileError(str(error), self._with_larger(segment, error.refused)) from None

    def _with_larger(self, segment: Segment, refused: Mapping[str, str]) -> Mapping[str, str]:
        """Return the parts of a segment that move to the host after a failed compilation.

        The key is the text of an operator or the name of a result, and the value is the reason.
        `refused` has the parts that caused the failure. Only these are returned for the first ALONE
        failures of a search.

        After a later failure, parts with results as large or larger are returned, too. Such results
        need as much room in the buffer, so the machine would refuse their parts one by one, with a
        compilation for each.
        """
        self._alone += 1
        if self._alone <= ALONE:
            return refused
        sizes = {part: self._elements(part) for part in segment.parts}
        named = {
            part: reason
            for part in segment.parts
            for name, reason in refused.items()
            if f"{part.name.split(' (')[0]} (" in name
        }
        if not named:
            return refused
        least = min(sizes[part] for part in named)
        reason = next(iter(named.values()))
        return {
            part.name: named.get(part, reason) for part in segment.parts if sizes[part] >= least
        }

    def _elements(self, part: Part) -> int:
        value = self._source.values.get(part.outputs[0]) if part.outputs else None
        return prod(value.shape) if value else 0

    def _refuse(
        self, parts: Sequence[Part], refused: Mapping[str, str], otherwise: str = ""
    ) -> None:
        """Move the refused operators among `parts` to the host.

        The key in `refused` is the text of an operator or the name of a result, and the value is
        the reason. A copied part does not move; instead, all of `parts` that need the copy move. If
        nothing moves for a reason in `refused`, all `parts` except copied ones move for the reason
        `otherwise`. If `otherwise` is empty, no part moves then.
        """
        reasons: dict[Part, str] = {}
        for part in parts:
            texts = (f"{part.name.split(' (')[0]} (", *map(result_name, part.outputs))
            for name, reason in refused.items():
                if texts[0] in name or name in texts:
                    reasons.setdefault(part, reason)
        own = [part for part in parts if not part.copied]
        moved: dict[int, str] = {}
        for part in own:
            causes = [part, *self._graph.copies([part])]
            reason = next((reasons[each] for each in causes if each in reasons), None)
            if reason is not None:
                moved[part.index] = reason
        if otherwise and not moved:
            moved = {part.index: otherwise for part in own}
        self.host = {**moved, **self.host}

    def piece(self, segment: Segment) -> _Piece:
        """Return a segment as a piece, with its network or the interpreter's model file."""
        if segment.on_machine:
            return _Piece(segment, self._networks[segment], self._compiled[segment])
        work = self._source.interpreted(segment.parts, segment.inputs, segment.outputs)
        return _Piece(segment, work, None)


def place_whole(source: Source, network: Network) -> tuple[Placement, ...]:
    """Return the placement of each operator of a network that is compiled as a whole."""
    on_host = _on_host(network)
    return tuple(
        _placed(source, part, Place.HOST, on_host[part.name])
        if part.name in on_host
        else _placed(source, part, Place.MACHINE)
        for part in source.parts
    )


def place_refused(source: Source) -> tuple[Placement, ...]:
    """Return the placement REFUSED for each operator of a network that cannot run.

    A placement has the reason why the machine refuses the operator. The reason is empty for an
    operator that the machine could run.
    """
    refused = source.refused()
    return tuple(
        _placed(source, part, Place.REFUSED, refused.get(part.name, "")) for part in source.parts
    )


def _place_parts(
    source: Source, reasons: Mapping[int, str], pieces: Sequence[_Piece]
) -> tuple[Placement, ...]:
    """Return the placement of each operator of a cut network.

    The key in `reasons` is the position of an operator on the host, and the value is the reason.
    Operators that no output depends on are placed on the host.
    """
    on_machine = {part for each in pieces if each.segment.on_machine for part in each.segment.parts}
    networks = (each.work for each in pieces if isinstance(each.work, Network))
    on_host = {name: why for network in networks for name, why in _on_host(network).items()}
    return tuple(
        _placed(source, part, Place.MACHINE)
        if part in on_machine and part.name not in on_host
        else _placed(
            source, part, Place.HOST, reasons.get(part.index, on_host.get(part.name, _BETWEEN))
        )
        for part in source.parts
    )


def _placed(source: Source, part: Part, place: Place, reason: str = "") -> Placement:
    value = source.values.get(part.outputs[0]) if part.outputs else None
    return Placement(
        number=part.index,
        kind=printable(part.kind),
        shape=None if value is None else value.shape,
        place=place,
        macs=part.macs,
        reason=printable(reason),
    )


def _on_host(network: Network) -> dict[str, str]:
    """Return the operators that the host calculates before, between or after programs.

    The key is an operator's text, and the value is the reason. Operators with a part of their work
    on the machine, and mere changes of shape, are left out.
    """
    host: set[str] = set()
    machine: set[str] = set()
    for stage in network.stages:
        if isinstance(stage, Operations):
            machine.update(node.operator for node in stage.nodes)
        elif not isinstance(stage.function, View):
            host.add(stage.operator)
    return {name: network.translation.reasons.get(name, _BETWEEN) for name in host - machine}
