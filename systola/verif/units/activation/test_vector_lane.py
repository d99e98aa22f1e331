# SPDX-License-Identifier: Apache-2.0
"""The test of the front part of a lane against the formulas of Depthwise, Pool and Vector."""

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
    "training": small_config(training=True),
    "attention": small_config(attention=True, tables=7),
}
SUM, LATENCY, SCALED, SCALED_LATENCY, ADDEND = 3, 4, 9, 10, 9
"""Cycles from a byte at the input of the lane to other inputs and outputs.

- SUM, LATENCY: to the control inputs that add the byte's product to a sum, and to this sum.
- SCALED, SCALED_LATENCY: to the control inputs that add a scaled element to a sum, and to this sum.
- ADDEND: to the addend to which the byte belongs.
"""
COUNT = 1500


def unit(variant=None):
    return VectorLane(config=CONFIGS[variant or chosen_variant()])


class Element(NamedTuple):
    """A byte for the lane with its control inputs, some of which come in later cycles."""

    byte: int
    element: dict
    tap: int
    number: int
    carry: int
    summing: dict
    x: int | None
    """The value of the element; None if the byte is only the first half of an element."""
    before: int | None = None
    """The low byte of an int16, if it comes together with the high byte."""
    gathered: int = 0
    """The number that is looked up for the element in a table of int32."""
    bits: int | None = None
    """The number of low bits of the element's value `x` that are checked; None for all bits."""


def wrapped(value, bits=32):
    """Return `value` modulo 2^bits as a signed number."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def power_below(divisor):
    """Return 2^15 / 2^n for the least n with -2^n <= `divisor` < 2^n; 0 if this is less than 1."""
    bits = next(n for n in range(40) if -(1 << n) <= divisor < 1 << n)
    return 1 << 15 >> bits


class Numbers:
    """A source of random instructions for a lane.

    An instruction is a list of elements, each with its expected sum and addend, or with None.
    """

    def __init__(self, name):
        self.random = rng("vector_lane", name, chosen_variant())
        self.config = CONFIGS[chosen_variant()]
        self.paired = self.config.reads_pairs
        self.low = 0

    def byte(self):
        return self.random.choice((-128, 127, 0, -1, self.random.randint(-128, 127)))

    def element(self, byte, *, element=None, product=None, summing=None, x=None):
        """Return an element; inputs that are not given have no effect, or random values."""
        random = self.random
        noise = {"coefficient": Coefficient.ONE if summing else Coefficient.ZERO, "keep": 0}
        return Element(
            byte,
            {**noise, **(element or {}), **(product or {})},
            self.byte(),
            random.randint(-(1 << 31), (1 << 31) - 1),
            random.getrandbits(1),
            {"first": random.getrandbits(1), **(summing or {})},
            x,
        )

    def idle(self):
        """Return a cycle without input to the lane."""
        return [(self.element(self.byte()), None, None)]

    def depthwise(self):
        """Return a Depthwise window: its taps, also outside the map, with the sums of products."""
        random, total, found = self.random, 0, []
        count = random.choice((1, 4, 9))
        for number in range(count):
            outside, fill = int(random.random() < 0.3), self.byte()
            element = self.element(
                0 if outside else self.byte(),
                element={"zero": -fill if outside else 0},
                product={"coefficient": Coefficient.TAP},
                summing={"update": 1, "first": int(number == 0)},
            )
            total += (fill if outside else element.byte) * element.tap
            found.append((element, total, None))
            if random.random() < 0.2:
                found += self.idle()
        return found

    def pool(self):
        """Return a Pool window: its taps, with their maximum or sum.

        A tap outside the map counts as the least number for a maximum, and as 0 for a sum.
        """
        random, found, inside = self.random, [], []
        maximum = random.getrandbits(1)
        share = random.choice((0, 0.3, 1))
        for number in range(random.choice((1, 4, 9))):
            skip = int(random.random() < share)
            element = self.element(
                0 if skip else self.byte(),
                element={"zero": 128 * maximum * skip},
                summing={"update": 1, "first": int(number == 0), "maximum": maximum},
            )
            inside += [] if skip else [element.byte]
            found.append((element, max([-128, *inside]) if maximum else sum(inside), None))
        return found

    def vector(self, operations):
        """Return a Vector with one of the `operations`, on one or two operands of int8 or int16."""
        random = self.random
        wide = random.getrandbits(1) if self.config.wide else 0
        operation = random.choice(operations)
        x, found = [], []
        count = 1 if operation == "copy" else 2
        total = 0
        for number in range(count):
            zero = random.choice((0, -128, 127, random.randint(-128, 127)))
            control = {"zero": zero, "wide": wide}
            low, byte = self.byte(), self.byte()
            before = low if wide and self.paired and random.getrandbits(1) else None
            if wide and before is None:
                # Half an element must not change the sum.
                found.append((self.element(low, element={**control, "low": 1}), None, None))
            value = (byte << 8 | low & 0xFF) if wide else byte
            x.append(value - zero)
            product = {"keep": int(number == 0)}
            summing = {"update": 1, "first": int(number == 0)}
            if operation in ("add", "subtract"):
                halved = int(not wide and random.random() < 0.4)
                product |= {"coefficient": Coefficient.ZERO}
                summing |= {"halved": halved, "scaled": 1 - halved}
                summing["subtract"] = int(operation == "subtract" and number == 1)
            elif operation in ("multiply", "divide"):
                if number == 0:
                    summing["update"] = 0
                else:
                    product["coefficient"] = Coefficient.FIRST
                    product["keep"] = int(operation == "divide")
                    summing["first"] = 1
                    total = x[1] * (x[0] if operation == "multiply" else power_below(x[0]))
            else:
                total = x[0]
            element = self.element(byte, element=control, product=product, summing=summing, x=x[-1])
            if operation in ("add", "subtract"):
                term = x[-1] << 19 if halved else element.number + element.carry
                total += -term if summing["subtract"] else term
            element = element._replace(before=before)
            found.append((element, wrapped(total) if summing["update"] else None, None))
            if random.random() < 0.2:
                found += self.idle()
        return found

    def relative(self):
        """Return a line, then lines from which it is subtracted before numbers are looked up."""
        random = self.random
        byte, zero = self.byte(), self.byte()
        product = {"coefficient": Coefficient.ZERO, "keep": 1}
        kept = self.element(byte, element={"zero": -zero}, product=product, x=byte + zero)
        found = [(kept, None, None)]
        for _ in range(random.choice((1, 2, 5))):
            if random.random() < 0.2:
                found += self.idle()
            # Only the lowest bits of the difference count.
            x = self.byte() - byte - zero
            gathered = random.getrandbits(32)
            control = {"relative": 1, "zero": self.byte()}
            product = {"coefficient": Coefficient.ZERO}
            summing = {"update": 1, "first": 1}
            byte_now = x + byte + zero
            element = self.element(byte_now, element=control, product=product, summing=summing, x=x)
            element = element._replace(gathered=gathered, bits=8)
            found.append((element, wrapped(gathered), None))
        return found

    def addend(self):
        """Return the two bytes of an int16 addend, to which a result will be added."""
        low, byte = self.byte(), self.byte()
        if self.paired and self.random.getrandbits(1):
            second = self.element(byte, element={"addend": 1})._replace(before=low)
            return [(second, None, byte << 8 | low & 0xFF)]
        return [
            (self.element(low, element={"low": 1, "wide": self.random.getrandbits(1)}), None, None),
            (self.element(byte, element={"addend": 1}), None, byte << 8 | low & 0xFF),
        ]

    def plain(self):
        """Return a random instruction that sums products, an addend, or a cycle without input."""
        operations = ["copy", "multiply", *["divide"] * self.config.training]
        kinds = [self.idle, self.pool, lambda: self.vector(operations)]
        kinds += [self.depthwise] * self.config.depthwise + [self.addend] * self.config.wide
        kinds += [self.relative] * self.config.attention
        return self.random.choice(kinds)()

    def scaled(self):
        """Return a random sum of elements that are halved or scaled by the requantiser, or other
        input.

        Other input is an addend, or a cycle without input.
        """
        kinds = [self.idle, *3 * [lambda: self.vector(("add", "subtract"))]]
        kinds += [self.addend] * self.config.wide
        return self.random.choice(kinds)()


async def check(dut, name, *, scaled):
    """Send a byte of random instructions in every cycle, and check all sums and addends.

    Each sum or addend comes when it is due, and stays until the next.
    """
    bench = Bench(dut, unit())
    await bench.start()
    numbers = Numbers(name)
    due, latency = (SCALED, SCALED_LATENCY) if scaled else (SUM, LATENCY)
    timeline = []
    while len(timeline) < COUNT:
        timeline += numbers.scaled() if scaled else numbers.plain()
    timeline += [entry for _ in range(latency + ADDEND) for entry in numbers.idle()]
    elements = [element for element, _, _ in timeline]
    total = addend = value_due = None
    addends, late = [(None, False)], False
    for now in range(len(timeline)):
        then = elements[max(0, now - due)]
        inputs = {
            "byte": elements[now].byte,
            "element": elements[now].element,
            "number": then.number,
            "carry": then.carry,
            "summing": then.summing if now >= due else {},
        }
        if numbers.config.attention:
            inputs["gathered"] = then.gathered if now >= due else 0
        if numbers.config.depthwise:
            inputs["tap"] = elements[now].tap
        if numbers.paired:
            before = elements[now + 1].before if now + 1 < len(elements) else None
            # The low byte of an int16 waits in the memory of the addends. For scaled elements it
            # must be read in time, for products it may be read a cycle later.
            late = not scaled and numbers.random.random() < 0.5
            places = {"write": now % 16, "read": (now - ADDEND + 1 - late) % 16}
            inputs |= {"pair": before is not None, "waits_at": places}
            inputs["before"] = numbers.byte() if before is None else before
        await bench.cycle(**inputs)
        if now >= latency and timeline[now - latency][1] is not None:
            total = timeline[now - latency][1]
        if total is not None:
            bench.expect("sum", total, f"cycle {now}")
        if now > ADDEND and timeline[now - ADDEND - 1][2] is not None:
            addend = timeline[now - ADDEND - 1][2]
        # If another addend is due in the next cycle, the output may show it already. So the
        # addend is not checked in this cycle.
        addends.append((addend, addend is not None and timeline[now - ADDEND][2] is None))
        expected, known = addends[-1 - late]
        if known:
            bench.expect("addend", expected, f"cycle {now}")
        if value_due is not None and value_due.bits is None:
            bench.expect("value", value_due.x, f"cycle {now}")
        elif value_due is not None:
            number = 1 << value_due.bits
            assert bench.get("value") % number == value_due.x % number, f"cycle {now}"
        value_due = None if elements[now].x is None else elements[now]


@cocotb.test
async def products(dut):
    await check(dut, "products", scaled=False)


@cocotb.test
async def scaled_elements(dut):
    await check(dut, "scaled", scaled=True)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_vector_lane(simulator, variant):
    assert (VectorLane.SUM_STAGE, VectorLane.LATENCY) == (SUM, LATENCY)
    assert (VectorLane.SCALED_STAGE, VectorLane.SCALED_LATENCY) == (SCALED, SCALED_LATENCY)
    assert VectorLane.ADDEND_LATENCY == ADDEND
    run_unit("test_vector_lane", simulator, unit(variant), variant=variant)
