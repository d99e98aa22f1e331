# SPDX-License-Identifier: Apache-2.0
"""The front of a lane against the formulas of Depthwise, Pool and Vector in plain Python."""

from typing import NamedTuple

import cocotb
import pytest

from systola.hdl.activation.vector_lane import Coefficient, VectorLane
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    rng,
    run_unit,
    small_config,
    variants,
)

CONFIGS = {
    "complete": small_config(),
    "no wide": small_config(wide=False),
    "no depthwise": small_config(depthwise=False),
}
PRODUCT, SUM, LATENCY = 3, 6, 7
"""Cycles from a byte to its controls, and to the sum."""
COUNT = 1500


def unit(variant=None):
    return VectorLane(config=CONFIGS[variant or chosen_variant()])


class Element(NamedTuple):
    """A byte with all that is said about it, each at its time."""

    byte: int
    element: dict
    tap: int
    scaling: dict
    summing: dict


def wrapped(value, bits=32):
    """`value` modulo 2^bits, signed."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def scaled(x, multiplier, shift, k):
    """The f of Vector."""
    h = (x * multiplier + (1 << (k - 1))) >> k
    return h if shift == 0 else (h + (1 << (shift - 1)) - (h < 0)) >> shift


class Numbers:
    """Random instructions as elements, each with the sum (or None) and the addend behind it."""

    def __init__(self, name):
        self.random = rng("vector_lane", name, chosen_variant())
        self.config = CONFIGS[chosen_variant()]
        self.low = 0

    def byte(self):
        return self.random.choice((-128, 127, 0, -1, self.random.randint(-128, 127)))

    def element(self, byte, *, element=None, product=None, scaling=None, summing=None):
        """An element; what is left open does nothing, or does not matter."""
        random = self.random
        noise = {
            "coefficient": Coefficient.MULTIPLIER,
            "multiplier": 1 if summing else random.getrandbits(31),
            "keep": 0,
        }
        return Element(
            byte,
            {**noise, **(element or {}), **(product or {})},
            self.byte(),
            scaling or {},
            {"first": random.getrandbits(1), **(summing or {})},
        )

    def idle(self):
        """A cycle in which nothing comes."""
        return [(self.element(self.byte()), None, None)]

    def depthwise(self):
        """Taps of a window, those outside the map included."""
        random, total, found = self.random, 0, []
        count = random.choice((1, 4, 9))
        for number in range(count):
            outside, fill = int(random.random() < 0.3), self.byte()
            element = self.element(
                self.byte(),
                element={"outside": outside, "zero": -fill if outside else 0},
                product={"coefficient": Coefficient.TAP},
                summing={"update": 1, "first": int(number == 0)},
            )
            total += (fill if outside else element.byte) * element.tap
            found.append((element, total, None))
            if random.random() < 0.2:
                found += self.idle()
        return found

    def pool(self):
        """Taps of a window, the largest one or their sum; those outside do not count."""
        random, found, inside = self.random, [], []
        maximum = random.getrandbits(1)
        share = random.choice((0, 0.3, 1))
        for number in range(random.choice((1, 4, 9))):
            skip = int(random.random() < share)
            element = self.element(
                self.byte(),
                element={"outside": skip},
                summing={
                    "update": 1,
                    "first": int(number == 0),
                    "skip": skip,
                    "maximum": maximum,
                },
            )
            inside += [] if skip else [element.byte]
            found.append((element, max([-128, *inside]) if maximum else sum(inside), None))
        return found

    def vector(self):
        """One of the operations on one or two operands, of int8 or int16."""
        random = self.random
        wide = random.getrandbits(1) if self.config.wide else 0
        operation = random.choice(("copy", "add", "subtract", "multiply"))
        x, found = [], []
        count = 1 if operation == "copy" else 2
        total = 0
        for number in range(count):
            zero = random.choice((0, -128, 127, random.randint(-128, 127)))
            control = {"zero": zero, "wide": wide}
            low, byte = self.byte(), self.byte()
            if wide:
                # What the sum would do with half an element must not be asked for.
                found.append((self.element(low, element={**control, "low": 1}), None, None))
            value = (byte << 8 | low & 0xFF) if wide else byte
            x.append(value - zero)
            product = {"keep": int(number == 0)}
            scaling, summing = {"wide": wide}, {"update": 1, "first": int(number == 0)}
            if operation in ("add", "subtract"):
                multiplier = random.choice((0, (1 << 31) - 1, random.getrandbits(31)))
                shift = random.choice((0, 0, 1, 31, random.randint(0, 31)))
                product |= {"multiplier": multiplier}
                scaling |= {"scaled": 1, "shift": shift}
                term = scaled(x[-1], multiplier, shift, 16 if wide else 11)
                summing["subtract"] = int(operation == "subtract" and number == 1)
                total += -term if summing["subtract"] else term
            elif operation == "multiply":
                if number == 0:
                    summing["update"] = 0
                else:
                    product["coefficient"] = Coefficient.FIRST
                    summing["first"] = 1
                    total = x[0] * x[1]
            else:
                total = x[0]
            element = self.element(
                byte, element=control, product=product, scaling=scaling, summing=summing
            )
            found.append((element, wrapped(total) if summing["update"] else None, None))
            if random.random() < 0.2:
                found += self.idle()
        return found

    def addend(self):
        """An int16 that the result is added to."""
        low, byte = self.byte(), self.byte()
        return [
            (self.element(low, element={"low": 1, "wide": self.random.getrandbits(1)}), None, None),
            (self.element(byte, element={"addend": 1}), None, byte << 8 | low & 0xFF),
        ]

    def some(self):
        kinds = [self.idle, self.pool, self.vector]
        kinds += [self.depthwise] * self.config.depthwise + [self.addend] * self.config.wide
        return self.random.choice(kinds)()


@cocotb.test
async def formulas(dut):
    """A byte in every cycle; sums and addends when they are due, and no change before."""
    bench = Bench(dut, unit())
    await bench.start()
    numbers = Numbers("formulas")
    timeline = []
    while len(timeline) < COUNT:
        timeline += numbers.some()
    timeline += [entry for _ in range(LATENCY + 1) for entry in numbers.idle()]
    elements = [element for element, _, _ in timeline]
    total = addend = None
    for now in range(len(timeline)):

        def before(cycles, now=now):
            return elements[now - cycles] if now >= cycles else elements[0]

        coarse = before(PRODUCT + 2).scaling.get("shift", 0) >> 2
        inputs = {
            "byte": before(0).byte,
            "element": before(0).element,
            "product_scaling": before(PRODUCT).scaling,
            "scaling": before(PRODUCT + 1).scaling,
            "shift": coarse,
            "longer": (1 << coarse) - 1,
            "summing": before(SUM).summing if now >= SUM else {},
        }
        if numbers.config.depthwise:
            inputs["tap"] = before(0).tap
        await bench.cycle(**inputs)
        if now >= LATENCY and timeline[now - LATENCY][1] is not None:
            total = timeline[now - LATENCY][1]
        if total is not None:
            assert bench.get("sum") == total, f"cycle {now}"
        if now >= 2 and timeline[now - 2][2] is not None:
            addend = timeline[now - 2][2]
        # It may already be the next one, whose second byte came in the cycle before.
        if addend is not None and timeline[now - 1][2] is None:
            assert bench.get("addend") == addend, f"cycle {now}"


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_vector_lane(simulator, variant):
    stages = VectorLane.PRODUCT_STAGE, VectorLane.SUM_STAGE, VectorLane.LATENCY
    assert stages == (PRODUCT, SUM, LATENCY)
    run_unit("test_vector_lane", simulator, unit(variant), variant=variant)
