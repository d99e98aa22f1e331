# SPDX-License-Identifier: Apache-2.0
"""Neutral operations to a program: a loop over the samples, everything in the buffer that fits."""

from __future__ import annotations

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.compiler.emitter import Emitter
from systola.compiler.errors import CompileError, located
from systola.compiler.host_view import HostView
from systola.compiler.operations import Operations, node_macs
from systola.compiler.program import HostMap, LayerWork, Program, output_work
from systola.compiler.schedule import MAX_HOST_BYTES
from systola.compiler.spilling import fitted
from systola.compiler.step import Step


def compile_operations(config: Config, operations: Operations, samples: int) -> Program:
    """Compiles `operations` for a number of samples of the network.

    Raises CompileError, with number and kind of the operator, for what does not fit the machine.
    """
    if samples < 1:
        raise CompileError(f"number of samples must be at least 1, not {samples}")
    lowering, places, spill = fitted(config, operations, samples)
    if lowering.host_end >= MAX_HOST_BYTES:
        raise CompileError(
            f"{samples} samples need {lowering.host_end} bytes of host memory, over 4 GiB"
        )
    entries = {each for step in lowering.steps for each in step.entries}
    tables = {each for step in lowering.steps for each in step.tables}
    emitter = Emitter(config, places, lowering.host_end, entries, tables)
    if not spill.constants:
        for lines in places:
            if lines.content is not None:
                emitter.constants(lines, once=True)
    views = (*lowering.inputs, *lowering.outputs)
    registers = [emitter.count_samples(view.matrix) for view in views]

    def emit(step: Step) -> None:
        if spill.constants:
            for lines in step.reads:
                if lines.content is not None:
                    emitter.constants(lines, once=False)
        step.emit(emitter)

    emitter.loop(samples)
    for step in lowering.before:
        emit(step)
    for number, (node, steps) in enumerate(lowering.layers):
        with located(node.operator, CompileError):
            for step in steps:
                emit(step)
        emitter.tag(number)
    for step in lowering.behind:
        emit(step)
    emitter.tag(len(lowering.layers))
    for view, register in zip(views, registers, strict=True):
        size = view.rows * view.matrix.stride
        emitter.emit(Opcode.SET_REGISTER, register=register, first=register, value=size)
    emitter.end_loop()
    works = [
        LayerWork(node.operator, node.result.shape, samples * node_macs(node))
        for node, _ in lowering.layers
    ]
    works.append(output_work(operations.outputs))
    return Program(
        emitter.image(),
        tuple(_host_map(view) for view in lowering.inputs),
        tuple(_host_map(view) for view in lowering.outputs),
        tuple(works),
        {value.name: size for value, size in lowering.spilled.items()},
    )


def _host_map(view: HostView) -> HostMap:
    channels, block = view.channels, view.matrix.block
    if view.packed:
        columns = np.arange(view.width * channels.count)
    else:
        columns = channels.slots // channels.block * block + channels.slots % channels.block
    return HostMap(view.matrix, view.rows, columns)
