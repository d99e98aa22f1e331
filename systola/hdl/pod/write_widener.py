# SPDX-License-Identifier: Apache-2.0
"""The unit between a core's write port and a wider memory."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.pod.word_ports import NarrowPort, WriteWord
from systola.hdl.transfers.axi import Response, WriteSignature

BURSTS_AHEAD = 2
"""Number of bursts of the largest size that the memory for gathered words can hold."""


class WriteWidener(wiring.Component):
    """A unit that gathers the beats of a burst in words.

    | port                 | meaning |
    |---|---|
    | `bus`                | the write port of a core, a slave |
    | `request`            | bursts of words |
    | `words`              | the words of the bursts |
    | `answered`, `answer` | the response for the oldest burst, which the core takes at once |

    Bytes of a word that do not belong to the burst are not written. A burst becomes a `request`
    when it is complete, so its `words` never wait for the core. A core that waits for another core
    therefore blocks no third core. All bursts have the ID 0. Throughput: a beat a cycle.
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

        # The beats of a burst are gathered in `word`. With its last beat, a word goes to the memory
        # of words.
        burst_open = Signal()
        beat_in_word = Signal(range(ratio))
        word_empty = Signal()  # `word` holds no beat yet
        word_count = Signal(8)  # number of words of the burst, less one
        address = Signal(len(request.payload.word))
        word = Signal(WriteWord(word_bytes=port.word_bytes))
        word_complete = Signal()
        words_vacant = Signal(range(places + 1), init=places)
        bursts = m.submodules.bursts = PayloadRing(payload=request.payload.shape(), depth=places)
        words = m.submodules.words = SyncFIFOBuffered(width=len(word.as_value()), depth=places + 1)
        beat_taken = Signal()
        word_fills = Signal()
        burst_ends = Signal()
        m.d.comb += [
            bus.awready.eq(~burst_open | burst_ends),
            bus.wready.eq(burst_open & (words_vacant != 0)),
            beat_taken.eq(bus.wvalid & bus.wready),
            burst_ends.eq(beat_taken & bus.wlast),
            word_fills.eq(beat_taken & (bus.wlast | (beat_in_word == ratio - 1))),
            bursts.push.eq(burst_ends),
            bursts.pushed.word.eq(address),
            bursts.pushed.length.eq(word_count),
            words.w_en.eq(word_complete),
            words.w_data.eq(word),
        ]
        m.d.sync += [
            word_complete.eq(word_fills),
            words_vacant.eq(words_vacant - word_fills + (words.r_en & words.r_rdy)),
        ]
        with m.If(beat_taken):
            m.d.sync += [
                word.data.word_select(beat_in_word, 8 * port.bus_bytes).eq(bus.wdata),
                word.last.eq(bus.wlast),
                beat_in_word.eq(beat_in_word + 1),
                word_empty.eq(word_fills),
            ]
            for number in range(ratio):
                strobe = word.strobe.word_select(number, port.bus_bytes)
                with m.If(beat_in_word == number):
                    m.d.sync += strobe.eq(bus.wstrb)
                with m.Elif(word_empty):
                    m.d.sync += strobe.eq(0)
        with m.If(burst_ends):
            m.d.sync += burst_open.eq(0)
        with m.If(bus.awvalid & bus.awready):
            first = bus.awaddr[low:high]
            m.d.sync += [
                burst_open.eq(1),
                word_empty.eq(1),
                beat_in_word.eq(first),
                address.eq(bus.awaddr[high:]),
                word_count.eq((first + bus.awlen) >> (high - low)),
            ]

        # Count the complete bursts, and offer their words.
        bursts_complete = Signal(range(places + 1))
        burst_goes = Signal()
        shown = self.words
        m.d.comb += [
            request.valid.eq(bursts_complete != 0),
            request.payload.eq(bursts.oldest),
            burst_goes.eq(request.valid & request.ready),
            bursts.pop.eq(burst_goes),
            shown.valid.eq(words.r_rdy),
            shown.payload.eq(words.r_data),
            words.r_en.eq(shown.ready),
            bus.bvalid.eq(self.answered),
            bus.bresp.eq(self.answer),
        ]
        m.d.sync += bursts_complete.eq(bursts_complete + burst_ends - burst_goes)
        message = "a request changes before it is taken"
        payload = request.payload.as_value()
        promised_offer(m, platform, request.valid, request.ready, payload, message)
        message = "a word changes before it is taken"
        payload = shown.payload.as_value()
        promised_offer(m, platform, shown.valid, shown.ready, payload, message)
        promised(m, platform, words_vacant <= places, "more places are free than there are")
        promised(m, platform, ~words.w_en | words.w_rdy, "a word is complete that has no room")
        promised(m, platform, ~self.answered | bus.bready, "a core is not ready for an answer")
        return m
