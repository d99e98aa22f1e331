# SPDX-License-Identifier: Apache-2.0
"""A bench that runs units with random inputs in Amaranth's simulator, to find broken promises.

A promise is an assertion in a unit's file about its inputs or its state. The inputs of a bench keep
all promises that users of the unit make.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from amaranth.hdl import Fragment, Value
from amaranth.lib import wiring
from amaranth.sim import Simulator

from systola.hdl.parts.fabric import Checked, Fabric
from systola.verif.formal.proof import Fault, planted

CYCLES = 400
DENSITIES = (0.02, 0.1, 0.5, 0.9, 0.98)
"""The shares of cycles in which an input of one bit may be high."""
CYCLES_PER_DENSITY = 50

Legal = Callable[[Any, Any, dict[str, Any], random.Random], None]
"""A function that corrects the random inputs of a cycle, to keep to the unit's contract.

The function gets the simulator's context, the unit, a dictionary that lasts from cycle to cycle,
and a source of random numbers.
"""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A unit to run, and the rules for its random inputs.

    `fixed` has inputs that stay as they are, by name. An offer, an input `Xvalid` beside an output
    `Xready`, stays until it is taken. `legal` corrects everything else that the unit's contract
    forbids.
    """

    make: Callable[[], wiring.Component]
    fixed: Mapping[str, int] = field(default_factory=dict[str, int])
    legal: Legal | None = None


def broken_promise(bench: Bench, fault: Fault | None, seed: int) -> str | None:
    """Run a unit with random inputs; return the message of the first broken promise, or None."""
    with planted(fault) if fault else nullcontext():
        unit = bench.make()
        simulator = Simulator(Fragment.get(unit, Checked(Fabric.GENERIC)))
    simulator.add_clock(1e-6)
    ports = {
        ".".join(map(str, path)): (member.flow is wiring.In, Value.cast(value))
        for path, member, value in unit.signature.flatten(unit)
    }
    inputs = {name: value for name, (is_input, value) in ports.items() if is_input}
    offers = [
        name.removesuffix("valid")
        for name in inputs
        if name.endswith("valid") and f"{name.removesuffix('valid')}ready" in ports
    ]

    async def stimulus(context: Any) -> None:
        drawn = random.Random(seed)
        state: dict[str, Any] = {}
        density: dict[str, float] = {}
        waiting: tuple[str, ...] = ()
        for cycle in range(CYCLES):
            if cycle % CYCLES_PER_DENSITY == 0:
                density = {name: drawn.choice(DENSITIES) for name in inputs}
            for name, value in inputs.items():
                if waiting and name.startswith(waiting):
                    continue
                bit = int(drawn.random() < density[name])
                number = drawn.getrandbits(len(value)) if len(value) > 1 else bit
                context.set(value, bench.fixed.get(name, number))
            if bench.legal:
                bench.legal(context, unit, state, drawn)
            waiting = tuple(
                prefix
                for prefix in offers
                if context.get(inputs[f"{prefix}valid"])
                and not context.get(ports[f"{prefix}ready"][1])
            )
            await context.tick()

    simulator.add_testbench(stimulus)
    try:
        simulator.run()
    except AssertionError as broken:
        return str(broken).removeprefix("Assertion violated: ").strip()
    return None
