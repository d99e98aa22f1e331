# SPDX-License-Identifier: Apache-2.0
"""The state of a machine that does not come to an end, as far as simulators can see it.

Verilog for cocotb has an output `machine_state` for this: signals of the units side by side. It
makes the C++ simulator 3 % slower, which gets it only after a program has not ended. Only this file
knows the names of these signals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from systola.arch.assembler import disassemble
from systola.arch.isa import INSTRUCTION_BYTES
from systola.arch.registers import BusPort, Status

PORT = "machine_state"
_BOARD = "core.scoreboard"
_UNITS = {
    "host_reader": (
        f"{_BOARD}.host_reads_queue",
        f"{_BOARD}.host_reads_queue.blocked",
        ("matrix_reading", "activate_operands", "activate_writing", "host_writing"),
        ("host_reading",),
    ),
    "matrix_unit": (
        f"{_BOARD}.matrix_queue",
        "core.matrix_unit.interlock.waits",
        ("host_reading", "activate_writing", "activate_reading"),
        ("matrix_reading", "matrix_summing"),
    ),
    "activation_unit": (
        f"{_BOARD}.activate_queue",
        "core.activation_unit.interlock.waits",
        *(
            (
                *("matrix_summing", "matrix_reading", "activate_writing", "host_writing"),
                *("operand_writing", "host_reading", "loading"),
            ),
            ("activate_reading", "activate_operands", "activate_writing"),
        ),
    ),
    "host_writer": (
        f"{_BOARD}.host_writes_queue",
        f"{_BOARD}.host_writes_queue.blocked",
        ("host_reading", "activate_writing"),
        ("host_writing",),
    ),
}
"""For each unit of the machine: its queue, the prefix of its wait flags, their masks, and its
lists.

The flags show the reasons for which the unit waits. The lists hold the unit's own instructions
while they are under way.
"""


def _fields() -> dict[str, tuple[int, str]]:
    """Return width and Verilog expression of each signal shown, seen from the top module."""
    fields = {
        "status": (4, "machine_control.status"),
        "owing": (3, "watchdog.ports_owing"),
        "next": (28, "core.fetch.\\instruction__payload.pc "),
        "issue": (1, "core.sequencer.decoded__valid"),
        "issue pc": (28, "core.sequencer.\\decoded__payload.pc "),
        "room": (1, f"{_BOARD}.room"),
        "drained": (1, f"{_BOARD}.idle"),
        "weights": (1, "core.matrix_unit.awaiting_weights"),
    }
    for unit, (queue, waits, others, own) in _UNITS.items():
        prefix, _, flags = waits.rpartition(".")
        fields[f"{unit} queue"] = (1, f"{queue}.valid")
        fields[f"{unit} full"] = (1, f"{queue}.full")
        for name in others:
            fields[f"{unit} waits {name}"] = (1, f"{prefix}.\\{flags}.{name} ")
        fields[f"{unit} has"] = (1, " | ".join(f"(|{_BOARD}.{name}.valid)" for name in own))
    return fields


FIELDS = _fields()
BITS = sum(width for width, _ in FIELDS.values())


def with_state(verilog: str) -> str:
    """Return the Verilog of module `tpu` with the output `machine_state`."""
    parts = ", ".join(expression for _, expression in reversed(FIELDS.values()))
    return with_output(verilog, PORT, BITS, f"{{{parts}}}")


def with_output(
    verilog: str, port: str, bits: int, expression: str, body: Sequence[str] = ()
) -> str:
    """Return the Verilog of module `tpu` with one more output, and with the lines `body` for it."""
    lines = [f"  output [{bits - 1}:0] {port};", *body, f"  assign {port} = {expression};"]
    text = "".join(f"{line}\n" for line in lines)
    head, found, rest = verilog.partition("\nmodule tpu(")
    assert found, "no module 'tpu'"
    return f"{head}{found}{port}, " + re.sub(r"\);\n", lambda end: end[0] + text, rest, count=1)


def described(state: int, program: bytes) -> str:
    """Describe the value of the output in words, for a machine that runs `program`."""
    now: dict[str, int] = {}
    for name, (width, _) in FIELDS.items():
        now[name] = state & ((1 << width) - 1)
        state >>= width
    lines = [f"STATUS: {Status(now['status']).name}"]
    if now["issue"]:
        text = f"issue: {_instruction(now['issue pc'], program)}"
        if not now["room"]:
            full = [unit for unit in _UNITS if now[f"{unit} full"]]
            text += f", waits for room in the queue of {' or '.join(full) or 'its unit'}"
        elif not now["drained"]:
            text += ", may wait for the units"
    else:
        text = f"issue: none; the next to decode is {_instruction(now['next'], program)}"
    lines.append(text)
    for unit, (_, _, others, _) in _UNITS.items():
        waits = [name for name in others if now[f"{unit} waits {name}"]]
        if unit == "matrix_unit" and now["weights"]:
            waits.append("weights")
        busy = now[f"{unit} queue"] or now[f"{unit} has"]
        if waits and busy:
            lines.append(f"{unit}: waits for {', '.join(waits)}")
        else:
            lines.append(f"{unit}: {'at work' if busy else 'nothing to do'}")
    owing = BusPort(now["owing"])
    lines.append(f"memories owe answers: {owing.name if owing else 'none'}")
    return "\n  ".join(lines)


def _instruction(number: int, program: bytes) -> str:
    word = program[number * INSTRUCTION_BYTES :][:INSTRUCTION_BYTES]
    text = disassemble(word).strip() if len(word) == INSTRUCTION_BYTES else "beyond the window"
    return f"instruction {number} ({text})"
