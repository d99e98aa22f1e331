# SPDX-License-Identifier: Apache-2.0
"""The moves of groups of cells that make slow paths shorter.

nextpnr's placers weigh wire more than time: a chain of three look-up tables may be spread over 40
columns if this costs no wire. Here each group on a slow path is tried at places nearer to its
neighbours on such paths. It moves to a place where the paths through it are best, or nearly best.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from systola.synth.refine.delays import Delays, wire_delay
from systola.synth.refine.graph import NEVER, Graph
from systola.synth.refine.placement import Group, Placement

NEARLY = 0.4
"""Margin in nanoseconds.

A path attracts its groups if its delay is above the goal, or below it by at most this margin.
"""
WIRE = 0.004
"""Cost of a nanosecond of wire. It also counts on fast paths."""
WIDE = 200
"""Number of pins from which on the length of a net does not count.

Such a net reaches all parts of the device, wherever a group lies.
"""
TRIES, SITES, REPLACED = 24, 12, 4
"""Numbers of places for a group, in three searches.

A group is tried at TRIES places. The best SITES of these are checked for room. At the best REPLACED
of these, other groups may leave to make room.
"""
DISTANCES = (1, 3, 6)
LEAVE_AT_MOST, LEAVE_FAR = 40, 4
"""Largest number of groups that leave to make room for a group, and the distance of the search.

The search for their new places goes this many tiles away.
"""
WORTH = 1.0
"""Cost of a group from which on other groups leave to make room for it."""


class Refinement:
    """A placement that is being refined.

    A path longer than `goal`, in nanoseconds, costs the square of the excess. In the cost of a
    single group, a path counts at each pin that it leads to. In `lateness` it counts once, at its
    end.
    """

    def __init__(self, design: Mapping[str, Any], *, seed: int, goal: float):
        self._goal = goal
        self.graph = Graph(design)
        self.placement = Placement(design, self.graph)
        self.delays = Delays(self.graph, self.placement.xs, self.placement.ys)
        self._random = random.Random(seed)
        graph = self.graph
        self._inputs: dict[Group, list[int]] = {}
        self._outputs: dict[Group, list[int]] = {}
        for group in (*self.placement.groups, *filter(None, self.placement.blocks.values())):
            self._inputs[group] = [pin for cell in group.cells for pin in graph.inputs[cell]]
            self._outputs[group] = sorted(o for cell in group.cells for o in graph.owned[cell])

    def go_over(self, worse: float) -> None:
        """Try once to move each group on a slow path.

        On average the cost of a new place may be higher by `worse` than the cost of the old place.
        """
        for group in self.slow_groups(NEARLY):
            self._improve(group, worse)

    def slow_groups(self, nearly: float) -> list[Group]:
        """Return the groups on slow paths, the slowest first.

        A path is slow if its delay is above the goal, or below the goal by less than `nearly` ns.
        """
        graph, delays, group_of = self.graph, self.delays, self.placement.group_of
        worst: dict[Group, float] = {}
        for pin, source in enumerate(graph.sources):
            path = delays.path(pin)
            if path > self._goal - nearly:
                for cell in (graph.drivers[source], graph.owners[pin]):
                    group = group_of.get(cell)
                    if group is not None and path > worst.get(group, 0.0):
                        worst[group] = path
        return sorted(worst, key=lambda group: -worst[group])

    def _improve(self, group: Group, worse: float) -> None:
        """Move a group to a place where it costs less, or not much more."""
        before = self.cost(group, group.x, group.y)
        found: list[tuple[float, int, int]] = []
        for x, y in self._candidates(group):
            cost = self.cost(group, x, y)
            limit = before + (worse * self._random.expovariate(1.0) if worse else 0.0)
            if cost < limit:
                found.append((cost, x, y))
        found.sort()
        placement = self.placement
        for _, x, y in found[:SITES]:
            for shift in group.shifts:
                if placement.in_the_way(group, x, y, shift) == set():
                    self._move(group, x, y, shift)
                    return
        if before > WORTH:
            for cost, x, y in found[:REPLACED]:
                if cost < before and self._replace(group, x, y, before - cost):
                    return

    def _candidates(self, group: Group) -> list[tuple[int, int]]:
        """Return places on the way to a group's neighbours on slow paths. No place occurs twice."""
        graph, delays, placement = self.graph, self.delays, self.placement
        drawn: list[tuple[int, int]] = []

        def draws(pin: int, other: int, own: int) -> None:
            if other not in group.cells and delays.path(pin) > self._goal - NEARLY:
                column = placement.xs[own] - group.x
                drawn.append((placement.xs[other] - column, placement.ys[other]))

        for pin in self._inputs[group]:
            draws(pin, graph.drivers[graph.sources[pin]], graph.owners[pin])
        for output in self._outputs[group]:
            for pin in graph.sinks[output]:
                draws(pin, graph.owners[pin], graph.drivers[output])
        if not drawn:
            return []
        middle = tuple(sum(values) / len(drawn) for values in zip(*drawn, strict=True))
        chance = self._random
        places: dict[tuple[int, int], None] = {}
        for _ in range(TRIES):
            part, distance = chance.choice((0.0, 0.25, 0.5, 0.75, 1.0)), chance.choice(DISTANCES)
            to_x, to_y = middle if chance.random() < 0.5 else chance.choice(drawn)
            x = round(group.x + (to_x - group.x) * part + chance.uniform(-distance, distance))
            y = round(group.y + (to_y - group.y) * part + chance.uniform(-distance, distance))
            if (x, y) != (group.x, group.y) and x in placement.columns.get(y, ()):
                places[x, y] = None
        return list(places)

    def cost(self, group: Group, x: int, y: int) -> float:
        """Return the cost of the paths through a group, and of the group's wires, at place `x`,
        `y`."""
        graph, delays = self.graph, self.delays
        xs, ys = self.placement.xs, self.placement.ys
        dx, dy = x - group.x, y - group.y
        outputs = self._outputs[group]
        arrivals = {output: graph.starts[output] for output in outputs}
        wires: dict[int, float] = {}
        total = 0.0
        for pin in self._inputs[group]:
            source, owner = graph.sources[pin], graph.owners[pin]
            if source in arrivals:
                wires[pin] = delays.wires[pin]
                continue
            driver = graph.drivers[source]
            wire = wire_delay(xs[driver], ys[driver], xs[owner] + dx, ys[owner] + dy)
            wires[pin] = wire
            if len(graph.sinks[source]) < WIDE:
                total += wire
            for output, delay in graph.leads[pin]:
                arrival = delays.arrivals[source] + wire + delay
                if arrival > arrivals[output]:
                    arrivals[output] = arrival
        for output in outputs:
            for pin in graph.sinks[output]:
                if pin in wires:
                    for following, delay in graph.leads[pin]:
                        arrival = arrivals[output] + wires[pin] + delay
                        if arrival > arrivals[following]:
                            arrivals[following] = arrival
        penalty = 0.0
        behind: dict[int, float] = {}
        rests: dict[int, float] = {}
        for output in reversed(outputs):
            driver = graph.drivers[output]
            from_x, from_y = xs[driver] + dx, ys[driver] + dy
            longest = NEVER
            for pin in graph.sinks[output]:
                if pin in wires:
                    rest = self._rest_inside(pin, behind)
                    rests[pin] = rest
                    wire = wires[pin]
                else:
                    owner = graph.owners[pin]
                    wire = wire_delay(from_x, from_y, xs[owner], ys[owner])
                    total += wire
                    rest = delays.rests[pin]
                    over = arrivals[output] + wire + rest - self._goal
                    if over > 0:
                        penalty += over * over
                if wire + rest > longest:
                    longest = wire + rest
            behind[output] = longest
        for pin in self._inputs[group]:
            if pin not in rests:
                rest = self._rest_inside(pin, behind)
                over = delays.arrivals[graph.sources[pin]] + wires[pin] + rest - self._goal
                if over > 0:
                    penalty += over * over
        return penalty + WIRE * total

    def _rest_inside(self, pin: int, behind: Mapping[int, float]) -> float:
        setup = self.graph.setups[pin]
        rest = NEVER if setup is None else setup
        for output, delay in self.graph.leads[pin]:
            rest = max(rest, delay + behind[output])
        return rest

    def _move(self, group: Group, x: int, y: int, shift: int) -> None:
        self.placement.lift(group)
        self.placement.drop(group, x, y, shift)
        self.delays.moved(group.cells)

    def _replace(self, group: Group, x: int, y: int, gain: float) -> bool:
        """Move a group to occupied places, and the groups there elsewhere; return whether this
        worked.

        In sum, the cost of the other groups must grow by less than `gain`.
        """
        placement = self.placement
        cells = placement.in_the_way(group, x, y, group.shift)
        if cells is None:
            return False
        others = self.movable(cells)
        if others is None or len(others) > LEAVE_AT_MOST:
            return False
        before = sum(self.cost(other, other.x, other.y) for other in others)

        def better() -> bool:
            return sum(self.cost(other, other.x, other.y) for other in others) - before < gain

        return self.exchange([group], x - group.x, y - group.y, others, better)

    def exchange(
        self,
        groups: Sequence[Group],
        dx: int,
        dy: int,
        others: Sequence[Group],
        better: Callable[[], bool],
    ) -> bool:
        """Exchange groups with other groups; return whether this worked.

        The `groups` move by `dx` columns and `dy` rows to occupied places, and the `others` to
        places near their own. All move back if there is no room, or if `better` returns False.
        """
        placement = self.placement
        leaving = [*groups, *others]
        places = [one.place for one in leaving]
        for one in leaving:
            placement.lift(one)
        for group in groups:
            placement.drop(group, group.x + dx, group.y + dy, group.shift)
        self.delays.moved(_cells(groups))
        settled = list(groups)
        for other in others:
            spot = self._spot(other)
            if spot is None:
                break
            placement.drop(other, *spot)
            self.delays.moved(other.cells)
            settled.append(other)
        if len(settled) == len(leaving) and better():
            return True
        for one in settled:
            placement.lift(one)
        for one, place in zip(leaving, places, strict=True):
            placement.drop(one, *place)
        self.delays.moved(_cells(leaving))
        return False

    def movable(self, cells: Iterable[int]) -> list[Group] | None:
        """Return the groups of cells, each once. If a group is too large to leave, return None."""
        others: dict[Group, None] = {}
        for cell in sorted(cells):
            other = self.placement.group_of.get(cell)
            if other is None or other.chain or len(other.shifts) < 4:
                return None
            others[other] = None
        return list(others)

    def on_slow_paths(self, group: Group) -> list[Group]:
        """Return the neighbours of a group on paths that are slow or nearly slow."""
        found: dict[Group, None] = {}
        for other, _ in self._slow_wires([group]):
            neighbour = self.placement.group_of.get(other)
            if neighbour is not None and neighbour is not group:
                found[neighbour] = None
        return list(found)

    def pulls(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        """Return the columns and rows that each wire on a slow path spans, from `groups` to other
        cells."""
        xs, ys = self.placement.xs, self.placement.ys
        own = set(_cells(groups))
        return [
            (xs[other] - xs[cell], ys[other] - ys[cell])
            for other, cell in self._slow_wires(groups)
            if other not in own
        ]

    def _slow_wires(self, groups: Iterable[Group]) -> Iterator[tuple[int, int]]:
        """Yield for each wire on slow, or nearly slow, paths the cell at its other end and the own
        cell."""
        graph, limit = self.graph, self._goal - NEARLY
        for group in groups:
            for pin in self._inputs[group]:
                if self.delays.path(pin) > limit:
                    yield graph.drivers[graph.sources[pin]], graph.owners[pin]
            for output in self._outputs[group]:
                for pin in graph.sinks[output]:
                    if self.delays.path(pin) > limit:
                        yield graph.owners[pin], graph.drivers[output]

    def ends_of(self, groups: Iterable[Group]) -> list[int]:
        """Return the pins at which paths through `groups` end, such as inputs of registers."""
        graph = self.graph
        ends: list[int] = []
        seen: set[int] = set()
        queue: list[int] = []
        for group in groups:
            queue += self._inputs[group]
            for output in self._outputs[group]:
                queue += graph.sinks[output]
        seen.update(queue)
        while queue:
            pin = queue.pop()
            if graph.setups[pin] is not None:
                ends.append(pin)
            for output, _ in graph.leads[pin]:
                for following in graph.sinks[output]:
                    if following not in seen:
                        seen.add(following)
                        queue.append(following)
        return list(dict.fromkeys(ends))

    def lateness(self, ends: Iterable[int], groups: Iterable[Group]) -> float:
        """Return the cost of the slow paths to the pins `ends`, and of the wires of `groups`.

        A path counts once, at its end.
        """
        graph, delays = self.graph, self.delays
        penalty = wires = 0.0
        for pin in ends:
            arrival = delays.arrivals[graph.sources[pin]] + delays.wires[pin]
            over = arrival + (graph.setups[pin] or 0.0) - self._goal
            if over > 0:
                penalty += over * over
        for group in groups:
            wires += sum(delays.wires[pin] for pin in self._inputs[group])
            for output in self._outputs[group]:
                if len(graph.sinks[output]) < WIDE:
                    wires += sum(delays.wires[pin] for pin in graph.sinks[output])
        return penalty + WIRE * wires

    def _spot(self, group: Group) -> tuple[int, int, int] | None:
        """Return a free place for a lifted group: the best of some places near its former place."""
        best: tuple[float, tuple[int, int, int]] | None = None
        for number in range(TRIES):
            far = LEAVE_FAR * (1 + 2 * number / TRIES)
            x = round(group.x + self._random.uniform(-far, far))
            y = round(group.y + self._random.uniform(-far, far))
            for shift in group.shifts:
                if self.placement.in_the_way(group, x, y, shift) == set():
                    cost = self.cost(group, x, y)
                    if best is None or cost < best[0]:
                        best = cost, (x, y, shift)
                    break
        return best[1] if best else None


def _cells(groups: Iterable[Group]) -> list[int]:
    return [cell for group in groups for cell in group.cells]
