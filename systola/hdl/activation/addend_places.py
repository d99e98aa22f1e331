# SPDX-License-Identifier: Apache-2.0
"""Places in memory where addends of int16 results wait, in lanes that read both lines of a vector
in one cycle.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from systola.hdl.activation.vector_lane import PLACE_BITS, AddendPlaces, VectorLane


def addend_places(m: Module, adds_to_sum: Value) -> data.View:
    """Return the places in the memory of addends that all lanes write and read in this cycle.

    An addend is read two cycles before the requantiser takes it. A sum of lines reaches the
    requantiser one cycle later than an accumulator row. So after a cycle with `adds_to_sum`, an
    addend is read that has waited one cycle longer. Addends are at least three cycles apart.
    Halved elements wait in the same memory, but never for the additional cycle.
    """
    assert 1 << PLACE_BITS == 2 * VectorLane.WAITING
    places = Signal(AddendPlaces())
    adds_before = Signal()
    oldest_place = Signal(PLACE_BITS)
    place_before = Signal(PLACE_BITS)
    m.d.comb += [
        oldest_place.eq(Cat(places.write[:-1], ~places.write[-1])),
        places.read.eq(Mux(adds_before, place_before, oldest_place)),
    ]
    m.d.sync += [
        places.write.eq(places.write + 1),
        place_before.eq(oldest_place),
        adds_before.eq(adds_to_sum),
    ]
    return places
