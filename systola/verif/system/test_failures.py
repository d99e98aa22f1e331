# SPDX-License-Identifier: Apache-2.0
"""The test of the messages with which a test fails for a wrong program, or a wrong machine."""

import re
from pathlib import Path

import cocotb
import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, Operation, Unit, encode
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.sim.model import NoEnd
from systola.sim.runner import TestFailure
from systola.verif.kit.bench import TB
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import make_image, random_memory
from systola.verif.kit.launch import preset_name, run_machine, simulators
from systola.verif.mutation.trial import program_trial
from systola.verif.regress.check import Pair

BEYOND = 2000
"""Address of a line beyond the buffer of `tiny`, for a slip that a program may contain."""
NOP, HALT = encode(Opcode.NOP), encode(Opcode.HALT)


def image(*program):
    host = random_memory(np.random.default_rng(0), 1)
    return make_image(program, host=host, program_offset=0xE00)


def slips():
    """Yield programs that end in a fault that their author did not mean, on RTL and golden model.

    Each program comes with its fault and a part of the message about the fault.
    """
    operands = {"buffer": 0, "operand": 2, "destination": BEYOND, "rows": 2, "parameter": 0}
    wrong = encode(Opcode.VECTOR, operation=Operation.ADD, **operands)
    yield (
        image(NOP, wrong, HALT),
        Fault.BUFFER_RANGE,
        "BUFFER_RANGE at instruction 1, address 0x7d0",
    )
    yield image(NOP, NOP, bytes(16)), Fault.ILLEGAL_OPCODE, "ILLEGAL_OPCODE at instruction 2"


@cocotb.test
async def a_fault_that_nobody_means(dut):
    tb = TB(dut)
    await tb.start()
    for program, fault, told in slips():
        for run in (tb.check_program, tb.run_program):
            with pytest.raises(AssertionError, match=told):
                await run(program)
            await run(program, fault=fault)
            with pytest.raises(AssertionError, match="ends at Halt"):
                await run(image(HALT), fault=fault)


LINE, COLUMN, ROWS, OUTPUT = 5, 1, 4, 0x800
STRAY = 0xD00
LATENCY = 7


class Broken(Machine):
    """A golden model that writes one byte of a line differently from the machine."""

    def write_host_memory(self, **operands):
        self.buffer[LINE, COLUMN] ^= 4
        super().write_host_memory(**operands)


class Stray(Machine):
    """A golden model that also changes a byte of host memory that no instruction writes."""

    def write_host_memory(self, **operands):
        super().write_host_memory(**operands)
        self._host[STRAY] ^= 1


def copy(config):
    """Return a program that copies lines into the buffer, and ROWS lines out of it, before a tag.

    LINE is the last line that the program copies out.
    """
    shape = {"rows": 8, "stride": config.input_pitch, "blocks": 1, "tail": config.rows}
    read = encode(Opcode.READ_HOST_MEMORY, host=0x400, buffer=0, **shape)
    lines = lines_out(config, host=OUTPUT, line=LINE - ROWS + 1, rows=ROWS)
    write = encode(Opcode.WRITE_HOST_MEMORY, **lines)
    return image(read, write, encode(Opcode.DEBUG_TAG, wait=Unit.HOST_WRITER), HALT)


def check_blame(text, config, result):
    """Check that the message has the wrong byte's instruction, row, column and cycle of writing.

    The tag was recorded two cycles after the acknowledgement of the byte's write.
    """
    ((entered, _),) = result.tags
    place = OUTPUT + (ROWS - 1) * config.output_pitch + COLUMN
    assert f"1 of 4096 bytes differ, first at 0x{place:x}" in text
    assert (
        f"byte 0x{place:x} is row {ROWS - 1}, column {COLUMN} of what instruction 1 writes" in text
    )
    assert "writes: write_host_memory rows=4, host=2048, buffer=2" in text
    assert f"the machine wrote it in cycle {entered - 2 - 1 - LATENCY} after START" in text


@cocotb.test
async def a_wrong_byte(dut):
    tb = TB(dut, latency=LATENCY)
    await tb.start()
    program = copy(tb.config)
    result = await tb.check_program(program)
    tb.golden = Broken(tb.config)
    with pytest.raises(AssertionError) as failure:
        await tb.check_program(program)
    check_blame(str(failure.value), tb.config, result)


def test_a_wrong_byte():
    """Check the message about a wrong byte in runs without cocotb, too."""
    config = preset(preset_name("tiny"))
    with Simulator(config, latency=LATENCY) as machine:
        result = machine.run(copy(config))
        with pytest.raises(AssertionError) as failure:
            compared_run(machine, Broken(config), copy(config))
        check_blame(str(failure.value), config, result)
        pair = Pair(machine)
        pair.golden = Broken(config)
        check_blame(pair.check(copy(config)), config, result)
        with pytest.raises(
            AssertionError, match=r"no instruction writes byte 0xd00\nthe .* has not"
        ):
            compared_run(machine, Stray(config), copy(config))


def product(config):
    """Return the program of a product, which waits forever if the weight memory does not answer."""
    shape = {"rows": ROWS, "n_tiles": 1}
    return make_image(
        [
            encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=0x1400, line=0, rows=ROWS)),
            encode(Opcode.LOAD_PARAMETERS, host=0x1000, parameter=0, count=1),
            encode(Opcode.READ_WEIGHTS, tile=0, count=1),
            encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, k_tiles=1, **shape),
            encode(Opcode.ACTIVATE, accumulator=0, buffer=8, parameter=0, **shape),
            encode(Opcode.WRITE_HOST_MEMORY, **lines_out(config, host=0x1800, line=8, rows=ROWS)),
            HALT,
        ],
        host=random_memory(np.random.default_rng(0), 2),
        weights=np.zeros(config.tile_bytes, np.uint8),
        program_offset=0x1E00,
    )


PATIENCE = 1000
HANGS = [
    f"the program has not ended after {PATIENCE} cycles",
    "STATUS: BUSY",
    "issue: instruction 6 (halt), may wait for the units",
    "host_reader: nothing to do",
    "matrix_unit: waits for weights",
    "activation_unit: waits for matrix_summing",
    "host_writer: waits for activate_writing",
    "memories owe answers: WEIGHT_READ",
]


@cocotb.test
async def a_hang(dut):
    tb = TB(dut)
    await tb.start()
    tb.weight.model.latency = 10 * PATIENCE
    with pytest.raises(AssertionError) as failure:
        await tb.check_program(product(tb.config), limit=PATIENCE)
    assert [line.strip() for line in str(failure.value).splitlines()] == HANGS


def test_a_hang():
    """Check the message about a program without an end in runs without cocotb, too."""
    config = preset(preset_name("tiny"))
    silent = {"limit": PATIENCE, "weight_silence": (0, config.tile_bytes)}
    with Simulator(config) as machine:
        with pytest.raises(NoEnd, match=HANGS[0]):
            machine.run(product(config), **silent)
        told = machine.what_hangs(product(config), **silent)
        assert [line.strip() for line in told.splitlines()] == HANGS[1:]
        assert "does end" in machine.what_hangs(product(config))
        # A program that runs into its limit of cycles gets the same message as a hang.
        machine.reset()
        with pytest.raises(NoEnd, match="STATUS: BUSY"):
            compared_run(machine, Machine(config), product(config), limit=20)
        machine.reset()
        pair = Pair(machine)
        pair.limit = 20
        assert "STATUS: BUSY" in pair.check(product(config))


@pytest.mark.parametrize("simulator", simulators())
def test_failures(simulator):
    run_machine("system.test_failures", simulator)


@pytest.mark.skipif("icarus" not in simulators(), reason="on the quickest to build")
@pytest.mark.icarus
@pytest.mark.parametrize("waves", ["", "1"])
def test_waves(waves, tmp_path, monkeypatch):
    """Check that a failure message without a waveform explains how to get one.

    With a waveform, the message names the file and its viewers. The file shows the signals of each
    unit, and a marker at the write of the wrong byte.
    """
    monkeypatch.setenv("WAVES", waves)
    monkeypatch.delenv("TEST", raising=False)
    written = tmp_path / "written"
    with pytest.raises(TestFailure) as failure:
        run_machine("system.failing", "icarus", extra_env={"TPU_WRITTEN": str(written)})
    text = str(failure.value)
    assert ("WAVES=1" in text) == (not waves)
    if not waves:
        return
    waveform, save = (Path(name) for name in re.findall(r"gtkwave (\S+) ([^ ,]+)", text)[0])
    assert waveform.stat().st_size
    lines = save.read_text().splitlines()
    assert lines[0] == f'[dumpfile] "{waveform}"'
    assert lines[2].split()[1] == written.read_text()
    groups = {line for line in lines if line.startswith("-")}
    assert {"-tpu", "-tpu.core.fetch", "-tpu.core.matrix_unit", "-tpu.core.host_writer"} <= groups
    assert {"tpu.irq", "tpu.m_axi_host_awlen[7:0]", "tpu.core.matrix_unit.awaiting_weights"} <= set(
        lines
    )


def test_a_fault_that_nobody_means():
    """Check the message about an unexpected fault in runs without cocotb, too."""
    config = preset(preset_name("tiny"))
    with Simulator(config) as machine:
        pair = Pair(machine)
        for program, fault, told in slips():
            with pytest.raises(AssertionError, match=told):
                compared_run(machine, Machine(config), program)
            compared_run(machine, Machine(config), program, fault=fault)
            with pytest.raises(AssertionError, match=told):
                program_trial(config, "slip", program, 0)
            program_trial(config, "slip", program, 0, ends={fault}).run(machine, 10_000)
            assert told in pair.check(program)
            assert pair.check(program, ends={fault}) is None
            assert "ends at Halt" in pair.check(image(HALT), ends={fault})
