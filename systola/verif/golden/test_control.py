# SPDX-License-Identifier: Apache-2.0
"""Tests of programs: state at the start, end, interrupts, tags, loops and index registers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.isa import INSTRUCTIONS, Fault, Opcode, encode
from systola.golden.outcome import LimitReached
from systola.verif.golden.rig import HALT, SQUARE, TINY, TRAINING, Rig
from systola.verif.kit.seeds import random_seed

END = encode(Opcode.END_LOOP)


def loop(count: int, register: int = 0) -> bytes:
    return encode(Opcode.LOOP, count=count, count_register=register)


def tag(value: int) -> bytes:
    return encode(Opcode.DEBUG_TAG, tag=value)


def set_register(register: int, value: int = 0, first: int = 0, second: int = 0) -> bytes:
    return encode(Opcode.SET_REGISTER, register=register, value=value, first=first, second=second)


def show(register: int) -> bytes:
    """Return an instruction that writes buffer byte 0 at the host offset in register `register`."""
    return encode(
        Opcode.WRITE_HOST_MEMORY,
        host=0,
        host_register=register,
        buffer=0,
        rows=1,
        stride=0,
        blocks=1,
        tail=1,
    )


def test_halt_ends_the_program() -> None:
    rig = Rig(TINY)
    outcome = rig.complete(
        encode(Opcode.NOP),
        encode(Opcode.SYNCHRONIZE),
        encode(Opcode.INTERRUPT_HOST, code=0xFFFF),
        encode(Opcode.INTERRUPT_HOST),
        HALT,
        encode(Opcode.INTERRUPT_HOST, code=1),
    )
    assert outcome.interrupts == (0xFFFF, 0)
    assert outcome.executed == 5


def test_interrupts_are_those_of_the_run() -> None:
    rig = Rig(TINY)
    rig.complete(encode(Opcode.INTERRUPT_HOST, code=3), HALT)
    assert rig.complete(HALT).interrupts == ()


def test_tags_and_synchronisation() -> None:
    rig = Rig(TINY)
    outcome = rig.complete(
        tag(7), encode(Opcode.SYNCHRONIZE_HOST), tag(0xFFFF), encode(Opcode.DEBUG_TAG), HALT
    )
    assert outcome.tags == (7, 0xFFFF, 0)
    assert outcome.interrupts == ()
    assert outcome.executed == 5
    assert rig.complete(HALT).tags == ()


def test_loop_runs_its_body_so_many_times() -> None:
    rig = Rig(TINY)
    outcome = rig.complete(tag(1), loop(3), tag(2), tag(3), END, tag(4), HALT)
    assert outcome.tags == (1, *(2, 3) * 3, 4)
    assert outcome.executed == 1 + 1 + 3 * 3 + 2
    assert rig.complete(loop(1), tag(2), END, HALT).tags == (2,)
    assert rig.complete(loop(5), END, HALT).executed == 1 + 5 + 1


def test_nested_loops() -> None:
    rig = Rig(TINY)
    outcome = rig.complete(
        *(loop(2), tag(1), loop(3), tag(2), loop(1), tag(3), loop(2), tag(4), END, END, END),
        *(loop(2), tag(5), END, END, tag(6), HALT),
    )
    inner = (2, 3, 4, 4)
    assert outcome.tags == (*(1, *inner * 3, 5, 5) * 2, 6)


def test_halt_and_fault_inside_loops() -> None:
    rig = Rig(TINY)
    assert rig.complete(loop(3), loop(3), tag(1), HALT).tags == (1,)
    # The two loops that Halt left open are closed when the next program starts.
    assert rig.fault(END) == (Fault.LOOP, 0, 0)
    illegal = encode(Opcode.LOAD_TABLE, host=2, table=0)
    assert rig.fault(loop(2), tag(1), illegal) == (Fault.ILLEGAL_FIELD, 2, 0)
    assert rig.fault(END) == (Fault.LOOP, 0, 0)


def test_fault_in_a_later_pass_names_the_place_in_the_program() -> None:
    """Check that a fault in a loop's third pass reports the pc of the faulty instruction.

    In this pass the instruction reads beyond the buffer's 1024 lines.
    """
    read = encode(
        Opcode.READ_HOST_MEMORY,
        **{"host": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 4},
        buffer=1022,
        buffer_register=5,
    )
    rig = Rig(TINY)
    outcome = rig.run(loop(4), read, set_register(5, 1, first=5), END, HALT)
    assert outcome.fault is not None
    report = outcome.fault
    assert (report.cause, report.pc, report.address) == (Fault.BUFFER_RANGE, 1, 1024)
    assert outcome.executed == 1 + 2 * 3


def test_loop_faults() -> None:
    rig = Rig(TINY)
    four = (loop(1), loop(1), loop(1), loop(1))
    rig.complete(*four, END, END, END, END, HALT)
    rig.complete(*four, END, loop(1), END, END, END, END, HALT)
    assert rig.fault(*four, loop(1)) == (Fault.LOOP, 4, 4)
    assert rig.fault(*four, loop(0)) == (Fault.LOOP, 4, 4)
    assert rig.fault(loop(0)) == (Fault.LOOP, 0, 0)
    assert rig.fault(loop(2), loop(2), loop(0)) == (Fault.LOOP, 2, 2)
    assert rig.fault(END) == (Fault.LOOP, 0, 0)
    assert rig.fault(loop(2), END, END, HALT) == (Fault.LOOP, 2, 0)


def test_loop_counts_with_a_register() -> None:
    rig = Rig(TINY)
    assert rig.complete(set_register(3, 2), loop(1, 3), tag(1), END, HALT).tags == (1, 1, 1)
    # The number of iterations wraps: 2^32 - 1 plus a register of 1 gives none, which is a fault.
    # 2^32 - 1 plus a register of 3 gives two.
    assert rig.fault(set_register(3, 1), loop(2**32 - 1, 3)) == (Fault.LOOP, 1, 0)
    assert rig.complete(set_register(3, 3), loop(2**32 - 1, 3), tag(1), END, HALT).tags == (1, 1)
    # A loop reads its count register when it opens: a later write has no effect.
    program = (set_register(3, 2), loop(0, 3), set_register(3, 9), tag(1), END, HALT)
    assert rig.complete(*program).tags == (1, 1)


def test_registers_by_hand() -> None:
    """Check sums of registers, by a byte that is written to the host offset in each register."""
    rig = Rig(TINY)
    rig.machine.buffer[0] = 99
    rig.complete(
        set_register(1, 64),
        set_register(2, -32, first=1),
        set_register(3, 4, first=1, second=2),
        set_register(3, 8, first=3, second=3),  # adds the register's old value twice
        set_register(7, second=3),
        *(show(register) for register in (0, 1, 2, 7)),
        HALT,
    )
    assert np.flatnonzero(rig.host[:1024]).tolist() == [0, 32, 64, 208]


def test_registers_start_at_zero_in_every_program() -> None:
    rig = Rig(TINY)
    rig.machine.buffer[0] = 99
    rig.complete(*(set_register(register, 4 * register) for register in range(1, 8)), HALT)
    rig.complete(*(show(register) for register in range(8)), HALT)
    assert np.flatnonzero(rig.host[:1024]).tolist() == [0]


def test_registers_wrap() -> None:
    """Check that a register wraps modulo 2^32, and an indexed buffer address modulo 2^20."""
    rig = Rig(TINY)
    rig.host[:4] = [1, 2, 3, 4]
    read = encode(
        Opcode.READ_HOST_MEMORY,
        **{"host": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 4},
        host_register=2,
        buffer=0xFFFFF,
        buffer_register=1,
    )
    rig.complete(
        set_register(1, 2**31 - 1),
        set_register(1, 2**31 - 1, first=1),
        set_register(1, 13, first=1),  # the sum is 2^32 + 11, so the register is 11
        set_register(2, -8),
        set_register(2, 8, first=2),
        read,
        HALT,
    )
    assert rig.machine.buffer[10].tolist() == [1, 2, 3, 4]
    # An offset of 2^32 - 8 lies beyond the host window.
    program = (set_register(2, -8), read)
    assert rig.fault(*program) == (Fault.BUFFER_RANGE, 1, 0xFFFFF)
    program = (set_register(2, -8), set_register(1, 1), read)
    assert rig.fault(*program) == (Fault.HOST_WINDOW, 2, 0xFFFF_FFF8)


def test_alignment_is_that_of_the_sum() -> None:
    rig = Rig(TINY)
    at = {"buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    read = encode(Opcode.READ_HOST_MEMORY, **at, host=3, host_register=1)
    assert rig.fault(read) == (Fault.ILLEGAL_FIELD, 0, 0)
    rig.complete(set_register(1, 1), read, HALT)
    aligned = encode(Opcode.READ_HOST_MEMORY, **at, host=4, host_register=1)
    assert rig.fault(set_register(1, 1), aligned) == (Fault.ILLEGAL_FIELD, 1, 0)


def test_every_index_register_field_means_the_sum() -> None:
    """Check that index registers in an instruction have the effect of sums as its operands."""
    rng = random.Random(random_seed())
    base = {
        Opcode.LOOP: {"count": 3},
        Opcode.READ_HOST_MEMORY: {"rows": 2, "stride": 8, "blocks": 2, "tail": 3},
        Opcode.WRITE_HOST_MEMORY: {"rows": 2, "stride": 8, "blocks": 2, "tail": 3},
        Opcode.READ_HOST_MEMORY_ALTERNATE: {"rows": 2, "stride": 8, "blocks": 2, "tail": 3},
        Opcode.WRITE_HOST_MEMORY_ALTERNATE: {"rows": 2, "stride": 8, "blocks": 2, "tail": 3},
        Opcode.LOAD_PARAMETERS: {"count": 2},
        Opcode.LOAD_TABLE: {"table": 1},
        Opcode.READ_WEIGHTS: {"count": 2},
        Opcode.MATRIX_MULTIPLY: {"rows": 3, "k_tiles": 2, "n_tiles": 1},
        Opcode.CONVOLVE: {"plane": 6, "k_tiles": 1, "n_tiles": 1},
        Opcode.ACTIVATE: {"rows": 3, "n_tiles": 2},
        Opcode.DEPTHWISE: {"taps": 900, "blocks": 2, "parameter": 3},
        Opcode.POOL: {"blocks": 2, "parameter": 3, "reduction": 1},
        Opcode.VECTOR: {"operation": 1, "rows": 4, "parameter": 3},
        Opcode.MEASURE: {"source": 2, "exponent": 3, "rows": 2},
        Opcode.TRANSPOSE: {"count": 2, "step": 5},
        Opcode.RANDOM: {"rows": 3},
    }
    window = encode(
        Opcode.SET_CONFIG_WINDOW,
        **{"height": 2, "width": 3, "pitch": 3, "kernel_height": 1, "kernel_width": 2},
        **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1},
        **{"out_height": 2, "out_width": 2},
    )
    scale = encode(
        Opcode.SET_CONFIG_SCALE, multiplier_a=2**30, multiplier_b=2**29, shift_a=3, shift_b=9
    )
    queue = encode(Opcode.READ_WEIGHTS, tile=0, count=4)
    # These regions do not overlap: Depthwise, Pool and Vector may not write lines that they read.
    places = {"buffer": 100, "operand": 300, "destination": 500}
    for entry in INSTRUCTIONS:
        indexed = [field.indexes for field in entry.fields if field.indexes]
        if not indexed:
            continue
        state = rng.getrandbits(64)
        memories: list[bytes] = []
        sums = {
            operand: places.get(operand, 0)
            + (4 * rng.randint(1, 20) if operand == "host" else rng.randint(1, 7))
            for operand in indexed
        }
        registers = {operand: number for number, operand in enumerate(indexed, 2)}
        values = {operand: rng.randint(-(2**31), 2**31 - 1) for operand in indexed}
        for by_register in (False, True):
            rig = Rig(TRAINING, tiles=12)
            rig.randomise(random.Random(state))
            rig.host[:4096] = np.frombuffer(random.Random(state).randbytes(4096), np.uint8)
            operands = dict(base[entry.opcode])
            program = [window, scale, queue]
            for operand in indexed:
                width = entry.field(operand).width
                operands[operand] = sums[operand]
                if by_register:
                    program.append(set_register(registers[operand], values[operand]))
                    operands[operand] = (sums[operand] - values[operand]) % 2**width
                    operands[f"{operand}_register"] = registers[operand]
            program.append(encode(entry.opcode, **operands))
            if entry.opcode == Opcode.LOOP:
                program += [tag(1), END]
            if entry.opcode == Opcode.MEASURE:
                shown = {"operation": 0, "buffer": 5, "destination": 600, "rows": 1}
                program.append(encode(Opcode.VECTOR, **shown, parameter=0, exponent=3))
            if entry.opcode == Opcode.READ_WEIGHTS:
                multiply = {"buffer": 0, "accumulator": 9, "rows": 1, "k_tiles": 6, "n_tiles": 1}
                program.append(encode(Opcode.MATRIX_MULTIPLY, **multiply))
            outcome = rig.complete(*program, HALT)
            machine = rig.machine
            contents = (machine.buffer, machine.accumulators, machine.parameters, machine.tables)
            memories.append(
                b"".join(memory.tobytes() for memory in (*contents, rig.host[:4096]))
                + bytes(outcome.tags)
            )
        assert memories[0] == memories[1], entry.mnemonic


def test_the_window_and_the_scale_end_with_the_program() -> None:
    rig = Rig(SQUARE)
    rig.machine.parameters[0, 7] = 0x40  # multiplier 2^30: halves the sum
    rig.machine.buffer[0] = [40, -40, 20, 0]
    window = encode(
        Opcode.SET_CONFIG_WINDOW,
        **{"height": 1, "width": 1, "pitch": 1, "kernel_height": 1, "kernel_width": 1},
        **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1},
        **{"out_height": 1, "out_width": 1},
    )
    pool = encode(Opcode.POOL, buffer=0, destination=1, blocks=1, parameter=0, reduction=0)
    rig.complete(window, pool, HALT)
    assert rig.fault(pool) == (Fault.WINDOW, 0, 0)
    copy = {"operation": 0, "buffer": 0, "destination": 2, "rows": 1, "parameter": 0}
    relu6 = encode(Opcode.VECTOR, **copy, function=2)
    rig.complete(encode(Opcode.SET_CONFIG_SCALE, zero_a=10, ceiling=12), relu6, HALT)
    assert rig.machine.buffer[2].tolist() == [12, 0, 5, 0]
    # In a program without a Set_Config_Scale, the scale and the ceiling are 0.
    rig.complete(relu6, encode(Opcode.VECTOR, **{**copy, "destination": 3}), HALT)
    assert rig.machine.buffer[2:4].tolist() == [[0, 0, 0, 0], [20, -20, 10, 0]]


def test_memories_persist_between_runs() -> None:
    rig = Rig(TINY, tiles=1)
    rig.tile(0)[:] = np.eye(4, dtype=np.uint8)
    rig.host[:4] = [1, 2, 3, 4]
    rig.host[2048 + 7 * 4 : 2048 + 8 * 4] = 0x40  # top byte of the multiplier 2^30
    rig.complete(
        encode(Opcode.READ_HOST_MEMORY, host=0, buffer=0, rows=1, stride=0, blocks=1, tail=4),
        encode(Opcode.LOAD_PARAMETERS, host=2048, parameter=0, count=1),
        HALT,
    )
    rig.complete(
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=1, n_tiles=1),
        HALT,
    )
    rig.complete(
        encode(Opcode.ACTIVATE, accumulator=0, buffer=1, rows=1, n_tiles=1, parameter=0),
        encode(Opcode.WRITE_HOST_MEMORY, host=64, buffer=1, rows=1, stride=0, blocks=1, tail=4),
        HALT,
    )
    assert rig.host[64:68].tolist() == [1, 1, 2, 2]  # half of each input, rounded up


def test_only_sensible_memories_are_taken() -> None:
    rig = Rig(TINY, tiles=1)
    run = rig.machine.run
    with pytest.raises(ValueError, match="host window"):
        run(rig.host[:-4], rig.weights, 0)
    with pytest.raises(ValueError, match="host window"):
        run(np.zeros(8192, np.uint8)[::2], rig.weights, 0)
    with pytest.raises(ValueError, match="host window"):
        run(rig.host.reshape(2, -1), rig.weights, 0)
    with pytest.raises(ValueError, match="weight window"):
        run(rig.host, rig.weights[:-1], 0)
    for offset in (-128, 64):
        with pytest.raises(ValueError, match="program_offset"):
            run(rig.host, rig.weights, offset)


def test_limit() -> None:
    rig = Rig(TINY)
    program = (loop(2), tag(1), END, HALT)
    offset = rig.place(b"".join(program))
    assert rig.machine.run(rig.host, rig.weights, offset, limit=6).executed == 6
    with pytest.raises(LimitReached, match="after 5 instructions"):
        rig.machine.run(rig.host, rig.weights, offset, limit=5)
    runaway = rig.place(loop(2**32 - 1) + tag(1) + END + HALT)
    with pytest.raises(LimitReached, match="after 1000 instructions"):
        rig.machine.run(rig.host, rig.weights, runaway, limit=1000)
    assert rig.complete(HALT).executed == 1
