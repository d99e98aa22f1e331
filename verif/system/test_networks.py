# SPDX-License-Identifier: Apache-2.0
"""Convolutional and recurrent networks on the RTL: every byte is that of LiteRT."""

import pytest

from systola.arch.config import preset
from systola.runtime.rtl import RtlBackend
from systola.verif.compiler.stored_networks import CONVOLUTIONAL, RECURRENT, stored_program
from systola.verif.kit.seeds import random_seed

PRESET = "base"
SAMPLES = 4


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (30, 0.1)], ids=["ideal", "loaded"])
@pytest.mark.parametrize("name", [*CONVOLUTIONAL, *RECURRENT])
def test_network(name, latency, stall):
    config = preset(PRESET)
    image, check = stored_program(name, config, SAMPLES)
    backend = RtlBackend(config, latency=latency, stall=stall, seed=random_seed())
    result = backend.run(image)
    assert result.fault is None
    check(result.host)
