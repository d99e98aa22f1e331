# SPDX-License-Identifier: Apache-2.0
"""Signatures of a link, and of the ports of a link unit to the accumulators."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config


class LinkBeat(data.StructLayout):
    """A beat that is a part of a line or, with `sums`, of an accumulator row.

    The lowest bytes come first.
    """

    def __init__(self, *, config: Config):
        super().__init__({"sums": 1, "data": 8 * config.host_bus_bytes})


class LinkSignature(wiring.Signature):
    """A signature for one direction of a link, seen from the sender.

    | port            | meaning |
    |---|---|
    | `valid`, `beat` | a beat goes out |
    | `credit`        | the neighbour has taken a beat |
    | `token`         | a token of a barrier goes out |

    All ports come from registers. Further registers may lie on the link, but their number must be
    the same for `valid`, `beat` and `token`.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "valid": Out(1),
                "beat": Out(LinkBeat(config=config)),
                "credit": In(1),
                "token": Out(1),
            }
        )


class AccumulatorUpdateSignature(wiring.Signature):
    """A signature that updates rows of the accumulators, seen from its user.

    | member    | meaning |
    |---|---|
    | `enable`  | asks for an update |
    | `ready`   | the update is accepted |
    | `address` | the row |
    | `adds`    | adds to the row; else the row is replaced |
    | `sums`    | with `enable`: the sums. The accumulators use them SUMS_LATENCY cycles later |
    """

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
