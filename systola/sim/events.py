# SPDX-License-Identifier: Apache-2.0
"""The signals in a recording of a program: events and levels of the machine.

A machine that is built to record has an output `machine_events`. Any other machine lacks this
output, and pays nothing for it. Only this file knows the names of the signals of `hdl/` in the
output. For harness.cpp the output has three fields: EVENTS pulses, a value of VALUE_BITS that
belongs to them, and LEVELS levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from systola.sim.state import with_output

PORT = "machine_events"
EVENTS, VALUE_BITS, LEVELS = 32, 64, 32
"""Widths of the fields of the output, in bits, from bit 0 on: events, their value, and levels."""
_BOARD = "core.scoreboard"


class Event(IntEnum):
    """A pulse: an instruction, or a burst of a port, has reached this point."""

    ISSUE = 0
    """Pulse when an instruction is issued; the value is the instruction's number."""
    MASKED = 1
    """Pulse in the cycle after an issue; the value has a field for each of Queue.masks, from bit 0
    on.

    Bit 0 of a field is 1 if the instruction may have to wait for an entry of that list. Two numbers
    follow. The first is the place of the youngest such entry in the list's ring. The second counts
    earlier entries of the same run of entries.
    """
    HOST_READS_BEGIN = 2
    HOST_READING_END = 3
    MATRIX_BEGIN = 4
    MATRIX_READING_END = 5
    MATRIX_SUMMING_END = 6
    ACTIVATE_BEGIN = 7
    ACTIVATE_READING_END = 8
    ACTIVATE_OPERANDS_END = 9
    ACTIVATE_WRITING_END = 10
    HOST_WRITING_END = 11
    WEIGHTS_BEGIN = 12
    WEIGHT_BURST_END = 13
    FETCH_BEGIN = 14
    FETCH_END = 15
    LOADING_END = 16


@dataclass(frozen=True)
class Queue:
    """A queue of the scoreboard, and the lists that its instructions wait for."""

    name: str
    waits: str
    """Text before the name of a mask. Both together name a flag: it is 1 while the unit waits for
    the instruction that the mask names."""
    masks: tuple[str, ...]
    begin: Event | None
    """Pulse when the unit takes the oldest instruction; None if there is no such pulse."""
    waits_before: bool = False
    """Whether the unit waits before it takes an instruction, not while it executes it."""


QUEUES = (
    Queue(
        "host_reads",
        f"{_BOARD}.host_reads_queue.\\blocked.",
        ("matrix_reading", "activate_operands", "activate_writing", "host_writing"),
        Event.HOST_READS_BEGIN,
        waits_before=True,
    ),
    Queue(
        "matrix",
        "core.matrix_unit.interlock.\\waits.",
        ("host_reading", "activate_writing", "activate_reading"),
        Event.MATRIX_BEGIN,
    ),
    Queue(
        "activate",
        "core.activation_unit.interlock.\\waits.",
        (
            *("matrix_summing", "matrix_reading", "activate_writing", "host_writing"),
            *("operand_writing", "host_reading", "loading"),
        ),
        Event.ACTIVATE_BEGIN,
    ),
    Queue(
        "host_writes",
        "core.host_writer.interlock.\\waits.",
        ("host_reading", "activate_writing"),
        None,
    ),
)
LISTS = {
    "host_reading": (Event.HOST_READING_END, "lines that are read from host memory"),
    "loading": (Event.LOADING_END, "parameters and tables that are read from host memory"),
    "matrix_reading": (Event.MATRIX_READING_END, "lines that the array reads"),
    "matrix_summing": (Event.MATRIX_SUMMING_END, "sums of the array"),
    "activate_reading": (Event.ACTIVATE_READING_END, "rows that Activate reads"),
    "activate_operands": (Event.ACTIVATE_OPERANDS_END, "lines that the activation unit reads"),
    "activate_writing": (Event.ACTIVATE_WRITING_END, "lines that the activation unit writes"),
    "host_writing": (Event.HOST_WRITING_END, "lines that are written to host memory"),
}
"""Lists of the scoreboard: the event at which the oldest instruction leaves a list, and the thing
that other instructions wait for there."""

_EVENTS = {
    Event.ISSUE: "core.sequencer.issue",
    Event.MASKED: "|events_pushed",
    Event.HOST_READS_BEGIN: "core.host_reader.planner.transfer__valid "
    "& ~core.host_reader.planner.run_valid",
    Event.HOST_READING_END: f"{_BOARD}.host_reading.retire",
    Event.MATRIX_BEGIN: "core.matrix_unit.walker.walk__valid & ~core.matrix_unit.walker.present",
    Event.MATRIX_READING_END: f"{_BOARD}.matrix_reading.retire",
    Event.MATRIX_SUMMING_END: f"{_BOARD}.matrix_summing.retire",
    Event.ACTIVATE_BEGIN: "core.activation_unit.planner.begins",
    Event.ACTIVATE_READING_END: f"{_BOARD}.activate_reading.retire",
    Event.ACTIVATE_OPERANDS_END: f"{_BOARD}.activate_operands.retire",
    Event.ACTIVATE_WRITING_END: f"{_BOARD}.activate_writing.retire",
    Event.HOST_WRITING_END: f"{_BOARD}.host_writing.retire",
    Event.WEIGHTS_BEGIN: f"{_BOARD}.weights_queue.pop",
    Event.WEIGHT_BURST_END: "m_axi_weight_rvalid & m_axi_weight_rready & m_axi_weight_rlast",
    Event.FETCH_BEGIN: "m_axi_host_arvalid & m_axi_host_arready & (m_axi_host_arid == 1)",
    Event.FETCH_END: "m_axi_host_rvalid & m_axi_host_rready & m_axi_host_rlast "
    "& (m_axi_host_rid == 1)",
    Event.LOADING_END: f"{_BOARD}.loading.retire",
}

HOST_DATA, HOST_FETCH, HOST_WRITE, WEIGHTS = "host data in", "instructions", "host out", "weights"
"""Names of levels that are high while a beat moves: data of host reads, instructions, host writes,
and weights."""
ARRAY, AWAITING_WEIGHTS, ISSUE_WAITS = "array active", "awaiting weights", "issue waits"


def waits(queue: Queue, mask: str) -> str:
    """Return the level that is high while the unit of `queue` waits for entries of `mask`."""
    return f"{queue.name} waits for {mask}"


def list_of(mask: str) -> str:
    """Return the list of the scoreboard that a mask belongs to."""
    return "activate_writing" if mask == "operand_writing" else mask


_READ = "m_axi_host_rvalid & m_axi_host_rready"
_LEVELS = {
    HOST_DATA: f"{_READ} & (m_axi_host_rid == 0)",
    HOST_FETCH: f"{_READ} & (m_axi_host_rid == 1)",
    HOST_WRITE: "m_axi_host_wvalid & m_axi_host_wready",
    WEIGHTS: "m_axi_weight_rvalid & m_axi_weight_rready",
    ARRAY: "core.matrix_unit.active",
    AWAITING_WEIGHTS: "core.matrix_unit.awaiting_weights",
    ISSUE_WAITS: "core.sequencer.waits",
    **{waits(queue, name): f"{queue.waits}{name} " for queue in QUEUES for name in queue.masks},
}
LEVEL_NAMES = tuple(_LEVELS)
"""Names of the levels in the order of their bits."""


def with_events(verilog: str) -> str:
    """Return the Verilog of module `tpu` with the output `machine_events`."""
    queues = [f"{_BOARD}.{queue.name}_queue" for queue in QUEUES]
    pushes = ", ".join(f"{place}.push" for place in reversed(queues))
    value = f"{VALUE_BITS}'d0"
    for number, (place, queue) in enumerate(zip(queues, QUEUES, strict=True)):
        fields = ", ".join(f"{place}.\\pushed_masks.{name} " for name in reversed(queue.masks))
        value = f"events_pushed[{number}] ? {{{fields}}} : {value}"
    value = f"core.sequencer.issue ? core.sequencer.\\decoded__payload.pc : {value}"
    body = [
        f"  reg [{len(queues) - 1}:0] events_pushed = 0;",
        f"  always @(posedge clk) events_pushed <= {{{pushes}}};",
        f"  wire [{VALUE_BITS - 1}:0] events_value = {value};",
        f"  wire [{EVENTS - 1}:0] events_now = {{{_bits(list(_EVENTS.values()))}}};",
        f"  wire [{LEVELS - 1}:0] events_levels = {{{_bits(list(_LEVELS.values()))}}};",
    ]
    return with_output(
        verilog,
        PORT,
        EVENTS + VALUE_BITS + LEVELS,
        "{events_levels, events_value, events_now}",
        body,
    )


def _bits(expressions: list[str]) -> str:
    return ", ".join(f"({each})" for each in reversed(expressions))
