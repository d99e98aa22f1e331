# SPDX-License-Identifier: Apache-2.0
"""The choice of variables that stay in the unified buffer from one program to the next.

A variable is a value of the network that is kept from sample to sample. The program for a sample
finds the value of such a variable in the buffer, and leaves the next value there.

A variable stays in host memory if the host needs its value before a sample, or calculates its next
value. In a network with several programs, all variables stay in host memory. If the buffer has no
room for all, the largest stay in host memory.

A variable's number is its index among all variables of the network, counted from 0.
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
"""Divisor for the share of the unified buffer that variables may take if other values must go to
host memory for lack of room. Variables then take at most 1 / SHARE of the buffer.
"""


@dataclass(frozen=True, eq=False)
class OnChip(KeepingPrograms):
    """A set of variables that stay in the unified buffer, with the programs that use them."""

    numbers: tuple[int, ...]
    """Numbers of the variables in the buffer."""


@dataclass(frozen=True)
class KeptStages:
    """A network with variables in the buffer: host stages, the operations of one program, host
    stages.
    """

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
    """Return the network's stages with as many variables in the buffer as possible.

    `outputs` are the outputs of the model, without variables. `variables` has a pair of values for
    each variable, before and after a sample. Returns None if no variable can stay in the buffer.
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
        """Return the stages for the first choice of variables with which the program fits the
        machine.

        Returns None if the program fits with none of the choices.
        """
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
        """Yield choices of variables to keep in the buffer, the best first.

        A choice is a pair: the numbers of the variables, and whether other values may go to host
        memory to make room.
        """
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
        """Return the values of each variable in the program, as a pair: before and after a sample.

        The key is the variable's number. A variable is left out if the program lacks one
        of its values, or if the two values would lie differently in the buffer. If the host
        changes only the shape of a value, the pair has the value with the shape that the program
        uses.
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
        """Return the only user of `value` if this user is a host stage that just changes the shape.

        Returns None for another user, or several users.
        """
        users = [stage for stage in self._host if value in stage.sources]
        if len(users) != 1 or value in self._operations.inputs:
            return None
        return users[0] if isinstance(users[0].function, View) else None

    def _possible(self, numbers: Sequence[int]) -> list[int]:
        """Return the numbers of the variables, out of `numbers`, that can stay in the buffer
        together.

        A variable cannot stay if the host needs its value before a sample.
        """
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
        """Return the values that the host needs if the variables with numbers `kept` stay in the
        buffer.
        """
        inside = {self._found[number][0] for number in kept}
        others = (each for number, each in enumerate(self._variables) if number not in kept)
        wanted = {*self._outputs, *(after for _, after in others)}
        for stage in reversed(self._stages):
            if isinstance(stage, Operations):
                wanted.update(value for value in stage.inputs if value not in inside)
            elif stage.result in wanted:
                wanted.update(stage.sources)
        return wanted
