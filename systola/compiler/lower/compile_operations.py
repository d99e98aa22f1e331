# SPDX-License-Identifier: Apache-2.0
"""The compilation of neutral operations to a program that fits one machine's buffer.

The program is a loop over batches of samples. If some operations run sample by sample, before the
operations on the whole batch, an inner loop runs these for each sample of the batch. The operations
of one of these loops are a part of the program. A place is the room for one sample in a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import Opcode, Unit
from systola.compiler.errors import CompileError, located
from systola.compiler.layout import tiles
from systola.compiler.lower.batching import Batch, batches_to_try, sample_order
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.gather import GatherStep
from systola.compiler.lower.host_view import (
    HostView,
    LoadStep,
    StoreStep,
    input_view,
    output_view,
)
from systola.compiler.lower.keeping import PHASES
from systola.compiler.lower.lowering import Lowering
from systola.compiler.lower.parts import Part, Spill
from systola.compiler.lower.spilling import fitted, is_hopeless
from systola.compiler.lower.step import Step
from systola.compiler.operations import Operations, Value, node_macs
from systola.compiler.program import HostMap, LayerWork, Program, output_work
from systola.compiler.schedule import MAX_HOST_BYTES

EARLY = 2
"""Number of steps, at the start of a part of the program, that get their parameters and constants
before the part's input is loaded.
"""
EARLY_ENTRIES = 4
"""Largest run of parameter entries, in entries, that is loaded before the input.

A longer run would delay the input, so it is loaded after the input.
"""


def compile_operations(config: Config, operations: Operations, samples: int) -> Program:
    """Compile `operations` to a program that runs them for `samples` samples.

    Raises CompileError, with number and kind of the operator, if an operation does not fit the
    machine.
    """
    if samples < 1:
        raise CompileError(f"number of samples must be at least 1, not {samples}")
    assert not operations.kept
    hopeless = partial(is_hopeless, config, operations)
    for batch, spilling in batches_to_try(config, operations, samples, hopeless):
        with suppress(CompileError):
            return _compile(config, operations, samples, batch, spilling)
    return _compile(config, operations, samples, Batch(), spilling=True)


@dataclass(frozen=True, eq=False)
class KeepingPrograms:
    """A set of programs for a network with variables in the buffer: some calculate, others only
    move the variables.
    """

    programs: tuple[Program, ...]
    """Programs that calculate: each sample takes the next of them, and after the last the first
    again.

    If a variable is a ring, which module keeping describes, there are PHASES programs, else one.
    """
    load: Program
    """Program that reads the variables from host memory into the places that the first program
    uses.

    The program has an input for each variable.
    """
    stores: tuple[Program, ...]
    """Programs that write the variables to host memory, one for each of `programs`.

    Each program has an output for each variable. Program n writes the variables from the lines in
    which `programs[n]` would read them.
    """


def compile_keeping(config: Config, operations: Operations, *, spilling: bool) -> KeepingPrograms:
    """Compile `operations` for one sample, with its variables in the unified buffer.

    Raises CompileError as compile_operations does. Without `spilling`, also raises CompileError if
    the buffer has no room for all values beside the variables.
    """
    lowering, places, spill = fitted(config, operations, 1, Batch(), spilling=spilling)
    maps = [(each.before, lowering.kept[each.before]) for each in operations.kept]
    turns = list(_turns(lowering, places))
    programs = [
        _emitted(config, operations, 1, lowering, each, spill, moves_back)
        for each, moves_back in turns
    ]
    return KeepingPrograms(
        # The first program's number of lines is right for all: the Lines object of a ring has room
        # for its places in all programs. From a later place, it would seem to need more.
        tuple(replace(each, buffer_lines=programs[0].buffer_lines) for each in programs),
        _moving_program(config, maps, turns[0][0], loads=True),
        tuple(_moving_program(config, maps, each, loads=False) for each, _ in turns),
    )


def _turns(
    lowering: Lowering, places: Mapping[Lines, int]
) -> Iterator[tuple[Mapping[Lines, int], Collection[Lines]]]:
    """Yield a pair for each program: the first buffer line of each Lines object, and the Lines of
    the rings that the program moves back.

    A ring is a variable that moves on in the buffer from program to program. Different rings move
    back in different programs, as far as there are enough programs.
    """
    rings = [(lowering.kept[value].lines, ring.step) for value, ring in lowering.rings.items()]
    for phase in range(PHASES if rings else 1):
        moved = [(phase + number) % PHASES for number in range(len(rings))]
        pairs = list(zip(rings, moved, strict=True))
        at = {lines: places[lines] + count * step for (lines, step), count in pairs}
        yield {**places, **at}, {lines for (lines, _), count in pairs if count == PHASES - 1}


def _moving_program(
    config: Config,
    maps: Sequence[tuple[Value, FeatureMap]],
    places: Mapping[Lines, int],
    *,
    loads: bool,
) -> Program:
    """Return a program that only moves `maps`: into the buffer with `loads`, else to host memory.

    `places` has the first buffer line of each Lines object.
    """
    steps: list[Step] = []
    hosts: list[HostMap] = []
    end = 0
    for value, place in maps:
        view = (input_view if loads else output_view)(config, place, end, 1)
        end = tiles(end + view.matrix.size, HOST_PAGE_BYTES) * HOST_PAGE_BYTES
        if loads:
            steps.append(LoadStep(operator=value.name, source=view, target=place))
        else:
            steps.append(StoreStep(operator=value.name, source=place, target=view))
        hosts.append(_host_map(value, view, 1, 1))
    emitter = Emitter(config, places, end, set(), set())
    for step in steps:
        step.emit(emitter)
    inputs, outputs = (hosts, ()) if loads else ((), hosts)
    return Program(emitter.image(), tuple(inputs), tuple(outputs))


def _compile(
    config: Config, operations: Operations, samples: int, batch: Batch, spilling: bool
) -> Program:
    found = fitted(config, operations, samples, batch, spilling=spilling)
    return _emitted(config, operations, samples, *found)


def _emitted(
    config: Config,
    operations: Operations,
    samples: int,
    lowering: Lowering,
    places: Mapping[Lines, int],
    spill: Spill,
    moves_back: Collection[Lines] = (),
) -> Program:
    if lowering.host_end >= MAX_HOST_BYTES:
        raise CompileError(
            f"{samples} samples need {lowering.host_end} bytes of host memory, over 4 GiB"
        )
    entries = {each for step in lowering.steps for each in step.entries}
    tables = {each for step in lowering.steps for each in step.tables}
    emitter = Emitter(config, places, lowering.host_end, entries, tables, moves_back=moves_back)
    _emit_loops(emitter, lowering.parts, samples, spill)
    inputs: dict[Value, HostMap] = {}
    outputs: dict[Value, HostMap] = {}
    for part in lowering.parts:
        for hosts, views in ((inputs, part.inputs), (outputs, part.outputs)):
            for value, view in views.items():
                hosts[value] = _host_map(value, view, part.samples, samples)
    works = [
        LayerWork(node.operator, node.result.shape, samples * node_macs(node))
        for part in lowering.parts
        for node, _ in part.layers
    ]
    works.append(output_work(operations.to_host))
    return Program(
        emitter.image(),
        tuple(inputs[value] for value in operations.from_host),
        tuple(outputs[value] for value in operations.to_host),
        tuple(works),
        {value.name: size for value, size in lowering.spilled.items()},
        max(first + lines.count for lines, first in places.items()),
    )


def _emit_loops(emitter: Emitter, parts: Sequence[Part], samples: int, spill: Spill) -> None:
    """Emit a whole program as loops over batches and samples.

    The last of the `parts` runs once for each batch. A part before it runs once for each sample of
    the batch. All batches have the same size. If there are fewer samples than places, the first
    places of the first batch stay empty. A single batch gets no loop around it if the program has
    no other loop.
    """
    *front, last = parts
    batches = tiles(samples, last.samples)
    once = batches == 1 and not front
    registers = [
        emitter.count_samples(
            {
                view.matrix: view.rows * view.matrix.stride
                for view in (*part.inputs.values(), *part.outputs.values())
                # A part that runs only once needs no index register, and there are few registers.
                if not once
            }
        )
        for part in parts
    ]
    inner = any(step.has_loop for _, steps in last.layers for step in steps)
    loops = batches > 1 or bool(front) or inner
    empty = batches * last.samples - samples
    missing = 0
    if front:
        emitter.count_places(_gathered_widths(front), empty)
        if empty:
            missing = emitter.take_register()
            emitter.emit(Opcode.SET_REGISTER, register=missing, value=-empty)
    if loops:
        emitter.loop(batches)
    for part in front:
        emitter.loop(last.samples, missing)
        _emit_part(emitter, part, 0, registers[0], spill)
        emitter.next_place()
        emitter.end_loop()
    layers = sum(len(part.layers) for part in front)
    _emit_part(emitter, last, layers, registers[-1], spill)
    emitter.tag(layers + len(last.layers), Unit.HOST_WRITER)
    emitter.first_place()
    if missing:
        emitter.emit(Opcode.SET_REGISTER, register=missing)
    if loops:
        emitter.end_loop()


def _gathered_widths(parts: Sequence[Part]) -> list[int]:
    """Return the different widths, in pixels, of the rows that `parts` copy into a batch."""
    steps = (step for part in parts for _, layer in part.layers for step in layer)
    widths = (step.source.width for step in steps if isinstance(step, GatherStep))
    return list(dict.fromkeys(widths))


def _emit_part(
    emitter: Emitter, part: Part, tag: int, registers: Mapping[int, int], spill: Spill
) -> None:
    """Emit the instructions of a part once, with a tag at the end of each layer.

    The tags are numbered from `tag` on. The key of `registers` is the size in bytes of a sample or
    batch in host memory. The value is an index register with the offset of the present sample or
    batch. At the end each register is increased by its size, so that the next execution takes the
    next sample or batch.
    """

    def load_constants(step: Step) -> None:
        for lines in step.reads:
            if lines.content is not None:
                emitter.constants(lines, once=not spill.constants)

    def emit(step: Step) -> None:
        load_constants(step)
        step.emit(emitter)

    def emit_beside(steps: Sequence[Step]) -> None:
        for step in steps:
            with located(step.operator, CompileError):
                emit(step)

    # Parameters of the first steps are needed with the input's first lines. So these parameters are
    # loaded before the input, which may be large.
    for step in (step for _, steps in part.layers[:1] for step in steps[:EARLY]):
        for each in step.entries:
            if each.count <= EARLY_ENTRIES:
                emitter.parameters(each)
        if not spill.constants:
            load_constants(step)
    emit_beside(part.before)
    for number, (node, steps) in enumerate(part.layers, tag):
        with located(node.operator, CompileError):
            for step in steps:
                emit(step)
        emitter.tag(number, Unit.ACTIVATION_UNIT)
    emit_beside(part.behind)
    for size, register in registers.items():
        emitter.emit(Opcode.SET_REGISTER, register=register, first=register, value=size)


def _host_map(value: Value, view: HostView, batch: int, samples: int) -> HostMap:
    channels, matrix = view.channels, view.matrix
    rows, width = view.rows // batch, 1 if view.packed else view.width // batch
    if view.packed:
        columns = np.arange(view.width * channels.count)
    elif view.beside > 1:
        part = matrix.pitch // view.beside
        matrix = replace(
            matrix, rows=view.beside * matrix.rows, columns=part, block=part, pitch=part
        )
        columns = np.arange(value.channels)
        rows, width = value.pixels, value.grid[1]
    else:
        columns = channels.slots // channels.block * matrix.block + channels.slots % channels.block
    return HostMap(matrix, rows, columns, sample_order(rows, batch, samples, width))
