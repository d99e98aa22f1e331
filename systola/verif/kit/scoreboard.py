# SPDX-License-Identifier: Apache-2.0
"""A comparison of a program's results with the expected ones, which names a place that differs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Fault
from systola.arch.registers import Interrupt, Status
from systola.golden.outcome import FaultReport, Outcome
from systola.sim.library import RunResult

HALT = frozenset({Fault.NONE})
"""The allowed ends of a program that must run to its Halt."""
ANY_END = frozenset(Fault)
"""The allowed ends of a program that may end in any way."""


@dataclass(frozen=True)
class Matrix:
    """A record of the name and place of a matrix of bytes, for messages that name an element."""

    name: str
    offset: int
    rows: int
    stride: int
    """The number of bytes from the start of one row to the next."""
    columns: int

    def place(self, offset: int) -> str | None:
        """Return the name of the element at byte `offset` of memory; None outside the matrix."""
        inside = offset - self.offset
        row, column = divmod(inside, self.stride) if self.stride else (0, inside)
        if 0 <= row < self.rows and column < self.columns:
            return f"{self.name}[{row}, {column}]"
        return None


def difference(
    expected: NDArray[np.uint8], actual: NDArray[np.uint8], matrices: Iterable[Matrix] = ()
) -> str | None:
    """Describe the first byte in which two memories differ; return None if they are equal."""
    if expected.size != actual.size:
        return f"{actual.size} bytes instead of {expected.size}"
    wrong = np.flatnonzero(expected != actual)
    if not wrong.size:
        return None
    first = int(wrong[0])
    names = [name for matrix in matrices if (name := matrix.place(first))]
    where = f" ({', '.join(names)})" if names else ""
    return (
        f"{wrong.size} of {expected.size} bytes differ, first at 0x{first:x}{where}: "
        f"0x{int(actual[first]):02x} instead of 0x{int(expected[first]):02x}; "
        f"last at 0x{int(wrong[-1]):x}"
    )


def check(
    expected: NDArray[np.uint8],
    actual: NDArray[np.uint8],
    matrices: Iterable[Matrix] = (),
    about: Callable[[int], str] | None = None,
) -> None:
    """Fail if two memories differ; the message describes the first byte that differs.

    `about` gets the offset of the byte, and returns more text for the message.
    """
    found = difference(expected, actual, matrices)
    if found is not None and about is not None and expected.size == actual.size:
        found += "\n" + about(int(np.flatnonzero(expected != actual)[0]))
    if found is not None:
        raise AssertionError(found)


def check_end(fault: FaultReport | None, ends: Container[Fault] = HALT) -> None:
    """Fail unless a program has ended as its test expects, in one of `ends`.

    A fault that is not in `ends` fails the test even if the golden model has the same fault.
    `fault` is None for a program that ended at Halt.
    """
    cause = fault.cause if fault else Fault.NONE
    if cause in ends:
        return
    if fault is None:
        raise AssertionError("the program ends at Halt, and a fault was meant")
    raise AssertionError(
        f"the program ends in {cause.name} at instruction {fault.pc}, address 0x{fault.address:x}; "
        f"a test that means it says fault=Fault.{cause.name}"
    )


def ends_in(fault: Fault | None) -> frozenset[Fault]:
    """Return the allowed end of a program that must stop with `fault`; without a fault, at Halt."""
    return frozenset({fault or Fault.NONE})


def fault_of(result: RunResult) -> FaultReport | None:
    """Return the fault that a machine has reported; None if its program ended at Halt."""
    if not result.status & Status.FAULT:
        return None
    return FaultReport(result.fault_cause, result.fault_pc, result.fault_address)


def halted(result: RunResult) -> RunResult:
    """Return `result` itself; fail unless its program has ended at Halt."""
    check_end(fault_of(result))
    assert result.status == Status.DONE, f"STATUS is {result.status!r}"
    return result


def check_result(
    result: RunResult,
    expected: NDArray[np.uint8],
    outcome: Outcome,
    about: Callable[[int], str] | None = None,
) -> None:
    """Fail unless a machine did the same as the golden model.

    The golden model left `expected` in the host window. Status, fault, interrupts, every byte and
    the tags are compared; each cycle must be counted once. `about` describes the first byte that
    differs.
    """
    _check_registers(result, outcome)
    check(expected, result.host, about=about)
    tags = tuple(tag for _, tag in result.tags)
    assert result.missing_tags or tags == outcome.tags, f"tags {tags}, not {outcome.tags}"
    count = len(tags) + result.missing_tags
    assert count == len(outcome.tags), f"{count} tags, not {len(outcome.tags)}"
    total = sum(result.counters.values())
    assert total == result.cycles, f"counters sum to {total}, not {result.cycles}"


def _check_registers(result: RunResult, outcome: Outcome) -> None:
    fault = outcome.fault
    done = Status.FAULT if fault else Status.DONE
    told = fault_of(result) or "no fault"
    assert result.status == done, f"STATUS is {result.status!r}, not {done!r}: {told}"
    cause = fault.cause if fault else Fault.NONE
    assert result.fault_cause == cause, f"{result.fault_cause!r} instead of {cause!r}"
    if fault:
        where = result.fault_pc, result.fault_address
        assert where == (fault.pc, fault.address), f"pc, address {where} instead of {fault}"
    irq = Interrupt.FAULT if fault else Interrupt.DONE
    if codes := outcome.interrupts:
        irq |= Interrupt.PROGRAM
        assert result.irq_code == codes[-1], f"IRQ_CODE {result.irq_code}, not {codes}"
    assert result.irq_status == irq, f"IRQ_STATUS is {result.irq_status!r}, not {irq!r}"
