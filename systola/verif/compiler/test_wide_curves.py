# SPDX-License-Identifier: Apache-2.0
"""Tests of functions of one int16 element, as curves of the machine, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import preset
from systola.compiler.cut.placement import Place
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.fuse import fuse_tables
from systola.compiler.operations import Curve, Operations
from systola.runtime import api
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

MACHINE = "8x8-attention"
CODES = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
OPERATORS = {
    "exp": ("EXP", {}),
    "gelu": ("GELU", {"approximate": False}),
    "gelu by tanh": ("GELU", {"approximate": True}),
    "1 / sqrt": ("RSQRT", {}),
}
"""LiteRT's operators that become curves of the machine, with the options of each."""


def model(name: str, shape: tuple[int, ...], scale: float, made: float) -> bytes:
    """Return a model of a single curve from int16 to int16."""
    writer = ModelWriter()
    source, result = (writer.tensor(shape, "int16", np.float32(each)) for each in (scale, made))
    kind, options = OPERATORS[name]
    writer.operator(kind, [source], [result], **options)
    return writer.content([source], [result])


def all_codes(name: str, shape: tuple[int, ...]) -> NDArray[np.int16]:
    """Return samples of a shape that have all int16 codes together.

    LiteRT refuses the root of a number below 0, so samples for roots have 0 in place of such codes.
    """
    least = 0 if name == "1 / sqrt" else CODES.min()
    return np.maximum(CODES, least).reshape(-1, *shape)


@pytest.mark.thorough
@pytest.mark.parametrize("name", OPERATORS)
def test_all_codes_at_several_scales(name: str) -> None:
    rng = np.random.default_rng(random_seed())
    x = all_codes(name, (1 << 12, 16))
    ends = [(8 / 32768, 8 / 32768), (1e-5, 2e-3), (2e-3, 1e-5)]
    for scale, made in [*ends, *(10 ** rng.uniform(-5, -2.7, (1, 2))).tolist()]:
        content = model(name, x.shape[1:], scale, made)
        network = network_of(content)
        stages = [stage for stage in network.stages if isinstance(stage, Operations)]
        assert [type(node) for stage in stages for node in stage.nodes] == [Curve]
        run = run_network(GoldenBackend(preset(MACHINE)), network, x, batch=len(x))
        assert np.array_equal(run.y, interpret(content, x)), (scale, made)


@pytest.mark.thorough
@pytest.mark.parametrize("name", OPERATORS)
def test_rtl(name: str) -> None:
    x = all_codes(name, (128, 16))
    content = model(name, x.shape[1:], 3e-4, 4e-4)
    backend = RtlBackend(preset(MACHINE), seed=random_seed())
    run = run_network(backend, network_of(content), x, batch=len(x))
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", [(1, 3, 5, 21), (7,), (2, 9)])
def test_shapes(shape: tuple[int, ...], name: str) -> None:
    """Check curves of tensors with channels that do not fill all bytes of their lines."""
    rng = np.random.default_rng(random_seed())
    x = rng.choice(all_codes(name, ()), (3, *shape))
    content = model(name, shape, 3e-4, 3e-4)
    run = run_network(GoldenBackend(preset(MACHINE)), network_of(content), x, batch=2)
    assert np.array_equal(run.y, interpret(content, x))


def test_in_bands() -> None:
    """Check a curve of a map that is too large for the unified buffer."""
    rng = np.random.default_rng(random_seed())
    shape = (1, preset(MACHINE).buffer_lines, 9)
    x = rng.integers(-(1 << 15), 1 << 15, (1, *shape)).astype(np.int16)
    content = model("gelu", shape, 3e-4, 3e-4)
    run = run_network(GoldenBackend(preset(MACHINE)), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))


def block(curves: int) -> tuple[bytes, int]:
    """Return a model with `curves` GELUs, and the number of elements of its input.

    The GELUs follow a layer, one after another, each with another scale. The result of each GELU is
    added to its input.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    n, count = 24, 24
    first = writer.tensor((1, count), "int16", 4e-4)
    weights = writer.tensor(
        (n, count), "int8", 0.004, data=rng.integers(-127, 128, (n, count), np.int8)
    )
    bias = writer.tensor((n,), "int64", 0.004 * 4e-4, data=np.zeros(n, np.int64))
    value = writer.tensor((1, n), "int16", 3e-4)
    writer.operator("FULLY_CONNECTED", [first, weights, bias], [value], keepNumDims=True)
    for number in range(curves):
        bent, total = (writer.tensor((1, n), "int16", 3e-4 + number * 1e-5) for _ in range(2))
        writer.operator("GELU", [value], [bent], approximate=False)
        writer.operator("ADD", [value, bent], [total], potScaleInt16=False)
        value = total
    return writer.content([first], [value]), count


SHAPE = (1, 3, 4, 20)


def chain(kind: str, uses: int) -> bytes:
    """Return a model of an operator of a kind, and a GELU of its result.

    With two uses, an ADD takes the results of the operator and of the GELU.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    source = writer.tensor(SHAPE, "int16", 4e-4)
    between, bent, total = (writer.tensor(SHAPE, "int16", scale) for scale in (3e-4, 3e-4, 6e-4))
    if kind == "ADD":
        writer.operator("ADD", [source, source], [between], potScaleInt16=False)
    else:
        weights = rng.integers(-127, 128, (20, 1, 1, 20), np.int8)
        kernel = writer.tensor(weights.shape, "int8", 0.002, data=weights)
        bias = writer.tensor((20,), "int64", 4e-4 * 0.002, data=np.zeros(20, np.int64))
        writer.operator("CONV_2D", [source, kernel, bias], [between], strideH=1, strideW=1)
    writer.operator("GELU", [between], [bent], approximate=False)
    if uses == 2:
        writer.operator("ADD", [between, bent], [total], potScaleInt16=False)
    return writer.content([source], [bent if uses == 1 else total])


@pytest.mark.parametrize("kind", ["ADD", "CONV_2D"])
@pytest.mark.parametrize("uses", [1, 2])
def test_after_an_operation_of_int16(kind: str, uses: int) -> None:
    """Check that an ADD or CONV_2D and the GELU after it become one operation.

    If another operator also takes the GELU's input, the GELU remains an operation of its own.
    """
    rng = np.random.default_rng(random_seed())
    content = chain(kind, uses)
    x = rng.integers(-(1 << 15), 1 << 15, (3, *SHAPE)).astype(np.int16)
    network = network_of(content)
    (stage,) = (stage for stage in network.stages if isinstance(stage, Operations))
    fused = fuse_tables(preset(MACHINE), stage)
    assert any(isinstance(node, Curve) for node in fused.nodes) == (uses == 2)
    run = run_network(GoldenBackend(preset(MACHINE)), network, x, batch=3)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["ADD", "CONV_2D"])
def test_rtl_after_an_operation(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    content = chain(kind, 1)
    x = rng.integers(-(1 << 15), 1 << 15, (3, *SHAPE)).astype(np.int16)
    backend = RtlBackend(preset(MACHINE), seed=random_seed())
    run = run_network(backend, network_of(content), x, batch=3)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("curves", [1, 5])
def test_in_a_network(curves: int) -> None:
    """Check networks with one curve and with five curves, too many for the machine's tables."""
    rng = np.random.default_rng(random_seed())
    content, count = block(curves)
    x = rng.integers(-(1 << 15), 1 << 15, (3, 1, count)).astype(np.int16)
    expected = interpret(content, x)
    compiled = api.compile(content, preset="base-attention")
    assert {each.place for each in compiled.placement} == {Place.MACHINE}
    assert np.array_equal(compiled.run(x, backend="iss").y, expected)
    # One program runs all three samples here. It loads a table again only if another table has
    # replaced it.
    run = run_network(GoldenBackend(preset("base-attention")), network_of(content), x, batch=3)
    assert np.array_equal(run.y, expected)


def test_a_machine_without_curves() -> None:
    """Check that a machine without curves leaves a GELU, and the ADD after it, to the host.

    The ADD alone is too little work for a program on the machine.
    """
    rng = np.random.default_rng(random_seed())
    content, count = block(1)
    x = rng.integers(-(1 << 15), 1 << 15, (3, 1, count)).astype(np.int16)
    with pytest.raises(CompileError, match="no curves"):
        run_network(GoldenBackend(preset("base")), network_of(content), x)
    compiled = api.compile(content, preset="base")
    places = {each.kind: each.place for each in compiled.placement}
    assert places["FULLY_CONNECTED"] is Place.MACHINE
    assert places["GELU"] is places["ADD"] is Place.HOST
    assert np.array_equal(compiled.run(x, backend="iss").y, interpret(content, x))


def test_numbers_over_float32_are_the_hosts() -> None:
    with pytest.raises(ModelError, match="over the range of float32"):
        network_of(model("exp", (1, 8), 1e-2, 1e-2))
