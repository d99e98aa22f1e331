# SPDX-License-Identifier: Apache-2.0
"""Proofs of a memory that cores share: each core gets its turn, its words, and room for them."""

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, Signal, Value

from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.pod.read_widener import BURSTS_AHEAD, ReadWidener
from systola.hdl.pod.weight_broadcast import SETTLES, WeightBroadcast
from systola.hdl.pod.word_ports import NarrowPort
from systola.hdl.pod.write_widener import WriteWidener
from systola.verif.formal.harness import (
    Harness,
    Tracked,
    Unit,
    anything,
    assert_stays,
    assume_stays,
    before,
    constant,
    implies,
)
from systola.verif.formal.proof import Fault, Proof

PORT = NarrowPort(address_bits=3, bus_bytes=1, word_bytes=2, max_burst_beats=3)
"""A core's port to a shared memory with words of two bytes."""


class RoundRobinHarness(Harness):
    """A proof harness for the round-robin choice, which bounds the wait of one request.

    Requests come in any cycles. The watched request is not withdrawn.
    """

    COUNT = 4

    def claims(self, m: Module) -> None:
        dut = RoundRobin(count=self.COUNT)
        unit = Unit(m, dut)
        m.d.comb += [
            dut.wants.eq(anything(m, self.COUNT, "wants")),
            dut.take.eq(anything(m, 1, "take")),
        ]
        one = constant(m, range(self.COUNT), "one")
        waits, others = Signal(), Signal(range(self.COUNT + 2))
        wants, gets = dut.wants.bit_select(one, 1), dut.chosen.bit_select(one, 1) & dut.take
        m.d.sync += waits.eq(wants & ~gets)
        with m.If(~wants | gets):
            m.d.sync += others.eq(0)
        with m.Elif(dut.take):
            m.d.sync += others.eq(others + 1)
        m.d.comb += [
            Assume(implies(waits, wants)),
            Assert((dut.chosen & ~dut.wants) == 0),
            Assert((dut.chosen & (dut.chosen - 1)) == 0),
            Assert(dut.chosen.any() == dut.wants.any()),
            Assert(others < self.COUNT),
        ]
        behind = unit.inside("later_requesters")
        # number of requesters up to the last granted one, counted from requester 0
        earlier = Signal(range(self.COUNT + 1))
        # number of requesters in turn before the watched request
        way = Signal(range(self.COUNT))
        m.d.comb += [
            earlier.eq(self.COUNT - sum((bit for bit in behind), Value.cast(0))),
            way.eq(one - earlier),
        ]
        m.d.comb += self.lemmas(
            (~behind & (~behind + 1))[: self.COUNT] == 0, implies(waits, others + way < self.COUNT)
        )


class _Broadcast(Harness):
    """A weight broadcast for proofs, with any requests of two cores.

    The memory answers in order, at any pace.
    """

    CORES = 2
    PATIENCE = 2
    BURSTS = 8
    """A number of bursts that is more than can begin within the depth of the proofs."""

    def unit(self, m: Module) -> tuple[WeightBroadcast, Unit]:
        dut = WeightBroadcast(
            cores=self.CORES, address_bits=1, word_bytes=1, patience=self.PATIENCE
        )
        unit = Unit(m, dut)
        m.d.comb += [
            dut.together.eq(anything(m, 1, "together")),
            dut.last.eq(anything(m, 1, "last")),
        ]
        for number in range(self.CORES):
            port = dut.requests[number]
            asked = anything(m, len(port.payload.as_value()), f"asked_{number}")
            m.d.comb += [port.valid.eq(anything(m, 1, f"asks_{number}")), port.payload.eq(asked)]
            assume_stays(m, port.valid, port.ready, asked, f"request_{number}")
            m.d.comb += Assert(implies(port.ready, port.valid))
        return dut, unit


class BroadcastHarness(_Broadcast):
    """A proof harness that shows that a core gets just the words of the bursts it requested.

    It follows any request of a core and any burst.
    """

    def claims(self, m: Module) -> None:
        dut, _ = self.unit(m)
        request, core = dut.request, dut.requests[0]
        m.d.comb += [
            request.ready.eq(anything(m, 1, "ready")),
            dut.word_valid.eq(anything(m, 1, "word_valid")),
        ]
        ends = dut.word_valid & dut.last
        asks = request.valid & request.ready
        burst = Tracked(m, enters=asks, word=request.payload, exits=ends, most=self.BURSTS)
        own = Signal()  # whether a word for core 0 ends its burst
        m.d.comb += own.eq(ends & dut.to[0])
        asked = Tracked(
            m,
            enters=core.valid & core.ready,
            word=core.payload,
            exits=own,
            most=self.BURSTS,
        )
        m.d.comb += [
            Assume(implies(dut.word_valid, burst.count != 0)),
            Assert(dut.to.any() == dut.word_valid),
            Assert(implies(asked.leaves & burst.leaves, asked.word == burst.word)),
        ]
        assert_stays(m, request.valid, request.ready, request.payload, "out")


class PatienceHarness(_Broadcast):
    """A proof harness that bounds a core's wait for weights.

    A request waits until other cores request something, for PATIENCE cycles at most. The memory
    takes every burst, and answers it with one word at once.
    """

    SOON = 2 + _Broadcast.PATIENCE + 3 * _Broadcast.CORES
    """The largest number of cycles for which a core waits."""

    def claims(self, m: Module) -> None:
        dut, unit = self.unit(m)
        asked = before(m, dut.request.valid, "asked")
        m.d.comb += [dut.request.ready.eq(1), dut.word_valid.eq(asked), Assume(dut.last)]
        port = dut.requests[1]
        waited = Signal(range(self.SOON + 2))
        m.d.sync += waited.eq(Mux(port.valid & ~port.ready, waited + 1, 0))
        m.d.comb += Assert(waited <= self.SOON)

        taken, seen = unit.inside("requests_taken"), unit.inside("requests_seen")
        patience, settles = unit.inside("cycles_waited_1"), unit.inside("settle_remaining")
        later = unit.inside("turn.later_requesters")
        # cycles until the core has its turn, once it has waited for PATIENCE cycles
        way = settles + Mux(later[1], 0, SETTLES + 1)
        most = 1 + self.PATIENCE + 2 * SETTLES + 1
        m.d.comb += self.lemmas(
            unit.inside("under_way") == asked + dut.request.valid,
            settles <= SETTLES,
            implies(taken.any(), settles == SETTLES),
            implies(waited != 0, seen[1]),
            later[0] == 0,
            patience <= self.PATIENCE,
            implies(patience != self.PATIENCE, waited <= patience + 1),
            implies((patience == self.PATIENCE) & ~taken[1], waited + way <= most),
            implies(taken[1], waited <= most + 1),
        )


class ReadWidenerHarness(Harness):
    """A proof harness for the read widener, between a narrow port and a wide memory.

    Bursts have any address and length; the memory gives the requested words.
    """

    ROOM = BURSTS_AHEAD * PORT.most_words

    def claims(self, m: Module) -> None:
        dut = ReadWidener(port=PORT)
        Unit(m, dut)
        bus, request = dut.bus, dut.request
        asked = Cat(bus.araddr, bus.arlen, bus.arid)
        m.d.comb += [
            bus.arvalid.eq(anything(m, 1, "arvalid")),
            bus.araddr.eq(anything(m, 3, "araddr")),
            bus.arlen.eq(anything(m, 8, "arlen")),
            bus.arid.eq(anything(m, 1, "arid")),
            bus.rready.eq(anything(m, 1, "rready")),
            request.ready.eq(anything(m, 1, "ready")),
            dut.word_valid.eq(anything(m, 1, "word_valid")),
            dut.word.as_value().eq(anything(m, len(dut.word.as_value()), "word")),
            Assume(bus.arlen < PORT.max_burst_beats),
        ]
        assume_stays(m, bus.arvalid, bus.arready, asked, "ar")
        assert_stays(m, request.valid, request.ready, request.payload, "request")
        shown = Cat(bus.rdata, bus.rid, bus.rlast, Value.cast(bus.rresp))
        assert_stays(m, bus.rvalid, bus.rready, shown, "r")
        owed = Signal(range(self.ROOM + 2))  # number of words that were requested and have not come
        goes = request.valid & request.ready
        m.d.sync += owed.eq(owed + Mux(goes, request.payload.length + 1, 0) - dut.word_valid)
        m.d.comb += [Assume(implies(dut.word_valid, owed != 0)), Assert(owed <= self.ROOM)]
        # The chosen burst gets as many beats as requested, with its ID. Each beat has the byte at
        # its own address.
        beat = bus.rvalid & bus.rready
        item = Tracked(
            m,
            enters=bus.arvalid & bus.arready,
            word=asked,
            exits=beat & bus.rlast,
            most=self.ROOM + 3,
        )
        address, length, number = item.word[:3], item.word[3:11], item.word[11]
        first = item.follows & (item.ahead == 0)
        beats = Signal(range(PORT.max_burst_beats + 1))
        m.d.sync += beats.eq(Mux(first & beat, beats + 1, Mux(first, beats, 0)))
        m.d.comb += [
            Assert(implies(first & bus.rvalid, bus.rid == number)),
            Assert(implies(first & bus.rvalid, bus.rlast == (beats == length))),
        ]
        # Low bytes are even and high bytes odd here, so that bit 0 shows which byte is in a beat.
        m.d.comb += [
            Assume(~dut.word.data[0]),
            Assume(dut.word.data[8]),
            Assert(implies(first & bus.rvalid, bus.rdata[0] == (address + beats)[0])),
        ]


class WriteWidenerHarness(Harness):
    """A proof harness for the write widener, between a narrow port and a wide memory.

    Bursts have any address and length. The memory takes the words of the bursts that it has
    accepted, at any pace.
    """

    MOST = 8
    """A number of bursts that is more than the unit has room for."""

    def claims(self, m: Module) -> None:
        dut = WriteWidener(port=PORT)
        Unit(m, dut)
        bus, request, words = dut.bus, dut.request, dut.words
        asked = Cat(bus.awaddr, bus.awlen)
        sent = Cat(bus.wdata, bus.wstrb, bus.wlast)
        m.d.comb += [
            bus.awvalid.eq(anything(m, 1, "awvalid")),
            bus.awaddr.eq(anything(m, 3, "awaddr")),
            bus.awlen.eq(anything(m, 8, "awlen")),
            bus.wvalid.eq(anything(m, 1, "wvalid")),
            bus.wdata.eq(anything(m, 8, "wdata")),
            bus.wstrb.eq(anything(m, 1, "wstrb")),
            bus.wlast.eq(anything(m, 1, "wlast")),
            bus.bready.eq(1),
            request.ready.eq(anything(m, 1, "ready")),
            words.ready.eq(anything(m, 1, "words_ready")),
            Assume(bus.awlen < PORT.max_burst_beats),
        ]
        assume_stays(m, bus.awvalid, bus.awready, asked, "aw")
        assume_stays(m, bus.wvalid, bus.wready, sent, "w")
        assert_stays(m, request.valid, request.ready, request.payload, "request")
        assert_stays(m, words.valid, words.ready, words.payload, "words")
        # The core sends WLAST with the last beat of a burst, according to AWLEN.
        taken = bus.wvalid & bus.wready
        length, beats = Signal(8), Signal(8)
        m.d.sync += beats.eq(Mux(taken, Mux(bus.wlast, 0, beats + 1), beats))
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += length.eq(bus.awlen)
        m.d.comb += Assume(implies(taken, bus.wlast == (beats == length)))
        # The proof follows one burst: its request, which comes after its data, and its last word.
        enters, gone = bus.awvalid & bus.awready, words.valid & words.ready & words.payload.last
        asks = request.valid & request.ready
        granted = Signal(range(self.MOST + 1))
        m.d.sync += granted.eq(granted + asks - gone)
        m.d.comb += Assume(implies(words.ready, granted != 0))
        item = Tracked(m, enters=enters, word=asked, exits=asks, most=self.MOST)
        written = Tracked(
            m, enters=taken & bus.wlast, word=Cat(bus.wdata, bus.wstrb), exits=gone, most=self.MOST
        )
        address, size = item.word[:3], item.word[3:]
        end = address + size
        m.d.comb += [
            Assert(implies(request.valid, written.count != 0)),
            Assert(implies(item.leaves, request.payload.word == address >> 1)),
            Assert(implies(item.leaves, request.payload.length == (end >> 1) - (address >> 1))),
            # The last beat of a burst is in the last word, with its strobe. No byte after it is
            # written.
            Assert(
                implies(
                    written.leaves,
                    ((words.payload.data[:8] == written.word[:8]) & (words.payload.strobe[1] == 0))
                    & (words.payload.strobe[0] == written.word[8])
                    | (
                        (words.payload.data[8:] == written.word[:8])
                        & (words.payload.strobe[1] == written.word[8])
                    ),
                )
            ),
        ]


PROOFS = (
    Proof(
        unit="round_robin",
        claim="one of those who want is chosen, and none waits for more than all others",
        harness=RoundRobinHarness,
        depth=2,
        faults=(
            Fault(unit="round_robin", old="(self.chosen - 1))", new="0)"),
            Fault(unit="round_robin", old="bits & (~bits + 1)", new="bits & (~bits + 2)"),
        ),
        fault_depth=10,
    ),
    Proof(
        unit="weight_broadcast",
        claim="who asked for a burst gets its words, in order, and nobody else",
        harness=BroadcastHarness,
        depth=12,
        bounded=True,
        faults=(
            Fault(
                unit="weight_broadcast",
                old="turn.chosen, equal_requests",
                new="turn.chosen, [requests_seen] * count",
            ),
            Fault(
                unit="weight_broadcast", old="Mux(burst_goes, SETTLES, ", new="Mux(burst_goes, 0, "
            ),
        ),
        fault_depth=12,
    ),
    Proof(
        unit="weight_broadcast",
        claim="nobody is waited for for ever",
        harness=PatienceHarness,
        depth=4,
        faults=(Fault(unit="weight_broadcast", old="(cycles_waited == self._patience)", new="0"),),
        fault_depth=16,
    ),
    Proof(
        unit="read_widener",
        claim="words have room, and a burst gets the beats that it asked for",
        harness=ReadWidenerHarness,
        depth=12,
        bounded=True,
        faults=(
            Fault(
                unit="read_widener", old="(words_vacant > word_count)", new="(words_vacant != 0)"
            ),
            Fault(
                unit="read_widener",
                old="Mux(burst_begun, beat_in_word, oldest.first)",
                new="Mux(burst_begun, beat_in_word, 0)",
            ),
        ),
        fault_depth=16,
    ),
    Proof(
        unit="write_widener",
        claim="a burst is asked for when it is complete, where it lies, with its own last byte",
        harness=WriteWidenerHarness,
        depth=8,
        bounded=True,
        faults=(
            Fault(unit="write_widener", old="m.Elif(word_empty)", new="m.Elif(~word_empty)"),
            Fault(
                unit="write_widener",
                old="request.valid.eq(bursts_complete != 0)",
                new="request.valid.eq(burst_open)",
            ),
        ),
        fault_depth=8,
    ),
)
