# SPDX-License-Identifier: Apache-2.0
"""Tests of networks in all forms that ONNX Runtime's quantiser writes, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.network import make_network
from systola.compiler.onnx.translate import translate_onnx
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.float_onnx import FORMS, NETWORKS, quantised
from systola.verif.compiler.onnx_writer import interpret
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

# All warnings are ignored, as the quantiser warns that the float32 model should be prepared first.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("network", NETWORKS)
def test_quantised_network(network: str, form: str) -> None:
    rng = np.random.default_rng(random_seed())
    content, x = quantised(rng, network, form, 6)
    expected = interpret(content, x)
    run = run_network(
        GoldenBackend(preset(str(rng.choice(["base", "small", "14x14"])))),
        make_network(translate_onnx(content)),
        x,
    )
    y = run.y.reshape(expected.shape)
    steps = np.diff(np.unique(expected))
    step = steps.min() if steps.size else 1.0
    # If a layer has a sum half-way between two codes, results of this sample may differ by a code.
    # In 123 networks, at most one of the six samples had results that differed, up to four.
    assert np.abs(y - expected).max() <= 3.01 * step
    assert np.count_nonzero((y != expected).reshape(len(y), -1).any(axis=1)) <= 2
