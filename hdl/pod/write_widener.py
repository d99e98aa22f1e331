# SPDX-License-Identifier: Apache-2.0
"""The write port of a core on a wider memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised
from systola.hdl.pod.word_ports import NarrowPort, WriteWord
from systola.hdl.transfers.axi import Response, WriteSignature

BURSTS_AHEAD = 2
"""Bursts of the largest size that have room for their words."""


class WriteWidener(wiring.Component):
    """A unit that gathers the beats of a burst in words.

    | port                 | meaning |
    |---|---|
    | `bus`                | the write port of a core, a slave |
    | `request`            | bursts of words |
    | `words`              | the words of the bursts |
    | `answered`, `answer` | the response for the oldest burst, which the core takes at once |

    Other bytes of a word than the burst's are not written. A burst becomes a `request` when it is
    complete, so its `words` never wait for the core. So a core that waits for another core is in
    the way of no core. All bursts have the ID 0. Throughput: a beat a cycle.
    """

    def __init__(self, *, port: NarrowPort):
        self._port = port
        self._places = BURSTS_AHEAD * port.most_words
        size = {"address_bits": port.address_bits, "data_bytes": port.bus_bytes}
        super().__init__(
            {
                "bus": In(WriteSignature(**size)),
                "request": Out(stream.Signature(port.burst)),
                "words": Out(stream.Signature(WriteWord(word_bytes=port.word_bytes))),
                "answered": In(1),
                "answer": In(Response),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port, bus, request, places = self._port, self.bus, self.request, self._places
        ratio, low, high = port.ratio, port.beat_bits, port.word_bits

        # The beats of a burst are gathered in `word`. With its last beat a word goes to the other
        # words.
        opened = Signal()
        part = Signal(range(ratio))
        fresh = Signal()  # no beat is in the word
        length = Signal(8)  # words of the burst, less one
        address = Signal(len(request.payload.word))
        word = Signal(WriteWord(word_bytes=port.word_bytes))
        complete = Signal()
        vacant = Signal(range(places + 1), init=places)
        bursts = m.submodules.bursts = PayloadRing(payload=request.payload.shape(), depth=places)
        words = m.submodules.words = SyncFIFOBuffered(width=len(word.as_value()), depth=places + 1)
        taken, fills, ends = Signal(), Signal(), Signal()
        m.d.comb += [
            bus.awready.eq(~opened | ends),
            bus.wready.eq(opened & (vacant != 0)),
            taken.eq(bus.wvalid & bus.wready),
            ends.eq(taken & bus.wlast),
            fills.eq(taken & (bus.wlast | (part == ratio - 1))),
            bursts.push.eq(ends),
            bursts.pushed.word.eq(address),
            bursts.pushed.length.eq(length),
            words.w_en.eq(complete),
            words.w_data.eq(word),
        ]
        m.d.sync += [
            complete.eq(fills),
            vacant.eq(vacant - fills + (words.r_en & words.r_rdy)),
        ]
        with m.If(taken):
            m.d.sync += [
                word.data.word_select(part, 8 * port.bus_bytes).eq(bus.wdata),
                word.last.eq(bus.wlast),
                part.eq(part + 1),
                fresh.eq(fills),
            ]
            for number in range(ratio):
                strobe = word.strobe.word_select(number, port.bus_bytes)
                with m.If(part == number):
                    m.d.sync += strobe.eq(bus.wstrb)
                with m.Elif(fresh):
                    m.d.sync += strobe.eq(0)
        with m.If(ends):
            m.d.sync += opened.eq(0)
        with m.If(bus.awvalid & bus.awready):
            first = bus.awaddr[low:high]
            m.d.sync += [
                opened.eq(1),
                fresh.eq(1),
                part.eq(first),
                address.eq(bus.awaddr[high:]),
                length.eq((first + bus.awlen) >> (high - low)),
            ]

        # The complete bursts.
        some = Signal(range(places + 1))
        goes = Signal()
        shown = self.words
        m.d.comb += [
            request.valid.eq(some != 0),
            request.payload.eq(bursts.oldest),
            goes.eq(request.valid & request.ready),
            bursts.retire.eq(goes),
            shown.valid.eq(words.r_rdy),
            shown.payload.eq(words.r_data),
            words.r_en.eq(shown.ready),
            bus.bvalid.eq(self.answered),
            bus.bresp.eq(self.answer),
        ]
        m.d.sync += some.eq(some + ends - goes)
        promised(m, platform, ~self.answered | bus.bready, "a core is not ready for an answer")
        return m
