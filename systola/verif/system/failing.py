# SPDX-License-Identifier: Apache-2.0
"""A cocotb test that fails on purpose: other tests read its failure message.

The test stores in a file the time at which the wrong byte is written.
"""

import os
from pathlib import Path

import cocotb
from cocotb.simtime import get_sim_time
from cocotb.triggers import RisingEdge

from systola.verif.kit.bench import TB
from systola.verif.kit.signals import read_bit
from systola.verif.system.test_failures import Broken, copy


@cocotb.test
async def a_wrong_byte(dut):
    tb = TB(dut)
    await tb.start()

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            if read_bit(dut.m_axi_host_wvalid) and read_bit(dut.m_axi_host_wready):
                Path(os.environ["TPU_WRITTEN"]).write_text(f"{get_sim_time('ps'):.0f}")

    cocotb.start_soon(watch())
    tb.golden = Broken(tb.config)
    await tb.check_program(copy(tb.config))
