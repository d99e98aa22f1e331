# SPDX-License-Identifier: Apache-2.0
"""Tests of networks with variables that stay in the unified buffer from sample to sample.

A state has the values of all variables between runs of a model. A ring is a variable with the last
rows of a map. PHASES programs, which take turns, write its new rows to different lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.compiler.layout import entry_bytes
from systola.compiler.lower.keeping import PHASES
from systola.compiler.network import DeviceStage
from systola.golden.outcome import FaultReport
from systola.litert import Interpreter
from systola.runtime.backend import Backend, BackendError, Result
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.runtime.state import State, StateLostError
from systola.verif.cli.test_errors import run
from systola.verif.compiler.model_writer import ModelWriter
from systola.verif.kit.seeds import random_seed
from systola.verif.runtime import test_variables
from systola.verif.runtime.test_partial import dense
from systola.verif.runtime.test_variables import (
    SCALE,
    WEIGHTS,
    Maker,
    begin,
    compiled,
    compiled_on_host,
    feedback,
    network,
    read,
    ring,
)

STREAM = 3 * PHASES
"""Number of samples in a stream, in which each of the PHASES programs runs three times."""


def keep_last(
    writer: ModelWriter, handle: int, new: int, kept: int, rows: int, channels: int
) -> int:
    """Add the operators of a ring: concatenate old and new rows, and keep the last `kept` rows.

    Returns the concatenated tensor.
    """
    old = read(writer, handle, (1, kept, 1, channels))
    joined = writer.tensor((1, kept + rows, 1, channels), **SCALE)
    writer.operator("CONCATENATION", [old, new], [joined], axis=1)
    last = writer.tensor((1, kept, 1, channels), **SCALE)
    bounds = ((0, rows, 0, 0), (1, kept + rows, 1, channels), (1, 1, 1, 1))
    tensors = [writer.tensor((4,), "int32", data=np.array(each, np.int32)) for each in bounds]
    writer.operator("STRIDED_SLICE", [joined, *tensors], [last])
    writer.operator("ASSIGN_VARIABLE", [handle, last], [])
    return joined


@dataclass(frozen=True)
class Spotter:
    """A function that adds a streaming network, as in microWakeWord: convolutions over rings."""

    rows: int = 1
    """Number of new rows in each sample."""
    features: int = 40
    first: int = 5
    """Number of rows of the first convolution's kernel."""
    channels: tuple[int, ...] = (32, 48, 48)
    kernels: tuple[int, ...] = (5, 9)
    """Number of rows of each depthwise convolution's kernel.

    A full convolution comes before each depthwise convolution, and after the last. `channels` has
    the number of result channels of each full convolution.
    """
    last: int = 5
    """Number of rows that the dense layer at the end takes."""

    def __call__(self, writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
        shapes = {"first": (1, self.first - 1, 1, self.features)}
        for number, kernel in enumerate(self.kernels):
            shapes[f"block{number}"] = (1, kernel - 1, 1, self.channels[number])
        shapes["last"] = (1, self.last - self.rows, 1, self.channels[-1])
        handles = begin(writer, rng, **shapes)
        x = writer.tensor((1, self.rows, 1, self.features), **SCALE)
        joined = keep_last(writer, handles["first"], x, self.first - 1, self.rows, self.features)
        y = self._convolution(writer, rng, joined, self.first, self.features, self.channels[0])
        for number, kernel in enumerate(self.kernels):
            count = self.channels[number]
            handle = handles[f"block{number}"]
            joined = keep_last(writer, handle, y, kernel - 1, self.rows, count)
            y = writer.tensor((1, self.rows, 1, count), **SCALE)
            weights = rng.integers(-127, 128, (1, kernel, 1, count), np.int8)
            bias, scales = rng.integers(-500, 500, count, np.int32), np.full(count, 0.006)
            options = {"strideH": 1, "strideW": 1, "padding": 1, "depthMultiplier": 1}
            scales = scales.astype(np.float32)
            writer.weighted("DEPTHWISE_CONV_2D", joined, y, weights, bias, scales, 3, **options)
            y = self._convolution(writer, rng, y, 1, count, self.channels[number + 1])
        size = self.last * self.channels[-1]
        joined = keep_last(
            writer, handles["last"], y, self.last - self.rows, self.rows, self.channels[-1]
        )
        flat = writer.tensor((1, size), **SCALE)
        shape = writer.tensor((2,), "int32", data=np.array((1, size), np.int32))
        writer.operator("RESHAPE", [joined, shape], [flat])
        out = writer.tensor((1, 3), scale=0.5)
        dense(writer, rng, flat, out, (3, size), WEIGHTS)
        return x, out

    def _convolution(
        self,
        writer: ModelWriter,
        rng: np.random.Generator,
        source: int,
        kernel: int,
        channels: int,
        results: int,
    ) -> int:
        result = writer.tensor((1, self.rows, 1, results), **SCALE)
        weights = rng.integers(-127, 128, (results, kernel, 1, channels), np.int8)
        bias, scales = rng.integers(-500, 500, results, np.int32), np.full(results, 0.004)
        scales = scales.astype(np.float32)
        options = {"strideH": 1, "strideW": 1, "padding": 1}
        writer.weighted("CONV_2D", source, result, weights, bias, scales, 0, **options)
        return result


def chain(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network with a chain of delays: x goes to the first of three variables.

    Each further variable gets the old value of the variable before it.
    """
    handles = begin(writer, rng, one=(1, 8), two=(1, 8), three=(1, 8))
    x = writer.tensor((1, 8), **SCALE)
    values = [x, *(read(writer, handle, (1, 8)) for handle in handles.values())]
    for handle, value in zip(handles.values(), values, strict=False):
        writer.operator("ASSIGN_VARIABLE", [handle, value], [])
    both, y = writer.tensor((1, 32), **SCALE), writer.tensor((1, 5), scale=0.5)
    writer.operator("CONCATENATION", values, [both], axis=1)
    dense(writer, rng, both, y, (5, 32), WEIGHTS)
    return x, y


def late(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network in which variable "two" gets the old value of variable "one".

    The first layer reads "one", and the last layer still reads "two".
    """
    handles = begin(writer, rng, one=(1, 8), two=(1, 8))
    x, h = writer.tensor((1, 8), **SCALE), writer.tensor((1, 8), **SCALE)
    one, two = (read(writer, handle, (1, 8)) for handle in handles.values())
    for first, second, result in ((x, one, h), (h, two, writer.tensor((1, 5), scale=0.5))):
        both = writer.tensor((1, 16), **SCALE)
        writer.operator("CONCATENATION", [first, second], [both], axis=1)
        dense(writer, rng, both, result, (8 if result == h else 5, 16), WEIGHTS)
    writer.operator("ASSIGN_VARIABLE", [handles["one"], x], [])
    writer.operator("ASSIGN_VARIABLE", [handles["two"], one], [])
    return x, result


def frames(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network of convolutions on the present frame and on the previous frame, a variable.

    Both frames have two channels. A second variable has a map of three channels.
    """
    handles = begin(writer, rng, frame=(1, 8, 8, 2), thin=(1, 8, 8, 3))
    x = writer.tensor((1, 8, 8, 2), **SCALE)
    old, before = (
        read(writer, handles["frame"], (1, 8, 8, 2)),
        read(writer, handles["thin"], (1, 8, 8, 3)),
    )
    options = {"strideH": 1, "strideW": 1, "padding": 0}

    def convolution(source: int, channels: int, results: int, kernel: int) -> int:
        result = writer.tensor((1, 8, 8, results), **SCALE)
        weights = rng.integers(-127, 128, (results, kernel, kernel, channels), np.int8)
        bias, scales = rng.integers(-500, 500, results, np.int32), np.full(results, 0.004)
        scales = scales.astype(np.float32)
        writer.weighted("CONV_2D", source, result, weights, bias, scales, 0, **options)
        return result

    parts = [convolution(x, 2, 8, 3), convolution(old, 2, 8, 3), convolution(before, 3, 8, 3)]
    writer.operator("ASSIGN_VARIABLE", [handles["frame"], x], [])
    writer.operator("ASSIGN_VARIABLE", [handles["thin"], convolution(before, 3, 3, 1)], [])
    both = writer.tensor((1, 8, 8, 24), **SCALE)
    writer.operator("CONCATENATION", parts, [both], axis=3)
    return x, convolution(both, 24, 4, 1)


def large(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network with large maps of 32 x 32 pixels, and a variable with a max-pooled map."""
    (handle,) = begin(writer, rng, peaks=(1, 4, 4, 4)).values()
    x, active, doubled = (writer.tensor((1, 32, 32, 4), **SCALE) for _ in range(3))
    writer.operator("RELU", [x], [active])
    writer.operator("ADD", [x, active], [doubled])
    peaks, both = (writer.tensor((1, 4, 4, channels), **SCALE) for channels in (4, 8))
    sides = {"strideH": 8, "strideW": 8, "filterHeight": 8, "filterWidth": 8, "padding": 1}
    writer.operator("MAX_POOL_2D", [doubled], [peaks], **sides)
    writer.operator("CONCATENATION", [read(writer, handle, (1, 4, 4, 4)), peaks], [both], axis=3)
    writer.operator("ASSIGN_VARIABLE", [handle, peaks], [])
    flat, y = writer.tensor((1, 128), **SCALE), writer.tensor((1, 5), scale=0.5)
    shape = writer.tensor((2,), "int32", data=np.array((1, 128), np.int32))
    writer.operator("RESHAPE", [both, shape], [flat])
    dense(writer, rng, flat, y, (5, 128), WEIGHTS)
    return x, y


def exchange(writer: ModelWriter, rng: np.random.Generator) -> tuple[int, int]:
    """Add a network with two variables that exchange their values in each sample."""
    handles = begin(writer, rng, one=(1, 8), two=(1, 8))
    x = writer.tensor((1, 8), **SCALE)
    one, two = (read(writer, handle, (1, 8)) for handle in handles.values())
    writer.operator("ASSIGN_VARIABLE", [handles["one"], two], [])
    writer.operator("ASSIGN_VARIABLE", [handles["two"], one], [])
    both, y = writer.tensor((1, 24), **SCALE), writer.tensor((1, 5), scale=0.5)
    writer.operator("CONCATENATION", [x, one, two], [both], axis=1)
    dense(writer, rng, both, y, (5, 24), WEIGHTS)
    return x, y


def stream(make: Maker, samples: int = STREAM) -> tuple[bytes, NDArray[np.int8], NDArray[np.int8]]:
    """Return a model file, a stream of random samples, and LiteRT's result for each sample.

    LiteRT runs the samples in order, and its variables keep their values from sample to sample.
    """
    with patch.object(test_variables, "SAMPLES", samples):
        return network(make)


def host_bytes(model: CompiledModel) -> float:
    """Return the estimated number of bytes over the host port for one sample."""
    return model.estimate().activity.host


def run_each(
    model: CompiledModel, x: NDArray[np.int8], backend: Backend, state: State
) -> tuple[NDArray[np.int8], list[int]]:
    """Run each sample by itself, in order; return all results and the cycles of each sample."""
    runs = [model.run(sample[np.newaxis], backend=backend, state=state) for sample in x]
    return np.concatenate([each.y for each in runs]), [each.cycles or 0 for each in runs]


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param("tiny", marks=pytest.mark.thorough),
        "small",
        pytest.param("base", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(Spotter(), marks=pytest.mark.thorough),
        Spotter(rows=3, first=6, features=13, channels=(20, 7), kernels=(11,), last=6),
        pytest.param(chain, marks=pytest.mark.thorough),
        pytest.param(feedback, marks=pytest.mark.thorough),
        pytest.param(frames, marks=pytest.mark.thorough),
        late,
    ],
)
def test_stream(make: Maker, machine: str) -> None:
    """Check that all variables of a stream stay in the buffer between samples.

    A sample's program has only the network's input and output in host memory.
    """
    content, x, expected = stream(make)
    model, before = compiled(content, machine), compiled_on_host(content, machine)
    on_chip = model.compiled.on_chip
    assert on_chip
    assert len(on_chip.numbers) == len(model.variables)
    assert len(on_chip.programs) == (PHASES if isinstance(make, Spotter) else 1)
    state, backend = model.state(), GoldenBackend(model.config)
    assert np.array_equal(run_each(model, x, backend, state)[0], expected)
    # One program loads all variables before the first sample. Then each sample takes one program.
    assert backend.programs == len(x) + 1
    program = on_chip.programs[-1]
    assert (len(program.inputs), len(program.outputs)) == (1, 1)
    if isinstance(make, Spotter):
        size = sum(each.first.size for each in model.compiled.variables)
        # The last phase needs one more parameter entry than other phases, but all programs load it.
        entry = entry_bytes(model.config)
        assert host_bytes(before) - host_bytes(model) >= 2 * size - entry


@pytest.mark.thorough
def test_random_streams() -> None:
    """Check streams of Spotter networks with random numbers of rows and channels.

    Each stream runs the program of every phase at least twice.
    """
    rng = np.random.default_rng(random_seed())
    for _ in range(6):
        rows = int(rng.integers(1, 4))
        make = Spotter(
            rows=rows,
            features=int(rng.integers(1, 50)),
            first=rows + int(rng.integers(1, 12)),
            channels=tuple(int(each) for each in rng.integers(1, 40, 2)),
            kernels=(rows + int(rng.integers(1, 20)),),
            last=rows + int(rng.integers(1, 5)),
        )
        content, x, expected = stream(make, 2 * PHASES + 1)
        machine = str(rng.choice(["tiny", "small", "base"]))
        model = compiled(content, machine)
        assert model.compiled.on_chip, make
        backend = GoldenBackend(model.config)
        found, _ = run_each(model, x, backend, model.state())
        assert np.array_equal(found, expected), (make, machine)


@pytest.mark.thorough
@pytest.mark.parametrize("machine", ["tiny", "small"])
def test_stream_on_rtl(machine: str) -> None:
    """Check on the RTL that a stream takes fewer cycles with variables in the buffer.

    The comparison is the same model with all variables in host memory.
    """
    content, x, expected = stream(Spotter())
    cycles: list[int] = []
    for model in (compiled(content, machine), compiled_on_host(content, machine)):
        with RtlBackend(model.config, latency=30) as backend:
            found, each = run_each(model, x, backend, model.state())
        assert np.array_equal(found, expected)
        cycles.append(sum(each))
    assert cycles[0] < cycles[1]


@pytest.mark.thorough
def test_states_share_a_machine() -> None:
    """Check that two states of a model keep their values although they share a machine.

    The states, and another model, run on the machine in random order.
    """
    content, x, expected = stream(Spotter(), PHASES + 1)
    model, other = compiled(content), compiled(network(feedback)[0])
    backend = GoldenBackend(model.config)
    states = model.state(), model.state()
    at = [0, 0]
    rng = np.random.default_rng(random_seed())
    while min(at) < len(x):
        which = int(rng.integers(2))
        count = int(rng.integers(1, 4))
        part = slice(at[which], at[which] + count)
        if len(x[part]):
            run = model.run(x[part], backend=backend, state=states[which])
            assert np.array_equal(run.y, expected[part])
        at[which] += count
        if rng.integers(3) == 0:
            other.run(np.zeros((1, 10), np.int8), backend=backend)
    # Both states are deleted, so the next run does not first save their values.
    del states
    before = backend.programs
    model.run(x[:1], backend=backend)
    assert backend.programs == before + 2


@pytest.mark.thorough
def test_values() -> None:
    """Check `State.values` after each sample, with variables in the buffer.

    The values must equal the values with all variables in host memory.
    """
    content, x, expected = stream(Spotter(), PHASES + 3)
    model, before = compiled(content), compiled_on_host(content)
    backend = GoldenBackend(model.config)
    state, reference = model.state(), before.state()
    assert [each.shape for each in model.variables] == [each.shape for each in state.values()]
    for sample, wanted in zip(x, expected, strict=True):
        assert np.array_equal(model.run(sample, backend=backend, state=state).y, wanted)
        before.run(sample, backend="iss", state=reference)
        for one, other in zip(state.values(), reference.values(), strict=True):
            assert np.array_equal(one, other)
    # A state may change to another machine, and between variables in the buffer and in host memory.
    state.reset()
    for number, sample in enumerate(x):
        chosen = (model, before, model)[number % 3]
        run = chosen.run(sample, backend="iss" if number % 2 else backend, state=state)
        assert np.array_equal(run.y, expected[number])


class Failing(GoldenBackend):
    """A back end with the golden model that reports a fault for each program if `fails` is set."""

    fails = False

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        result = super().run(image)
        fault = FaultReport(Fault.HOST_READ_ERROR, 3, 0) if self.fails else None
        return replace(result, fault=fault)


def test_lost_values() -> None:
    """Check that a state is lost if its machine has a fault, or runs another program by itself.

    Each use of a lost state is an error until the state is reset.
    """
    content, x, expected = network(ring)
    model = compiled(content)
    backend = Failing(model.config)
    state = model.state()
    on_chip = model.compiled.on_chip
    assert on_chip

    def fault_of(act: Callable[[], object]) -> None:
        backend.fails = True
        with pytest.raises(BackendError, match="instruction 3: HOST_READ_ERROR"):
            act()
        backend.fails = False

    def step() -> object:
        return model.run(x[1], backend=backend, state=state)

    def show() -> object:
        return state.values()

    # A fault in the very first run loses nothing, as the machine has no values of the state yet.
    fault_of(step)
    assert np.array_equal(model.run(x[0], backend=backend, state=state).y, expected[0])
    for act, why in ((step, "a run has failed"), (show, "a program has ended in a fault")):
        fault_of(act)
        for use in (step, show):
            with pytest.raises(StateLostError, match=rf"lost, as {why}: reset\(\) begins again"):
                use()
        state.reset()
        assert np.array_equal(model.run(x[0], backend=backend, state=state).y, expected[0])
    backend.run(on_chip.programs[0].image)
    with pytest.raises(StateLostError, match="the machine has run another program"):
        step()
    # Although one state is lost, a new state of the model works.
    assert np.array_equal(model.run(x, backend=backend, state=model.state()).y, expected)
    # A run that refuses its input does not lose the state's values.
    state.reset()
    model.run(x[0], backend=backend, state=state)
    with pytest.raises(Exception, match="shape"):
        model.run(x[0, :, :, :, :5], backend=backend, state=state)
    assert np.array_equal(model.run(x[1], backend=backend, state=state).y, expected[1])


@pytest.mark.thorough
def test_closed_machine() -> None:
    """Check that a state keeps its values when its machine is closed, and goes on with another."""
    content, x, expected = network(ring)
    model = compiled(content)
    state = model.state()
    with RtlBackend(model.config) as backend:
        assert np.array_equal(model.run(x[:3], backend=backend, state=state).y, expected[:3])
    assert np.array_equal(model.run(x[3:], backend="iss", state=state).y, expected[3:])


def small_buffer(lines: int) -> Config:
    return replace(preset("tiny"), name="narrow", buffer_lines=lines)


@pytest.mark.thorough
def test_no_room() -> None:
    """Check smaller and smaller buffers: more and more variables stay in host memory."""
    content, x, expected = stream(Spotter(), PHASES + 2)
    kept: list[int] = []
    for lines in (512, 384, 320, 256, 192, 128):
        model = compiled(content, small_buffer(lines))
        on_chip = model.compiled.on_chip
        kept.append(len(on_chip.numbers) if on_chip else 0)
        state, backend = model.state(), GoldenBackend(model.config)
        found, _ = run_each(model, x, backend, state)
        assert np.array_equal(found, expected)
        assert len(state.values()) == len(model.variables)
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == len(model.variables) > kept[-1]


@pytest.mark.thorough
def test_beside_spilled_values() -> None:
    """Check that a small variable stays in the buffer even if large maps go to host memory."""
    content, x, expected = network(large)
    model = compiled(content, "tiny")
    (stage,) = (each for each in model.compiled.stages if isinstance(each, DeviceStage))
    assert stage.program.spilled
    assert model.compiled.on_chip
    found, _ = run_each(model, x, GoldenBackend(model.config), model.state())
    assert np.array_equal(found, expected)


@pytest.mark.thorough
@pytest.mark.parametrize("lines", [512, 256])
def test_places_are_said(lines: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the line that `tpu run` prints about variables.

    The line has the number of variables in the buffer, and the names of those in host memory.
    """
    content, x, expected = stream(Spotter(), 3)
    model = compiled(content, small_buffer(lines))
    names = [model.variables[number].name for number in model.compiled.on_host]
    assert bool(names) == (lines == 256)
    model.save(tmp_path / "p.tpu")
    np.savez(tmp_path / "x.npz", x=x)
    files = f"{tmp_path}/p.tpu --input {tmp_path}/x.npz --output {tmp_path}/y.npz"
    status, out, err = run(f"run {files} --backend iss", capsys)
    assert (status, err) == (0, "")
    (line,) = (each for each in out.splitlines() if each.startswith("variables: "))
    assert f"{len(model.variables) - len(names)} in the unified buffer (" in line
    assert ("through host memory in each sample: " in line) == bool(names)
    assert all(f"{name} (" in line for name in names)
    with np.load(tmp_path / "y.npz") as stored:
        assert np.array_equal(next(iter(stored.values())), expected)


def test_exchange() -> None:
    """Check that two variables that exchange their values are kept in host memory."""
    content, x, expected = network(exchange)
    model = compiled(content)
    assert model.compiled.on_chip is None
    assert np.array_equal(model.run(x, backend="iss").y, expected)


@pytest.mark.thorough
def test_litert() -> None:
    """Check that systola.litert.Interpreter gives LiteRT's results with variables in the buffer.

    Resets in the middle of the stream do not change the results.
    """
    content, x, expected = stream(Spotter(), PHASES + 2)
    interpreter = Interpreter(model_content=content, preset="small")
    interpreter.allocate_tensors()
    (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    for number, (sample, wanted) in enumerate(zip(x, expected, strict=True)):
        if number == 3:
            # As in LiteRT, these two calls do not set variables to their first values.
            interpreter.reset_all_variables()
            interpreter.allocate_tensors()
        interpreter.set_tensor(source["index"], sample)
        interpreter.invoke()
        assert np.array_equal(interpreter.get_tensor(result["index"]), wanted)
