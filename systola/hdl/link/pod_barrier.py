# SPDX-License-Identifier: Apache-2.0
"""A barrier that waits until all cores of a pod have come."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import promised

CORES_BITS = 11
"""Width in bits of the number of cores of a pod, at most 2^10."""


class PodBarrier(wiring.Component):
    """A barrier that works by tokens between neighbours.

    | port                      | meaning |
    |---|---|
    | `cores`                   | cores of the pod; stays as it is |
    | `arrived`                 | this core has come to a barrier; high until `passed` |
    | `passed`                  | all cores have come: this core may go on |
    | `from_left`, `from_right` | a token comes; one a cycle |
    | `to_left`, `to_right`     | a token goes out; one a cycle, from a register |

    The first token to the right means that this core has come. The k-th token of a barrier means
    that the k - 1 cores to its left have come, too. It goes out when token k - 1 has come from the
    left. Tokens to the left have the same meaning for the cores to the right.

    Let n = `cores`. A core knows that all have come by ceil((n - 1) / 2) tokens from the left and
    floor((n - 1) / 2) from the right. So it sends ceil((n - 1) / 2) tokens to the right and
    floor((n - 1) / 2) to the left. A barrier takes all tokens that are sent for it, so that tokens
    of the next barrier may come early.

    Latency from the last arrival to `passed`: the time of floor(n / 2) tokens from core to core,
    and one cycle. Such a token takes two cycles, and one more for each register on the link.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cores": In(CORES_BITS),
                "arrived": In(1),
                "passed": Out(1),
                "from_left": In(1),
                "from_right": In(1),
                "to_left": Out(1),
                "to_right": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        finished: list[Value] = []
        for comes, goes, wanted, name in (
            (self.from_left, self.to_right, self.cores >> 1, "right"),
            (self.from_right, self.to_left, (self.cores - 1)[:CORES_BITS] >> 1, "left"),
        ):
            tokens_received = Signal(CORES_BITS, name=f"received_{name}")
            tokens_sent = Signal(CORES_BITS, name=f"sent_{name}")
            tokens_wanted = Signal(CORES_BITS, name=f"enough_{name}")
            token_sent = Signal(name=f"sends_{name}")
            side_done = Signal(name=f"ends_{name}")
            m.d.comb += [
                token_sent.eq(
                    self.arrived
                    & ~self.passed
                    & (tokens_sent != tokens_wanted)
                    & (tokens_sent <= tokens_received)
                ),
                side_done.eq((tokens_sent == tokens_wanted) & (tokens_received >= tokens_wanted)),
            ]
            m.d.sync += [
                tokens_wanted.eq(wanted),
                goes.eq(token_sent),
                tokens_received.eq(tokens_received + comes),
                tokens_sent.eq(tokens_sent + token_sent),
            ]
            with m.If(self.passed):
                m.d.sync += [
                    tokens_received.eq(tokens_received + comes - tokens_wanted),
                    tokens_sent.eq(0),
                ]
            finished.append(side_done)
            sent_most = tokens_sent <= tokens_wanted
            promised(m, platform, sent_most, "more tokens are sent than are needed")
            in_turn = tokens_sent <= tokens_received + 1
            promised(m, platform, in_turn, "a token goes before the one that allows it")
            came = ~self.passed | (tokens_received >= tokens_wanted)
            promised(m, platform, came, "a barrier is passed before all have come")
        m.d.sync += self.passed.eq(self.arrived & ~self.passed & finished[0] & finished[1])
        return m
