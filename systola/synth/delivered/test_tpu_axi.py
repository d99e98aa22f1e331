# SPDX-License-Identifier: Apache-2.0
"""tpu_axi between the AXI models of cocotbext-axi: `python test_tpu_axi.py` in this folder.

Loads the program of this folder, runs it, and compares the host window with expected.hex. The
variable SIM chooses the simulator, `icarus` unless it is set. Needs cocotb 2 and cocotbext-axi.
"""

import os
import re
import sys
import warnings
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # cocotbext-axi uses names that cocotb 2 deprecates
    from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam, AxiRamRead, AxiReadBus

HERE = Path(__file__).resolve().parent
HOST_BASE, WEIGHT_BASE = 0x10000, 0x20000


def defines(name):
    """Return the numbers of a C header by their names without SYSTOLA_."""
    found = re.findall(r"#define SYSTOLA_(\w+) 0x(\w+)u", (HERE / name).read_text())
    return {name: int(value, 16) for name, value in found}


def content(name):
    """Return the bytes of a memory from a .hex file; the last byte of each word in the file comes
    first.
    """
    words = [line for line in (HERE / name).read_text().split("\n") if line and line[0] != "/"]
    return b"".join(bytes.fromhex(word)[::-1] for word in words)


@cocotb.test
async def program(dut):
    """Check that the program ends at Halt and leaves the expected bytes."""
    reg, image = defines("../systola.h"), defines("image.h")
    dut.aresetn.value = 0
    Clock(dut.aclk, 10, unit="ns").start()
    ports = dut.aclk, dut.aresetn, False  # the reset is active low
    registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), *ports)
    host_bytes, weights = content("host.hex"), content("weight.hex")
    host = AxiRam(AxiBus.from_prefix(dut, "m_axi_host"), *ports, size=HOST_BASE + len(host_bytes))
    weight = AxiRamRead(
        AxiReadBus.from_prefix(dut, "m_axi_weight"), *ports, size=WEIGHT_BASE + len(weights)
    )
    host.write(HOST_BASE, host_bytes)
    weight.write(WEIGHT_BASE, weights)
    await ClockCycles(dut.aclk, 5)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)
    for register, value in (
        ("HOST_BASE_LO", HOST_BASE),
        ("HOST_BASE_HI", 0),
        ("HOST_PAGES", image["IMAGE_HOST_PAGES"]),
        ("WEIGHT_BASE_LO", WEIGHT_BASE),
        ("WEIGHT_BASE_HI", 0),
        ("WEIGHT_TILES", image["IMAGE_WEIGHT_TILES"]),
        ("PROGRAM", image["IMAGE_PROGRAM"]),
        ("BUS_TIMEOUT", 10_000),
        ("IRQ_ENABLE", reg["IRQ_DONE"] | reg["IRQ_FAULT"]),
        ("CONTROL", reg["CONTROL_START"]),
    ):
        await registers.write_dword(reg[register], value)
    await with_timeout(RisingEdge(dut.irq), 10, "ms")
    assert await registers.read_dword(reg["STATUS"]) == reg["STATUS_DONE"]
    assert host.read(HOST_BASE, len(host_bytes)) == content("expected.hex")


if __name__ == "__main__":
    runner = get_runner(os.environ.get("SIM", "icarus"))
    runner.build(
        sources=sorted(HERE.parent.glob("*.v")),
        hdl_toplevel="tpu_axi",
        build_dir=HERE / "sim_build",
        timescale=("1ns", "1ps"),
    )
    results = runner.test(hdl_toplevel="tpu_axi", test_module=Path(__file__).stem, test_dir=HERE)
    tests, failed = get_results(results)
    if failed or not tests:
        sys.exit("FAIL: see above")
    print("PASS: all bytes of the host window are right")
