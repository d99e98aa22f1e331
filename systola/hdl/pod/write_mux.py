# SPDX-License-Identifier: Apache-2.0
"""The unit that joins several writers to one AXI4 port."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.ored import one_of
from systola.hdl.parts.promise import at_most_one, promised, promised_offer
from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.pod.word_ports import WordBurst, WriteWord
from systola.hdl.transfers.axi import Response, WriteSignature


class WriteMux(wiring.Component):
    """A unit that passes on the bursts of `writers` writers, round robin.

    | port       | meaning |
    |---|---|
    | `requests` | bursts of each writer |
    | `words`    | the words of each writer, which follow their request |
    | `answered` | a bit for each writer: `answer` is for it |
    | `answer`   | the response of memory |
    | `bus`      | the AXI4 port; the ID of a burst is the number of its writer |

    All words of a burst go before the next burst. All outputs but `ready` are registers.
    Throughput: a word a cycle.
    """

    def __init__(self, *, writers: int, address_bits: int, word_bytes: int):
        self._writers = writers
        self._word_bytes = word_bytes
        self._word = WriteWord(word_bytes=word_bytes)
        self._burst = WordBurst(address_bits=address_bits, word_bytes=word_bytes)
        super().__init__(
            {
                "requests": In(stream.Signature(self._burst)).array(writers),
                "words": In(stream.Signature(self._word)).array(writers),
                "answered": Out(writers),
                "answer": Out(Response),
                "bus": Out(
                    WriteSignature(
                        address_bits=address_bits,
                        data_bytes=word_bytes,
                        id_bits=ceil_log2(max(writers, 2)),
                    )
                ),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, count = self.bus, self._writers
        requests = [self.requests[number] for number in range(count)]
        words = [self.words[number] for number in range(count)]
        turn = m.submodules.turn = RoundRobin(count=count)
        # one-hot: the writer that sends its words; 0 if there is none
        sending_writer = Signal(count)
        last_word_goes = Signal()  # the last word of the burst is sent
        burst_begins = Signal()
        m.d.comb += [
            turn.wants.eq(Cat(request.valid for request in requests)),
            burst_begins.eq(
                (~sending_writer.any() | last_word_goes) & (~bus.awvalid | bus.awready)
            ),
            turn.take.eq(burst_begins),
        ]
        chosen_burst = Signal(self._burst)
        chosen_word = Signal(self._word)
        m.d.comb += [
            chosen_burst.eq(one_of(turn.chosen, (request.payload for request in requests))),
            chosen_word.eq(one_of(sending_writer, (each.payload for each in words))),
        ]
        with m.If(bus.awready):
            m.d.sync += bus.awvalid.eq(0)
        with m.If(last_word_goes):
            m.d.sync += sending_writer.eq(0)
        with m.If(burst_begins & turn.wants.any()):
            m.d.sync += [
                sending_writer.eq(turn.chosen),
                bus.awvalid.eq(1),
                bus.awaddr.eq(chosen_burst.word * self._word_bytes),
                bus.awlen.eq(chosen_burst.length),
                bus.awid.eq(one_of(turn.chosen, range(count))),
            ]
        data_free = Signal()
        word_goes = Signal()
        m.d.comb += [
            data_free.eq(~bus.wvalid | bus.wready),
            word_goes.eq(
                data_free & Cat(sending_writer[i] & words[i].valid for i in range(count)).any()
            ),
            last_word_goes.eq(word_goes & chosen_word.last),
        ]
        for number in range(count):
            m.d.comb += [
                requests[number].ready.eq(turn.chosen[number] & burst_begins),
                words[number].ready.eq(sending_writer[number] & data_free),
            ]
        with m.If(data_free):
            m.d.sync += [
                bus.wvalid.eq(word_goes),
                bus.wdata.eq(chosen_word.data),
                bus.wstrb.eq(chosen_word.strobe),
                bus.wlast.eq(chosen_word.last),
            ]
        m.d.comb += bus.bready.eq(1)
        m.d.sync += [
            self.answered.eq(Mux(bus.bvalid, 1 << bus.bid, 0)),
            self.answer.eq(bus.bresp),
        ]
        message = "an address of a write changes before memory takes it"
        address = Cat(bus.awaddr, bus.awlen, bus.awid)
        promised_offer(m, platform, bus.awvalid, bus.awready, address, message)
        message = "a word changes before memory takes it"
        shown = Cat(bus.wdata, bus.wstrb, bus.wlast)
        promised_offer(m, platform, bus.wvalid, bus.wready, shown, message)
        promised(m, platform, at_most_one(sending_writer), "two writers send their words")
        ends = ~sending_writer.any() | last_word_goes
        promised(m, platform, ~burst_begins | ends, "a burst begins among the words of another")
        promised(m, platform, bus.awid < count, "a burst belongs to no writer")
        return m
