# SPDX-License-Identifier: Apache-2.0
"""Tests of the class CompiledModel: arguments of a run, number of programs for it, counters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.arch.config import Config, ConfigError, preset
from systola.arch.image import Image
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import DeviceStage
from systola.compiler.operations import Value
from systola.runtime import compile, load
from systola.runtime.backend import Result
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.iss import GoldenBackend
from systola.runtime.make_backend import BACKENDS, make_backend
from systola.runtime.plain_data import DataError
from systola.runtime.program_file import ProgramFileError
from systola.runtime.rtl import RtlBackend
from systola.runtime.samples import as_input
from systola.timing.memory_speed import MemorySpeed
from systola.verif.compiler.model_writer import ModelWriter

MODELS = Path(str(files("systola.models")))
NAME = "mlp_odd_relu6_tanh_sigmoid"
PATH = MODELS / f"{NAME}.tflite"


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compile(PATH, preset="tiny", batch=8)


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, (19, 1, 61), dtype=np.int8)


class Watched:
    """A back end with the golden model that stores all images, and reports ten cycles for each."""

    def __init__(self, config: Config) -> None:
        self._machine = GoldenBackend(config)
        self.images: list[Image] = []

    @property
    def config(self) -> Config:
        return self._machine.config

    @property
    def programs(self) -> int:
        return self._machine.programs

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        self.images.append(image)
        return replace(self._machine.run(image), cycles=10, counters={"fetch": 10, "drain": 0})


def test_sources(tmp_path: Path, model: CompiledModel) -> None:
    for source in (str(PATH), PATH.read_bytes()):
        assert compile(source, preset=preset("tiny"), batch=8).to_bytes() == model.to_bytes()
    model.save(tmp_path / "p")
    assert load(str(tmp_path / "p")).config == preset("tiny")
    assert compile(PATH, semantics="litert-1.2").semantics.value == "litert-1.2"
    assert (compile(PATH).config, compile(PATH).semantics.value) == (preset("base"), "litert-2")


def test_wrong_arguments(x: np.ndarray, model: CompiledModel) -> None:
    with pytest.raises(ConfigError, match="unknown preset 'big'"):
        compile(PATH, preset="big")
    with pytest.raises(ValueError, match=r"unknown semantics 'torch' \(known: litert-2,"):
        compile(PATH, semantics="torch")
    with pytest.raises(ModelError, match="has the semantics litert-2"):
        compile(PATH, semantics="onnx")
    with pytest.raises(CompileError, match="a batch has at least 1 sample, not 0"):
        compile(PATH, batch=0)
    with pytest.raises(FileNotFoundError):
        compile(MODELS / "missing.tflite")
    with pytest.raises(ProgramFileError, match="not a compiled program"):
        load(PATH)
    with pytest.raises(ValueError, match=r"unknown back end 'gpu' \(known: rtl, iss\)"):
        model.run(x, backend="gpu")
    with pytest.raises(ModelError, match="compiled for 'tiny', the machine is 'base'"):
        model.run(x, backend=GoldenBackend(preset("base")))
    with pytest.raises(ModelError, match="takes 1 inputs, not 2"):
        model.run(x, x, backend="iss")
    with pytest.raises(DataError, match="its program for one sample is missing"):
        replace(model, single=None, rest_singly=3)


@pytest.mark.parametrize(("rest_singly", "programs"), [(0, 3), (2, 3), (3, 5), (7, 5)])
def test_rests(rest_singly: int, programs: int, model: CompiledModel, x: np.ndarray) -> None:
    """Check a run of 19 samples in batches of 8, after which 3 samples remain.

    The remaining samples run as a partly filled batch, or one by one.
    """
    expected = model.run(x[:16], backend="iss").y
    machine = Watched(model.config)
    done: list[int] = []
    run = replace(model, rest_singly=rest_singly).run(x, backend=machine, progress=done.append)
    assert np.array_equal(run.y[:16], expected)
    for number in (16, 17, 18):
        assert np.array_equal(run.y[number], model.run(x[number], backend="iss").y)
    assert len(machine.images) == programs
    assert done == ([8, 16, 19] if programs == 3 else [8, 16, 17, 18, 19])
    assert (run.samples, run.cycles) == (19, 10 * programs)
    assert run.utilization == pytest.approx(19 * model.macs / (16 * 10 * programs))
    assert run.inferences_per_second(100) == pytest.approx(19 * 1e8 / (10 * programs))
    assert run.counters == {"fetch": 10 * programs, "drain": 0}


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16])
def test_any_number_of_samples(count: int, model: CompiledModel, x: np.ndarray) -> None:
    expected = model.run(x, backend="iss").y
    run = model.run(x[:count], backend="iss")
    assert np.array_equal(run.y, expected[:count])
    assert (run.samples, run.cycles, run.utilization) == (count, None, None)
    assert run.inferences_per_second(100) is None


def test_weights_stay(model: CompiledModel, x: np.ndarray) -> None:
    """Check that images of successive batches differ only in the inputs, and share the weights."""
    machine = Watched(model.config)
    replace(model, rest_singly=0).run(x, backend=machine)
    first, second, _ = machine.images
    assert first.weights is second.weights
    assert first.program is second.program
    changed = np.flatnonzero(first.host != second.host)
    (place,) = (stage.program for stage in model.compiled.stages if hasattr(stage, "program"))
    matrix = place.inputs[0].matrix
    assert changed.size > 0
    assert matrix.offset <= changed.min() and changed.max() < matrix.offset + matrix.size


def test_report(model: CompiledModel, x: np.ndarray) -> None:
    run = model.run(x[:16], backend=RtlBackend(model.config, latency=7))
    report = run.report(mhz=50)
    assert report.rows == run.layers
    assert report.measured_cycles == pytest.approx(run.cycles / 16)
    assert report.inferences_per_second == pytest.approx(run.inferences_per_second(50))
    # The report's estimate is for memories with a latency of 7 cycles, as the run had.
    assert report.estimated_cycles == pytest.approx(run.cycles / 16, rel=0.1)
    assert report.estimated_cycles > model.estimate().estimated_cycles
    assert report.estimated_cycles == model.estimate(MemorySpeed(7)).estimated_cycles
    again = model.run(x[:16], latency=7)
    assert (again.cycles, again.layers) == (run.cycles, run.layers)


def test_inputs_by_name() -> None:
    writer = ModelWriter()
    shape = (1, 1, 1, 4)
    sources = [writer.tensor(shape, "int8", 0.1) for _ in range(2)]
    target = writer.tensor(shape, "int8", 0.1)
    writer.operator("SUB", sources, [target])
    model = compile(writer.content(sources, [target]), preset="small", batch=1)
    first, second = (each.name for each in model.inputs)
    a, b = np.full((1, *shape[1:]), 30, np.int8), np.full((1, *shape[1:]), 10, np.int8)
    expected = model.run(a, b, backend="iss").y
    assert not np.array_equal(expected, model.run(b, a, backend="iss").y)
    assert np.array_equal(model.run({second: b, first: a}, backend="iss").y, expected)
    for wrong in ({first: a}, {first: a, second: b, "c": a}, {}):
        with pytest.raises(ModelError, match=f"the model takes {first}, {second}, not "):
            model.run(wrong, backend="iss")


def test_short_text(model: CompiledModel, x: np.ndarray) -> None:
    """Check the short texts that a Python prompt and a notebook show for a model and for a run."""
    assert repr(model).startswith("<CompiledModel for 'tiny', batch 8, litert-2, 3,338 MACs")
    assert "int8[1, 61] -> " in repr(model)
    assert repr(model.run(x, backend="iss")).endswith("no clock, outputs int8[19, 1, 10]>")
    assert len(repr(model)) < 200
    html = model._repr_html_()
    assert "<td>(1, 61)</td>" in html and "0 FULLY_CONNECTED" in html
    named = replace(model.inputs[0], name="<b>")
    odd = replace(model, inputs=(named,), compiled=model.compiled, single=model.single)
    assert "<b>" not in odd._repr_html_() and "&lt;b&gt;" in odd._repr_html_()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"program_offset": 5}, "its offset a multiple of 128"),
        ({"program_offset": 1 << 20}, "it must be inside"),
        ({"weights": np.zeros(5000, np.uint8)}, "weight memory has 5000 bytes, not whole tiles"),
        ({"weights": np.zeros((64, 64), np.uint8)}, "weight memory is a row of uint8"),
        ({"host": np.zeros(5000, np.uint8)}, "host memory has 5000 bytes, not whole pages"),
        ({"host": np.zeros(4096, np.int8)}, "host memory is a row of uint8, not int8"),
        ({"host": np.zeros(1 << 16, np.uint8)}, "the program is not in host memory at offset"),
        ({"program": b"halt"}, "a program of 4 bytes is not one of whole instructions"),
    ],
)
@pytest.mark.parametrize("kind", BACKENDS)
def test_images(kind: str, change: dict[str, object], says: str, model: CompiledModel) -> None:
    """Check that each back end refuses an invalid image before its machine starts."""
    (stage,) = (each for each in model.compiled.stages if isinstance(each, DeviceStage))
    image = replace(stage.program.image, **change)
    with pytest.raises(ValueError, match=says):
        make_backend(kind, model.config).run(image)


def test_typed() -> None:
    """Check that the typed packages have a file py.typed, which type checkers need (PEP 561)."""
    for name in ("arch", "cli", "compiler", "golden", "runtime", "timing"):
        assert (files(f"systola.{name}") / "py.typed").is_file()


def test_types_of_inputs() -> None:
    floats, bytes_, indices = (Value("v", (1, 2), dtype) for dtype in ("float32", "int8", "int32"))
    assert as_input(np.array([[0.1, 1e-60]]), floats).dtype == np.float32
    assert as_input(np.array([[1, 2]], np.int64), indices).dtype == np.int32
    assert as_input(np.array([[1, 2]], np.uint8), indices).dtype == np.int32
    for array, value, says in (
        (np.array([[0.1, 1e60]]), floats, "not finite in float32"),
        (np.array([[np.nan]]), floats, "not finite in float32"),
        (np.array([[1]]), floats, "is int64, the model takes float32"),
        (np.array([[1]], np.uint8), bytes_, "is uint8, the model takes int8"),
        (np.array([[1]], np.int64), bytes_, "is int64, the model takes int8"),
        (np.array([[1.0]]), indices, "is float64, the model takes int32"),
        (np.array([[1 << 31]]), indices, "has values that are no int32"),
        (np.array([[{}]]), bytes_, "is object, the model takes int8"),
        (np.array([["a"]]), floats, "the model takes float32"),
    ):
        with pytest.raises(ModelError, match=says):
            as_input(array, value)


def test_short_names_load_nothing_early() -> None:
    script = (
        "import sys; import systola.runtime.backend; "
        "assert 'systola.runtime.api' not in sys.modules; "
        "from systola.runtime import compile, load; import systola.runtime as runtime; "
        "assert not hasattr(runtime, 'nonsense')"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
