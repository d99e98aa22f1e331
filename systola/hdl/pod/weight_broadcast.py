# SPDX-License-Identifier: Apache-2.0
"""The unit that reads weights once for several cores that request the same weights."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.ored import one_of
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.pod.word_ports import WordBurst

PATIENCE = 256
"""Largest number of cycles for which a request waits for the other cores of its group."""
BURSTS_AHEAD = 16
"""Largest number of bursts under way at one time."""
SETTLES = 2
"""Number of cycles after a grant in which there is no other grant.

In these cycles, the granted request still is in the registers with the requests and the
comparisons of requests.
"""


class WeightBroadcast(wiring.Component):
    """A unit that makes one `request` of the equal requests of several cores.

    | port         | meaning |
    |---|---|
    | `requests`   | bursts of each core |
    | `together`   | all cores start together: their first bursts wait for one another |
    | `request`    | bursts for memory |
    | `word_valid` | a word of the oldest burst comes |
    | `last`       | the word is the last one of its burst |
    | `to`         | a bit for each core: the word is for this core |

    Groups: cores that got the same burst are a group. After `together`, all cores are a group. A
    request waits until each core of its group requests something, for `patience` cycles at most.
    Then all cores that request the same burst get it, and are the new group. Nothing is stored: for
    a core that comes later the burst is read again. Requests that have stopped waiting go one at a
    time, round robin.

    Throughput: a burst every three cycles. Latency: two cycles for a burst that does not wait, none
    for words. Words come in the order of the requests.
    """

    def __init__(self, *, cores: int, address_bits: int, word_bytes: int, patience: int = PATIENCE):
        self._cores = cores
        self._patience = patience
        burst = WordBurst(address_bits=address_bits, word_bytes=word_bytes)
        super().__init__(
            {
                "requests": In(stream.Signature(burst)).array(cores),
                "together": In(1),
                "request": Out(stream.Signature(burst)),
                "word_valid": In(1),
                "last": In(1),
                "to": Out(cores),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, request = self._cores, self.request
        requests = [self.requests[number] for number in range(count)]

        # The requests of the cycle before, and which of them are equal.
        requests_seen = Signal(count)
        equal_requests = [Signal(count, name=f"equal_requests_{i}") for i in range(count)]
        m.d.sync += requests_seen.eq(Cat(each.valid for each in requests))
        for one, found in zip(requests, equal_requests, strict=True):
            m.d.sync += found.eq(
                Cat(
                    one.valid & other.valid & (one.payload.as_value() == other.payload.as_value())
                    for other in requests
                )
            )

        # Choose a request, and find the cores that share it.
        requests_taken = Signal(count)
        last_group = [Signal(count, init=-1, name=f"last_group_{i}") for i in range(count)]
        ready: list[Value] = []
        for number in range(count):
            cycles_waited = Signal(range(self._patience + 1), name=f"cycles_waited_{number}")
            with m.If(requests_taken[number] | ~requests_seen[number]):
                m.d.sync += cycles_waited.eq(0)
            with m.Elif(cycles_waited != self._patience):
                m.d.sync += cycles_waited.eq(cycles_waited + 1)
            missing = last_group[number] & ~requests_seen
            ready.append(
                requests_seen[number] & (~missing.any() | (cycles_waited == self._patience))
            )
        turn = m.submodules.turn = RoundRobin(count=count)
        settle_remaining = Signal(range(SETTLES + 1))
        under_way = Signal(range(BURSTS_AHEAD + 1))
        burst_goes = Signal()
        group_chosen = Signal(count)
        m.d.comb += [
            turn.wants.eq(Cat(ready)),
            burst_goes.eq(
                turn.wants.any()
                & (settle_remaining == 0)
                & (under_way != BURSTS_AHEAD)
                & (~request.valid | request.ready)
            ),
            turn.take.eq(burst_goes),
            group_chosen.eq(one_of(turn.chosen, equal_requests)),
        ]
        m.d.sync += [
            requests_taken.eq(Mux(burst_goes, group_chosen, 0)),
            settle_remaining.eq(
                Mux(burst_goes, SETTLES, Mux(settle_remaining == 0, 0, settle_remaining - 1))
            ),
        ]
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(burst_goes):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.eq(one_of(turn.chosen, (each.payload for each in requests))),
            ]
        for number, each in enumerate(requests):
            m.d.comb += each.ready.eq(requests_taken[number])
            with m.If(burst_goes & group_chosen[number]):
                m.d.sync += last_group[number].eq(group_chosen)
            with m.If(self.together):
                m.d.sync += last_group[number].eq(-1)

        # The cores of each burst under way: they get its words.
        groups = m.submodules.groups = PayloadRing(
            payload=data.StructLayout({"cores": count}), depth=BURSTS_AHEAD
        )
        ends = self.word_valid & self.last
        m.d.comb += [
            groups.push.eq(burst_goes),
            groups.pushed.cores.eq(group_chosen),
            groups.pop.eq(ends),
            self.to.eq(Mux(self.word_valid, groups.oldest.cores, 0)),
        ]
        m.d.sync += under_way.eq(under_way + burst_goes - ends)
        message = "a request changes before it is taken"
        payload = request.payload.as_value()
        promised_offer(m, platform, request.valid, request.ready, payload, message)
        room = under_way <= BURSTS_AHEAD
        promised(m, platform, room, "more bursts are under way than may be")
        valid = Cat(each.valid for each in requests)
        promised(m, platform, (requests_taken & ~valid) == 0, "a burst is granted to no request")
        promised(m, platform, ~self.word_valid | (under_way != 0), "a word that nobody asked for")
        return m
