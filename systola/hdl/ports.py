# SPDX-License-Identifier: Apache-2.0
"""Signatures and layouts of ports between units of different folders, most of them for memories."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES, Fault
from systola.arch.registers import Status
from systola.hdl.commands import HOST_OFFSET_BITS, PC_BITS, TILE_BITS

BUFFER_LATENCY = 2
"""Cycles from `enable` & `ready` of a read of the unified buffer to its data."""


class FaultReport(data.StructLayout):
    """A fault as the FAULT registers show it."""

    def __init__(self) -> None:
        super().__init__({"cause": ceil_log2(len(Fault)), "pc": PC_BITS, "address": 32})


class Activity(data.StructLayout):
    """A layout of the conditions that determine the class of a cycle while a program runs.

    | field              | meaning |
    |---|---|
    | `active`           | a vector is issued to the array |
    | `awaiting_weights` | the array waits for weights, and none have arrived |
    | `weights_moving`   | the array waits for weights that move into it |
    | `matrix_waits`     | a vector waits for older instructions |
    | `input_blocked`    | with `matrix_waits`: the vector waits for lines from host memory |
    | `operand_blocked`  | with `matrix_waits`: the vector waits for lines of the activation unit |
    | `vector`           | the activation unit takes a line |
    | `host_wait`        | the program waits for the host |
    | `issue_waits`      | an instruction waits for its issue |
    """

    def __init__(self) -> None:
        matrix = ("active", "awaiting_weights", "weights_moving", "matrix_waits")
        others = ("input_blocked", "operand_blocked", "vector", "host_wait", "issue_waits")
        super().__init__(dict.fromkeys((*matrix, *others), 1))


class ProgramStatusSignature(wiring.Signature):
    """A signature with the progress of a program, seen from the sequencer.

    | port        | meaning |
    |---|---|
    | `halted`    | a Halt ends the program |
    | `rejected`  | an instruction ends the program with the fault in `rejection` |
    | `rejection` | the fault; it stays as it is from `rejected` on |
    | `waiting`   | a Synchronize_Host waits for the host |
    | `interrupt` | an Interrupt_Host passes |
    | `code`      | the code of this Interrupt_Host |
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "halted": Out(1),
                "rejected": Out(1),
                "rejection": Out(FaultReport()),
                "waiting": Out(1),
                "interrupt": Out(1),
                "code": Out(16),
            }
        )


class TransferErrorSignature(wiring.Signature):
    """A signature with the error of a bus transfer, seen from the unit that finds it.

    | port    | meaning |
    |---|---|
    | `found` | a bus transfer has failed |
    | `cause` | cause of the fault |
    | `pc`    | program counter of the instruction that made the transfer |
    """

    def __init__(self) -> None:
        super().__init__({"found": Out(1), "cause": Out(Fault), "pc": Out(PC_BITS)})


class WindowsSignature(wiring.Signature):
    """A signature with the program and the windows of the memories, seen from the registers.

    | port           | meaning |
    |---|---|
    | `program`      | byte offset of the program in the host window |
    | `host_base`    | address of the host window |
    | `host_limit`   | bytes of the host window |
    | `weight_base`  | address of the weight window |
    | `weight_tiles` | tiles of the weight window |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "program": Out(32),
                "host_base": Out(config.address_bits),
                "host_limit": Out(HOST_OFFSET_BITS),
                "weight_base": Out(config.address_bits),
                "weight_tiles": Out(TILE_BITS),
            }
        )


class PodSignature(wiring.Signature):
    """A signature that connects a core of a pod with the pod, seen from the core.

    | port                            | meaning |
    |---|---|
    | `start`, `soft_reset`, `resume` | have the effect of the bits of the register CONTROL |
    | `clear_links`                   | resets the link unit in the next cycle |
    | `alive`                         | something has moved on a link of the pod |
    | `stop`                          | another core has had a fault |
    | `in_vain`                       | with `stop`: the fault is a LINK_TIMEOUT, and this core gets
                                        the same fault if its links wait |
    | `moved`                         | something has moved on a link of this core |
    | `status`                        | word of the register STATUS |
    | `cause`                         | cause of the fault |
    """

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
    """A signature that reads lines of the buffer, seen from the reader.

    | member    | meaning |
    |---|---|
    | `enable`  | asks for a read |
    | `ready`   | the read is accepted |
    | `address` | the line; an odd one with `pair` |
    | `data`    | the line, for one cycle, BUFFER_LATENCY cycles after `enable` & `ready` |
    | `pair`    | reads the line before as well; only with `pairs` |
    | `before`  | with `data`: the line before; only with `pairs` |
    """

    def __init__(self, *, config: Config, pairs: bool = False):
        line = 8 * config.line_bytes
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.buffer_lines)),
                "data": In(line),
                **({"pair": Out(1), "before": In(line)} if pairs else {}),
            }
        )


class BufferWriteSignature(wiring.Signature):
    """A signature that writes lines of the buffer, seen from the writer.

    | member    | meaning |
    |---|---|
    | `enable`  | asks for a write |
    | `ready`   | the write is accepted, and takes place in this cycle |
    | `address` | the line |
    | `data`    | the bytes of the line |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.buffer_lines)),
                "data": Out(8 * config.line_bytes),
            }
        )


class AccumulatorReadSignature(wiring.Signature):
    """A signature that reads rows of the accumulators, seen from the reader.

    | member    | meaning |
    |---|---|
    | `enable`  | asks for a read |
    | `ready`   | the read is accepted |
    | `address` | the row |
    | `data`    | the row, for one cycle, `accumulators.READ_LATENCY` cycles after `enable` &
                  `ready` |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.accumulator_rows)),
                "data": In(32 * config.cols),
            }
        )


class WeightRowSignature(wiring.Signature):
    """A signature that takes rows out of the weight FIFO, seen from the FIFO.

    | member  | meaning |
    |---|---|
    | `valid` | there is an oldest row |
    | `pop`   | drops the oldest row |
    | `row`   | the oldest row, in the cycle after a cycle with `valid` |
    """

    def __init__(self, *, width: int):
        super().__init__({"valid": Out(1), "pop": In(1), "row": Out(width)})


class ParameterWriteSignature(wiring.Signature):
    """A signature that writes planes of one parameter entry, seen from the writer.

    A plane has one byte of the entry for each channel, such as the low byte of the bias.

    | member    | meaning |
    |---|---|
    | `planes`  | a bit for each plane: it is written |
    | `address` | number of the entry |
    | `data`    | a byte for each channel; all planes that are written get the same bytes |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "planes": Out(PARAMETER_PLANES),
                "address": Out(ceil_log2(config.parameter_entries)),
                "data": Out(8 * config.cols),
            }
        )


class TableWriteSignature(wiring.Signature):
    """A signature that writes one byte of one table, for all lanes, seen from the writer.

    | member    | meaning |
    |---|---|
    | `enable`  | writes the byte |
    | `address` | address of the byte, counted from the start of the first table |
    | `data`    | the byte |
    """

    def __init__(self, *, tables: int):
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(ceil_log2(tables * TABLE_BYTES)),
                "data": Out(8),
            }
        )


TABLE_ROW_BYTES = 4
"""Bytes of a row in the table memory of a lane, in a machine with curves: two numbers of a curve.
"""


class TableRowSignature(wiring.Signature):
    """A signature that writes one row of one table, for all lanes, seen from the writer.

    | member    | meaning |
    |---|---|
    | `enable`  | writes the row |
    | `address` | number of the row, counted from the start of the first table |
    | `data`    | the bytes of the row |
    """

    def __init__(self, *, tables: int):
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(ceil_log2(tables * TABLE_BYTES // TABLE_ROW_BYTES)),
                "data": Out(8 * TABLE_ROW_BYTES),
            }
        )
