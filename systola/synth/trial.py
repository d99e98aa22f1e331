# SPDX-License-Identifier: Apache-2.0
"""The folder `try` of a delivery: two test benches, a program, and the bytes that it must give."""

from __future__ import annotations

import re
from importlib.resources import files

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image_files import image_macros, memory_hex
from systola.hdl.parts.fabric import Fabric
from systola.synth.provenance import file_header
from systola.synth.trial_program import trial_program

_LIMIT = 20_000
"""Cycles after which a test bench reports that the program does not end: far more than it takes."""


def trial(config: Config) -> dict[str, str]:
    """Return the text of each file by its name, for the module `tpu_axi` of the configuration."""
    image, expected = trial_program(config)
    header = file_header(config.name, "//")
    values = {
        "ADDRESS_BITS": config.address_bits,
        "HOST_BYTES": config.host_bus_bytes,
        "WEIGHT_BYTES": config.weight_bus_bytes,
        "HOST_BEATS": image.host.size // config.host_bus_bytes,
        "WEIGHT_BEATS": image.weights.size // config.weight_bus_bytes,
        "HOST_PAGES": image.host.size // HOST_PAGE_BYTES,
        "WEIGHT_TILES": image.weights.size // config.tile_bytes,
        "PROGRAM": f"{image.program_offset:x}",
        "LIMIT": _LIMIT,
    }
    bench = re.sub(r"@(\w+)@", lambda name: str(values[name[1]]), _text("testbench.v"))
    return {
        "try/testbench.v": header + bench,
        "try/test_tpu_axi.py": file_header(config.name, "#") + _text("test_tpu_axi.py"),
        "try/host.hex": header + memory_hex(image.host, config.host_bus_bytes),
        "try/weight.hex": header + memory_hex(image.weights, config.weight_bus_bytes),
        "try/expected.hex": header + memory_hex(expected, config.host_bus_bytes),
        "try/image.h": header + "\n".join([*image_macros(config, image), ""]),
    }


def trial_text(fabric: Fabric) -> list[str]:
    """Return lines of Markdown on the use of the folder `try`, for a machine of the fabric."""
    lines = [
        "## Trying it",
        "",
        "`try` has a program with the bytes that numpy gives for it, and two test benches.",
        "Each ends with status 0 and a line with PASS, or with another status and FAIL.",
        "",
        "```",
        "cd try",
        "iverilog -g2005 -s testbench -o sim.vvp testbench.v ../*.v && vvp -N sim.vvp",
        "verilator --binary --timing -Wno-lint --top testbench testbench.v ../*.v \\",
        "    && obj_dir/Vtestbench",
        "python test_tpu_axi.py       # needs Icarus Verilog, cocotb 2 and cocotbext-axi",
        "```",
    ]
    if fabric not in (Fabric.GENERIC, Fabric.CHIP):
        lines += [
            "",
            f"The Verilog places blocks of the FPGA family `{fabric.value}` by name: a simulator",
            "needs the vendor's models of these, too.",
        ]
    return lines


def _text(name: str) -> str:
    """Return a file of the folder `delivered` without its first line, the licence."""
    text = files("systola.synth").joinpath("delivered", name).read_text(encoding="utf-8")
    return text.partition("\n")[2]
