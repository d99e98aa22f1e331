# SPDX-License-Identifier: Apache-2.0
"""Tests of whole networks on the golden model, against LiteRT and its stored outputs."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.chain import as_chain
from systola.compiler.errors import ModelError
from systola.compiler.fuse import fuse_tables
from systola.compiler.network import DeviceStage, Network, build_network, compile_network
from systola.compiler.operations import Operations
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.reader import read_tflite
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.products import small_machine
from systola.verif.compiler.stored_networks import (
    CONVOLUTIONAL,
    PRODUCTS,
    RECURRENT,
    REFERENCES,
    stored_model,
    stored_samples,
)
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

MODELS = ("mlp_tutorial_pc_softmax", "mlp_odd_relu6_tanh_sigmoid", "mlp_floatio")
MACHINES = ("base", "tiny", "14x14", "5x8", "8x5")


def model_file(name: str) -> bytes:
    return (files("systola.models") / name).read_bytes()


def network_of(model: bytes) -> Network:
    return build_network(read_tflite(model))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_stored_outputs(name: str, machine: str) -> None:
    network = network_of(model_file(f"{name}.tflite"))
    with np.load(str(files("systola.models") / f"{name}.npz")) as stored:
        run = run_network(GoldenBackend(preset(machine)), network, stored["x"], batch=5)
        assert run.y.dtype == stored["y_ref"].dtype
        assert np.array_equal(run.y, stored["y_ref"])


@pytest.mark.parametrize("semantics", REFERENCES)
@pytest.mark.parametrize("name", [*MODELS[:2], *PRODUCTS, *CONVOLUTIONAL, *RECURRENT])
def test_semantics(name: str, semantics: Semantics) -> None:
    x, expected = stored_samples(name, semantics)
    run = run_network(GoldenBackend(preset("base")), stored_model(name, semantics), x)
    assert np.array_equal(run.y, expected)


@pytest.mark.parametrize("name", [*PRODUCTS, RECURRENT[1]])
def test_semantics_differ(name: str) -> None:
    x, expected = stored_samples(name, Semantics.LITERT_2)
    run = run_network(GoldenBackend(preset("base")), stored_model(name, Semantics.LITERT_1_2), x)
    differing = float((run.y != expected).mean())
    assert 0 < differing < 0.05


def test_digits() -> None:
    network = network_of(model_file("mlp_tutorial_pc_softmax.tflite"))
    with np.load(str(files("systola.models") / "digits_test.npz")) as digits:
        run = run_network(GoldenBackend(preset("base")), network, digits["x"])
        assert np.array_equal(run.y, digits["y_ref"])
        assert len(digits["y"]) >= 256
        assert (run.y[:, 0].argmax(axis=1) == digits["y"]).mean() > 0.97


class RandomModel:
    """A random chain of layers and other operators, with random shapes, scales and activations."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.writer = ModelWriter()
        self.rows = int(rng.choice([1, 1, 1, 3]))
        self.float_input = bool(rng.integers(2))
        self.width = int(rng.integers(1, 70))
        self.shape = (self.rows, self.width)
        self.scale, self.zero_point = self._scale(), int(rng.integers(-128, 128))
        self.current = self._tensor()
        first = self.current
        if self.float_input:
            first = self.writer.tensor(self.shape, "float32")
            self.writer.operator("QUANTIZE", [first], [self.current])
        for _ in range(int(rng.integers(1, 5))):
            self._layer()
            self._between()
        if rng.integers(2):
            self._fixed("SOFTMAX", 1 / 256, -128, beta=float(rng.choice([0.5, 1, 2])))
        if self.float_input:
            result = self.writer.tensor(self.shape, "float32")
            self.writer.operator("DEQUANTIZE", [self.current], [result])
            self.current = result
        self.content = self.writer.content([first], [self.current])
        self.samples = rng.integers(-128, 128, (7, *self.input_shape), dtype=np.int8)
        if self.float_input:
            self.samples = rng.normal(0, 1, (7, *self.input_shape)).astype(np.float32)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return network_of(self.content).inputs[0].shape

    def _scale(self) -> float:
        if self.rng.integers(4) == 0:
            return float(2.0 ** -self.rng.integers(3, 9))
        return float(np.float32(10 ** self.rng.uniform(-2.5, -0.7)))

    def _tensor(self) -> int:
        return self.writer.tensor(self.shape, "int8", self.scale, self.zero_point)

    def _layer(self) -> None:
        rng, k, n = self.rng, self.shape[-1], int(self.rng.integers(1, 70))
        # The scale of the weights is such that results spread over about all codes.
        source_scale = self.scale
        self.shape = (*self.shape[:-1], n)
        self.scale, self.zero_point = self._scale(), int(rng.integers(-128, 128))
        spread = source_scale * 5000 * np.sqrt(k) / (self.scale * 50)
        channels = n if rng.integers(2) else 1
        weight_scale = (rng.uniform(0.3, 1, channels) / spread).astype(np.float32)
        if rng.integers(4) == 0:
            weight_scale = np.exp2(np.floor(np.log2(weight_scale)))
        weights = rng.integers(-127, 128, (n, k), dtype=np.int8)
        bias = rng.integers(-20000, 20000, n, dtype=np.int32) if rng.integers(4) else None
        activation = str(rng.choice(["NONE", "RELU", "RELU6"]))
        source, result = self.current, self._tensor()
        self.writer.fully_connected(source, result, weights, bias, weight_scale, activation)
        self.current = result

    def _between(self) -> None:
        match int(self.rng.integers(6)):
            case 0:
                self._fixed("TANH", 1 / 128, 0)
            case 1:
                self._fixed("LOGISTIC", 1 / 256, -128)
            case 2:
                self._fixed("QUANTIZE", self._scale(), int(self.rng.integers(-128, 128)))
            case 3:
                total = int(np.prod(self.shape))
                self.shape = (1, total) if self.rng.integers(2) else (1, *self.shape)
                shape = np.array(self.shape, np.int32)
                target = self.writer.tensor(shape.shape, "int32", data=shape)
                result = self._tensor()
                self.writer.operator("RESHAPE", [self.current, target], [result])
                self.current = result
            case 4:
                self._fixed("RELU", self._scale(), int(self.rng.integers(-128, 128)))
            case _:
                pass

    def _fixed(self, kind: str, scale: float, zero_point: int, **options: float) -> None:
        self.scale, self.zero_point = scale, zero_point
        result = self._tensor()
        self.writer.operator(kind, [self.current], [result], **options)
        self.current = result


def test_random_networks() -> None:
    rng = np.random.default_rng(random_seed())
    for number in range(60):
        model = RandomModel(rng)
        network = network_of(model.content)
        assert network.translation.inexact_channels == 0
        config = preset(str(rng.choice(MACHINES))) if number % 2 else small_machine(rng)
        try:
            compile_network(config, network, 1)
        except ValueError:
            continue
        batch = int(rng.integers(1, 8))
        run = run_network(GoldenBackend(config), network, model.samples, batch=batch)
        assert np.array_equal(run.y, interpret(model.content, model.samples)), (number, config)


def test_layers_too_wide_for_the_buffer_run_one_by_one() -> None:
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    tensors = [writer.tensor((1, width), "int8", 0.05) for width in (9, 5000, 7)]
    for source, result, (k, n) in zip(tensors, tensors[1:], ((9, 5000), (5000, 7)), strict=False):
        weights = rng.integers(-127, 128, (n, k), dtype=np.int8)
        writer.fully_connected(source, result, weights, None, 0.0005)
    content = writer.content(tensors[:1], tensors[-1:])
    samples = rng.integers(-128, 128, (3, 1, 9), dtype=np.int8)
    network, config = network_of(content), preset("tiny")
    stages = compile_network(config, network, 3).stages
    assert len(stages) == 2
    assert all(isinstance(stage, DeviceStage) for stage in stages)
    run = run_network(GoldenBackend(config), network, samples)
    assert np.array_equal(run.y, interpret(content, samples))


def test_activations_merge_into_the_layer() -> None:
    network = network_of(model_file("mlp_odd_relu6_tanh_sigmoid.tflite"))
    (stage,) = network.stages
    assert isinstance(stage, Operations)
    assert as_chain(stage) is None
    chain = as_chain(fuse_tables(preset("base"), stage))
    assert chain is not None
    assert len(chain.layers) == 3


def chain(*kinds: str, dtype: str = "int8") -> bytes:
    """Return a model of a chain of operators; layers have weights of 4 x 4."""
    writer = ModelWriter()
    tensors = [writer.tensor((1, 4), dtype, 0.1)]
    for kind in kinds:
        result = writer.tensor((1, 4), dtype, 1 / 256, -128)
        if kind == "FULLY_CONNECTED":
            weights = np.eye(4, dtype=np.int8)
            writer.fully_connected(tensors[-1], result, weights, None, 0.1)
        else:
            writer.operator(kind, tensors[-1:], [result])
        tensors.append(result)
    return writer.content(tensors[:1], tensors[-1:])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (chain("FULLY_CONNECTED", "FLOOR"), r"operator 1 \(FLOOR\): .*not supported"),
        (chain("FULLY_CONNECTED", dtype="int16"), "int16 has a zero point other than 0"),
        (chain("DEQUANTIZE"), r"operator 0 \(DEQUANTIZE\): its result is int8"),
    ],
)
def test_unsupported_models(model: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        network_of(model)


def two_layers(**changes: object) -> bytes:
    """Return a model of a FULLY_CONNECTED that the compiler supports without `changes`."""
    writer = ModelWriter()
    source = writer.tensor((1, 4), "int8", changes.get("source_scale", 0.1))
    result = writer.tensor((1, int(str(changes.get("results", 3)))), "int8", 0.1)
    kind = str(changes.get("weight_type", "int8"))
    weights = writer.tensor(
        (3, 4),
        kind,
        changes.get("weight_scale", 0.1),
        int(str(changes.get("weight_zero_point", 0))),
        None if changes.get("weights_missing") else np.ones((3, 4), kind),
    )
    writer.operator(
        "FULLY_CONNECTED",
        [source, weights],
        [result],
        fusedActivationFunction=changes.get("activation", 0),
        weightsFormat=changes.get("weights_format", 0),
    )
    return writer.content([source], [result])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_type": "int16"}, "weights is int16"),
        ({"weight_zero_point": 3}, "zero point other than 0"),
        ({"weight_scale": [0.1, 0.1]}, "one scale, or one for each output"),
        ({"weight_scale": -0.1}, "scale that is not positive"),
        ({"weight_scale": 1e6}, "too large"),
        ({"source_scale": None}, "needs one zero point"),
        ({"source_scale": float("nan")}, "not positive"),
        ({"results": 5}, "should have 3 elements"),
        ({"weights_missing": True}, "weights are missing"),
        ({"activation": 4}, "TANH is not supported"),
        ({"weights_format": 1}, "shuffled"),
    ],
)
def test_unsupported_layers(change: dict[str, object], message: str) -> None:
    assert network_of(two_layers()).macs == 12
    with pytest.raises(ModelError, match=message):
        network_of(two_layers(**change))
