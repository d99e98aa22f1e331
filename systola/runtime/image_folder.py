# SPDX-License-Identifier: Apache-2.0
"""A compiled network as memory contents and C headers, for a machine outside of this project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

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
    stages, and the number is in the names of its macros: IMAGE0, IMAGE1, ... instead of IMAGE.
    `header` is a comment of lines beginning with "//"; it goes to the top of each text.
    `word_bytes` is the length of a word of a .hex file, as wide as the port unless it is given.
    """
    config, stages = model.config, model.compiled.stages
    programs = [each for each in stages if isinstance(each, DeviceStage)]
    contents: dict[str, bytes] = {}
    for number, stage in enumerate(stages):
        if not isinstance(stage, DeviceStage):
            continue
        folder, name = (f"stage{number}/", f"image{number}") if len(programs) > 1 else ("", "image")
        image = stage.program.image
        for file, memory, port in (
            ("host", image.host, config.host_bus_bytes),
            ("weight", image.weights, config.weight_bus_bytes),
        ):
            contents[f"{folder}{file}.bin"] = memory.tobytes()
            text = header + memory_hex(memory, word_bytes or port)
            contents[f"{folder}{file}.hex"] = text.encode()
        guard = f"SYSTOLA_{name.upper()}_H"
        lines = [header, *_stages(model), "", f"#ifndef {guard}", f"#define {guard}"]
        lines += ["#include <stdint.h>", "", *image_macros(config, image, name.upper())]
        for kind, values, maps in (
            ("input", stage.sources, stage.program.inputs),
            ("output", stage.results, stage.program.outputs),
        ):
            for place, (value, where) in enumerate(zip(values, maps, strict=True)):
                lines += ["", *_offsets(f"{name}_{kind}{place}", value, where, model.batch)]
        text = "\n".join([*lines, "", "#endif", ""])
        contents[f"{folder}image.h"] = text.encode()
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
    for each in model.compiled.variables:
        first = " ".join(map(str, each.first.reshape(-1).tolist()))
        yield (
            f"// A variable: {_signature([each.after])} of a sample is "
            f"{_signature([each.before])} of the next one. Its first value: {first}"
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
