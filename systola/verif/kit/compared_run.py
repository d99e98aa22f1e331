# SPDX-License-Identifier: Apache-2.0
"""A run of one program on the golden model and on the C++ machine, with a comparison of the two."""

from __future__ import annotations

from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.sim.model import NoEnd
from systola.verif.kit import scoreboard
from systola.verif.kit.blame import blame


def compared_run(
    machine: Simulator,
    golden: Machine,
    image: Image,
    *,
    fault: Fault | None = None,
    limit: int = 100_000,
    bus_timeout: int = 0,
) -> None:
    """Run the program on both models; fail unless both do the same, and end in `fault` or at Halt.

    Memory, fault, interrupts and tags must be equal. Both models must hold the same on-chip data
    before the run, and hold the same data after it. For `limit` and `bus_timeout` see
    Simulator.run.
    """
    expected = image.host.copy()
    outcome = golden.run(expected, image.weights, image.program_offset)
    scoreboard.check_end(outcome.fault, scoreboard.ends_in(fault))
    try:
        result = machine.run(image, limit=limit, bus_timeout=bus_timeout)
    except NoEnd as error:
        state = machine.what_hangs(image, limit=limit, bus_timeout=bus_timeout)
        raise NoEnd(f"{error}\n{state}") from None

    def about(place: int) -> str:
        return blame(machine.config, image, place, machine.written_at(place))

    scoreboard.check_result(result, expected, outcome, about)
