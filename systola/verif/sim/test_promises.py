# SPDX-License-Identifier: Apache-2.0
"""Tests that promises (assertions about signals between units) are checked in simulations only."""

import re

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.sim.design import verilog_of
from systola.sim.library import Simulator
from systola.sim.model import SimulationError
from systola.verif.kit.images import make_image

CONFIG = preset("tiny")


def test_not_in_hardware():
    assert "assert" not in verilog_of(CONFIG)


@pytest.mark.thorough
def test_a_broken_promise_is_told(capfd):
    """Check the message for a broken promise: a push to a full queue of the scoreboard.

    The scoreboard itself does not check for room.
    """
    text, places = re.subn(
        r"no_place <= [^;]*;", "no_place <= 1'h0;", verilog_of(CONFIG, promises=True)
    )
    assert places == 1
    write = encode(
        Opcode.WRITE_HOST_MEMORY,
        host=4096,
        buffer=0,
        rows=64,
        blocks=1,
        tail=1,
        stride=CONFIG.input_pitch,
    )
    image = make_image([*(8 * [write]), encode(Opcode.HALT)], host=np.zeros(1 << 16, np.uint8))
    with (
        Simulator(CONFIG, verilog=text, latency=100) as machine,
        pytest.raises(SimulationError, match="one has broken its promise"),
    ):
        machine.run(image)
    assert "a command for a full queue" in capfd.readouterr().out
