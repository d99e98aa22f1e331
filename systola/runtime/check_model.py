# SPDX-License-Identifier: Apache-2.0
"""The check that the parts of a compiled model from a file belong together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import check_image
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, decode
from systola.compiler.host_stage import HostStage
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.keep import OnChip
from systola.compiler.network import CompiledNetwork, DeviceStage
from systola.compiler.operations import Value
from systola.compiler.program import HostMap, Program
from systola.runtime.plain_data import DTYPES, DataError

MAX_MACS = 1 << 62


def check_compiled(
    config: Config, inputs: Sequence[Value], outputs: Sequence[Value], compiled: CompiledNetwork
) -> None:
    """Raise DataError unless the stages can be run; their results are not checked.

    `inputs` and `outputs` are the inputs and outputs of the model as its users see them.
    """
    if compiled.samples < 1:
        raise DataError("it is compiled for no samples")
    repeats = _repeats(inputs, compiled.sources) | _repeats(outputs, compiled.results)
    if len(repeats) != 1:
        raise DataError("its inputs and outputs do not have the same number of samples")
    samples = compiled.samples * repeats.pop()
    if compiled.variables and samples > 1:
        raise DataError("a program for several samples has variables")
    defined = {*compiled.sources, *(each.before for each in compiled.variables)}
    if len(defined) != len(compiled.sources) + len(compiled.variables):
        raise DataError("a variable is there twice, or is an input")
    if compiled.on_chip:
        _check_on_chip(config, compiled, compiled.on_chip)
    on_host = [compiled.variables[number] for number in compiled.on_host]
    defined = {*compiled.sources, *(each.before for each in on_host)}
    for stage in compiled.stages:
        if isinstance(stage, InterpretedStage) and (
            not stage.operators or not stage.results or not 0 <= stage.macs <= MAX_MACS
        ):
            raise DataError("a stage of an interpreter has no operators, results or work")
        results = (stage.result,) if isinstance(stage, HostStage) else stage.results
        if not defined.issuperset(stage.sources) or not defined.isdisjoint(results):
            raise DataError("its stages are not in order")
        for value in results:
            _size(value)
        defined.update(results)
        if isinstance(stage, DeviceStage):
            _check_stage(config, stage, samples)
    if not defined.issuperset((*compiled.results, *(each.after for each in on_host))):
        raise DataError("its outputs are not calculated")
    for each in compiled.variables:
        shape, dtype = each.before.shape, each.before.dtype
        _size(each.before)
        if (each.after.shape, each.after.dtype) != (shape, dtype):
            raise DataError("a variable has values of several shapes or types")
        if (each.first.shape, each.first.dtype.name) != (shape, dtype):
            raise DataError("the first value of a variable has another shape or type")


def _check_on_chip(config: Config, compiled: CompiledNetwork, on_chip: OnChip) -> None:
    """Check the programs that move the variables in the buffer."""
    numbers = on_chip.numbers
    if len(set(numbers)) != len(numbers) or not {*numbers} <= {*range(len(compiled.variables))}:
        raise DataError("a variable in the buffer is not there, or is there twice")
    values = tuple(compiled.variables[number].before for number in numbers)
    stages = [stage for stage in compiled.stages if isinstance(stage, DeviceStage)]
    if len(stages) != 1 or not on_chip.programs or len(on_chip.stores) != len(on_chip.programs):
        raise DataError("its programs are not as many as variables in the buffer need")
    _check_stage(config, DeviceStage(on_chip.load, values, ()), 1)
    for program, store in zip(on_chip.programs, on_chip.stores, strict=True):
        _check_stage(config, replace(stages[0], program=program), 1)
        _check_stage(config, DeviceStage(store, (), values), 1)


def _repeats(outer: Sequence[Value], inner: Sequence[Value]) -> set[int]:
    """Return how many samples of the stages make one sample of the model, for each value."""
    if len(outer) != len(inner):
        raise DataError("it has more or fewer inputs or outputs than its stages")
    for value, part in zip(outer, inner, strict=True):
        if _size(value) % _size(part) or value.dtype != part.dtype:
            raise DataError(f"the shapes or types of '{value.name}' do not fit each other")
    return {_size(value) // _size(part) for value, part in zip(outer, inner, strict=True)}


def _check_stage(config: Config, stage: DeviceStage, samples: int) -> None:
    program = stage.program
    _check_image(config, program)
    _check_layers(program)
    for maps, values in ((program.inputs, stage.sources), (program.outputs, stage.results)):
        if len(maps) != len(values):
            raise DataError("a program has not as many inputs or outputs as its stage")
        for each, value in zip(maps, values, strict=True):
            if value.dtype != "int8":
                raise DataError(f"the machine has no {value.dtype}")
            _check_map(each, _size(value), samples, program.image.host.size)


def _check_image(config: Config, program: Program) -> None:
    try:
        check_image(config, program.image)
    except ValueError as error:
        raise DataError(str(error)) from None


def _check_layers(program: Program) -> None:
    """Check the numbers that reports divide by, and the layers that the program's tags name."""
    for layer in program.layers:
        if not 0 <= layer.macs <= MAX_MACS or min(layer.shape, default=1) < 1:
            raise DataError("a layer has no size")
    words = np.frombuffer(program.image.program, np.uint8).reshape(-1, INSTRUCTION_BYTES)
    for word in words[words[:, 0] == Opcode.DEBUG_TAG]:
        decoded = decode(word.tobytes())
        if decoded is None or decoded[1]["tag"] >= len(program.layers):
            raise DataError("its program marks a layer that is not there")


def _check_map(place: HostMap, size: int, samples: int, host: int) -> None:
    matrix = place.matrix
    if min(place.rows, matrix.rows, matrix.columns, matrix.block, matrix.pitch) < 1:
        raise DataError("an input or output has no size")
    columns, order = place.columns, place.order
    if (
        matrix.pitch < matrix.block
        or not 0 <= matrix.offset <= host - matrix.size
        or order.size % place.rows
        or columns.size * order.size != size * samples
        or not _are_places(columns, matrix.columns)
        or not _are_places(order, matrix.rows)
    ):
        raise DataError("an input or output has no place in host memory")


def _are_places(numbers: NDArray[np.int64], size: int) -> bool:
    """Return whether `numbers` is one row of different numbers from 0 to `size` - 1."""
    if numbers.ndim != 1 or not bool(((numbers >= 0) & (numbers < size)).all()):
        return False
    taken = np.zeros(size, np.bool_)
    taken[numbers] = True
    return np.count_nonzero(taken) == numbers.size


def _size(value: Value) -> int:
    """Return the number of elements of a value. Raises DataError for an impossible type or size."""
    size = math.prod(value.shape)
    if value.dtype not in DTYPES or min(value.shape, default=1) < 1:
        raise DataError(f"'{value.name}' is {value.dtype} of shape {value.shape}")
    return size
