# SPDX-License-Identifier: Apache-2.0
"""Tests of mutation testing, by a small campaign on a machine with a 2 x 2 array.

The campaign has mutants that must be found, harmless mutants, and the machine without a fault.
"""

import pytest

from systola.arch.config import Config
from systola.verif.mutation.campaign import Course, Verdict
from systola.verif.mutation.design import MachineDesign
from systola.verif.mutation.doubled import doubled
from systola.verif.mutation.equivalence import dead, harmless
from systola.verif.mutation.mutants import Mutant, mutants_of, mutated_library
from systola.verif.mutation.reach import reaching
from systola.verif.mutation.record import Record
from systola.verif.mutation.stops import stop_trials
from systola.verif.mutation.trial import Differs, survive
from systola.verif.mutation.trials import random_trials, register_trials
from systola.verif.mutation.unit_tests import UNIT

CONFIG = Config(
    name="mutated small",
    rows=2,
    cols=2,
    columns_per_stage=1,
    buffer_lines=1 << 15,  # so many lines that the buffer's banks are memory macros
    accumulator_rows=64,
    parameter_entries=16,
    tables=1,
    buffer_banks=2,
    weight_fifo_tiles=2,
    queue_depth=2,
    instruction_buffer=32,
    depthwise=False,
    wide=False,
    host_bus_bytes=4,
    weight_bus_bytes=4,
)
MACHINE = MachineDesign(CONFIG)
_TOP, _BANK = "tpu", "tpu.core.unified_buffer.bank_0"
FOUND = [
    *((_BANK, "macro", "write_data", 3, "inv"), (_BANK, "macro", "read_address", 0, "inv")),
    *((_TOP, "registers", "irq", 0, "const0"), (_TOP, "registers", "bus__rdata", 1, "inv")),
    (_TOP, "registers", "windows__host_base", 12, "inv"),
    (_TOP, "registers", "windows__weight_base", 13, "inv"),
    *((_TOP, "registers", "resume", 0, "const0"), (_TOP, "machine_control", "clear", 0, "const1")),
    *((_TOP, "core", "program", 8, "inv"), (_TOP, "core", "program_status__halted", 0, "const0")),
    (_TOP, "core", "program_status__interrupt", 0, "const0"),
    (_TOP, "core", "tag", 3, "inv"),
]
"""Faults that no regression may miss: module, cell, port, bit and mode."""
HARMLESS = [(_TOP, "registers", "bus__awaddr", 0, "inv"), (_TOP, "core", "bus__bid", 0, "inv")]
"""Harmless faults, in the same form as FOUND.

One fault is in an address bit that selects a byte within a register's word, which has no effect.
The other fault is in the ID of a write, which is the same for all writes.
"""
OTHERS = 8
PROGRAMS = 12
SEED = 1
"""Seed of the random faults and programs of these tests.

The number of found faults depends on the seed. `make mutate` takes another seed each time.
"""


def at(number, module, cell, port, bit, mode):
    place = {"module": module, "cell": cell, "port": port, "bit": bit, "control": 0}
    return Mutant(number, mode, **place, signal=f"{port}[{bit}]", sources=())


@pytest.fixture(scope="module")
def mutants():
    known = [at(number, *place) for number, place in enumerate([*FOUND, *HARMLESS], 1)]
    others = mutants_of(MACHINE, OTHERS, SEED)
    renumbered = [
        Mutant(**{**vars(mutant), "number": number})
        for number, mutant in enumerate(others, len(known) + 1)
    ]
    assert len(others) == OTHERS
    return [*known, *renumbered]


@pytest.fixture(scope="module")
def course(mutants):
    """Return a Course: the simulator with all mutants, and the trials that find the faults FOUND.

    It leaves out other trials of the quick regression, which takes a quarter of an hour.
    """
    library = mutated_library(MACHINE, mutants, optimise="-O0")
    trials = [
        *random_trials(CONFIG, SEED, PROGRAMS),
        *register_trials(CONFIG),
        *stop_trials(CONFIG, SEED),
    ]
    return Course.of(MACHINE, library, trials)


@pytest.mark.thorough
@pytest.mark.exhaustive  # this test runs each mutant on all trials of the course
def test_verdicts(course, mutants, tmp_path):
    """Check verdicts: all faults of FOUND are found, and a quarter of the random faults.

    No harmless fault is found, and the machine without a fault passes. A record that is read from
    its file again is the same.
    """
    record = Record.of(tmp_path, mutants, "small")
    for verdict in course.judge_all([0, *(mutant.number for mutant in mutants)], 1):
        if verdict.number == 0:
            assert verdict.how == "survived", verdict
        else:
            record.add(verdict, len(course.trials))
    states = [record.verdicts[number + 1].how for number in range(len(FOUND) + len(HARMLESS))]
    assert states == ["killed"] * len(FOUND) + ["survived"] * len(HARMLESS)
    assert record.counts()["killed"] >= len(FOUND) + OTHERS // 4, record.summary()
    again = Record.of(tmp_path, mutants, "small")
    assert again.figures() == record.figures()
    assert not any(again.open(mutant.number, len(course.trials)) for mutant in mutants)


@pytest.mark.thorough
def test_a_wrong_result_is_told(course):
    with pytest.raises(Differs, match=": "):
        survive(MACHINE, course.library, 1, course.trials, course.usual)


@pytest.mark.thorough
def test_proofs(mutants, tmp_path):
    """Check one mutant of FOUND and one of HARMLESS: only the second is proven harmless."""
    tried = {}
    chosen = [mutants[0], mutants[len(FOUND)]]
    harmless(
        MACHINE,
        chosen,
        tmp_path,
        seconds=60,
        jobs=1,
        tried=lambda mutant, within: tried.update({mutant.number: within}),
    )
    assert [bool(tried[mutant.number]) for mutant in chosen] == [False, True]


@pytest.mark.thorough
def test_dead(mutants, tmp_path):
    """Check that `dead`, which finds faults in bits that no logic reads, returns only HARMLESS."""
    known = mutants[: len(FOUND) + len(HARMLESS)]
    assert dead(MACHINE, known, tmp_path) == known[len(FOUND) :]


def test_reaching():
    """Check which bits of a small module reach its output.

    The output is one bit of a sum and one bit of a multiplexer. The multiplexer takes one bit of a
    register, and the register takes one bit of a memory.
    """
    adder = {"A": "input", "B": "input", "Y": "output"}
    chooser = {"A": "input", "B": "input", "S": "input", "Y": "output"}
    register = {"CLK": "input", "D": "input", "Q": "output"}
    read = {"ADDR": "input", "DATA": "output"}
    write = {"ADDR": "input", "DATA": "input", "EN": "input"}

    def cell(kind, directions, **bits):
        name = {"parameters": {"MEMID": "m"}}
        return {"type": kind, "port_directions": directions, "connections": bits, **name}

    module = {
        "ports": {"q": {"direction": "output", "bits": [2, 3]}},
        "cells": {
            "add": cell("$add", adder, A=[4, 5, 6], B=[7, 8], Y=[9, 2, 10]),
            "mux": cell("$mux", chooser, A=[11, 12], B=[13, 14], S=[15], Y=[3, 16]),
            "register": cell("$dff", register, CLK=[17], D=[18, 19], Q=[11, 20]),
            "read": cell("$memrd_v2", read, ADDR=[21], DATA=[22, 18]),
            "write": cell("$memwr_v2", write, ADDR=[23], DATA=[24, 25], EN=[26, 27]),
        },
    }
    found = {2, 3, 4, 5, 7, 8, 11, 13, 15, 17, 18, 21, 23, 25, 27}
    assert reaching(module) == found


def test_doubled():
    """Check the doubled netlist, with and without a fault, of two gates and a register.

    The fault is in the first gate.
    """
    gate = {"A": "input", "B": "input", "Y": "output"}
    register = {"CLK": "input", "D": "input", "Q": "output"}

    def cell(kind, directions, *bits):
        connections = {port: [bit] for port, bit in zip(directions, bits, strict=True)}
        return {"type": kind, "port_directions": directions, "connections": connections}

    module = {
        "ports": {
            name: {"direction": direction, "bits": [bit]}
            for name, direction, bit in (
                *(("a", "input", 2), ("chosen", "input", 3), ("clk", "input", 4)),
                ("q", "output", 7),
            )
        },
        "netnames": {"chosen": {"bits": [3]}, "a": {"bits": [2]}},
        "cells": {
            "first": cell("$xor", gate, 2, 3, 5),
            "second": cell("$and", gate, 5, 7, 6),
            "other": cell("$or", gate, 2, 7, 8),
            "register": cell("$dff", register, 4, 6, 7),
        },
    }
    result = doubled(module, "chosen", 1)
    cells = result["cells"]
    assert set(cells) == {
        *("first", "second", "$faultyfirst", "$faultysecond", "register", "$differs"),
    }
    assert cells["first"]["connections"] == {"A": [2], "B": ["0"], "Y": [5]}
    assert cells["$faultyfirst"]["connections"]["B"] == ["1"]
    assert cells["$faultysecond"]["connections"]["B"] == [7]
    compared = cells["$differs"]["connections"]
    assert compared["A"] == [6] and compared["B"] == cells["$faultysecond"]["connections"]["Y"]
    assert set(result["ports"]) == {"a", "clk", "differs"}


def test_only_those_with_a_verdict_count(tmp_path):
    mutants = [
        at(number, _TOP, "core", "program_status__halted", 0, "inv") for number in (1, 2, 3, 4)
    ]
    record = Record.of(tmp_path, mutants, "some")
    for number, how in ((1, "killed"), (2, "survived"), (3, "survived"), (4, "survived")):
        record.add(Verdict(number, how, "", 0.1), 5)
    record.add_proof(mutants[1], "tpu")
    counts = {"killed": 1, UNIT: 0, "slower": 0, "harmless": 1, "survived": 2}
    assert record.counts() == counts
    assert record.score() == 1 / 3
    assert [n for n in (1, 2, 3, 4) if record.untested(n, "tests")] == [3, 4]
    record.add_tested(3, "tests")
    record.add(Verdict(4, UNIT, "units/control/test_fetch", 0.1), 0)
    again = Record.of(tmp_path, mutants, "some")
    assert again.counts() == {**counts, UNIT: 1, "survived": 1}
    assert again.score() == 2 / 3
    assert not any(again.untested(number, "tests") for number in (1, 2, 3, 4))
    assert again.untested(3, "other tests")
    assert not again.open(4, 6) and again.open(3, 6)
    assert "- 3: " in again.page(1) and "- 2: " not in again.page(1)
