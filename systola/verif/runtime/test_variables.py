# SPDX-License-Identifier: Apache-2.0
"""Tests of networks with variables: for a sequence of samples, all bytes equal LiteRT's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.compiler import network as network_module
from systola.compiler.cut.placement import Place
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.keep import OnChip
from systola.compiler.network import Variable, compile_network
from systola.compiler.operations import Value
from systola.compiler.program import Program
from systola.compiler.tflite.reader import read_tflite
from systola.litert import Interpreter as OwnInterpreter
from systola.runtime import Strategy, compile, load
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.image_folder import image_folder
from systola.runtime.iss import GoldenBackend
from systola.runtime.plain_data import DataError
from systola.verif.compiler.model_writer import ModelWriter
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.seeds import random_seed
from systola.verif.runtime.test_partial import dense

SAMPLES = 6
SCALE: dict[str, Any] = {"scale": 0.25, "zero_point": -3}
WEIGHTS = 0.004
"""Scale of the quantised weights in the tests' networks."""
Maker = Callable[[ModelWriter, np.random.Generator], tuple[int, int]]
"""Type of a function that adds a network to a writer, and returns input and output tensor."""


def begin(
    writer: ModelWriter, rng: np.random.Generator, **shapes: tuple[int, ...]
) -> dict[str, int]:
    """Add variables with random first values; return the variables' handles by name."""
    writer.begin_subgraph()
    for name, shape in shapes.items():
        first = writer.tensor(shape, **SCALE, data=rng.integers(-128, 128, shape, np.int8))
        writer.operator("ASSIGN_VARIABLE", [writer.variable(name), first], [])
    writer.end_subgraph([], [])
    writer.operator("CALL_ONCE", [], [], initSubgraphIndex=1)
    return {name: writer.variable(name) for name in shapes}


def read(writer: ModelWriter, handle: int, shape: tuple[int, ...]) -> int:
    value = writer.tensor(shape, **SCALE)
    writer.operator("READ_VARIABLE", [handle], [value])
    return value


def ring(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network with a variable that keeps the last four rows of a map for the next sample."""
    (handle,) = begin(writer, rng, rows=(1, 4, 1, 10)).values()
    x, h = writer.tensor((1, 1, 1, 12), scale=0.5), writer.tensor((1, 1, 1, 10), **SCALE)
    options = {"strideH": 1, "strideW": 1, "padding": 1}
    weights = rng.integers(-127, 128, (10, 1, 1, 12), np.int8)
    bias = rng.integers(-500, 500, 10, np.int32)
    writer.weighted("CONV_2D", x, h, weights, bias, np.full(10, 0.003, np.float32), 0, **options)
    old = read(writer, handle, (1, 4, 1, 10))
    rows = writer.tensor((1, 5, 1, 10), **SCALE)
    writer.operator("CONCATENATION", [old, h], [rows], axis=1)
    kept = writer.tensor((1, 4, 1, 10), **SCALE)
    bounds = [
        writer.tensor((4,), "int32", data=np.array(each, np.int32))
        for each in ((0, 1, 0, 0), (1, 5, 1, 10), (1, 1, 1, 1))
    ]
    writer.operator("STRIDED_SLICE", [rows, *bounds], [kept])
    writer.operator("ASSIGN_VARIABLE", [handle, kept], [])
    y = writer.tensor((1, 1, 1, 10), scale=0.4)
    weights = rng.integers(-127, 128, (1, 5, 1, 10), np.int8)
    scales = np.full(10, 0.006, np.float32)
    writer.weighted(
        "DEPTHWISE_CONV_2D", rows, y, weights, bias, scales, 3, depthMultiplier=1, **options
    )
    return x, y


def feedback(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network that calculates two variables' new values from their old values."""
    handles = begin(writer, rng, h=(1, 6), count=(1, 3))
    x, h = writer.tensor((1, 10), scale=0.5), writer.tensor((1, 6), **SCALE)
    dense(writer, rng, x, h, (6, 10), WEIGHTS)
    old, other = (read(writer, handles["h"], (1, 6)), read(writer, handles["count"], (1, 3)))
    both = writer.tensor((1, 15), **SCALE)
    writer.operator("CONCATENATION", [old, h, other], [both], axis=1)
    new, least = writer.tensor((1, 6), **SCALE), writer.tensor((1, 3), **SCALE)
    dense(writer, rng, both, new, (6, 15), WEIGHTS)
    dense(writer, rng, both, least, (3, 15), WEIGHTS)
    writer.operator("ASSIGN_VARIABLE", [handles["h"], new], [])
    writer.operator("ASSIGN_VARIABLE", [handles["count"], least], [])
    y = writer.tensor((1, 4), scale=0.5)
    dense(writer, rng, new, y, (4, 6), WEIGHTS)
    return x, y


def read_twice(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network that reads variable "last" before and after an assignment of the input to it.

    Variable "fixed" never changes, and variable "unread" is read only after its assignment.
    """
    handles = begin(writer, rng, last=(1, 8), fixed=(1, 8), unread=(1, 8))
    x = writer.tensor((1, 8), **SCALE)
    parts = [read(writer, handles[name], (1, 8)) for name in ("last", "fixed")]
    writer.operator("ASSIGN_VARIABLE", [handles["last"], x], [])
    writer.operator("ASSIGN_VARIABLE", [handles["unread"], x], [])
    parts += [read(writer, handles[name], (1, 8)) for name in ("last", "fixed", "unread")]
    both, y = writer.tensor((1, 40), **SCALE), writer.tensor((1, 40), scale=0.5)
    writer.operator("CONCATENATION", parts, [both], axis=1)
    dense(writer, rng, both, y, (40, 40), WEIGHTS)
    return x, y


def network(make: Maker) -> tuple[bytes, NDArray[np.int8], NDArray[np.int8]]:
    """Return a model file, random samples, and LiteRT's result for each sample.

    LiteRT runs the samples in order, and its variables keep their values from sample to sample.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    x, y = make(writer, rng)
    content = writer.content([x], [y])
    whole = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    whole.allocate_tensors()
    source, result = whole.get_input_details()[0], whole.get_output_details()[0]
    samples = rng.integers(-128, 128, (SAMPLES, *source["shape"]), np.int8)
    results: list[NDArray[np.int8]] = []
    for sample in samples:
        whole.set_tensor(source["index"], sample)
        whole.invoke()
        results.append(whole.get_tensor(result["index"]).copy())
    assert any(not np.array_equal(each, results[0]) for each in results)
    return content, samples, np.array(results)


def compiled(content: bytes, machine: str | Config = "small") -> CompiledModel:
    model = compile(content, preset=machine)
    assert isinstance(model, CompiledModel)
    assert all(each.place is Place.MACHINE for each in model.placement)
    assert model.batch == 1
    return model


def compiled_on_host(content: bytes, machine: str | Config = "small") -> CompiledModel:
    """Compile a model with all variables in host memory, and none in the unified buffer."""
    with patch.object(network_module, "keep_variables", return_value=None):
        model = compiled(content, machine)
    assert model.compiled.on_chip is None
    return model


@pytest.mark.parametrize(
    "where", [compiled, pytest.param(compiled_on_host, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("make", [ring, feedback, read_twice])
def test_runs_that_follow_each_other(
    make: Maker, where: Callable[[bytes], CompiledModel], tmp_path: Path
) -> None:
    content, x, expected = network(make)
    model = where(content)
    # A run without a state argument begins with the first values of the variables.
    for _ in range(2):
        assert np.array_equal(model.run(x, backend="iss").y, expected)
    model.save(tmp_path / "model.tpu")
    again = load(tmp_path / "model.tpu")
    assert isinstance(again, CompiledModel)
    state = model.state()
    for _ in range(2):
        parts = [
            model.run(x[:1], backend="iss", state=state),
            again.run(x[1:4], backend="iss", state=state),
            model.run(x[4:], backend="iss", state=state),
        ]
        assert np.array_equal(np.concatenate([each.y for each in parts]), expected)
        state.reset()


@pytest.mark.parametrize("make", [ring, feedback, read_twice])
def test_litert(make: Maker) -> None:
    """Check that systola.litert.Interpreter keeps variables from one invocation to the next."""
    content, x, expected = network(make)
    interpreter = OwnInterpreter(model_content=content, preset="small")
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    for sample, wanted in zip(x, expected, strict=True):
        interpreter.set_tensor(source["index"], sample)
        interpreter.invoke()
        assert np.array_equal(interpreter.get_tensor(result["index"]), wanted)
        assert interpreter.last_run is not None
        assert len(interpreter.last_run.totals) == 1


@pytest.mark.thorough
def test_on_rtl() -> None:
    content, x, expected = network(ring)
    assert np.array_equal(compiled(content).run(x[:3]).y, expected[:3])


def test_refusals() -> None:
    content, x, _ = network(feedback)
    model = compiled(content)
    with pytest.raises(ModelError, match="of another model"):
        model.run(x, backend="iss", state=compiled(network(ring)[0]).state())
    with pytest.raises(CompileError, match="one sample at a time"):
        compile_network(preset("small"), network_of(content), 2)
    with Strategy(cores=2, preset="small").scope(), pytest.raises(ModelError, match="one core"):
        compile(content)


def test_image_folder() -> None:
    content = network(feedback)[0]
    header = image_folder(compiled_on_host(content), "", None)["image.h"].decode()
    assert header.count("// A variable: ") == header.count("Its first value: ") == 2
    files = image_folder(compiled(content), "", None)
    assert {name.split("/")[0] for name in files} == {"phase0", "load"}
    header = files["phase0/image.h"].decode()
    assert header.count("stays in the unified buffer") == 2
    assert "systola_image0_input1" not in header
    assert "systola_load_input1" in files["load/image.h"].decode()


@pytest.mark.thorough
def test_image_folder_runs() -> None:
    """Check the programs that `tpu image` writes for a network with variables in the buffer.

    The load program, and then a program for each sample, give LiteRT's results.
    """
    content, x, expected = network(ring)
    model = compiled(content)
    files = image_folder(model, "", None)
    on_chip = model.compiled.on_chip
    assert on_chip
    machine = GoldenBackend(model.config)

    def run(folder: str, program: Program, *inputs: NDArray[np.int8]) -> NDArray[np.uint8]:
        host = np.frombuffer(files[f"{folder}/host.bin"], np.uint8).copy()
        for where, value in zip(program.inputs, inputs, strict=True):
            where.store(host, value)
        return machine.run(replace(program.image, host=host)).host

    run("load", replace(on_chip.load, inputs=()))
    for number, sample in enumerate(x):
        phase = number % len(on_chip.programs)
        program = on_chip.programs[phase]
        result = program.result(run(f"phase{phase}", program, sample[np.newaxis]))
        assert np.array_equal(result.reshape(-1), expected[number].reshape(-1))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: [one, one], "there twice"),
        (lambda one: [replace(one, after=Value("other", (1, 4, 1, 10)))], "not calculated"),
        (lambda one: [replace(one, after=Value("y", (1, 1, 1, 10)))], "not calculated"),
        (lambda one: [replace(one, first=one.first[0])], "another shape or type"),
        (lambda one: [replace(one, first=one.first.astype(np.uint8))], "another shape or type"),
        (lambda one: [replace(one, before=Value("other", (1, 4, 1, 10)))], "not in order"),
    ],
)
def test_damaged_variables(change: Callable[[Variable], list[Variable]], why: str) -> None:
    """Check that a compiled model with wrong descriptions of its variables is refused."""
    model = compiled_on_host(network(ring)[0])
    (one,) = model.compiled.variables
    with pytest.raises(DataError, match=why):
        replace(model, compiled=replace(model.compiled, variables=tuple(change(one))))


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, numbers=(0, 0)),
        lambda one: replace(one, numbers=(1,)),
        lambda one: replace(one, numbers=()),
        lambda one: replace(one, programs=(), stores=()),
        lambda one: replace(one, stores=one.stores[:-1]),
        lambda one: replace(one, load=one.stores[0]),
        lambda one: replace(one, stores=(one.load,) * len(one.stores)),
        lambda one: replace(one, programs=(*one.programs[:-1], one.load)),
    ],
)
def test_damaged_places(change: Callable[[OnChip], OnChip]) -> None:
    """Check that a model is refused if its programs do not match the variables in the buffer."""
    model = compiled(network(ring)[0])
    assert model.compiled.on_chip
    with pytest.raises(DataError):
        replace(model, compiled=replace(model.compiled, on_chip=change(model.compiled.on_chip)))


def test_other_damage() -> None:
    model = compiled_on_host(network(ring)[0])
    (one,) = model.compiled.variables
    variables = (replace(one, after=model.compiled.results[0]),)
    with pytest.raises(DataError, match="of several shapes"):
        replace(model, compiled=replace(model.compiled, variables=variables))
    with pytest.raises(DataError, match="several samples"):
        replace(model, compiled=replace(model.compiled, samples=2))


def calculated(writer: ModelWriter) -> None:
    """Add operators that calculate the first value of variable "h", in place of a constant."""
    flat = writer.tensor((6,), **SCALE, data=np.arange(6, dtype=np.int8))
    shape = writer.tensor((2,), "int32", data=np.array((1, 6), np.int32))
    first = writer.tensor((1, 6), **SCALE)
    writer.operator("RESHAPE", [flat, shape], [first])
    writer.operator("ASSIGN_VARIABLE", [writer.variable("h"), first], [])


def of_another_name(writer: ModelWriter) -> None:
    first = writer.tensor((1, 6), **SCALE, data=np.arange(6, dtype=np.int8)[np.newaxis])
    writer.operator("ASSIGN_VARIABLE", [writer.variable("g"), first], [])


def of_another_shape(writer: ModelWriter) -> None:
    first = writer.tensor((1, 5), **SCALE, data=np.arange(5, dtype=np.int8)[np.newaxis])
    writer.operator("ASSIGN_VARIABLE", [writer.variable("h"), first], [])


@pytest.mark.parametrize(
    ("first", "new", "why"),
    [
        (calculated, SCALE, "is no constant"),
        (of_another_name, SCALE, "has no first value"),
        (of_another_shape, SCALE, "has a first value of shape"),
        (None, {**SCALE, "scale": 0.5}, "other shapes or scales"),
    ],
)
def test_variables_that_stay_on_the_host(
    first: Callable[[ModelWriter], None] | None, new: dict[str, Any], why: str
) -> None:
    """Check that a network is refused, with the reason, if the machine cannot hold a variable."""
    writer = ModelWriter()
    writer.begin_subgraph()
    constant = writer.tensor((1, 6), **SCALE, data=np.zeros((1, 6), np.int8))
    if first:
        first(writer)
    else:
        writer.operator("ASSIGN_VARIABLE", [writer.variable("h"), constant], [])
    writer.end_subgraph([], [])
    writer.operator("CALL_ONCE", [], [], initSubgraphIndex=1)
    handle = writer.variable("h")
    x, y = writer.tensor((1, 6), **new), writer.tensor((1, 6), scale=0.5)
    old = read(writer, handle, (1, 6))
    writer.operator("ADD", [old, x], [y])
    writer.operator("ASSIGN_VARIABLE", [handle, x], [])
    with pytest.raises(ModelError, match=why):
        read_tflite(writer.content([x], [y]))


def test_state_of_an_interpreter() -> None:
    """Check that `CompiledModel.state` is an error if an interpreter runs a part of the model."""
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    x, h, y = (writer.tensor((1, 8), scale=scale) for scale in (0.5, 0.5, 1 / 128))
    dense(writer, rng, x, h, (8, 8), WEIGHTS)
    writer.operator("L2_NORMALIZATION", [h], [y])
    model = compile(writer.content([x], [y]), preset="small")
    assert isinstance(model, CompiledModel)
    assert any(isinstance(each, InterpretedStage) for each in model.compiled.stages)
    with pytest.raises(ModelError, match="an interpreter"):
        model.state()
