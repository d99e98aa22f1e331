# SPDX-License-Identifier: Apache-2.0
"""The unit between a core's read port and a wider memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.pod.word_ports import NarrowPort, ReadWord
from systola.hdl.transfers.axi import ReadSignature

BURSTS_AHEAD = 4
"""Number of bursts of the largest size that have room for their words."""


class ReadWidener(wiring.Component):
    """A unit that requests whole words for a burst, and returns the burst's beats out of them.

    | port                 | meaning |
    |---|---|
    | `bus`                | the read port of a core, a slave |
    | `request`            | bursts of words |
    | `word_valid`, `word` | a word comes, in the order of the requests; it cannot be refused |

    Each beat has the response of its word. A burst becomes a `request` when there is room for all
    of its words. So a core that does not take its beats does not block other cores.

    Throughput: a beat a cycle, and a request a cycle. Latency: two cycles from AR to `request`,
    three from a word to its first beat.
    """

    def __init__(self, *, port: NarrowPort):
        self._port = port
        self._places = BURSTS_AHEAD * port.most_words
        size = {"address_bits": port.address_bits, "data_bytes": port.bus_bytes}
        super().__init__(
            {
                "bus": In(ReadSignature(**size)),
                "request": Out(stream.Signature(port.burst)),
                "word_valid": In(1),
                "word": In(ReadWord(word_bytes=port.word_bytes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port, bus, request, places = self._port, self.bus, self.request, self._places
        ratio, low, high = port.ratio, port.beat_bits, port.word_bits

        # Each word has a place in a memory. The place is free again after the last beat of the
        # word.
        asked = m.submodules.asked = SkidBuffer(
            payload=data.StructLayout({"address": len(bus.araddr), "length": 8, "id": 1})
        )
        bursts = m.submodules.bursts = PayloadRing(
            payload=data.StructLayout({"first": high - low, "length": 8, "id": 1}), depth=places
        )
        words = m.submodules.words = SyncFIFOBuffered(
            width=len(self.word.as_value()), depth=places + 1
        )
        shown = asked.output.payload
        first = shown.address[low:high]
        word_count = Signal(8)  # number of words of the burst, less one
        words_vacant = Signal(range(places + 1), init=places)
        burst_taken = Signal()
        m.d.comb += [
            asked.input.valid.eq(bus.arvalid),
            asked.input.payload.address.eq(bus.araddr),
            asked.input.payload.length.eq(bus.arlen),
            asked.input.payload.id.eq(bus.arid),
            bus.arready.eq(asked.input.ready),
            word_count.eq((first + shown.length) >> (high - low)),
            burst_taken.eq(
                asked.output.valid & (words_vacant > word_count) & (~request.valid | request.ready)
            ),
            asked.output.ready.eq(burst_taken),
            bursts.push.eq(burst_taken),
            bursts.pushed.first.eq(first),
            bursts.pushed.length.eq(shown.length),
            bursts.pushed.id.eq(shown.id),
        ]
        m.d.sync += words_vacant.eq(words_vacant - Mux(burst_taken, word_count + 1, 0) + words.r_en)
        with m.If(request.ready):
            m.d.sync += request.valid.eq(0)
        with m.If(burst_taken):
            m.d.sync += [
                request.valid.eq(1),
                request.payload.word.eq(shown.address[high:]),
                request.payload.length.eq(word_count),
            ]

        # The beats of the oldest burst go to the core as its words come.
        word = data.View(self.word.shape(), words.r_data)
        oldest = bursts.oldest
        burst_begun = Signal()
        beat_in_word = Signal(range(ratio))
        beats_remaining = Signal(8)
        here = Mux(burst_begun, beat_in_word, oldest.first)
        remains = Mux(burst_begun, beats_remaining, oldest.length)
        last = remains == 0
        free = ~bus.rvalid | bus.rready
        beat_goes = Signal()
        m.d.comb += [
            words.w_en.eq(self.word_valid),
            words.w_data.eq(self.word),
            beat_goes.eq(free & words.r_rdy),
            words.r_en.eq(beat_goes & (last | (here == ratio - 1))),
            bursts.pop.eq(beat_goes & last),
        ]
        with m.If(free):
            m.d.sync += [
                bus.rvalid.eq(beat_goes),
                bus.rid.eq(oldest.id),
                bus.rdata.eq(word.data.word_select(here, 8 * port.bus_bytes)),
                bus.rresp.eq(word.response),
                bus.rlast.eq(last),
            ]
        with m.If(beat_goes):
            m.d.sync += [
                burst_begun.eq(~last),
                beat_in_word.eq(here + 1),
                beats_remaining.eq(remains - 1),
            ]
        message = "a request changes before it is taken"
        payload = request.payload.as_value()
        promised_offer(m, platform, request.valid, request.ready, payload, message)
        message = "a beat for a core changes before it is taken"
        beat = Cat(bus.rid, bus.rdata, bus.rresp, bus.rlast)
        promised_offer(m, platform, bus.rvalid, bus.rready, beat, message)
        promised(m, platform, words_vacant <= places, "more places are free than there are")
        promised(m, platform, ~self.word_valid | words.w_rdy, "a word comes that has no room")
        return m
