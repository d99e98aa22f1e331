# SPDX-License-Identifier: Apache-2.0
"""The choice of variables that stay in the unified buffer from one program to the next.

The program for a sample finds such a variable in the buffer, and leaves its next value there. A
variable stays in host memory if the host calculates or takes its value. So do all variables of a
network with several programs. If the buffer has no room for all, the largest stay in host memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from systola.arch.config import Config
from systola.compiler.errors import CompileError
from systola.compiler.few_channels import fill_lines
from systola.compiler.fuse import fuse_tables
from systola.compiler.host_stage import HostStage, View
from systola.compiler.lower.channels import channel_layouts
from systola.compiler.lower.compile_operations import KeepingPrograms, compile_keeping
from systola.compiler.operations import Kept, Operations, Value
from systola.compiler.partition import Stage

SHARE = 4
"""Number of equal parts of the buffer. Variables take one at most if values must be spilled."""


@dataclass(frozen=True, eq=False)
class OnChip(KeepingPrograms):
    """Variables that stay in the unified buffer, with the programs of the machine's only stage."""

    numbers: tuple[int, ...]
    """Numbers of the variables in the buffer, among all variables of the network."""


@dataclass(frozen=True)
class KeptStages:
    """The stages of a network that keeps some of its variables in the unified buffer."""

    before: tuple[HostStage, ...]
    operations: Operations
    on_chip: OnChip
    after: tuple[HostStage, ...]


def keep_variables(
    config: Config,
    stages: Sequence[Stage],
    outputs: Sequence[Value],
    variables: Sequence[tuple[Value, Value]],
) -> KeptStages | None:
    """Return the stages with as many variables in the buffer as possible; None if none can stay.

    `outputs` are the outputs of the model itself. `variables` are pairs: the value of a variable
    before and after a sample.
    """
    programs = [stage for stage in stages if isinstance(stage, Operations)]
    if len(programs) != 1 or not variables:
        return None
    return _Chooser(config, stages, programs[0], outputs, variables).choose()


class _Chooser:
    def __init__(
        self,
        config: Config,
        stages: Sequence[Stage],
        operations: Operations,
        outputs: Sequence[Value],
        variables: Sequence[tuple[Value, Value]],
    ) -> None:
        self._config = config
        self._stages = stages
        self._operations = operations
        self._outputs = outputs
        self._variables = variables
        self._layouts = channel_layouts(operations, min(config.rows, config.cols))
        self._host = [stage for stage in stages if isinstance(stage, HostStage)]
        self._found = self._candidates()

    def choose(self) -> KeptStages | None:
        """Return the stages for the first choice of variables that fits the machine."""
        for numbers, spilling in self._choices():
            wanted = self._wanted(numbers)
            kept = tuple(
                Kept(*self._found[number], leaves=self._found[number][1] in wanted)
                for number in numbers
            )
            operations = replace(self._operations, kept=kept)
            if not operations.to_host:
                continue
            ready = fill_lines(self._config, fuse_tables(self._config, operations))
            try:
                programs = compile_keeping(self._config, ready, spilling=spilling)
            except CompileError:
                continue
            place = self._stages.index(self._operations)
            needed = [stage for stage in self._host if stage.result in wanted]
            return KeptStages(
                tuple(stage for stage in needed if self._stages.index(stage) < place),
                operations,
                OnChip(**vars(programs), numbers=tuple(numbers)),
                tuple(stage for stage in needed if self._stages.index(stage) > place),
            )
        return None

    def _choices(self) -> Iterator[tuple[list[int], bool]]:
        """Yield choices of variables, the best first, and whether other values may be spilled."""
        by_size = sorted(self._found, key=self._lines)
        for count in range(len(by_size), 0, -1):
            if numbers := self._possible(by_size[:count]):
                yield numbers, False
        sums = accumulate(map(self._lines, by_size))
        count = sum(SHARE * lines <= self._config.buffer_lines for lines in sums)
        if numbers := self._possible(by_size[:count]):
            yield numbers, True

    def _lines(self, number: int) -> int:
        value = self._found[number][0]
        return value.pixels * self._layouts[value].blocks

    def _candidates(self) -> dict[int, tuple[Value, Value]]:
        """Return the values of each variable on the machine, before and after a sample.

        Only variables with the same layout in the buffer for both values are included. If the host
        changes the shape of a value, the value with the machine's shape is returned.
        """
        made = {stage.result: stage for stage in self._host}
        inside = {*self._operations.inputs, *self._operations.outputs}
        wanted = {*self._outputs, *(after for _, after in self._variables)}
        found: dict[int, tuple[Value, Value]] = {}
        for number, (before, after) in enumerate(self._variables):
            while before not in wanted and (view := self._only_view(before)):
                before = view.result
            while after not in inside and after in made:
                if not isinstance(made[after].function, View):
                    break
                (after,) = made[after].sources
            if before not in self._operations.inputs or after not in inside:
                continue
            layouts = [(each.pixels, self._layouts[each]) for each in (before, after)]
            if layouts[0] == layouts[1]:
                found[number] = before, after
        return found

    def _only_view(self, value: Value) -> HostStage | None:
        """Return the change of shape on the host that is the only user of `value`, or None."""
        users = [stage for stage in self._host if value in stage.sources]
        if len(users) != 1 or value in self._operations.inputs:
            return None
        return users[0] if isinstance(users[0].function, View) else None

    def _possible(self, numbers: Sequence[int]) -> list[int]:
        """Return the `numbers` without those variables that the host needs before a sample."""
        chosen = sorted(numbers)
        while True:
            wanted = self._wanted(chosen)
            stay = [
                number
                for number in chosen
                if wanted.isdisjoint((self._found[number][0], self._variables[number][0]))
            ]
            if stay == chosen:
                return chosen
            chosen = stay

    def _wanted(self, kept: Sequence[int]) -> set[Value]:
        """Return the values that the host needs if the variables `kept` are in the buffer."""
        inside = {self._found[number][0] for number in kept}
        others = (each for number, each in enumerate(self._variables) if number not in kept)
        wanted = {*self._outputs, *(after for _, after in others)}
        for stage in reversed(self._stages):
            if isinstance(stage, Operations):
                wanted.update(value for value in stage.inputs if value not in inside)
            elif stage.result in wanted:
                wanted.update(stage.sources)
        return wanted
