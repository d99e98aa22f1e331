# SPDX-License-Identifier: Apache-2.0
"""Probes: signals for events of the micro-architecture. Verilator counts their toggles.

A probe is an expression of signals that have names in Amaranth's Verilog, seen from the top module.
"""

from __future__ import annotations

from collections.abc import Iterator

_CHANNELS = {
    "host AR": "m_axi_host_ar",
    "host R": "m_axi_host_r",
    "host AW": "m_axi_host_aw",
    "host W": "m_axi_host_w",
    "host B": "m_axi_host_b",
    "weight AR": "m_axi_weight_ar",
    "weight R": "m_axi_weight_r",
}
_BURSTS = ("host AR", "host AW", "weight AR")
_PAGE = 4096
_QUEUES = ("matrix", "activate", "host_reads", "host_writes")
_LISTS = (
    *("host_reading", "matrix_reading", "matrix_summing"),
    *("activate_reading", "activate_operands", "activate_writing", "host_writing"),
)
"""Names of the scoreboard's lists of issued instructions."""
_SHARED = ("operands", "dma_out", "dma_in")
"""Names of the unified buffer's ports that sometimes have to wait for another port."""


def probes() -> dict[str, str]:
    """Return the Verilog expression of each event, by name; it is 1 while the event happens."""
    return dict(_probes())


def _probes() -> Iterator[tuple[str, str]]:
    for name, port in _CHANNELS.items():
        yield f"{name}: moves", f"{port}valid & {port}ready"
        yield f"{name}: valid waits", f"{port}valid & ~{port}ready"
        yield f"{name}: ready waits", f"~{port}valid & {port}ready"
    for name in _BURSTS:
        port = _CHANNELS[name]
        taken = f"{port}valid & {port}ready"
        end = f"{port}addr[11:0] + (({port}len + 13'd1) << {port}size)"
        yield f"{name}: one beat", f"{taken} & ({port}len == 0)"
        yield f"{name}: several beats", f"{taken} & ({port}len != 0)"
        yield f"{name}: ends at a 4 KiB edge", f"{taken} & (({end}) == 13'd{_PAGE})"
        yield f"{name}: begins at a 4 KiB edge", f"{taken} & ({port}addr[11:0] == 0)"
    for name in ("host R", "host B", "weight R"):
        port = _CHANNELS[name]
        yield f"{name}: an error", f"{port}valid & {port}ready & (|{port}resp)"
    for number, user in enumerate(("data", "instructions")):
        read = "m_axi_host_rvalid & m_axi_host_rready"
        yield f"host R: {user}", f"{read} & (m_axi_host_rid == {number})"
    for queue in _QUEUES:
        place = f"core.scoreboard.{queue}_queue"
        yield f"{queue} queue: full", f"{place}.full"
        yield f"{queue} queue: empty", f"~{place}.valid"
    for name in _LISTS:
        yield f"{name}: full", f"core.scoreboard.{name}.full"
    fifo = "core.weight_fetch.fifo"
    yield "weight FIFO: full", f"{fifo}.full"
    yield "weight FIFO: empty", f"~{fifo}.rows__valid"
    for port in _SHARED:
        place = f"core.unified_buffer.{port}"
        yield f"unified buffer: {port} waits", f"{place}__enable & ~{place}__ready"
    yield "interrupt", "irq"


def with_probes(verilog: str) -> str:
    """Return the Verilog with a signal for each probe at the end of module `tpu`."""
    start = verilog.index("\nmodule tpu(")
    end = verilog.index("\nendmodule", start)
    lines = [f"  wire probe_{number} = {text};" for number, text in enumerate(probes().values())]
    return "\n".join((verilog[:end], *lines, verilog[end + 1 :]))


def probe_name(number: int) -> str:
    """Return the name of the event that the signal `probe_{number}` of the Verilog shows."""
    return list(probes())[number]
