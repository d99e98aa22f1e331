# SPDX-License-Identifier: Apache-2.0
"""Neutral operations to a program: a loop over the samples, everything else in the buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import Opcode
from systola.compiler.emitter import Emitter
from systola.compiler.errors import CompileError, located
from systola.compiler.feature_map import FeatureMap, runs
from systola.compiler.layout import HostMatrix, tiles
from systola.compiler.lower import Lowering
from systola.compiler.operations import Operations, node_macs
from systola.compiler.placement import Life, place
from systola.compiler.program import HostMap, LayerWork, Program, output_work
from systola.compiler.schedule import MAX_HOST_BYTES
from systola.compiler.step import Step


def compile_operations(config: Config, operations: Operations, samples: int) -> Program:
    """Compiles `operations` for a number of samples of the network.

    Raises CompileError, with number and kind of the operator, for what does not fit the machine.
    """
    if samples < 1:
        raise CompileError(f"number of samples must be at least 1, not {samples}")
    lowering = Lowering(config, operations)
    places = place(_lives(lowering), config.buffer_lines)
    end = 0
    inputs: list[HostMap] = []
    for each in lowering.inputs:
        inputs.append(_input(config, each, samples, end))
        end = tiles(end + inputs[-1].matrix.size, HOST_PAGE_BYTES) * HOST_PAGE_BYTES
    outputs: list[HostMap] = []
    for each in lowering.outputs:
        outputs.append(_output(config, each, samples, end))
        end = tiles(end + outputs[-1].matrix.size, HOST_PAGE_BYTES) * HOST_PAGE_BYTES
    if end >= MAX_HOST_BYTES:
        raise CompileError(f"{samples} samples need {end} bytes of host memory, over 4 GiB")

    entries = {each for step in lowering.steps for each in step.entries}
    tables = {each for step in lowering.steps for each in step.tables}
    emitter = Emitter(config, places, end, entries, tables)
    for lines in places:
        if lines.content is not None:
            emitter.constants(lines)
    registers = [emitter.take_register() for _ in (*inputs, *outputs)]
    emitter.loop(samples)
    for each, host, register in zip(lowering.inputs, inputs, registers, strict=False):
        _emit_read(emitter, each, host, register)
    for number, (node, steps) in enumerate(lowering.layers):
        with located(node.operator, CompileError):
            for step in steps:
                step.emit(emitter)
        emitter.tag(number)
    for each, host, register in zip(
        lowering.outputs, outputs, registers[len(inputs) :], strict=True
    ):
        _emit_write(emitter, each, host, register)
    emitter.tag(len(lowering.layers))
    for host, register in zip((*inputs, *outputs), registers, strict=True):
        emitter.emit(Opcode.SET_REGISTER, register=register, first=register, value=host.size)
    emitter.end_loop()
    works = [
        LayerWork(node.operator, node.result.shape, samples * node_macs(node))
        for node, _ in lowering.layers
    ]
    works.append(output_work(operations.outputs))
    return Program(emitter.image(), tuple(inputs), tuple(outputs), tuple(works))


def _lives(lowering: Lowering) -> list[Life]:
    """From when to when each lines hold something; constants hold it all the time."""
    steps: Sequence[Step] = lowering.steps
    lives: dict[object, Life] = {}
    for each in lowering.inputs:
        lives[each.lines] = Life(each.lines, -1, -1, "the input")
    for number, step in enumerate(steps):
        for lines in (*step.writes, *step.reads):
            if lines.content is not None:
                lives[lines] = Life(lines, -1, len(steps), f"{step.operator}: its constant")
            result = f"{step.operator}: its result"
            life = lives.setdefault(lines, Life(lines, number, number, result))
            life.last = max(life.last, number)
    for each in lowering.outputs:
        lives[each.lines].last = len(steps)
    return list(lives.values())


def _input(config: Config, source: FeatureMap, count: int, offset: int) -> HostMap:
    channels = source.channels
    if source.packed:
        rows, columns = source.height, np.arange(source.width * channels.count)
        width = len(columns)
    else:
        rows, columns, width = source.pixels, channels.slots, channels.blocks * config.rows
        columns = columns // channels.block * config.rows + columns % channels.block
    matrix = HostMatrix(
        offset=offset,
        rows=count * rows,
        columns=width,
        block=config.rows,
        pitch=config.input_pitch,
    )
    return HostMap(matrix, rows, columns)


def _output(config: Config, source: FeatureMap, count: int, offset: int) -> HostMap:
    channels = source.channels
    columns = channels.slots // channels.block * config.cols + channels.slots % channels.block
    matrix = HostMatrix(
        offset=offset,
        rows=count * source.pixels,
        columns=channels.blocks * config.cols,
        block=config.cols,
        pitch=config.output_pitch,
    )
    return HostMap(matrix, source.pixels, columns)


def _emit_read(emitter: Emitter, target: FeatureMap, host: HostMap, register: int) -> None:
    packed = target.packed
    emitter.emit(
        Opcode.READ_HOST_MEMORY_ALTERNATE if packed else Opcode.READ_HOST_MEMORY,
        host=host.matrix.offset,
        host_register=register,
        buffer=emitter.line(target.lines, target.offset),
        rows=host.rows,
        stride=host.matrix.stride,
        blocks=host.matrix.blocks,
        tail=host.matrix.tail(0, host.matrix.blocks),
    )


def _emit_write(emitter: Emitter, source: FeatureMap, host: HostMap, register: int) -> None:
    first = 0
    for (offset,), blocks, _ in runs(source):
        emitter.emit(
            Opcode.WRITE_HOST_MEMORY,
            host=host.matrix.at(0, first),
            host_register=register,
            buffer=emitter.line(source.lines, offset),
            rows=host.rows,
            stride=host.matrix.stride,
            blocks=blocks,
            tail=emitter.config.cols,
        )
        first += blocks
