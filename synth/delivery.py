# SPDX-License-Identifier: Apache-2.0
"""The machine as a folder for somebody else's design: Verilog, ports, registers, checksums."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from systola.arch.config import Config
from systola.arch.pages import table
from systola.arch.reference import registers_page
from systola.arch.shared_memory import SharedMemory
from systola.hdl.parts.fabric import Fabric
from systola.hdl.verilog import generate, generate_pod
from systola.synth.axi_wrapper import axi_wrapper, port_list, wrapper_of

_MACRO = "sram_1r1w"


def delivery(
    config: Config,
    fabric: Fabric,
    cores: int | None = None,
    shared: SharedMemory | None = None,
) -> dict[str, str]:
    """Text of each file by its name; with `cores` of a pod, `shared` as of Pod."""
    top, text = "tpu", f"An array of {config.rows}x{config.cols} and all around it"
    if cores is None:
        verilog = generate(config, fabric)
    else:
        verilog = generate_pod(config, cores, fabric, shared)
        top, text = "pod", f"A ring of {cores} arrays of {config.rows}x{config.cols}"
    behavioural = files("systola.hdl.memories").joinpath(f"{_MACRO}.v").read_text()
    contents = {
        f"{top}.v": verilog.replace(behavioural, ""),
        f"{wrapper_of(top)}.v": axi_wrapper(config, verilog, top),
        "ports.md": _ports_page(config, verilog, top),
        "registers.md": registers_page(),
        "README.md": _readme(config, fabric, verilog, top, text),
    }
    if behavioural in verilog:
        contents[f"{_MACRO}.v"] = behavioural
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in contents.items()}
    contents["SHA256SUMS"] = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    return contents


def memory_macros(verilog: str) -> dict[tuple[int, int], int]:
    """How many memories of each width and depth are instances of `sram_1r1w`, in a flat count."""
    found: dict[tuple[int, int], int] = {}
    for parameters in re.findall(rf"\b{_MACRO} #\((.*?)\)\s*\w+ \(", verilog, re.DOTALL):
        values = dict(re.findall(r"\.(\w+)\(32'd(\d+)\)", parameters))
        size = int(values["WIDTH"]), int(values["DEPTH"])
        found[size] = found.get(size, 0) + 1
    return found


def _ports_page(config: Config, verilog: str, top: str) -> str:
    rows = [("clk", "in", "1"), ("rst", "in", "1")]
    rows += [
        (name, "in" if is_input else "out", str(width))
        for name, is_input, width in port_list(verilog, top)
    ]
    return (
        f"# Ports of `{top}`, '{config.name}'\n\n"
        "All are synchronous to `clk`; `rst` is active high and synchronous. `s_axil_*` is an "
        "AXI4-Lite slave,\n`m_axi_host*` and `m_axi_memory*` are AXI4 masters, `m_axi_weight*` "
        "AXI4 masters that only read. Bursts are INCR, of full\n"
        "width, aligned, and stay within 4 KiB. "
        f"`{wrapper_of(top)}` has the same ports with `aclk` and the active-low `aresetn`.\n\n"
        + table(("Port", "Direction", "Width"), rows)
    )


def _readme(config: Config, fabric: Fabric, verilog: str, top: str, text: str) -> str:
    macros = memory_macros(verilog)
    wrapper = wrapper_of(top)
    lines = [
        f"# Systola, machine '{config.name}', fabric '{fabric.value}'",
        "",
        f"{text}, as plain Verilog.",
        "",
        "| file | what it is |",
        "|---|---|",
        f"| `{top}.v` | module `{top}`, all of it |",
        f"| `{wrapper}.v` | module `{wrapper}` around it, with the attributes of AXI interfaces |",
        "| `ports.md`, `registers.md` | port list; registers, 4 KiB of them, or pages of 4 KiB |",
    ]
    if macros:
        lines.append(f"| `{_MACRO}.v` | behavioural model of the memories; a chip replaces it |")
    lines += [
        "| `SHA256SUMS` | `sha256sum -c SHA256SUMS` |",
        "",
        "The host puts a program and its data in memory behind `m_axi_host`, and weights behind",
        "`m_axi_weight`, which may be the same memory. It writes HOST_BASE, HOST_PAGES,",
        "WEIGHT_BASE, WEIGHT_TILES and PROGRAM, then START to CONTROL, and waits for `irq` or for",
        "DONE in STATUS.",
    ]
    if macros:
        lines += ["", "| memories | bits of a word | words |", "|---|---|---|"]
        lines += [f"| {n} | {width} | {depth} |" for (width, depth), n in sorted(macros.items())]
    return "\n".join([*lines, ""])
