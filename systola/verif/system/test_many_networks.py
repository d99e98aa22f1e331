# SPDX-License-Identifier: Apache-2.0
"""The test that many networks on one machine, without a reset between, give LiteRT's bytes."""

import random

import pytest

from systola.arch.config import preset
from systola.sim.library import Simulator
from systola.verif.compiler.stored_networks import CONVOLUTIONAL, RECURRENT, stored_program
from systola.verif.kit.seeds import random_seed

PRESET = "base"
NETWORKS = (*CONVOLUTIONAL, *RECURRENT, "mlp_tutorial_pc_softmax", "lenet5")
MOST_SAMPLES = 4


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(40, id="some"),
        pytest.param(1000, id="thousand", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.thorough
def test_many_networks(count):
    config = preset(PRESET)
    rng = random.Random(random_seed())
    programs = {}
    with Simulator(config, latency=10, stall=0.05, seed=rng.randrange(1 << 32)) as machine:
        for _ in range(count):
            which = (rng.choice(NETWORKS), rng.randint(1, MOST_SAMPLES))
            if which not in programs:
                programs[which] = stored_program(which[0], config, which[1])
            image, check = programs[which]
            check(machine.run(image).host)
