# SPDX-License-Identifier: Apache-2.0
"""Tests of systola.onnxruntime.InferenceSession against ONNX Runtime's own, with the same calls."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from systola import onnxruntime as ours
from systola.verif.compiler.onnx_writer import OnnxWriter
from systola.verif.kit.seeds import random_seed

MODELS = Path(str(files("systola.models")))
MLP = MODELS / "onnx_skl_mlp_48relu_qdq_s8s8_pc.onnx"
LIBRARIES = (ours, onnxruntime)


def session(library: Any, model: str | Path | bytes) -> Any:
    """Return a session of `library`, the original or this project's, made as in usual scripts."""
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Without this option, ONNX Runtime's sums saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    arguments: dict[str, Any] = {"preset": "8x8"} if library is ours else {}
    return library.InferenceSession(model, options, ["CPUExecutionProvider"], **arguments)


def described(nodes: Any) -> list[tuple[str, str, Any]]:
    return [(each.name, each.type, each.shape) for each in nodes]


def two_by_two(batch: int | str) -> bytes:
    """Return a model that has an input in uint8, an input in int8, and outputs of both types.

    `batch` is the number of samples, or a name if the number is open.
    """
    net = OnnxWriter()
    inputs = [net.input((batch, 6), kind) for kind in ("uint8", "int8")]
    x = net.dequantise(inputs[0], 0.1, 100, "uint8")
    y = net.dequantise(inputs[1], 0.05, 3, "int8")
    z = net.quantise(net.node("Add", x, y), 0.25, -7, "int8")
    again = net.quantise(net.node("Relu", x), 0.2, 0, "uint8")
    return net.content((z, "int8", (batch, 6)), (again, "uint8", (batch, 6)))


def codes(count: int) -> list[Any]:
    rng = np.random.default_rng(random_seed())
    return [
        rng.integers(0, 256, (count, 6)).astype(np.uint8),
        rng.integers(-128, 128, (count, 6)).astype(np.int8),
    ]


@pytest.mark.parametrize("name", ["onnx_skl_mlp_48relu_qdq_s8s8_pc", "onnx_cnn_res_dw_qdq_s8s8_pc"])
def test_same_calls(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    seen: list[Any] = []
    for library in LIBRARIES:
        made = session(library, str(path))
        (source,) = made.get_inputs()
        rng = np.random.default_rng(random_seed())
        shape = [size if isinstance(size, int) else 1 for size in source.shape]
        x = rng.uniform(0, 1, shape).astype(np.float32)
        results = made.run(None, {source.name: x})
        meta = made.get_modelmeta()
        fields = {key: getattr(meta, key) for key in ours.ModelMetadata.__dataclass_fields__}
        results += made.run([made.get_outputs()[0].name], {source.name: x.tolist()})
        seen.append(
            [described(made.get_inputs()), described(made.get_outputs()), fields]
            + [(each.dtype, each.shape, each.tobytes()) for each in results]
        )
    assert seen[0] == seen[1]


@pytest.mark.parametrize(("batch", "count"), [(1, 1), ("n", 1), ("n", 5)])
def test_inputs_and_outputs_by_name(batch: int | str, count: int) -> None:
    """Check several inputs and outputs by their names, for any number of samples.

    A run may ask for some of the outputs only.
    """
    content = two_by_two(batch)
    seen: list[Any] = []
    for library in LIBRARIES:
        made = session(library, content)
        names = [each.name for each in made.get_outputs()]
        feed = dict(zip((each.name for each in made.get_inputs()), codes(count), strict=True))
        results = made.run(None, feed) + made.run(names[::-1], feed) + made.run([], feed)
        assert len(results) == 6
        seen.append([described(made.get_inputs()), described(made.get_outputs())])
        seen[-1] += [(each.dtype, each.shape, each.tobytes()) for each in results]
    assert seen[0] == seen[1]


def feeds(name: str) -> dict[str, Any]:
    x = np.zeros((1, 64), np.float32)
    return {
        "none": {},
        "other name": {"zz": x},
        "one too many": {name: x, "zz": x},
        "type": {name: x.astype(np.float64)},
        "rank": {name: x[0]},
        "samples": {name: np.zeros((3, 64), np.float32)},
        "size": {name: np.zeros((1, 63), np.float32)},
        "no mapping": [x],
    }


@pytest.mark.parametrize("mistake", feeds("x"))
def test_mistakes(mistake: str) -> None:
    """Check that wrong calls raise the same exceptions as in ONNX Runtime.

    ValueError stands for the exceptions that ONNX Runtime defines itself.
    """
    raised: list[type[Exception]] = []
    for library in LIBRARIES:
        made = session(library, MLP)
        with pytest.raises(Exception, match=r"\w") as caught:
            made.run(None, feeds(made.get_inputs()[0].name)[mistake])
        kind = caught.type
        raised.append(ValueError if kind.__module__.startswith("onnxruntime") else kind)
    # For a list in place of a mapping, the two libraries raise different exceptions.
    assert raised[0] is raised[1] or mistake == "no mapping"


def test_wrong_names() -> None:
    made = session(ours, MLP)
    x = {made.get_inputs()[0].name: np.zeros((1, 64), np.float32)}
    with pytest.raises(ValueError, match="Invalid output name:zz"):
        made.run(["zz"], x)
    for library in LIBRARIES:
        with pytest.raises(TypeError):
            session(library, MLP).run("y", x)
        with pytest.raises(TypeError, match="Unable to load from type"):
            session(library, 3)  # pyright: ignore[reportArgumentType]


def test_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        session(ours, tmp_path / "missing.onnx")
    with pytest.raises(ValueError, match="protobuf parsing failed"):
        session(ours, b"abc")
    for wrong in (b"", onnx.ModelProto(ir_version=8).SerializeToString()):
        with pytest.raises(ValueError, match=r"\w"):
            session(ours, wrong)
    for unknown in ({"preset": "9"}, {"backend": "gpu"}):
        with pytest.raises(ValueError, match="unknown"):
            ours.InferenceSession(MLP, **unknown)


def test_machine() -> None:
    """Check that the provider is the machine, and that the cycles of a run can be read."""
    made = session(ours, MLP)
    assert made.get_providers() == ours.get_available_providers() == ["SystolaExecutionProvider"]
    made.run(None, {made.get_inputs()[0].name: np.zeros((1, 64), np.float32)})
    assert made.last_run.samples == 1
