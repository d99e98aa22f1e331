# SPDX-License-Identifier: Apache-2.0
"""The test that no on-chip memory starts with contents that a test could depend on."""

import re

import cocotb
import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.sim.design import verilog_of
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import DATA_OFFSET, make_image
from systola.verif.kit.launch import chosen_netlist, run_machine, simulators
from systola.verif.plan.selection import thorough

LINES = 8
CONTENTS = re.compile(r"^ *initial (?:begin\n *)?\S+\[\d+\] = ", re.MULTILINE)


def shows_lines(config):
    """Return a program that writes buffer lines that were never filled to host memory."""
    copy = encode(
        Opcode.WRITE_HOST_MEMORY, **lines_out(config, host=DATA_OFFSET, line=0, rows=LINES)
    )
    return make_image([copy, encode(Opcode.HALT)], host=np.zeros(2 * DATA_OFFSET, np.uint8))


def shown(config, host):
    return host[DATA_OFFSET:].reshape(-1, config.output_pitch)[:LINES, : config.cols]


ON_ICARUS = "icarus" in getattr(cocotb, "SIM_NAME", "").lower()


@cocotb.test(expect_error=ValueError if ON_ICARUS else ())
async def lines_are_unknown_or_random(dut):
    """Check that buffer lines start with random bytes.

    On Icarus the bits of the lines are unknown, and reading the lines raises ValueError.
    """
    tb = TB(dut)
    await tb.start()
    result = await tb.run_program(shows_lines(tb.config))
    assert shown(tb.config, result.host).any()


@pytest.mark.skipif(chosen_netlist() is not None, reason="blocks of an FPGA start with zeros")
@pytest.mark.parametrize("simulator", simulators())
def test_start_contents(simulator):
    run_machine("system.test_start_contents", simulator)


@pytest.mark.parametrize("name", ["tiny", thorough("small")])
def test_library(name):
    """Check that the library's start contents differ from seed to seed, and repeat with a seed."""
    config = preset(name)

    def start(seed):
        with Simulator(config, seed=seed) as machine:
            return shown(config, machine.run(shows_lines(config)).host)

    assert (start(1) == start(1)).all()
    assert (start(1) != start(2)).mean() > 0.9


@pytest.mark.parametrize("name", ["tiny", thorough("small-parity"), thorough("base")])
def test_no_memory_has_contents(name):
    """Check that no memory of the Verilog has start contents: buffer, tables, taps, queues, etc."""
    assert not CONTENTS.search(verilog_of(preset(name)))
    assert CONTENTS.search("  initial begin\n    memory[0] = 8'h00;\n  end\n")
