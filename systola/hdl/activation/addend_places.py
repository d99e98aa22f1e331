# SPDX-License-Identifier: Apache-2.0
"""Places in memory where addends of int16 results wait, in lanes that read both lines of a vector
in one cycle.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from systola.hdl.activation.vector_lane import PLACE_BITS, AddendPlaces, VectorLane


def addend_places(m: Module, adds_to_sum: Value) -> data.View:
    """Return the places for all lanes, two cycles before the requantiser takes an addend.

    If `adds_to_sum` was high in the cycle before, an addend that is a cycle older is read. Sums of
    lines come a cycle later than rows of the accumulators, and the next addend may follow after
    three cycles. Halves of elements wait in the same memory, but never for a cycle more.
    """
    assert 1 << PLACE_BITS == 2 * VectorLane.WAITING
    places, late = Signal(AddendPlaces()), Signal()
    oldest, older = Signal(PLACE_BITS), Signal(PLACE_BITS)
    m.d.comb += [
        oldest.eq(Cat(places.write[:-1], ~places.write[-1])),
        places.read.eq(Mux(late, older, oldest)),
    ]
    m.d.sync += [places.write.eq(places.write + 1), older.eq(oldest), late.eq(adds_to_sum)]
    return places
