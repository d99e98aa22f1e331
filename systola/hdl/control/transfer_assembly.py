# SPDX-License-Identifier: Apache-2.0
"""Units that form the commands of host reader, host writer and weight fetch from command words.

A field that an instruction does not use is undefined.
"""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Module, Mux, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.hdl.commands import (
    HostReadEntry,
    HostTransfer,
    HostWriteCommand,
    Kind,
    WeightCommand,
    parameter_space,
    table_space,
)
from systola.hdl.control.command_assembly import flags_of, is_of
from systola.hdl.control.command_words import command_layout

LAYOUTS = {
    "host_reads": HostTransfer,
    "host_read": HostReadEntry,
    "host_writes": HostWriteCommand,
    "weights": WeightCommand,
}
"""For each queue: the layout of its commands."""


class TransferAssembly(wiring.Component):
    """A combinational unit that forms the commands of one of the queues in LAYOUTS.

    | port      | meaning |
    |---|---|
    | `words`   | the words of the command, as the command memory shows them |
    | `command` | the command |
    """

    def __init__(self, *, config: Config, queue: str):
        self._config = config
        self._queue = queue
        words = command_layout(config, queue)
        super().__init__({"words": In(words), "command": Out(LAYOUTS[queue](config=config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words, command = self.words, self.command
        if "pc" in command.shape().members:
            m.d.comb += command.pc.eq(words.pc)
        match self._queue:
            case "host_reads":
                # A load of parameters or of a table is a single run.
                loads = is_of(words, Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE)
                m.d.comb += _transfer(command, words)
                with m.If(loads):
                    m.d.comb += [command.rows.eq(1), command.blocks.eq(1)]
            case "host_read":
                self._enter(m)
            case "host_writes":
                m.d.comb += [
                    *_transfer(command.transfer, words),
                    *_tail(command.tail, words),
                    command.buffer.base.eq(words.buffer),
                    command.buffer.end.eq(words.end),
                ]
            case _:
                m.d.comb += [
                    command.transfer.address.eq(words.weight_address),
                    command.transfer.beats.eq(words.weight_beats),
                ]
                if self._config.training:
                    multiplies = is_of(words, Opcode.MATRIX_MULTIPLY)
                    wide = flags_of(words, Opcode.MATRIX_MULTIPLY).wide_weights
                    m.d.comb += [
                        command.from_buffer.eq(multiplies),
                        command.wide.eq(multiplies & wide),
                    ]
        return m

    def _enter(self, m: Module) -> None:
        """Form the command with the addresses to which the beats of a host read are written.

        The address of a parameter entry or table is its number ORed with the first address of its
        address space.
        """
        words, command = self.words, self.command
        entries: Mapping[Opcode, tuple[Kind, int]] = {
            Opcode.LOAD_PARAMETERS: (Kind.PARAMETERS, parameter_space(self._config)),
            Opcode.LOAD_TABLE: (Kind.TABLE, table_space(self._config)),
        }
        kind: ValueLike = Kind.BUFFER
        space: ValueLike = 0
        for opcode, (its_kind, its_space) in entries.items():
            loads = is_of(words, opcode)
            kind, space = Mux(loads, its_kind, kind), Mux(loads, its_space, space)
        m.d.comb += [
            command.kind.eq(kind),
            command.destination.eq(words.buffer | Value.cast(space)),
            command.last.eq(words.last | Value.cast(space)),
            *_tail(command.tail, words),
        ]


def _transfer(transfer: data.View, words: data.View) -> list[object]:
    """Return the assignments that copy the words of a command into `transfer`."""
    return [transfer[name].eq(words[name]) for name in transfer.shape().members]


def _tail(tail: data.View, words: data.View) -> list[object]:
    """Return the assignments that copy words into `tail`, the lines with fewer bytes."""
    return [tail[name].eq(words[f"tail_{name}"]) for name in tail.shape().members]
