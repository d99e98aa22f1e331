# SPDX-License-Identifier: Apache-2.0
"""The test of a host that controls a program: Synchronize_Host, RESUME, trace, endless programs.

A turn is the part of a program after a wait for the host; turn 0 comes before the first wait.
"""

import json
import os
from pathlib import Path

import cocotb
import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.arch.registers import Control, Register, Status
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB, config_under_test
from systola.verif.kit.images import make_image, random_memory
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.kit.seeds import case_seed

INPUT, OUTPUT = 4096, 8192
ROWS = 4
HALT = encode(Opcode.HALT)
NOP = encode(Opcode.NOP)
SYNCHRONIZE = encode(Opcode.SYNCHRONIZE)
WAIT = encode(Opcode.SYNCHRONIZE_HOST)
MEMORIES = ((0, 0.0), (7, 0.0), (30, 0.2))
"""Latency and stall probability of the memories in each run."""
TRACE_DEPTH = 64


def tag(number):
    return encode(Opcode.DEBUG_TAG, tag=number)


def copies(config, turn):
    """Return instructions that copy vectors from INPUT to the host memory of turn `turn`."""
    shape = {"buffer": 0, "rows": ROWS, "stride": config.input_pitch, "blocks": 1, "tail": 1}
    to = OUTPUT + turn * ROWS * config.input_pitch
    return [
        encode(Opcode.READ_HOST_MEMORY, host=INPUT, **shape),
        encode(Opcode.WRITE_HOST_MEMORY, host=to, **shape),
    ]


def image(*program):
    host = random_memory(np.random.default_rng(case_seed()), 4)
    return make_image(program, host=host)


def waiting_program(config, turns=3):
    """Return a program that copies the input once, and again after each of `turns` waits."""
    program = [tag(0), *copies(config, 0)]
    for turn in range(1, turns + 1):
        program += [WAIT, tag(turn), *[NOP] * (5 * turn), *copies(config, turn)]
    return image(*program, HALT)


def new_input(turns):
    """Return a function that changes the input at each wait, and appends the turn to `turns`."""

    def on_wait(host):
        turns.append(len(turns) + 1)
        host[INPUT:OUTPUT] += 1

    return on_wait


def check_copies(config, before, result, turns):
    """Check a run with `turns` waits: the output of each turn must be the input at that time."""
    pitch = config.input_pitch
    for turn in range(turns + 1):
        for row in range(ROWS):
            expected = (int(before[INPUT + row * pitch]) + turn) % 256
            assert result.host[OUTPUT + (turn * ROWS + row) * pitch] == expected, (turn, row)
    assert [number for _, number in result.tags] == list(range(turns + 1))
    cycles = [cycle for cycle, _ in result.tags]
    assert cycles[0] > 0 and cycles == sorted(set(cycles)) and cycles[-1] < result.cycles
    assert result.status == Status.DONE
    assert sum(result.counters.values()) == result.cycles
    assert result.counters["host_wait"] >= turns


def facts(result):
    return [result.cycles, result.counters, result.tags, result.host.tobytes().hex()]


@cocotb.test
@cocotb.parametrize(index=range(len(MEMORIES)))
async def waits(dut, index):
    """Check that the program sees the host's changes to memory between WAITING and RESUME."""
    latency, stall = MEMORIES[index]
    tb = TB(dut, latency=latency, stall=stall, seed=index)
    await tb.start()
    turns = []
    program = waiting_program(tb.config)
    result = await tb.run_program(program, on_wait=new_input(turns))
    assert turns == [1, 2, 3]
    check_copies(tb.config, program.host, result, 3)
    Path(os.environ["TPU_FACTS"], f"{index}.json").write_text(json.dumps(facts(result)))


async def started(dut, *program):
    """Return a bench of the machine on which `program` has just been started."""
    tb = TB(dut, latency=3)
    await tb.start()
    await tb.prepare(image(*program))
    await tb.write(Register.CONTROL, Control.START)
    return tb


async def shows(tb, status, *, reads=2000):
    """Wait until the register STATUS reads `status`, and check that it stays so."""
    for _ in range(reads):
        if await tb.read(Register.STATUS) == status:
            break
    for _ in range(40):
        assert await tb.read(Register.STATUS) == status


@cocotb.test
async def each_wait_takes_one_resume(dut):
    tb = await started(dut, WAIT, WAIT, HALT)
    for _ in range(2):
        await shows(tb, Status.BUSY | Status.WAITING)
        await tb.resume()
    await shows(tb, Status.DONE)


@cocotb.test
async def an_early_resume_is_kept(dut):
    """Check that only one of two early RESUMEs is kept, and lets one Synchronize_Host pass."""
    tb = await started(dut, *[NOP] * 200, WAIT, WAIT, HALT)
    await tb.resume()
    await tb.resume()
    assert await tb.read(Register.STATUS) == Status.BUSY
    await shows(tb, Status.BUSY | Status.WAITING)
    assert await tb.read(Register.TAGS) == 0
    await tb.resume()
    await shows(tb, Status.DONE)


@cocotb.test
async def none_is_kept_for_the_next_program(dut):
    tb = await started(dut, *[NOP] * 200, HALT)

    async def next_one_waits(start=Control.START):
        await tb.prepare(image(*[NOP] * 20, WAIT, HALT))
        await tb.write(Register.CONTROL, start)
        await shows(tb, Status.BUSY | Status.WAITING)
        await tb.soft_reset()
        assert await tb.read(Register.STATUS) == 0

    await tb.resume()  # this RESUME comes while the program does not wait
    await shows(tb, Status.DONE)
    await next_one_waits()
    await tb.resume()  # this RESUME comes while no program runs
    await next_one_waits()
    await next_one_waits(Control.START | Control.RESUME)
    await tb.write(Register.CONTROL, Control.START)
    await tb.resume()
    await tb.soft_reset()
    await next_one_waits()


@cocotb.test
async def a_waiting_program_waits_for_its_writes(dut):
    """Check that writes before Synchronize_Host are in memory when WAITING shows."""
    config = config_under_test()
    tb = await started(dut, *copies(config, 0), WAIT, HALT)
    await shows(tb, Status.BUSY | Status.WAITING)
    window, pitch = tb.host_window(), config.input_pitch
    for row in range(ROWS):
        assert window[OUTPUT + row * pitch] == window[INPUT + row * pitch]
    await tb.resume()
    await shows(tb, Status.DONE)


@cocotb.test
async def more_tags_than_the_trace_holds(dut):
    tb = TB(dut, latency=3)
    await tb.start()
    count = TRACE_DEPTH + 9
    result = await tb.run_program(image(*(tag(1000 + number) for number in range(count)), HALT))
    assert [number for _, number in result.tags] == [1000 + n for n in range(9, count)]
    assert await tb.read(Register.TAGS) == count
    assert (await tb.run_program(image(HALT))).tags == ()


@cocotb.test
async def a_start_while_busy_leaves_the_trace(dut):
    tb = await started(dut, tag(1), WAIT, tag(2), HALT)
    await shows(tb, Status.BUSY | Status.WAITING)
    await tb.write(Register.CONTROL, Control.START)
    ((first, number),) = await tb.trace()
    assert number == 1 and first < 100
    await tb.resume()
    await shows(tb, Status.DONE)
    (one, (second, number)) = await tb.trace()
    assert one == (first, 1) and number == 2 and second > first + 80


@pytest.mark.parametrize("simulator", simulators())
def test_host_control(simulator, tmp_path):
    """Run the cocotb tests, and check that the C++ library takes the same cycles with waits."""
    run_machine("system.test_host_control", simulator, extra_env={"TPU_FACTS": str(tmp_path)})
    config = preset(preset_name("tiny"))
    program = waiting_program(config)
    for index, (latency, stall) in enumerate(MEMORIES):
        if (path := tmp_path / f"{index}.json").exists():  # no file if TEST chose another test
            turns = []
            with Simulator(config, latency=latency, stall=stall, seed=index) as library:
                result = library.run(program, on_wait=new_input(turns))
            check_copies(config, program.host, result, 3)
            assert turns == [1, 2, 3]
            found = json.loads(json.dumps(facts(result)))
            assert found == json.loads(path.read_text()), f"latency {latency}, stall {stall}"


def test_a_runaway_can_be_stopped():
    """Check that SOFT_RESET ends an endless loop, and that the next program runs."""
    loop = image(encode(Opcode.LOOP, count=0xFFFF_FFFF), tag(3), encode(Opcode.END_LOOP), HALT)
    with Simulator(preset(preset_name("tiny"))) as library:
        for cycles in (200, 3001):
            result = library.run(loop, abandon_after=cycles)
            assert result.status == 0
            assert cycles <= result.cycles < cycles + 200
            assert {number for _, number in result.tags} == {3}
            after = library.run(image(tag(1), SYNCHRONIZE, HALT), abandon_after=cycles)
            assert after.status == Status.DONE
            assert [number for _, number in after.tags] == [1]
