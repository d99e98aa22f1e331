# SPDX-License-Identifier: Apache-2.0
"""A compiled network as memory contents and C headers, for a machine outside of this project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

import numpy as np

from systola.arch.c_header import define
from systola.arch.image_files import image_macros, memory_hex
from systola.compiler.host_stage import HostStage
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import DeviceStage
from systola.compiler.operations import Value
from systola.compiler.program import HostMap
from systola.runtime.compiled_model import CompiledModel

_NUMBERS_IN_A_LINE = 12


def image_folder(model: CompiledModel, header: str, word_bytes: int | None) -> dict[str, bytes]:
    """Return the content of each file by its name: memories and image.h of each program of `model`.

    Where there are several programs, each has a folder, stage0, stage1, ... by its place among the
    stages, and the number is in the names of its macros: IMAGE0, IMAGE1, ... instead of IMAGE. A
    model with variables in the unified buffer has folders phase0, phase1, ... for the programs that
    run in turn, and `load` for the program that gives the variables their first values. `header` is
    a comment of lines beginning with "//"; it goes to the top of each text. `word_bytes` is the
    length of a word of a .hex file, as wide as the port unless it is given.
    """
    contents: dict[str, bytes] = {}
    for folder, name, stage in _programs(model):
        contents |= _program_files(model, folder, name, stage, header, word_bytes)
    return contents


def _programs(model: CompiledModel) -> Iterator[tuple[str, str, DeviceStage]]:
    """Yield for each program its folder, the name of its macros, and the program as a stage."""
    stages = list(enumerate(model.compiled.stages))
    programs = [(number, each) for number, each in stages if isinstance(each, DeviceStage)]
    on_chip = model.compiled.on_chip
    if not on_chip:
        for number, stage in programs:
            folder, name = f"stage{number}/", f"image{number}"
            yield (folder, name, stage) if len(programs) > 1 else ("", "image", stage)
        return
    ((_, stage),) = programs
    for phase, program in enumerate(on_chip.programs):
        yield f"phase{phase}/", f"image{phase}", replace(stage, program=program)
    variables = [model.compiled.variables[number] for number in on_chip.numbers]
    image = on_chip.load.bind(*(each.first[np.newaxis] for each in variables))
    values = tuple(each.before for each in variables)
    yield "load/", "load", DeviceStage(replace(on_chip.load, image=image), values, ())


def _program_files(
    model: CompiledModel,
    folder: str,
    name: str,
    stage: DeviceStage,
    header: str,
    word_bytes: int | None,
) -> dict[str, bytes]:
    """Return the files of one program."""
    config, image = model.config, stage.program.image
    contents: dict[str, bytes] = {}
    for file, memory, port in (
        ("host", image.host, config.host_bus_bytes),
        ("weight", image.weights, config.weight_bus_bytes),
    ):
        contents[f"{folder}{file}.bin"] = memory.tobytes()
        contents[f"{folder}{file}.hex"] = (header + memory_hex(memory, word_bytes or port)).encode()
    guard = f"SYSTOLA_{name.upper()}_H"
    lines = [header, *_stages(model), "", f"#ifndef {guard}", f"#define {guard}"]
    lines += ["#include <stdint.h>", "", *image_macros(config, image, name.upper())]
    for kind, values, maps in (
        ("input", stage.sources, stage.program.inputs),
        ("output", stage.results, stage.program.outputs),
    ):
        for place, (value, where) in enumerate(zip(values, maps, strict=True)):
            lines += ["", *_offsets(f"{name}_{kind}{place}", value, where, model.batch)]
    contents[f"{folder}image.h"] = "\n".join([*lines, "", "#endif", ""]).encode()
    return contents


def _stages(model: CompiledModel) -> Iterator[str]:
    """Yield comment lines that list the stages, and the function of each stage of the host."""
    yield f"// Samples at a time: {model.batch}. The stages, one after the other:"
    for number, stage in enumerate(model.compiled.stages):
        if isinstance(stage, HostStage):
            what = f"the host, {_printable(stage.operator)}: {_function(stage)}"
            sources, results = stage.sources, (stage.result,)
        elif isinstance(stage, InterpretedStage):
            operators = ", ".join(map(_printable, stage.operators))
            what = f"the host, {operators}: {stage.interpreter.value}"
            sources, results = stage.sources, stage.results
        else:
            what, sources, results = "the machine", stage.sources, stage.results
        yield f"// {number}: {what}, {_signature(sources)} -> {_signature(results)}"
    compiled = model.compiled
    for number in compiled.on_host:
        each = compiled.variables[number]
        first = " ".join(map(str, each.first.reshape(-1).tolist()))
        yield (
            f"// A variable: {_signature([each.after])} of a sample is "
            f"{_signature([each.before])} of the next one. Its first value: {first}"
        )
    if not (on_chip := compiled.on_chip):
        return
    for number in on_chip.numbers:
        value = _signature([compiled.variables[number].before])
        yield f"// A variable: {value} stays in the unified buffer."
    programs = ", ".join(f"phase{number}" for number in range(len(on_chip.programs)))
    yield (
        f"// The program in load gives variables their first values. Then {programs} run in turn, "
        "one a sample, and no other program between them."
    )


def _function(stage: HostStage) -> str:
    """Return the name and the numbers of a function of the host, without its arrays."""
    function = stage.function
    parts = ((each.name, getattr(function, each.name)) for each in fields(function))
    numbers = (f"{name}={value}" for name, value in parts if isinstance(value, (int, float, tuple)))
    return f"{type(function).__name__}({', '.join(numbers)})"


def _signature(values: Sequence[Value]) -> str:
    return ", ".join(f"{_printable(each.name)} {each.dtype}{list(each.shape)}" for each in values)


def _printable(name: str) -> str:
    """Return a name out of a model as plain ASCII that ends neither its line nor its comment."""
    shown = "".join(each if each.isascii() and each.isprintable() else "?" for each in name)
    return shown.replace("\\", "/").replace("*/", "* /")


def _offsets(name: str, value: Value, where: HostMap, samples: int) -> Iterator[str]:
    """Yield the lines of the array with the place of each element of a value."""
    offsets = where.offsets()
    shape = [samples, *value.shape]
    text = f"int8 elements of {_printable(value.name)}, {shape}, the first number being the samples"
    yield define(f"{name.upper()}_ELEMENTS", len(offsets), text)
    yield "/* Byte offset of each in the host window. */"
    yield f"static const uint32_t systola_{name}[{len(offsets)}] = {{"
    for at in range(0, len(offsets), _NUMBERS_IN_A_LINE):
        yield (
            "    " + "".join(f"{each}, " for each in offsets[at : at + _NUMBERS_IN_A_LINE]).rstrip()
        )
    yield "};"
