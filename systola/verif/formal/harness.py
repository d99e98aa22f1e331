# SPDX-License-Identifier: Apache-2.0
"""The base of all proofs: free inputs, access to signals inside units, valid/ready handshakes."""

from __future__ import annotations

from abc import abstractmethod

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Fragment,
    Module,
    Mux,
    ShapeLike,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In


class FormalPlatform:
    """An Amaranth platform that makes memories of registers, called `row_0`, `row_1` and so on.

    So invariants of a proof can name a memory's words. A synchronous read of a word that is being
    written gives any value, unless the port is transparent for the write: `Sram` promises no more.
    On this platform the promises between units are proven, too.
    """

    promises = True

    def get_memory(self, memory: Memory) -> Module:
        m = Module()
        width = len(memory.read_ports[0].data)
        rows = [Signal(width, name=f"row_{i}") for i in range(memory.depth)]
        for write in memory.write_ports:
            for i, row in enumerate(rows):
                with m.If(write.en & (write.addr == i)):
                    m.d.sync += row.eq(Value.cast(write.data))
        for read in memory.read_ports:
            word = Array(rows)[read.addr]
            data = Value.cast(read.data)
            if read.domain == "comb":
                m.d.comb += data.eq(word)
                continue
            for write in memory.write_ports:
                met = write.en & (write.addr == read.addr)
                other = write.data if write in read.transparent_for else AnySeq(width)
                word = Mux(met, other, word)
            with m.If(read.en):
                m.d.sync += data.eq(word)
        return m


class Unit:
    """A unit under proof, with access to its internal signals by name.

    Only the lemmas of an induction may name internal signals. A claim about the unit's behaviour
    must use the ports only.
    """

    def __init__(self, m: Module, ports: Elaboratable, name: str = "dut"):
        self.fragment = Fragment.get(ports, FormalPlatform())
        m.submodules[name] = self.fragment

    def inside(self, path: str) -> Signal:
        """Return a signal inside the unit: path `a.b.name` is `name` in submodule `b` of submodule
        `a`.
        """
        *folders, name = path.split(".")
        fragment = self.fragment
        for folder in folders:
            fragment = next(sub for sub, key, _ in fragment.subfragments if key == folder)
        found = {
            id(signal): signal
            for statements in fragment.statements.values()
            for signal in statements._lhs_signals()
            if signal.name == name
        }
        if len(found) != 1:
            raise LookupError(f"{len(found)} signals are called {path}")
        return next(iter(found.values()))

    def rows(self, path: str, depth: int) -> list[Signal]:
        """Return the words of the memory at `path` inside the unit, of which there are `depth`."""
        return [self.inside(f"{path}.row_{i}") for i in range(depth)]


class Harness(wiring.Component):
    """A module to prove: it has a unit, the unit's free inputs and the claims about the unit.

    A proof starts in the state after reset.
    """

    def __init__(self, *, inductive: bool = True) -> None:
        self._inductive = inductive
        super().__init__({"clk": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain(reset_less=True)
        m.d.comb += ClockSignal().eq(self.clk)
        self.claims(m)
        return m

    def lemmas(self, *conditions: ValueLike) -> list[Assert]:
        """Return assertions that only an induction needs, and that may look inside the unit."""
        if not self._inductive:
            return []
        return [Assert(condition, src_loc_at=2) for condition in conditions]

    @abstractmethod
    def claims(self, m: Module) -> None:
        """Add the unit, its inputs and the assertions to the harness."""


def anything(m: Module, shape: ShapeLike, name: str) -> Signal:
    """Return a signal to which the solver may give any value in any cycle."""
    signal = Signal(shape, name=name)
    m.d.comb += Value.cast(signal).eq(AnySeq(len(Value.cast(signal))))
    return signal


def constant(m: Module, shape: ShapeLike, name: str) -> Signal:
    """Return a signal to which the solver gives any value that then never changes."""
    signal = Signal(shape, name=name)
    m.d.comb += Value.cast(signal).eq(AnyConst(len(Value.cast(signal))))
    return signal


def implies(condition: ValueLike, consequence: ValueLike) -> Value:
    return ~Value.cast(condition).any() | Value.cast(consequence).any()


def before(m: Module, value: ValueLike, name: str, init: int = 0) -> Signal:
    """Return the value that a signal had one cycle ago; `init` in the first cycle."""
    value = Value.cast(value)
    signal = Signal(value.shape(), name=name, init=init)
    m.d.sync += signal.eq(value)
    return signal


def _stays(m: Module, valid: Value, ready: Value, payload: ValueLike, name: str) -> Value:
    waited = before(m, valid & ~ready, f"{name}_waited")
    offered = before(m, payload, f"{name}_offered")
    return ~waited | (valid & (Value.cast(payload) == offered))


def assert_stays(m: Module, valid: Value, ready: Value, payload: ValueLike, name: str) -> None:
    """Assert that an item offered on a stream and not taken is unchanged in the next cycle."""
    m.d.comb += Assert(_stays(m, valid, ready, payload, name))


def assume_stays(m: Module, valid: Value, ready: Value, payload: ValueLike, name: str) -> None:
    """Assume that an item that the unit is offered and does not take is unchanged in the next
    cycle.
    """
    m.d.comb += Assume(_stays(m, valid, ready, payload, name))


class Tracked:
    """A freely chosen item that a proof follows through a unit that must keep items in order.

    `count` items are inside the unit. While `follows` is 1, the chosen item is inside after `ahead`
    other items, and `word` is the value that went in with it. `leaves` is 1 in the cycle in which
    the chosen item leaves. With `through` an item may leave in the cycle in which it enters, and is
    not chosen then.
    """

    def __init__(
        self,
        m: Module,
        *,
        enters: Value,
        word: ValueLike,
        exits: Value,
        most: int,
        through: bool = False,
    ):
        word = Value.cast(word)
        self.count = Signal(range(most + 1), name="count")
        self.follows = Signal(name="follows")
        self.ahead = Signal(range(most + 1), name="ahead")
        self.word = Signal(len(word), name="tracked_word")
        self.chosen = Signal(name="chosen")
        self.leaves = Signal(name="leaves")
        passes = exits & (self.count == 0)
        m.d.comb += [
            self.chosen.eq(enters & ~self.follows & ~passes & anything(m, 1, "choose")),
            self.leaves.eq(self.follows & exits & (self.ahead == 0)),
            Assert(~exits | (self.count != 0) | (enters if through else 0)),
            Assert(self.count <= most),
            Assert(~self.follows | (self.ahead < self.count)),
        ]
        m.d.sync += self.count.eq(self.count + enters - exits)
        with m.If(self.chosen):
            m.d.sync += [
                self.follows.eq(1),
                self.ahead.eq(self.count - exits),
                self.word.eq(word),
            ]
        with m.Elif(self.leaves):
            m.d.sync += self.follows.eq(0)
        with m.Elif(exits):
            m.d.sync += self.ahead.eq(self.ahead - 1)
