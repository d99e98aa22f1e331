# SPDX-License-Identifier: Apache-2.0
"""A model in pieces that take about the same time, one for each core of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import inf
from typing import Any

from numpy.typing import NDArray

from systola.arch.config import Config
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.host_stage import HostStage
from systola.compiler.network import Network, compile_network, in_stages
from systola.compiler.semantics import Semantics
from systola.runtime.backend import Backend
from systola.runtime.compiled_model import CompiledModel, compile_model
from systola.runtime.pod.bands import Banded, in_bands
from systola.runtime.report import Report, make_report
from systola.runtime.run_result import RunResult

REACH = 3
"""Largest number of elements by which one step moves a cut."""
ROUNDS = 8
"""Largest number of times that cuts are balanced anew."""
BANDS = 32
"""Largest number of bands of a layer that takes as long as a piece."""


@dataclass(frozen=True)
class Piece:
    """A part of a model. `takes` and `gives` have the numbers of its values, see Pieces."""

    model: CompiledModel
    takes: tuple[int, ...]
    gives: tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """A model as pieces that run one after the other.

    The values that go between the pieces have numbers, the inputs of the model first.
    """

    pieces: tuple[Piece, ...]
    results: tuple[int, ...]
    """Numbers of the outputs of the model."""

    def run(
        self, x: Sequence[NDArray[Any]], machines: Sequence[Backend]
    ) -> tuple[tuple[NDArray[Any], ...], tuple[RunResult, ...]]:
        """Run each piece on a machine of its own, in order.

        Returns the outputs of the model, and the result of each piece's run, without outputs.
        """
        values = dict(enumerate(x))
        runs: list[RunResult] = []
        for piece, machine in zip(self.pieces, machines, strict=True):
            run = piece.model.run(*(values[number] for number in piece.takes), backend=machine)
            values.update(zip(piece.gives, run.outputs, strict=True))
            runs.append(replace(run, outputs=()))
        return tuple(values[number] for number in self.results), tuple(runs)


def whole(model: CompiledModel) -> Pieces:
    """Return the model in one piece."""
    inputs, outputs = len(model.inputs), len(model.outputs)
    results = tuple(range(inputs, inputs + outputs))
    return Pieces((Piece(model, tuple(range(inputs)), results),), results)


def split(config: Config, network: Network, semantics: Semantics, batch: int, count: int) -> Pieces:
    """Split `network` into up to `count` pieces, `batch` samples in a program each.

    Long layers may be cut between two rows of their result. Cuts are moved by a few elements until
    the slowest piece takes as few cycles, by the timing model, as this can reach. Raises
    CompileError for a network that does not fit the machine.
    """
    costs = _costs(network, make_report(config, compile_network(config, network, batch)))
    limit = sum(costs) / (count * BANDS)
    elements = [
        each
        for item, cost in zip(network.translation.items, costs, strict=True)
        for each in in_bands(item, cost, limit)
    ]
    banded = Banded([element for element, _ in elements])

    @cache
    def cycles(begin: int, end: int) -> float:
        part = _part(network, banded, begin, end, (begin, end))
        try:
            compiled = compile_network(config, part, batch)
        except (CompileError, ModelError):
            return inf
        return make_report(config, compiled).estimated_cycles

    ends = moved(balanced([cost for _, cost in elements], count, cycles), cycles)
    if any(cycles(*each) == inf for each in pairwise(ends)):
        raise CompileError("the model has no pieces that can be compiled on their own")
    parts = [_part(network, banded, *each, ends) for each in pairwise(ends)]
    values = (
        *network.translation.inputs,
        *(value for part in parts for value in part.translation.outputs),
    )
    numbers = {value: number for number, value in enumerate(values)}
    pieces = tuple(
        Piece(
            compile_model(config, part, semantics, batch),
            tuple(numbers[value] for value in part.translation.inputs),
            tuple(numbers[value] for value in part.translation.outputs),
        )
        for part in parts
    )
    return Pieces(pieces, tuple(numbers[value] for value in network.translation.outputs))


def _part(network: Network, banded: Banded, begin: int, end: int, cuts: Sequence[int]) -> Network:
    """Return elements `begin` to `end` - 1 as a network.

    Values that cross `cuts` are its inputs and outputs.
    """
    items = banded.items(begin, end, cuts)
    made = {item.result for item in items}
    later = {source for item in banded.items(end, None, cuts) for source in item.sources}
    wanted = later.union(network.translation.outputs)
    return in_stages(
        replace(
            network.translation,
            inputs=tuple(
                dict.fromkeys(each for item in items for each in item.sources if each not in made)
            ),
            outputs=tuple(item.result for item in items if item.result in wanted),
            items=items,
        )
    )


def _costs(network: Network, report: Report) -> list[float]:
    """Return the estimated cycles of each item; cycles that belong to no item are left out."""
    items = network.translation.items
    costs = [0.0] * len(items)
    for row in report.rows:
        for number, item in enumerate(items):
            if row.operator.endswith(item.operator) and not isinstance(item, HostStage):
                costs[number] += row.estimated_cycles or 0.0
                break
    return costs


def even_cuts(costs: Sequence[float], count: int) -> tuple[int, ...]:
    """Return places to cut `costs` into up to `count` parts, so that the largest sum of a part is
    small.
    """

    def cuts(limit: float) -> list[int]:
        found: list[int] = []
        total = 0.0
        for number, cost in enumerate(costs):
            if number and total + cost > limit:
                found.append(number)
                total = 0.0
            total += cost
        return found

    low, high = max(costs), sum(costs)
    while high - low > 0.5:
        limit = (low + high) / 2
        low, high = (limit, high) if len(cuts(limit)) >= count else (low, limit)
    return tuple(cuts(high))


def balanced(costs: Sequence[float], count: int, cycles: Callable[[int, int], float]) -> list[int]:
    """Return the ends of up to `count` ranges of elements, so that the slowest range takes few
    `cycles`.

    The ends include 0 and the number of costs. A range may take more or fewer cycles than the sum
    of its costs: each round corrects the costs by the cycles of the last cuts.
    """
    size = len(costs)
    best, least = [0, size], inf
    for _ in range(ROUNDS):
        ends = [0, *even_cuts(costs, count), size]
        found = [cycles(*each) for each in pairwise(ends)]
        if max(found) >= least:
            break
        best, least = ends, max(found)
        costs = [
            cost * total / max(1.0, sum(costs[begin:end]))
            for (begin, end), total in zip(pairwise(ends), found, strict=True)
            for cost in costs[begin:end]
        ]
    return best


def moved(ends: list[int], cycles: Callable[[int, int], float]) -> list[int]:
    """Move cuts by a few elements, as long as this makes the slowest piece faster.

    If the slowest piece stays equal, a move may make the slowest of the other pieces faster.
    """

    def slowest_first(ends: Sequence[int]) -> list[float]:
        return sorted((cycles(*each) for each in pairwise(ends)), reverse=True)

    while True:
        others = [
            [*ends[:cut], place, *ends[cut + 1 :]]
            for cut in range(1, len(ends) - 1)
            for place in range(ends[cut] - REACH, ends[cut] + REACH + 1)
            if ends[cut - 1] < place < ends[cut + 1]
        ]
        best = min(others, key=slowest_first, default=ends)
        if slowest_first(best) >= slowest_first(ends):
            return ends
        ends = best
