# SPDX-License-Identifier: Apache-2.0
"""The promise that elements, vectors and gates use the requantisers one after the other."""

from amaranth.hdl import Module, Value

from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.parts.promise import promised, promised_apart


def promise_turns(m: Module, platform: object, element: Value, vector: Value, lends: Value) -> None:
    """Promise that the requantisers never have two uses at a time.

    `element` or `vector` is high in the cycle before an element, or a vector, enters the
    requantisers. `lends` is high in the cycle before the requantisers lend a multiplier to the
    gates.
    """
    promised(m, platform, ~(element & vector), "an element and a vector enter the requantisers")
    promised_apart(
        m,
        platform,
        element | vector,
        lends,
        Requantiser.MULTIPLIER_STAGE,
        "a multiplier is lent while it has a product to make",
    )
