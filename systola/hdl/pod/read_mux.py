# SPDX-License-Identifier: Apache-2.0
"""The unit that joins several readers to one AXI4 port."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.ored import one_of
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.pod.word_ports import ReadWord, WordBurst
from systola.hdl.transfers.axi import ReadSignature


class ReadMux(wiring.Component):
    """A unit that passes on the bursts of `readers` readers, round robin.

    | port         | meaning |
    |---|---|
    | `requests`   | bursts of each reader |
    | `word_valid` | a bit for each reader: `word` is for it |
    | `word`       | a word from memory |
    | `bus`        | the AXI4 port; the ID of a burst is the number of its reader |

    Memory answers bursts of different readers in any order, word by word. All outputs but `ready`
    are registers. Throughput: a burst and a word a cycle. Latency: a cycle each way.
    """

    def __init__(self, *, readers: int, address_bits: int, word_bytes: int):
        self._readers = readers
        self._word_bytes = word_bytes
        self._burst = WordBurst(address_bits=address_bits, word_bytes=word_bytes)
        super().__init__(
            {
                "requests": In(stream.Signature(self._burst)).array(readers),
                "word_valid": Out(readers),
                "word": Out(ReadWord(word_bytes=word_bytes)),
                "bus": Out(
                    ReadSignature(
                        address_bits=address_bits,
                        data_bytes=word_bytes,
                        id_bits=ceil_log2(max(readers, 2)),
                    )
                ),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        requests = [self.requests[number] for number in range(self._readers)]
        turn = m.submodules.turn = RoundRobin(count=self._readers)
        address_free = Signal()
        m.d.comb += [
            address_free.eq(~bus.arvalid | bus.arready),
            turn.wants.eq(Cat(request.valid for request in requests)),
            turn.take.eq(address_free),
        ]
        for number, request in enumerate(requests):
            m.d.comb += request.ready.eq(turn.chosen[number] & address_free)
        chosen_burst = Signal(self._burst)
        m.d.comb += chosen_burst.eq(one_of(turn.chosen, (request.payload for request in requests)))
        with m.If(address_free):
            m.d.sync += [
                bus.arvalid.eq(turn.wants.any()),
                bus.araddr.eq(chosen_burst.word * self._word_bytes),
                bus.arlen.eq(chosen_burst.length),
                bus.arid.eq(one_of(turn.chosen, range(self._readers))),
            ]
        m.d.comb += bus.rready.eq(1)
        m.d.sync += [
            self.word_valid.eq(Mux(bus.rvalid, 1 << bus.rid, 0)),
            self.word.data.eq(bus.rdata),
            self.word.response.eq(bus.rresp),
            self.word.last.eq(bus.rlast),
        ]
        message = "an address changes before memory takes it"
        address = Cat(bus.araddr, bus.arlen, bus.arid)
        promised_offer(m, platform, bus.arvalid, bus.arready, address, message)
        known = bus.arid < self._readers
        promised(m, platform, known, "a burst belongs to no reader")
        return m
