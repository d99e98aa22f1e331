# SPDX-License-Identifier: Apache-2.0
"""The way of each instruction from its issue to its end."""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.isa.codes import Opcode
from systola.arch.isa.fields import Executor, Instruction, Memory


@dataclass(frozen=True)
class Way:
    """The way of an instruction after its issue: its queue, and the lists that hold it until it is
    done.

    The instruction leaves the lists in their order. It is complete when it has left the last list.
    """

    queue: str
    lists: tuple[str, ...] = ()


def way_of(entry: Instruction) -> Way | None:
    """Return the way of an instruction, or None if it is done by the time of its issue.

    The link unit has its queues and lists twice, once for each neighbour, under the same names.
    """
    match entry.executor:
        case Executor.SEQUENCER:
            return Way("tags") if entry.opcode is Opcode.DEBUG_TAG else None
        case Executor.SCALAR_UNIT | Executor.DECODER:
            return None
        case Executor.HOST_READER:
            loads = entry.uses(Memory.PARAMETERS, Memory.TABLES)
            return Way("host_reads", ("loading", "host_reading") if loads else ("host_reading",))
        case Executor.HOST_WRITER:
            return Way("host_writes", ("host_writing",))
        case Executor.WEIGHT_FETCH:
            return Way("weights")
        case Executor.MATRIX_UNIT:
            return Way("matrix", ("matrix_reading", "matrix_summing"))
        case Executor.ACTIVATION_UNIT:
            read = {use.memory for use in entry.reads}
            rows = ("activate_reading",) if Memory.ACCUMULATORS in read else ()
            # An instruction that reads neither accumulator rows nor lines takes the way of an
            # instruction that reads lines.
            lines = ("activate_operands",) if Memory.BUFFER in read or not rows else ()
            return Way("activate", (*rows, *lines, "activate_writing"))
        case Executor.LINK_UNIT:
            sends = bool(entry.reads)
            return Way("send", ("sending",)) if sends else Way("receive", ("receiving",))
