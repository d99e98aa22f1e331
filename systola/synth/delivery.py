# SPDX-License-Identifier: Apache-2.0
"""The machine as a folder for somebody else's design: Verilog, pages, headers, a test bench."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files

from systola.arch.c_header import c_header
from systola.arch.config import Config
from systola.arch.pages import table
from systola.arch.reference import isa_page, registers_page
from systola.arch.shared_memory import SharedMemory
from systola.arch.systemrdl import systemrdl
from systola.hdl.parts.fabric import Fabric
from systola.hdl.verilog import generate, generate_pod
from systola.synth.axi_wrapper import axi_wrapper, port_list, wrapper_of
from systola.synth.constraints import DEFAULT_MHZ, timing_constraints
from systola.synth.provenance import file_header
from systola.synth.trial import trial, trial_text

_MACRO = "sram_1r1w"


def delivery(
    config: Config,
    fabric: Fabric,
    cores: int | None = None,
    shared: SharedMemory | None = None,
    mhz: float = DEFAULT_MHZ,
) -> dict[str, str]:
    """Return the text of each file by its name, which may have a folder in it.

    With `cores` the files are for a pod of this number of cores. The cores share the memory
    `shared`, or have memories of their own.
    `mhz` is the clock of the constraints.
    """
    top, text = "tpu", f"An array of {config.rows}x{config.cols} and all around it"
    if cores is None:
        verilog = generate(config, fabric)
    else:
        verilog = generate_pod(config, cores, fabric, shared)
        top, text = "pod", f"A ring of {cores} arrays of {config.rows}x{config.cols}"
    wrapper = wrapper_of(top)
    behavioural = files("systola.hdl.memories").joinpath(f"{_MACRO}.v").read_text()
    verilog_files = {
        f"{top}.v": verilog.replace(behavioural, ""),
        f"{wrapper}.v": axi_wrapper(config, verilog, top),
    }
    if behavioural in verilog:
        verilog_files[f"{_MACRO}.v"] = behavioural
    pages = {
        "README.md": _readme(config, fabric, verilog, top, text),
        "ports.md": _ports_page(config, verilog, top),
        "registers.md": registers_page(),
        "isa.md": isa_page(),
    }

    def headed(begin: str, end: str, contents: dict[str, str]) -> dict[str, str]:
        header = file_header(config.name, begin, end)
        return {name: header + _without_notice(text) for name, text in contents.items()}

    contents = {
        **headed("//", "", {**verilog_files, "systola.rdl": systemrdl(cores)}),
        **headed("/*", " */", {"systola.h": c_header()}),
        **headed("#", "", {"systola.sdc": timing_constraints(top, wrapper, mhz)}),
        **headed(
            "<!--", " -->", {name: _without_links(page, pages) for name, page in pages.items()}
        ),
    }
    return contents if cores else contents | trial(config)


def _without_notice(text: str) -> str:
    """Return the text without the licence and origin at its top, which the header replaces."""
    return re.sub(r"\A(?:(?:<!--|//) (?:SPDX|Made by).*\n)+", "", text)


def _without_links(page: str, pages: Collection[str]) -> str:
    """Return a page in which links to files that are not among `pages` are plain text."""
    return re.sub(
        r"\[([^\]]*)\]\(([^)#]+)(#[^)]*)?\)",
        lambda link: link[0] if link[2] in pages else link[1],
        page,
    )


def memory_macros(verilog: str) -> dict[tuple[int, int], int]:
    """Count the instances of `sram_1r1w` in the text by their width in bits and depth in words."""
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
        "| [`ports.md`](ports.md), [`registers.md`](registers.md), [`isa.md`](isa.md) | port list; "
        "registers, 4 KiB of them, or pages of 4 KiB; instructions and faults |",
        "| `systola.h`, `systola.rdl` | registers, bits and faults for C; registers as SystemRDL |",
        f"| `systola.sdc` | clock of `{top}` and `{wrapper}` |",
    ]
    if top == "tpu":
        lines.append("| `try` | test benches with a program: see below |")
    if macros:
        lines.append(f"| `{_MACRO}.v` | behavioural model of the memories; a chip replaces it |")
    lines += [
        "| `SHA256SUMS` | `sha256sum -c SHA256SUMS` |",
        "",
        "The host puts a program and its data in memory behind `m_axi_host`, and weights behind",
        "`m_axi_weight`, which may be the same memory. It writes HOST_BASE, HOST_PAGES,",
        "WEIGHT_BASE, WEIGHT_TILES and PROGRAM, then START to CONTROL, and waits for `irq` or for",
        "DONE in STATUS. BUS_TIMEOUT is 0 after a reset: then a memory that never answers is",
        "waited for without end. A driver writes a limit there, such as 1,000,000 cycles.",
        "`tpu image` makes contents of both memories, and a C header, of a network.",
        "",
    ]
    if macros:
        lines += ["| memories | bits of a word | words |", "|---|---|---|"]
        lines += [f"| {n} | {width} | {depth} |" for (width, depth), n in sorted(macros.items())]
        lines.append("")
    if top == "tpu":
        lines += trial_text(fabric)
    else:
        lines.append(
            "There is no test bench of a pod: deliver one core, without `--cores`, to try."
        )
    return "\n".join([*lines, ""])
