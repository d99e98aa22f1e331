# SPDX-License-Identifier: Apache-2.0
"""The test of Debug_Tag, which records the cycle in which work was complete, without any delay."""

from itertools import pairwise

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from systola.arch.config import preset
from systola.arch.isa import INSTRUCTION_BYTES, Fault, Opcode, Operation, Unit, encode
from systola.arch.registers import Register
from systola.cli.gemm import random_gemm
from systola.compiler.schedule import compile_chain
from systola.golden.machine import Machine
from systola.hdl.control.sequencer import ISSUE_INTERVAL
from systola.runtime.rtl import RtlBackend
from systola.sim.library import Simulator
from systola.verif.kit.bench import TB
from systola.verif.kit.images import make_image, random_memory, random_tiles
from systola.verif.kit.launch import preset_name, quick_simulators, run_machine
from systola.verif.kit.programs import random_program
from systola.verif.kit.scoreboard import halted
from systola.verif.kit.seeds import random_seed
from systola.verif.kit.signals import read_bit

ROWS = 40
INPUT, OUTPUT = 4096, 12288
ALL = 15
MOST = 8
"""Number of tags that may wait without a delay of later instructions."""
HALT = encode(Opcode.HALT)
NOP = encode(Opcode.NOP)
SYNCHRONIZE = encode(Opcode.SYNCHRONIZE)


def tag(number, wait=0):
    return encode(Opcode.DEBUG_TAG, tag=number, wait=wait)


def image(config, *program):
    rng = np.random.default_rng(random_seed())
    tiles = random_tiles(rng, config, 1)
    return make_image([*program, HALT], host=random_memory(rng, 8), weights=tiles)


def read(config):
    shape = {"rows": ROWS, "stride": config.input_pitch, "blocks": 1, "tail": config.rows}
    return encode(Opcode.READ_HOST_MEMORY, host=INPUT, buffer=0, **shape)


def write(config, buffer=0, rows=ROWS):
    shape = {"rows": rows, "stride": config.output_pitch, "blocks": 1, "tail": config.cols}
    return encode(Opcode.WRITE_HOST_MEMORY, host=OUTPUT, buffer=buffer, **shape)


def copy(rows):
    """Return a Vector that copies rows, which only the activation unit works on."""
    lines = {"buffer": 0, "destination": rows}
    return encode(Opcode.VECTOR, operation=Operation.COPY, rows=rows, parameter=0, **lines)


def works(config):
    """Yield each unit with programs at the end of which only this unit still works."""
    parameters = encode(Opcode.LOAD_PARAMETERS, host=INPUT, parameter=0, count=4)
    table = encode(Opcode.LOAD_TABLE, host=INPUT, table=0)
    weights = encode(Opcode.READ_WEIGHTS, tile=0, count=1)
    size = {"rows": ROWS, "n_tiles": 1}
    multiply = encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, k_tiles=1, **size)
    activate = encode(Opcode.ACTIVATE, accumulator=0, buffer=ROWS, parameter=0, **size)
    ready = [read(config), parameters, SYNCHRONIZE]
    yield Unit.HOST_READER, [read(config)]
    yield Unit.HOST_READER, [parameters]
    yield Unit.HOST_READER, [table]
    yield Unit.MATRIX_UNIT, [*ready, weights, multiply]
    yield Unit.ACTIVATION_UNIT, [*ready, weights, multiply, SYNCHRONIZE, activate]
    yield Unit.ACTIVATION_UNIT, [*ready, copy(ROWS)]
    yield Unit.HOST_WRITER, [*ready, write(config)]


async def cycle(tb, *program):
    """Run a program with one tag, and return the cycle that the tag has recorded."""
    ((at, _),) = (await tb.run_program(image(tb.config, *program))).tags
    return at


@cocotb.test
@cocotb.parametrize(latency=[0, 20])
async def each_unit(dut, latency):
    """Check the cycle in which a tag is recorded.

    If the tag waits for the busy unit, it is recorded three cycles before a Synchronize would pass.
    Otherwise it is recorded at its issue.
    """
    tb = TB(dut, latency=latency)
    await tb.start()
    for unit, work in works(tb.config):
        complete = await cycle(tb, *work, SYNCHRONIZE, tag(0)) - ISSUE_INTERVAL - 2
        issued = await cycle(tb, *work, tag(0))
        assert issued + 5 < complete, "the unit has work for a while"
        assert await cycle(tb, *work, tag(0, unit)) == complete, unit
        assert await cycle(tb, *work, tag(0, ALL)) == complete, unit
        assert await cycle(tb, *work, tag(0, ALL - unit)) == issued, unit


@cocotb.test
@cocotb.parametrize(latency=[0, 13])
async def acknowledged(dut, latency):
    """Check that a tag of host writes is recorded two cycles after the last acknowledgement."""
    tb = TB(dut, latency=latency)
    await tb.start()
    cycles, answers, ends = 0, [], []

    async def watch():
        nonlocal cycles
        while not ends:
            await RisingEdge(dut.clk)
            cycles += 1
            if read_bit(dut.m_axi_host_bvalid) and read_bit(dut.m_axi_host_bready):
                answers.append(cycles)
            if read_bit(dut.irq):
                ends.append(cycles)

    task = cocotb.start_soon(watch())
    program = [read(tb.config), write(tb.config), tag(0, Unit.HOST_WRITER)]
    result = await tb.run_program(image(tb.config, *program))
    await task
    ((entered, _),) = result.tags
    assert entered == result.cycles - (ends[0] - answers[-1]) + 2


@cocotb.test
async def a_fault_waits_for_tags(dut):
    """Check that a fault is reported after all tags before the faulty instruction are recorded."""
    tb = TB(dut, latency=20)
    await tb.start()
    expected = await cycle(tb, read(tb.config), tag(5, Unit.HOST_READER))
    program = [read(tb.config), *[tag(n, ALL) for n in (5, 6, 7)], bytes(16), tag(8)]
    result = await tb.run_program(image(tb.config, *program), fault=Fault.ILLEGAL_OPCODE)
    assert result.tags == ((expected, 5), (expected + 1, 6), (expected + 2, 7))


@cocotb.test
async def an_error_drops_tags(dut):
    """Check that a bus error drops tags that wait for a failed or for an endless transfer.

    The next program begins without waiting tags.
    """
    tb = TB(dut, latency=5)
    await tb.start()
    for unit, work, low, fault in (
        (Unit.HOST_READER, read(tb.config), INPUT, Fault.HOST_READ_ERROR),
        (Unit.HOST_WRITER, write(tb.config), OUTPUT, Fault.HOST_WRITE_ERROR),
        (Unit.HOST_WRITER, encode_one_beat(tb.config), OUTPUT, Fault.HOST_WRITE_ERROR),
    ):
        for before in ([], [tag(1)]):
            program = [*before, work, *[tag(n, unit) for n in range(2, 6)]]
            errors = low, low + tb.config.host_bus_bytes
            result = await tb.run_program(
                image(tb.config, *program), host_errors=errors, fault=fault
            )
            assert [number for _, number in result.tags] == [1] * len(before)
        after = await tb.run_program(image(tb.config, read(tb.config), tag(9, ALL)))
        assert [number for _, number in after.tags] == [9]


def encode_one_beat(config):
    """Return a write of one beat: a bus error on it comes with the transfer's last answer."""
    shape = {"rows": 1, "stride": config.output_pitch, "blocks": 1, "tail": 1}
    return encode(Opcode.WRITE_HOST_MEMORY, host=OUTPUT, buffer=0, **shape)


@cocotb.test
async def an_interrupt_finds_all_tags(dut):
    """Check that all tags are recorded before an interrupt, and before a wait for the host.

    The tags wait for a host read. There are as many as the machine fetches before the data arrive.
    """
    tb = TB(dut, latency=25)
    await tb.start()
    count = MOST - 1
    work = [read(tb.config), *[tag(n, ALL) for n in range(count)]]
    seen = []
    stop = encode(Opcode.SYNCHRONIZE_HOST)
    await tb.prepare(image(tb.config, *work, encode(Opcode.INTERRUPT_HOST), stop))
    result = await tb.finish(on_wait=lambda _: seen.append(1))
    assert seen and len(result.tags) == count
    assert [b - a for (a, _), (b, _) in pairwise(result.tags)] == [1] * (count - 1)


@pytest.mark.parametrize("simulator", quick_simulators())
def test_debug_tag(simulator):
    run_machine("system.test_debug_tag", simulator)


def library_config():
    return preset(preset_name("tiny"))


def test_eight_tags_hold_up_nothing():
    """Check that up to eight waiting tags delay no instruction, and a ninth delays a write."""
    config = library_config()

    def cycles(machine, *between):
        program = image(config, copy(150), *between, write(config, 400, 300))
        return halted(machine.run(program)).cycles

    with Simulator(config) as machine:
        for count in range(1, 12):
            free = cycles(machine, *[NOP] * count)
            held = cycles(machine, *[tag(n, Unit.ACTIVATION_UNIT) for n in range(count)])
            assert (held == free) == (count <= MOST), count


def test_end_behind_tags():
    """Check that a program ends two cycles after its only tag, and three after the last of several.

    With several tags, the scoreboard learns one cycle late that no more than one is left.
    """
    config = library_config()
    with Simulator(config) as machine:
        for count in range(1, 9):
            tags = [tag(n, Unit.ACTIVATION_UNIT) for n in range(count)]
            result = halted(machine.run(image(config, copy(150), *tags)))
            assert len(result.tags) == count
            assert result.cycles == result.tags[-1][0] + (2 if count == 1 else 3), count


def random_places(rng, words, limit):
    """Return the indices of fewer than `limit` random NOPs in a program, in ascending order."""
    nops = rng.permutation([place for place, word in enumerate(words) if word == NOP])
    return sorted(int(place) for place in nops[: rng.integers(1, limit)])


@pytest.mark.parametrize("memory", [(0, 0.0), (12, 0.2)])
def test_prediction(memory):
    """Check tags in random programs against runs with one tag each that waits for one unit.

    If nothing is delayed, a tag is recorded when the last of its units is done, and after the tag
    before it. A program ends at least two cycles after its last tag, and four after the last but
    one.
    """
    config = library_config()
    latency, stall = memory
    replaced = (Opcode.SYNCHRONIZE, Opcode.SYNCHRONIZE_HOST, Opcode.INTERRUPT_HOST)
    rng = np.random.default_rng(random_seed())
    compared = waited = 0
    with Simulator(config, latency=latency, stall=stall, seed=random_seed()) as machine:
        for index in range(40):
            given = random_program(config, f"{random_seed()} tags {index}")
            words = [
                given.program[at : at + INSTRUCTION_BYTES]
                for at in range(0, len(given.program), INSTRUCTION_BYTES)
            ]
            words = [NOP if w[0] in (*replaced, Opcode.DEBUG_TAG) else w for w in words]

            def run(tags, words=words, given=given):
                program = [tag(n, tags[n]) if n in tags else word for n, word in enumerate(words)]
                offset = given.program_offset
                changed = make_image(
                    program, host=given.host, weights=given.weights, program_offset=offset
                )
                return halted(machine.run(changed, limit=100_000))

            places = random_places(rng, words, 5)
            alone = {
                (place, wait): [at for at, _ in run({place: wait}).tags]
                for place in places
                for wait in (0, *Unit)
            }
            masks = {place: int(rng.integers(16)) for place in places}
            result = run(masks)
            if len(result.tags) > MOST:
                continue
            taken, older, last = dict.fromkeys(places, 0), 0, 0
            for entered, place in result.tags:
                turn = taken[place]
                taken[place] += 1
                units = [0, *(unit for unit in Unit if masks[place] & unit)]
                expected = max(last + 1, *(alone[place, unit][turn] for unit in units))
                assert entered == expected, (index, place, turn, masks)
                waited += entered > alone[place, 0][turn]
                older, last = last, entered
                compared += 1
            # Tags recorded in successive cycles delay the stop of the buses, by a cycle each at
            # most. If fetched words are still under way then, the program ends later.
            ends = [entered for entered, _ in result.tags]
            queued = sum(last - entered == n for n, entered in enumerate(reversed(ends)))
            more = queued + latency if queued > 1 else 0
            assert 0 <= result.cycles - max(run({}).cycles, last + 2, older + 4) <= more
    assert compared > 60 and waited > 30


@pytest.mark.thorough
def test_completion_on_paper():
    """Check the times before DONE in docs/architecture.md for a product of 64x64x64 on `base`.

    The last sums are written 30 cycles before DONE, and read in the next cycle. The last line is
    written 16 cycles after that, and the last answer comes 4 cycles before DONE. A tag is recorded
    in the cycle after the sums or the line are written, and two cycles after the answer.
    """
    config = preset("base")
    a, layer = random_gemm(64, 64, 64, seed=0)
    plain = compile_chain(config, [layer], 64).bind(a)

    def longer(*more):
        """Return the product's program with more instructions before Halt, in a page of its own."""
        host = np.concatenate([plain.host, np.zeros(4096, np.uint8)])
        words = [plain.program[: -len(HALT)], *more, HALT]
        return make_image(words, host=host, weights=plain.weights, program_offset=plain.host.size)

    units = (Unit.MATRIX_UNIT, Unit.ACTIVATION_UNIT, Unit.HOST_WRITER)
    with Simulator(config) as machine:
        free = halted(machine.run(longer(*[NOP] * len(units))))
        tags = [tag(n, unit) for n, unit in enumerate(units)]
        result = halted(machine.run(longer(*tags)))
    assert (result.cycles, result.counters) == (free.cycles, free.counters)
    sums, line, answer = (at - result.cycles for at, _ in result.tags)
    assert (sums, line, answer) == (-30 + 1, -30 + 1 + 16 + 1, -4 + 2)


def spaced(config, count, nops):
    """Return an image with a loop of `count` tags, with `nops` NOPs between them."""
    body = [tag(7), *[NOP] * nops, encode(Opcode.END_LOOP)]
    return image(config, encode(Opcode.LOOP, count=count), *body)


def test_all_tags_of_a_long_program():
    """Check that the runtime gets more tags than fit in the trace, as it reads during a program."""
    config = library_config()
    backend = RtlBackend(config)
    program = spaced(config, 500, 10)
    result = backend.run(program)
    assert result.fault is None
    outcome = Machine(config).run(program.host.copy(), program.weights, 0)
    assert tuple(number for _, number in result.tags) == outcome.tags == (7,) * 500
    assert result.missing_tags == 0
    cycles = [at for at, _ in result.tags[1:]]
    assert len({b - a for a, b in pairwise(cycles)}) == 1, "passes from the chip take the same time"


def test_tags_too_fast_for_the_host():
    """Check that the host knows how many tags it missed, and that the tags it has are right."""
    config = library_config()
    with Simulator(config) as machine:
        result = halted(machine.run(spaced(config, 2000, 0)))
        first, second, third = (at for at, _ in result.tags[:3])
        assert third - second > 2 * ISSUE_INTERVAL, "End_Loop takes longer than others"
        every = {first, *(second + (third - second) * n for n in range(2000 - 1))}
        assert 0 < result.missing_tags == 2000 - len(result.tags)
        assert {at for at, _ in result.tags} < every
        assert result.tags == tuple(sorted(result.tags))
        assert machine.read(Register.TAGS) == 2000
        again = halted(machine.run(image(config, tag(1))))
        assert [number for _, number in again.tags] == [1] and again.missing_tags == 0
