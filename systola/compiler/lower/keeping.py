# SPDX-License-Identifier: Apache-2.0
"""Variables that stay in the unified buffer from one program to the next.

Most variables are copied: after the last operation that needs the old value, the new value takes
its place. The copy does not come between a convolution and the depthwise convolution or pooling
after it, as these two are interleaved.

A ring is a variable with the last rows of a map: the program joins the old rows and new rows, and
keeps the last of all these. Nothing of a ring is copied. Instead, the map moves on by the new rows
from one program to the next: the new rows of a block of channels take the lines of the oldest rows
of the block after it. So PHASES programs run in turn, which differ in the places of rings. Each
ring moves back to its first place in one of these programs. Different rings do so in different
programs, as no sample should take much longer than others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from systola.arch.config import Config
from systola.arch.isa import Opcode, Operation
from systola.compiler.errors import CompileError
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries, common_entry
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.step import Step
from systola.compiler.operations import (
    Concatenation,
    DepthwiseConvolution,
    Kept,
    Node,
    Operations,
    Pooling,
    Reshape,
    Slice,
    Value,
    identity,
)

PHASES = 8
"""Number of programs that run in turn if a network has a ring."""


@dataclass(frozen=True)
class Ring:
    """A variable with the last rows of a map, which moves on in the buffer and is not copied."""

    kept: Kept
    joining: Concatenation
    """Operation that joins the old rows, which are its first part, and the new rows."""

    @property
    def step(self) -> int:
        """Number of lines by which the map moves on from one program to the next: the new rows'
        pixels.
        """
        return self.joining.result.pixels - self.kept.before.pixels


def rings(operations: Operations) -> dict[Value, Ring]:
    """Return the variables that are rings, each as a Ring. The key is the value that the variable
    has before a sample.
    """
    made = {node.result: node for node in operations.nodes}
    found: dict[Value, Ring] = {}
    for kept in operations.kept:
        users = [node for node in operations.nodes if kept.before in node.sources]
        if len(users) != 1 or not isinstance(joining := users[0], Concatenation):
            continue
        last = _origin(kept.after, made)
        if (
            joining.parts.count(kept.before) == 1
            and joining.parts[0] is kept.before
            and joining.axis < len(joining.result.shape) - 1
            and kept.before not in operations.to_host
            and isinstance(last, Slice)
            and _is_tail(last)
            and last.result.pixels == kept.before.pixels
            and made.get(last.source) is joining
        ):
            found[kept.before] = Ring(kept, joining)
    return found


def _origin(value: Value, made: Mapping[Value, Node]) -> Node | None:
    """Return the operation that made a value, before any changes of shape; None for an input."""
    node = made.get(value)
    while isinstance(node, Reshape) and node.source.channels == node.result.channels:
        node = made.get(node.source)
    return node


def _is_tail(node: Slice) -> bool:
    """Return whether a Slice takes the last pixels of its source."""
    size = node.source.shape[node.axis]
    return (
        node.axis < len(node.source.shape) - 1 and node.start + node.result.shape[node.axis] == size
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RingStep(Step):
    """A step that moves a ring's map back to its first place.

    Only one of the PHASES programs that run in turn does so; in the others the step is empty.
    """

    place: FeatureMap
    """Map in the buffer of all rows of the ring: the old rows, and then the new rows."""
    step: int
    output_entries: Entries

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.place.lines,)

    @property
    def writes(self) -> tuple[Lines, ...]:
        return (self.place.lines,)

    @property
    def entries(self) -> tuple[Entries, ...]:
        return (self.output_entries,)

    def emit(self, emitter: Emitter) -> None:
        if self.place.lines not in emitter.moves_back:
            return
        source = emitter.line(self.place.lines, self.step)
        back = PHASES * self.step
        count = self.place.plane * self.place.channels.blocks - self.step
        parameter = emitter.parameters(self.output_entries)
        emitter.scale()
        # A Vector must not write lines that it reads, so each Vector copies at most `back` lines.
        for done in range(0, count, back):
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=source + done,
                destination=source - back + done,
                rows=min(back, count - done),
                parameter=parameter,
                rounding=identity().rounding,
            )


def ring_step(config: Config, ring: Ring, place: FeatureMap) -> RingStep:
    """Return the step that moves the map `place` of `ring` back to its first place."""
    return RingStep(
        operator=ring.joining.operator,
        place=place,
        step=ring.step,
        output_entries=common_entry(config, identity()),
    )


def ring_map(ring: Ring, place: FeatureMap) -> FeatureMap:
    """Return a map like `place`, of all rows of a ring, with enough lines for all PHASES
    programs.
    """
    lines = Lines(place.lines.name, place.lines.count + (PHASES - 1) * ring.step)
    return FeatureMap(
        lines=lines,
        height=place.height,
        width=place.width,
        plane=place.plane,
        channels=place.channels,
    )


def turns_of(operations: Operations) -> Mapping[int, Sequence[Kept]]:
    """Return lists of the variables that get their next value at the same time.

    The key is the number, counted from 0, of the operation after which they get it. The number of
    all operations as key stands for the end of the program. A variable that keeps its value is left
    out. Raises CompileError for variables that exchange their values.
    """
    nodes, count = operations.nodes, len(operations.nodes)
    made = {node.result: number for number, node in enumerate(nodes)}
    circles = rings(operations)
    alike = {
        each: _sharing(operations, each.before, circles.get(each.before))
        for each in operations.kept
    }
    waiting = [each for each in operations.kept if each.after is not each.before]
    turns: dict[int, list[Kept]] = {}
    at: dict[Kept, int] = {}
    while waiting:
        # A variable may be overwritten only after each other variable that takes its old value has
        # taken it.
        free = [
            each
            for each in waiting
            if all(other is each or other.after not in alike[each] for other in waiting)
        ]
        if not free:
            raise CompileError("variables exchange their values")
        for each in free:
            uses = [n for n, node in enumerate(nodes) if not alike[each].isdisjoint(node.sources)]
            before = [at[other] for other in at if other.after in alike[each]]
            first = _first_use(operations, each.after)
            ready = max([made.get(each.after, 0), *first, *uses, *before])
            while ready + 1 < count and isinstance(
                nodes[ready + 1], DepthwiseConvolution | Pooling
            ):
                ready += 1
            if not alike[each].isdisjoint(operations.to_host):
                ready = count
            at[each] = ready
            turns.setdefault(ready, []).append(each)
        waiting = [each for each in waiting if each not in free]
    return turns


def _first_use(operations: Operations, value: Value) -> list[int]:
    """Return a list with the number, from 0, of the first operation that takes the input `value`.

    The input is in the buffer from then on. The list is empty if `value` is no input from the host.
    """
    if value not in operations.from_host:
        return []
    return [next(n for n, node in enumerate(operations.nodes) if value in node.sources)]


def _sharing(operations: Operations, value: Value, ring: Ring | None) -> set[Value]:
    """Return the values that lie in the buffer lines of a variable; `value` is its old value."""
    found = {value, ring.joining.result} if ring else {value}
    for node in operations.nodes:
        if isinstance(node, Reshape | Slice) and not found.isdisjoint(node.sources):
            found.add(node.result)
    return found
