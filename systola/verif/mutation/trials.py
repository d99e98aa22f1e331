# SPDX-License-Identifier: Apache-2.0
"""The quick regression: trials that search for the planted fault of a mutant.

Random programs reach most of the machine. Groups of other trials reach the rest (in brackets: names
of trials, or the module that makes them):

- numbers next to the middle between two results of a rounding (sums, scales)
- jumps back to instructions that have to be fetched again (loops)
- windows of all sizes (windows), with taps far apart (sparse) or outside the map (paddings)
- operands in which each bit of sizes, addresses and counts has an effect (limits.py)
- pairs of instructions of which the second waits for the first, anywhere in the lists of
  instructions under way (_order_trials)
- long transfers (lengths.py), addresses with any bit set (places.py)
- registers, and disturbances such as bus errors (stops.py)

No trial reaches bits that are 1 only after more than CYCLE_LIMIT cycles of a program. They are
the upper half of the cycle counters and of the cycles in the trace. Others are the upper bits of
instruction numbers, above 2^17, and of totals of weight tiles above the largest Read_Weights. So
mutants of all these bits survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Opcode, encode
from systola.arch.registers import IDENTITY, VERSION, Feature, Interrupt, Register, Status
from systola.sim.library import Simulator
from systola.verif.kit.arithmetic_programs import arithmetic_program
from systola.verif.kit.crowded_programs import crowded_program
from systola.verif.kit.images import make_image
from systola.verif.kit.large_programs import large_program
from systola.verif.kit.loop_programs import loop_program
from systola.verif.kit.order_programs import PLACES, order_program, orders
from systola.verif.kit.padding_programs import padding_program
from systola.verif.kit.program_faults import static_faults
from systola.verif.kit.programs import random_program
from systola.verif.kit.register_bits import check_register, check_registers, writable_bits
from systola.verif.kit.rounding_programs import scales_program, sums_program
from systola.verif.kit.scoreboard import ends_in
from systola.verif.kit.sparse_programs import sparse_program
from systola.verif.kit.window_programs import window_program
from systola.verif.mutation.lengths import length_trials
from systola.verif.mutation.limits import single_trials, size_trials
from systola.verif.mutation.places import anywhere, elsewhere
from systola.verif.mutation.stops import stop_trials
from systola.verif.mutation.trial import MEMORIES, PATIENCE, Facts, Trial, program_trial

SUMS = 12
"""Number of programs with sums that the requantisers have to round."""
SCALES = 8
"""Number of programs with operands that Vector has to round."""
NUMBERS = 16
"""Number of programs that compute with many different numbers."""
LOOPS = 20
"""Number of programs with loops of all lengths."""
WINDOWS = 12
"""Number of programs with windows of all sizes over feature maps."""
SPARSE = 12
"""Number of programs with windows that have taps far apart."""
PADDINGS = 12
"""Number of programs with windows next to lines that another instruction is writing."""
LARGE = 20
"""Number of programs with instructions over many lines."""
LONG = 4
"""Number of programs of 90 instructions, which fill the units' queues more than other programs."""
CROWDED = 80
"""Number of crowded programs: short programs with many instructions that wait for one another."""
CROWD = 32
"""Number of lines, of rows and of entries that a crowded program uses at most."""
ORDERS = 12
"""Number of programs for each pair of instructions of which the second waits for the first."""
MOVED = 40
"""Number of crowded programs that are moved to random addresses in the memories on the chip."""


def quick_trials(config: Config, seed: int, programs: int) -> list[Trial]:
    """Return the directed trials and `programs` random trials.

    Trials that find the most mutants come first.
    """

    def written(
        name: str, write: Callable[[Config, str], Image], count: int, together: int, **how: int
    ) -> Iterator[Trial]:
        """Yield trials of `count` programs of a kind, with windows at random bus addresses.

        Each `together` successive programs run on memories with the same latency and stalls.
        """
        for number in range(count):
            image = write(config, f"{seed} {number}")
            place = anywhere(config, image, f"{name} {seed} {number}")
            title = f"{name} {number}"
            yield program_trial(config, title, image, number // together, place=place, **how)

    def long_program(config: Config, seed: str) -> Image:
        return random_program(config, f"{seed} long", instructions=90)

    def moved_program(config: Config, seed: str) -> Image:
        return elsewhere(config, crowded_program(config, f"{seed} moved"), seed, CROWD)

    rest = random_trials(config, seed, programs)
    trials = [next(rest) for _ in range(min(8, programs))]
    trials += written("sums", sums_program, SUMS, SUMS)
    trials += written("scales", scales_program, SCALES, SCALES)
    trials += written("loops", loop_program, LOOPS, 4)
    trials += written("numbers", arithmetic_program, NUMBERS, 4)
    trials += written("windows", window_program, WINDOWS, 4)
    trials += written("sparse", sparse_program, SPARSE, 4)
    trials += written("paddings", padding_program, PADDINGS, 4)
    trials += single_trials(config, seed)
    trials += size_trials(config, seed)
    trials += _order_trials(config, seed)
    trials += written("moved", moved_program, MOVED, 8)
    trials += written("crowded", crowded_program, CROWDED, 16)
    # BUS_TIMEOUT is set here, to check that it does not end a long computation without a transfer.
    trials += written("large", large_program, LARGE, 4, bus_timeout=PATIENCE)
    trials += written("long", long_program, LONG, 1)
    trials += register_trials(config)
    trials += stop_trials(config, seed)
    trials += length_trials(config, seed)
    trials += rest
    return trials


def _order_trials(config: Config, seed: int) -> Iterator[Trial]:
    for number in range(ORDERS):
        for order in orders():
            name = f"{order.name} {number}"
            image = order_program(config, order, f"{seed} {name}")
            moved = elsewhere(config, image, f"{seed} {name}", PLACES)
            place = anywhere(config, moved, f"{seed} {name}")
            yield program_trial(config, name, moved, 2 + number, place=place)


def random_trials(config: Config, seed: int, programs: int) -> Iterator[Trial]:
    """Yield trials of random programs, of which every other ends in a fault."""
    faults = static_faults(config)
    for index in range(programs):
        fault = faults[index // 2 % len(faults)] if index % 2 else None
        image = random_program(config, f"{seed} {index}", fault=fault)
        # A program with an illegal instruction cannot be moved to other addresses.
        place = None if fault else anywhere(config, image, f"{seed} {index}")
        yield program_trial(
            config, f"program {index}", image, index // 8, ends=ends_in(fault), place=place
        )


def register_trials(config: Config) -> list[Trial]:
    """Return trials of registers, without a program: constants, writable bits, reset values."""
    constants = {
        Register.ID: IDENTITY,
        Register.VERSION: VERSION,
        Register.GEOMETRY: config.cols << 16 | config.rows,
        Register.BUFFER_LINES: config.buffer_lines,
        Register.ACCUMULATOR_ROWS: config.accumulator_rows,
        Register.FEATURES: int(
            (Feature.TABLES if config.tables else 0)
            | (Feature.DEPTHWISE if config.depthwise else 0)
            | (Feature.WIDE if config.wide else 0)
            | (Feature.PARITY if config.parity else 0)
            | (Feature.ATTENTION if config.attention else 0)
        ),
    }
    writable = writable_bits(config)
    clear = (
        *(Register.STATUS, Register.IRQ_STATUS, Register.FAULT_CAUSE),
        *(Register.FAULT_PC, Register.FAULT_ADDRESS),
    )

    def access(machine: Simulator, limit: int) -> Facts:
        check_registers(machine, writable, constants)
        return (0,)

    def reset(machine: Simulator, limit: int) -> Facts:
        for hard in (False, True):
            machine.run(
                make_image([bytes(16)], host=np.zeros(HOST_PAGE_BYTES, np.uint8)), limit=limit
            )
            check_register(machine, Register.STATUS, Status.FAULT)
            check_register(machine, Register.IRQ_STATUS, Interrupt.FAULT)
            machine.write(Register.IRQ_STATUS, Interrupt.DONE | Interrupt.PROGRAM)
            check_register(machine, Register.IRQ_STATUS, Interrupt.FAULT)
            if hard:
                machine.reset()
            else:
                machine.soft_reset()
            for register in clear:
                check_register(machine, register, 0)
        return (0,)

    def interrupts(machine: Simulator, limit: int) -> Facts:
        words = [encode(Opcode.INTERRUPT_HOST, code=0xA5C3), encode(Opcode.HALT)]
        image = make_image(words, host=np.zeros(HOST_PAGE_BYTES, np.uint8))
        for kind in (Interrupt.DONE, Interrupt.PROGRAM):
            result = machine.run(image, limit=limit)
            assert result.irq_code == 0xA5C3, f"code 0x{result.irq_code:x}"
            pending = Interrupt.DONE | Interrupt.PROGRAM
            for bit in range(len(Interrupt), 32):
                machine.write(Register.IRQ_STATUS, 1 << bit)
                check_register(machine, Register.IRQ_STATUS, pending)
            machine.write(Register.IRQ_STATUS, 0xFFFF_FFFF & ~pending | kind)
            check_register(machine, Register.IRQ_STATUS, pending & ~kind)
        machine.write(Register.IRQ_STATUS, 0xFFFF_FFFF)
        check_register(machine, Register.IRQ_STATUS, 0)
        return (0,)

    return [
        Trial("registers", MEMORIES[0], access),
        Trial("interrupts", MEMORIES[0], interrupts),
        Trial("resets", MEMORIES[0], reset),
    ]
