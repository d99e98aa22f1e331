# SPDX-License-Identifier: Apache-2.0
"""The cut of a network into few and large segments, alternately of the host and of the machine.

| word | meaning |
|---|---|
| part | an operator of the network |
| position | of a part: its index in the model file, counted from 0 |
| copied part | a part that runs again in each segment that takes its results |
| variable | a value that is kept from sample to sample |
| opening | of a part: it sets variables before the first sample |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from systola.compiler.cut.source import Part, Source, Tensor


@dataclass(frozen=True)
class Segment:
    """A group of operators of a network that run together, on the machine or on the host.

    All inputs come from the caller or from earlier segments.
    """

    on_machine: bool
    parts: tuple[Part, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates of the segment in one sample."""
        return sum(part.macs for part in self.parts)


class Graph:
    """A graph of the operators, called parts, that a network's outputs and variables depend on."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.origins = {tensor: part for part in source.parts for tensor in part.outputs}
        wanted = set(source.outputs)
        needed: list[Part] = []
        for part in reversed(source.parts):
            if part.states or part.opening or wanted.intersection(part.outputs):
                wanted.update(part.inputs)
                needed.append(part)
        self.parts = tuple(needed[::-1])
        self._before = {part: self._own_before(part) for part in self.parts}

    def copies(self, parts: Iterable[Part]) -> set[Part]:
        """Return the copied parts with results that `parts` need, directly or through other copied
        parts.
        """
        found: set[Part] = set()
        todo = list(parts)
        while todo:
            part = todo.pop()
            for tensor in part.inputs:
                origin = self.origins.get(tensor)
                if origin and origin.copied and origin not in found:
                    found.add(origin)
                    todo.append(origin)
        return found

    def _own_before(self, part: Part) -> set[Part]:
        """Return the parts that must run before `part`, without copied parts.

        A returned part makes an input of `part`, or an input of a copied part that `part` needs.
        """
        takers = {part, *self.copies([part])}
        origins = {self.origins.get(tensor) for taker in takers for tensor in taker.inputs}
        return {each for each in origins if each and not each.copied}

    def with_followers(self, host: Set[int]) -> frozenset[int]:
        """Return the positions of all parts that must run on the host if the parts at positions
        `host` do.

        All parts at `host` are among them, and so are:

        - parts that use variables, or lie between parts that use the same variable
        - parts that take float32 results of the host

        An interpreter may join an operator to the quantisation after it, so both must be in the
        same segment.
        """
        chosen = set(host) | {part.index for part in self.parts if part.states or part.opening}
        chosen |= self._between_states()
        for part in self.parts:
            if not part.copied and any(self._is_float_of(tensor, chosen) for tensor in part.inputs):
                chosen.add(part.index)
        return frozenset(chosen)

    def _is_float_of(self, tensor: Tensor, host: Set[int]) -> bool:
        origin, value = self.origins.get(tensor), self.source.values.get(tensor)
        return bool(origin and origin.index in host and value and value.dtype == "float32")

    def _between_states(self) -> set[int]:
        between: set[int] = set()
        for state in {each for part in self.parts for each in part.states}:
            after: set[Part] = set()
            for part in self.parts:
                if state in part.states or not after.isdisjoint(self._before[part]):
                    after.add(part)
            wanted: set[Part] = set()
            for part in reversed(self.parts):
                if state in part.states or part in wanted:
                    wanted |= self._before[part]
                    if part in after:
                        between.add(part.index)
        return between

    def segments(self, host: Set[int]) -> tuple[Segment, ...]:
        """Return the segments in the order of execution; each segment has the parts of one turn.

        `host` has the positions of the parts that run on the host.
        """
        levels = self._levels(host)
        openings = [part for part in self.parts if part.opening]
        groups: list[tuple[bool, list[Part]]] = []
        for level in sorted(set(levels.values())):
            own = [part for part in self.parts if levels.get(part) == level]
            chosen = {*own, *self.copies(own)}
            if any(part.states for part in own):
                chosen.update(openings)
            groups.append((level % 2 == 1, [part for part in self.parts if part in chosen]))
        return tuple(self._segment(machine, parts, groups) for machine, parts in groups)

    def _segment(
        self, machine: bool, parts: Sequence[Part], groups: Sequence[tuple[bool, list[Part]]]
    ) -> Segment:
        others = [part for _, other in groups if other is not parts for part in other]
        wanted = {*self.source.outputs, *(tensor for part in others for tensor in part.inputs)}
        made = {tensor for part in parts for tensor in part.outputs}
        taken = dict.fromkeys(tensor for part in parts for tensor in part.inputs)
        results = (tensor for part in parts if not part.copied for tensor in part.outputs)
        return Segment(
            machine,
            tuple(parts),
            tuple(tensor for tensor in taken if tensor not in made),
            tuple(tensor for tensor in results if tensor in wanted),
        )

    def _levels(self, host: Set[int]) -> dict[Part, int]:
        """Return the number of the turn in which each part is executed; the key is the part.

        Host and machine take turns: even numbers are turns of the host, odd numbers turns of the
        machine. Parts that share a variable have the same number. Copied parts and openings have no
        number.
        """
        levels: dict[Part, int] = {}
        states: dict[Tensor, int] = {}
        own = [part for part in self.parts if not part.copied and not part.opening]
        # If two parts wait for each other's variables, their numbers would rise in each round
        # without end. So after enough rounds all parts are put into one turn of the host.
        for _ in range(len(own) + 2):
            old = dict(levels)
            for part in own:
                level = max((levels[each] for each in self._before[part]), default=0)
                level = max([level, *(states.get(each, 0) for each in part.states)])
                level += level % 2 == (part.index in host)
                levels[part] = level
                states.update(dict.fromkeys(part.states, level))
            if levels == old:
                return levels
        return dict.fromkeys(own, 0)
