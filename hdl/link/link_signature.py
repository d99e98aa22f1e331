# SPDX-License-Identifier: Apache-2.0
"""What a link carries, and what the parts of a link unit are told and ask for."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.commands import LinkCommand, LinkRow, link_address_bits


class LinkBeat(data.StructLayout):
    """A part of a line or, with `sums`, of an accumulator row; the lowest bytes come first."""

    def __init__(self, *, config: Config):
        super().__init__({"sums": 1, "data": 8 * config.host_bus_bytes})


class LinkSignature(wiring.Signature):
    """One direction of a link, seen from the sender: a `beat` in each cycle with `valid`, a
    `credit` for each that the neighbour has taken, a barrier's `token` in each cycle in which it is
    up. All come from registers, and any number of registers may lie on the way, as long as it is
    the same for `valid`, `beat` and `token`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "valid": Out(1),
                "beat": Out(LinkBeat(config=config)),
                "credit": In(1),
                "token": Out(1),
            }
        )


class PartSignature(wiring.Signature):
    """What a sender or receiver has between itself and what issues and interlocks, seen from there.

    The `rows` of a `command` are offered from the cycle behind the one in which it is taken on;
    `cleared` are these, in their order, as soon as no older instruction has them in use.
    `advance`: all below `advance_to` is done with; `done`: so is an instruction. `busy`: one is
    not.
    """

    def __init__(self, *, config: Config):
        row = LinkRow(config=config)
        super().__init__(
            {
                "command": Out(stream.Signature(LinkCommand(config=config))),
                "rows": In(stream.Signature(row)),
                "cleared": Out(stream.Signature(row)),
                "advance": In(1),
                "advance_to": In(link_address_bits(config)),
                "done": In(1),
                "busy": In(1),
            }
        )


class AccumulatorReadSignature(wiring.Signature):
    """Read port of the accumulators seen from the reader: data is there for one cycle,
    `accumulators.READ_LATENCY` cycles after `enable` & `ready`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.accumulator_rows)),
                "data": In(32 * config.cols),
            }
        )


class AccumulatorUpdateSignature(wiring.Signature):
    """Update port of the accumulators seen from who updates: done in the cycle of `enable` &
    `ready`. The accumulators themselves want `sums` `accumulators.SUMS_LATENCY` cycles later."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.accumulator_rows)),
                "adds": Out(1),
                "sums": Out(32 * config.cols),
            }
        )
