# SPDX-License-Identifier: Apache-2.0
"""A test of random chains of fully connected layers on the simulated RTL."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.registers import CycleClass
from systola.compiler.errors import CompileError
from systola.compiler.schedule import compile_chain
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.verif.cli.test_errors import run
from systola.verif.compiler.products import product, random_layer
from systola.verif.compiler.test_networks import model_file, network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

CONFIG = preset("tiny")


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (25, 0.2)])
def test_random_chains(latency: int, stall: float) -> None:
    rng = np.random.default_rng(random_seed())
    backend = RtlBackend(CONFIG, latency=latency, stall=stall, seed=random_seed())
    golden = GoldenBackend(CONFIG)
    for _ in range(40):
        widths = [int(2 ** rng.uniform(0, 7)) for _ in range(int(rng.integers(2, 5)))]
        # In one of four chains, the input has 40 times as many values, and may not fit the buffer.
        widths[0] *= int(rng.choice([1, 1, 1, 40]))
        layers = [random_layer(rng, k, n) for k, n in pairwise(widths)]
        rows = int(2 ** rng.uniform(0, 7))
        a = rng.integers(-128, 128, (rows, widths[0]), dtype=np.int8)
        try:
            compiled = compile_chain(CONFIG, layers, rows)
        except CompileError:
            continue
        image = compiled.bind(a)
        result = backend.run(image)
        assert result.fault is None, (widths, rows, result.fault)
        assert np.array_equal(result.host, golden.run(image).host), (widths, rows)
        for layer in layers:
            a = product(a, layer)
        assert np.array_equal(compiled.result(result.host), a), (widths, rows)
        assert sum(result.counters.values()) == result.cycles


def test_network() -> None:
    name = "mlp_odd_relu6_tanh_sigmoid"
    network = network_of(model_file(f"{name}.tflite"))
    with np.load(str(files("systola.models") / f"{name}.npz")) as stored:
        result = run_network(RtlBackend(CONFIG), network, stored["x"], batch=5)
        assert np.array_equal(result.y, stored["y_ref"])
    assert result.cycles is not None
    assert sum(result.counters.values()) == result.cycles


def test_gemm_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    options = "--preset tiny --latency 5 --stall 0.1 --seed 3"
    status, out, err = run(f"gemm 9 17 6 {options} --json {path}", capsys)
    assert status == 0, err
    assert "cycles, utilisation" in out
    figures = json.loads(path.read_text())
    assert figures["bit_exact"] is True
    assert set(figures["counters"]) == {which.name.lower() for which in CycleClass}
    assert sum(figures["counters"].values()) == figures["cycles"]
    assert figures["utilization"] == pytest.approx(9 * 17 * 6 / (16 * figures["cycles"]))
    assert figures["simulated_cycles_per_second"] > 0
