# SPDX-License-Identifier: Apache-2.0
"""The test of the skid buffer: order, latency, its two places, and the full rate."""

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.verif.kit.checker import StreamRules
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

BITS = 12


def unit():
    return SkidBuffer(payload=data.StructLayout({"word": BITS}))


@cocotb.test
@cocotb.parametrize(
    (("offers", "takes"), [(1.0, 1.0), (1.0, 0.5), (0.5, 1.0), (0.6, 0.6), (1.0, 0.1)])
)
async def order_and_places(dut, offers, takes):
    """Check that the buffer offers its oldest item, and has room for two."""
    bench = Bench(dut, unit())
    random = rng("skid_buffer", f"{offers} {takes}")
    await bench.start()
    rules = StreamRules("output")
    inside = []
    for _ in range(400):
        word, take = random.getrandbits(BITS), random.random() < takes
        await bench.cycle(
            input__valid=random.random() < offers, input__payload={"word": word}, output__ready=take
        )
        valid, ready = bench.gets("output__valid", "input__ready")
        assert (valid, ready) == (bool(inside), len(inside) < 2)
        shown = bench.get("output__payload")["word"] if valid else None
        rules.observe(shown, take)
        if valid:
            assert shown == inside[0]
        if valid and take:
            inside.pop(0)
        if ready and bench.get("input__valid"):
            inside.append(word)
        assert takes < 1 or len(inside) < 2, "does not keep up"


@pytest.mark.parametrize("simulator", simulators())
def test_skid_buffer(simulator):
    run_unit("test_skid_buffer", simulator, unit())
