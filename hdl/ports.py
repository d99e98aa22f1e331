# SPDX-License-Identifier: Apache-2.0
"""What units of different rooms have between them: the signatures of memories' ports."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES, Fault
from systola.arch.registers import Status
from systola.hdl.commands import PC_BITS

BUFFER_LATENCY = 2
"""Cycles from `enable` & `ready` of a reader of the unified buffer to its data."""


class FaultReport(data.StructLayout):
    """What the FAULT registers show."""

    def __init__(self) -> None:
        super().__init__({"cause": ceil_log2(len(Fault)), "pc": PC_BITS, "address": 32})


class PodSignature(wiring.Signature):
    """What a core of a pod and the pod have between them, seen from the core. `start`,
    `soft_reset`, `resume`: as if CONTROL were written so; `clear_links`: the next cycle resets the
    link unit. `alive`: something has moved on a link of the pod; `moved`, on one of this core.
    `stop`: another core has had a fault, `in_vain`: as it waited for too long, and so does who
    waits. `status` and `cause`: what the registers show."""

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "soft_reset": In(1),
                "resume": In(1),
                "clear_links": In(1),
                "alive": In(1),
                "stop": In(1),
                "in_vain": In(1),
                "moved": Out(1),
                "status": Out(len(Status)),
                "cause": Out(ceil_log2(len(Fault))),
            }
        )


class BufferReadSignature(wiring.Signature):
    """Read port seen from the reader: data is there for one cycle, BUFFER_LATENCY cycles after
    `enable` & `ready`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.buffer_lines)),
                "data": In(8 * config.line_bytes),
            }
        )


class BufferWriteSignature(wiring.Signature):
    """Write port seen from the writer: done in the cycle of `enable` & `ready`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.buffer_lines)),
                "data": Out(8 * config.line_bytes),
            }
        )


class ParameterWriteSignature(wiring.Signature):
    """Write port of the parameter memory: the planes in `planes` of one entry."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "planes": Out(PARAMETER_PLANES),
                "address": Out(ceil_log2(config.parameter_entries)),
                "data": Out(8 * config.cols),
            }
        )


class TableWriteSignature(wiring.Signature):
    """Write port of the tables: one byte of one table, for all lanes."""

    def __init__(self, *, tables: int):
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(ceil_log2(tables * TABLE_BYTES)),
                "data": Out(8),
            }
        )
