# SPDX-License-Identifier: Apache-2.0
"""The quick regression that a mutant of a pod has to survive.

A pod is several cores in a ring, and a mutant is a pod with one planted fault. The regression is a
list of trials. Most trials run random programs, some with damaged instructions, some stopped before
their end. Others test ways in which programs end, transfers to neighbours, bus errors, time-outs
and registers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from amaranth.utils import exact_log2

from systola.arch.assembler import assemble
from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Fault, LinkPart, Opcode, encode
from systola.arch.registers import (
    IDENTITY,
    POD_IDENTITY,
    VERSION,
    PodInterrupt,
    PodRegister,
    Register,
    core_page,
)
from systola.golden.pod import Pod
from systola.sim.pod_library import PodResult, PodSimulator
from systola.verif.kit.images import make_image, random_memory, random_tiles, text_image
from systola.verif.kit.pod_ends import ENDS, End, check_end, check_named_end, images_of
from systola.verif.kit.pod_programs import ENTRIES, LINES, damage, random_pod
from systola.verif.kit.register_bits import check_registers, writable_bits
from systola.verif.mutation.design import PodDesign
from systola.verif.mutation.places import elsewhere
from systola.verif.mutation.trial import MEMORIES, Facts, TrialOn

TIMEOUT = 5_000
"""Value of BUS_TIMEOUT in cycles, more than any program needs on any of the memories."""
STEPS = (3, 10, 25)
"""Possible lengths of a random program, as a number of calls of `PodWriter.step` for each core."""
LOST = 24
"""Number of trials in which a first program is stopped by SOFT_RESET after a random time."""
TOGETHER = 8
"""Number of successive programs that run on memories with the same latency and stalls."""
TURNS = 20
"""Number of times that a core passes its sums on to a neighbour; each time the sums double."""
SOON = 200
"""Limit on a program's cycles, without the cycles in which the program waits for a neighbour."""

PodTrial = TrialOn[PodSimulator]


def pod_trials(design: PodDesign, seed: int, programs: int) -> list[PodTrial]:
    """Return the directed trials and `programs` random trials.

    Trials that find the most mutants come first.
    """
    rest = _random_trials(design, seed, programs)
    return [
        *islice(rest, TOGETHER),
        *(_end_trial(design.config, name, end) for name, end in ENDS.items()),
        *_far_trials(design),
        _register_trial(design),
        _error_trial(design),
        _time_out_trial(design),
        _sums_trial(design, seed),
        *_abandoned_trials(design, seed),
        *rest,
    ]


def _facts(result: PodResult) -> Facts:
    return (result.cycles, *(core.cycles for core in result.cores))


def _random_trials(design: PodDesign, seed: int, programs: int) -> Iterator[PodTrial]:
    for number in range(programs):
        rng = random.Random(f"{seed} pod {number}")
        writer = random_pod(rng, design.config, design.cores, rng.choice(STEPS) * design.cores)
        if number % 4 == 3:
            damage(rng, writer)
        images = writer.images()
        if number % 4 in (1, 2):
            images = [
                elsewhere(design.config, image, f"{seed} pod {number} {core}", LINES)
                for core, image in enumerate(images)
            ]
        yield _golden_trial(design, f"program {number}", images, number // TOGETHER)


def _abandoned_trials(design: PodDesign, seed: int) -> Iterator[PodTrial]:
    """Yield trials in which SOFT_RESET stops a program at a random time before another program."""
    for number in range(LOST):
        rng = random.Random(f"{seed} abandoned {number}")
        lost = random_pod(rng, design.config, design.cores, 20).images()
        images = random_pod(rng, design.config, design.cores, 20).images()
        name, memory = f"abandoned {number}", number // TOGETHER
        yield _golden_trial(design, name, images, memory, lost=lost, after=rng.randint(1, 1500))


def _golden_trial(
    design: PodDesign,
    name: str,
    images: Sequence[Image],
    number: int,
    *,
    lost: Sequence[Image] = (),
    after: int = 0,
) -> PodTrial:
    """Return a trial of one program for each core, compared with the golden model of the pod.

    The windows are at random addresses. If `lost` has programs, these first run for `after` cycles
    and are then stopped.
    """
    rng = random.Random(name)
    pages = (1 << design.config.address_bits) // HOST_PAGE_BYTES
    host, weights = (rng.randrange(pages // 2) * HOST_PAGE_BYTES for _ in range(2))
    bases = host, weights + pages // 2 * HOST_PAGE_BYTES
    expected = [replace(image, host=image.host.copy()) for image in images]
    outcomes = Pod(design.config, design.cores).run(expected)

    def run(pod: PodSimulator, limit: int) -> Facts:
        if lost:
            pod.run(lost, abandon_after=after, bases=bases)
        result = pod.run(images, limit=limit, bus_timeout=TIMEOUT, bases=bases)
        check_end(result, outcomes, expected)
        return _facts(result)

    return PodTrial(name, MEMORIES[number % len(MEMORIES)], run)


def _end_trial(config: Config, name: str, end: End) -> PodTrial:
    def run(pod: PodSimulator, limit: int) -> Facts:
        result = pod.run(images_of(end), limit=limit, bus_timeout=TIMEOUT)
        check_named_end(name, result, end, config)
        return _facts(result)

    return PodTrial(name, MEMORIES[0], run)


def _far_trials(design: PodDesign) -> Iterator[PodTrial]:
    """Yield trials that send and receive lines and sums, with each address bit set in turn.

    The addresses are lines of the unified buffer and rows of the accumulators.
    """
    config = design.config
    lines, rows = config.buffer_lines, config.accumulator_rows
    line, short = _line(config), 8
    places = [(1 << bit, lines - (1 << bit) - short) for bit in range(3, exact_log2(lines))]
    for number, (first, second) in enumerate([*places, (0, lines // 2), (0, 0)]):
        count = short if number < len(places) else lines - second
        where = min(first, rows - 2 * short)
        text = f"""
            read_host_memory host=4096, buffer={first}, rows={count}, {line}
            read_weights tile=0, count=1
            matrix_multiply buffer={first}, accumulator={where}, rows={short}, k_tiles=1, n_tiles=1
            send side={{there}}, buffer={first}, rows={count}
            receive side={{back}}, buffer={second}, rows={count}
            send side={{back}}, sums=1, accumulator={where}, rows={short}
            reduce side={{there}}, accumulator={rows - where - short}, rows={short}, accumulate=0
            send side={{there}}, sums=1, accumulator={rows - where - short}, rows={short}
            reduce side={{back}}, accumulator={where}, rows={short}, accumulate=1
            load_parameters host=8192, parameter=0, count=1
            activate accumulator={where}, buffer={first}, rows={short}, n_tiles=1, parameter=0
            write_host_memory host=4096, buffer={second}, rows={count}, {line}
            write_host_memory host=0, buffer={first}, rows={short}, {line}
        """
        for there, back in (("right", "left"), ("left", "right")):
            images = _images(design, text.format(there=there, back=back), number)
            yield _golden_trial(design, f"far {number} {there}", images, number)


def _images(design: PodDesign, text: str, seed: int) -> list[Image]:
    """Return images of one program for all cores, each with random data of its own."""
    rng = np.random.default_rng(seed)
    words = [assemble(text), encode(Opcode.HALT)]
    return [
        make_image(
            words,
            host=random_memory(rng, 4),
            weights=random_tiles(rng, design.config, 1),
            program_offset=3 * HOST_PAGE_BYTES,
        )
        for _ in range(design.cores)
    ]


def _line(config: Config) -> str:
    """Return operands, in assembly text, with which a host transfer copies whole lines."""
    return f"stride={config.cols}, blocks=1, tail={config.cols}"


def _sums_trial(design: PodDesign, seed: int) -> PodTrial:
    """Return a trial that passes sums from core to core until each bit of a sum has an effect.

    Each time, a core adds the received sums to its own sums.
    """
    line, rows = _line(design.config), 8
    text = [
        f"read_host_memory host=4096, buffer=0, rows={rows}, {line}",
        "read_weights tile=0, count=1",
        f"matrix_multiply buffer=0, accumulator=0, rows={rows}, k_tiles=1, n_tiles=1",
        f"load_parameters host=8192, parameter=0, count={ENTRIES}",
    ]
    for turn in range(TURNS):
        there, back = ("right", "left") if turn % 3 else ("left", "right")
        text += [
            f"send side={there}, sums=1, accumulator=0, rows={rows}",
            f"reduce side={back}, accumulator=0, rows={rows}, accumulate=1",
            f"activate accumulator=0, buffer={turn * rows}, rows={rows}, n_tiles=1, "
            f"parameter={turn % ENTRIES}",
        ]
    text.append(f"write_host_memory host=4096, buffer=0, rows={TURNS * rows}, {line}")
    return _golden_trial(design, "sums", _images(design, "\n".join(text), seed), 0)


def _time_out_trial(design: PodDesign) -> PodTrial:
    """Return a trial of cores that wait in vain for a neighbour, until BUS_TIMEOUT ends the wait.

    The register BUS_TIMEOUT is set to each power of two from 2^8 to 2^17 cycles.
    """
    text = "receive side=left, buffer=0, rows=1"
    reached = int(LinkPart.RECEIVE_LEFT)

    def run(pod: PodSimulator, limit: int) -> Facts:
        cycles: list[int] = []
        for bit in range(8, 18):
            images = [text_image(text) for _ in range(design.cores)]
            result = pod.run(images, limit=limit, bus_timeout=1 << bit)
            for core in result.cores:
                assert (core.fault_cause, core.fault_address) == (Fault.LINK_TIMEOUT, reached)
                assert 0 <= core.cycles - (1 << bit) < SOON, f"{core.cycles} for 2^{bit}"
            cycles.append(result.cycles)
        return (max(cycles), *cycles)

    return PodTrial("time-outs", MEMORIES[0], run)


def _error_trial(design: PodDesign) -> PodTrial:
    """Return a trial in which each core in turn gets a bus error, which must stop all cores."""
    text = "read_host_memory host=512, buffer=0, rows=1, stride=16, blocks=1, tail=4\nbarrier"

    def run(pod: PodSimulator, limit: int) -> Facts:
        cycles: list[int] = []
        for core in range(design.cores):
            errors = [(512, 600) if other == core else (0, 0) for other in range(design.cores)]
            images = [text_image(text) for _ in range(design.cores)]
            result = pod.run(images, limit=limit, bus_timeout=TIMEOUT, host_errors=errors)
            assert result.first_fault == (core, Fault.HOST_READ_ERROR), result.first_fault
            cycles.append(result.cycles)
        return (max(cycles), *cycles)

    return PodTrial("errors", MEMORIES[0], run)


def _register_trial(design: PodDesign) -> PodTrial:
    """Return a trial of a pod's registers: constants, and writable bits.

    The tested registers are the pod's own registers and each core's page of registers.
    """
    constants = {
        PodRegister.ID: POD_IDENTITY,
        PodRegister.VERSION: VERSION,
        PodRegister.CORES: design.cores,
    }
    constants |= {core_page(core) + Register.ID: IDENTITY for core in range(design.cores)}
    writable = {PodRegister.IRQ_ENABLE: sum(PodInterrupt)}
    for core in range(design.cores):
        for register, mask in writable_bits(design.config).items():
            writable[core_page(core) + register] = mask

    def run(pod: PodSimulator, limit: int) -> Facts:
        check_registers(pod, writable, constants)
        return (0,)

    return PodTrial("registers", MEMORIES[0], run)
