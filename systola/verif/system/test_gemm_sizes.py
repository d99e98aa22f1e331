# SPDX-License-Identifier: Apache-2.0
"""Tests of matrix products of random sizes on the RTL, compiled by the project, against numpy.

All sizes up to 4S + 1, with S the larger side of the array, are tried on the golden model in
verif/compiler.
"""

import random

import numpy as np
import pytest

from systola.arch.config import preset
from systola.cli.gemm import random_gemm
from systola.compiler.schedule import compile_chain
from systola.runtime.reference import layer_reference
from systola.sim.library import Simulator
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

SOME = 40
EXHAUSTIVE = ("2x2", "4x4", "8x8", "14x14", "16x16", "32x32", "12x20")
MANY = 143
"""Number of products on each machine: more than a thousand on all machines together."""


def check_products(name, count):
    config = preset(name)
    rng = random.Random(f"{random_seed()} {name}")
    most = 4 * max(config.rows, config.cols) + 1
    for number in range(count):
        m, k, n = (rng.randint(1, most) for _ in range(3))
        memory = rng.choice(((0, 0.0), (rng.randint(1, 40), rng.choice((0.0, 0.1, 0.4)))))
        a, layer = random_gemm(m, k, n, rng.getrandbits(32))
        compiled = compile_chain(config, [layer], m)
        with Simulator(config, latency=memory[0], stall=memory[1], seed=number) as machine:
            result = machine.run(compiled.bind(a), limit=1_000_000)
        same = np.array_equal(compiled.result(result.host), layer_reference(a, layer))
        assert same, f"{m} x {k} x {n}, memory {memory}, number {number} of seed {random_seed()}"


@pytest.mark.parametrize("name", ["tiny", thorough("7x5"), thorough("base")])
def test_random_sizes(name):
    check_products(preset_name(name), SOME)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_a_thousand_random_sizes(name):
    check_products(name, MANY)
