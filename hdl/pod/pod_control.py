# SPDX-License-Identifier: Apache-2.0
"""Starts the cores of a pod together, and ends them together after a fault."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from systola.arch.isa import Fault
from systola.arch.registers import Status

LAUNCH = 6
"""Cycles from the reset of the links to the first look at what the cores do."""


class PodControl(wiring.Component):
    """`start` is for a pod in which no core is busy. `settle` cycles later, when nothing is on its
    way from core to core any longer, the links are emptied (`clear_links`), and two cycles after
    that each core starts (`core_start`); `status` is BUSY from the start on.

    The first core with FAULT in its `statuses` is the `first`, with its `cause`, the lowest where
    there are several; from then on `stop` is up, with `in_vain` after a LINK_TIMEOUT, until no core
    is busy any more. `finished`: all have ended at Halt. `faulted`: there is a first fault; both
    for a cycle. `soft_reset` forgets what was (`forget`); it goes to the cores by itself. All that
    leaves comes from registers; what the cores tell is looked at a cycle later. `alive`: a core has
    `moved`.
    """

    def __init__(self, *, cores: int, settle: int):
        self._cores, self._settle = cores, settle
        cause = ceil_log2(len(Fault))
        super().__init__(
            {
                "start": In(1),
                "soft_reset": In(1),
                "statuses": In(data.ArrayLayout(len(Status), cores)),
                "causes": In(data.ArrayLayout(cause, cores)),
                "moved": In(cores),
                "core_start": Out(1),
                "clear_links": Out(1),
                "alive": Out(1),
                "stop": Out(1),
                "in_vain": Out(1),
                "status": Out(len(Status)),
                "first": Out(bits_for(cores - 1)),
                "cause": Out(cause),
                "finished": Out(1),
                "faulted": Out(1),
                "forget": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def all_with(bit: Status) -> Signal:
            found = Signal(self._cores, name=f"{str(bit.name).lower()}_cores")
            for number in range(self._cores):
                m.d.sync += found[number].eq((self.statuses[number] & bit).any())
            return found

        busy, done, faults = (all_with(bit) for bit in (Status.BUSY, Status.DONE, Status.FAULT))
        left = Signal(range(self._settle + LAUNCH + 1))  # cycles of the start
        runs = Signal()  # what START began has not ended
        ended_well = Signal()
        found = Signal()  # a fault, whose cause is known in the next cycle
        told = Signal()  # it is known
        begins, ends, finds = Signal(), Signal(), Signal()
        m.d.comb += [
            begins.eq(self.start & ~self.soft_reset & ~busy.any() & (left == 0)),
            ends.eq(runs & (left == 0) & ~busy.any() & (found == told) & ~finds),
            finds.eq(runs & (left == 0) & faults.any() & ~found),
            self.status.eq(
                ((left != 0) | runs | busy.any()) * int(Status.BUSY)
                | ended_well * int(Status.DONE)
                | told * int(Status.FAULT)
            ),
        ]
        m.d.sync += [
            left.eq(Mux(left == 0, 0, left - 1)),
            self.clear_links.eq(left == LAUNCH),
            self.core_start.eq((left == LAUNCH - 2) & ~self.soft_reset),
            self.alive.eq(self.moved.any()),
            self.finished.eq(ends & done.all()),
            self.faulted.eq(found & ~told),
            told.eq(found),
            self.stop.eq(told & runs & ~ends),
            self.forget.eq(self.soft_reset),
        ]
        with m.If(finds):
            m.d.sync += found.eq(1)
            for number in reversed(range(self._cores)):
                with m.If(faults[number]):
                    m.d.sync += self.first.eq(number)
        with m.If(found & ~told):
            m.d.sync += [
                self.cause.eq(self.causes[self.first]),
                self.in_vain.eq(self.causes[self.first] == Fault.LINK_TIMEOUT),
            ]
        with m.If(ends):
            m.d.sync += [runs.eq(0), ended_well.eq(done.all())]
        with m.If(begins):
            m.d.sync += [left.eq(self._settle + LAUNCH), runs.eq(1)]
        with m.If(self.soft_reset):
            m.d.sync += [left.eq(0), runs.eq(0)]
        with m.If(begins | self.soft_reset):
            m.d.sync += [
                ended_well.eq(0),
                found.eq(0),
                told.eq(0),
                self.cause.eq(0),
                self.first.eq(0),
                self.in_vain.eq(0),
            ]
        return m
