# SPDX-License-Identifier: Apache-2.0
"""Test programs that use every bus port, and errors on each port with the expected reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Fault, Opcode, Unit, encode
from systola.arch.registers import BusPort, Status
from systola.golden.outcome import FaultReport
from systola.sim.library import RunResult
from systola.verif.kit.copies import lines_in
from systola.verif.kit.images import DATA_OFFSET, make_image, random_memory, random_tiles

_ROWS = 8
_OUTPUT = 2 * DATA_OFFSET
_READS = 16
"""The number of Read_Weights in the program of `weights_program`."""
_BEHIND = 4 * DATA_OFFSET
"""The byte offset of a program that is too long for the space before the data."""


@dataclass(frozen=True)
class BusError:
    """A bus error: the byte ranges [low, high) that answer with an error, and the resulting fault.

    The ranges are in the host window and in the weight window. The program's first `tags` tags do
    not wait for a failing transfer. No later tag may be recorded.
    """

    cause: Fault
    pc: int
    tags: int = 4
    host_errors: tuple[int, int] = (0, 0)
    weight_errors: tuple[int, int] = (0, 0)

    @property
    def memories(self) -> dict[str, tuple[int, int]]:
        """Return the failing byte ranges as the keyword arguments of a run of the machine."""
        return {"host_errors": self.host_errors, "weight_errors": self.weight_errors}

    def late(self, before: int) -> BusError:
        """Return this error for a program that has `before` more instructions at its beginning."""
        errors = self.host_errors
        if self.cause == Fault.FETCH_ERROR:
            start = _BEHIND + before * INSTRUCTION_BYTES
            errors = (start + errors[0], start + errors[1])
        return replace(self, pc=before + self.pc, host_errors=errors)

    def check(self, image: Image, result: RunResult) -> None:
        """Fail unless a machine that ran `busy_program` has reported this error, and kept its
        data.
        """
        _check(image, result, Status.FAULT, FaultReport(self.cause, self.pc, 0))
        tags = [tag for _, tag in result.tags]
        assert tags == list(range(len(tags))), f"tags {tags}"
        assert len(tags) <= self.tags, f"tag {self.tags} says that what has failed is complete"


BUS_ERRORS = (
    BusError(Fault.HOST_READ_ERROR, 0, tags=0, host_errors=(DATA_OFFSET, DATA_OFFSET + 64)),
    BusError(Fault.HOST_WRITE_ERROR, 3, tags=2, host_errors=(_OUTPUT, _OUTPUT + 64)),
    BusError(Fault.WEIGHT_READ_ERROR, 1, tags=1, weight_errors=(0, 1 << 20)),
    BusError(Fault.FETCH_ERROR, 32, host_errors=(512, 640)),
    BusError(Fault.FETCH_ERROR, 0, host_errors=(0, 128)),
)
"""All bus errors that tests cause while a machine runs `busy_program`."""


def errors_at_the_end(config: Config) -> list[BusError]:
    """Return bus errors for `busy_program` in which only the last row of a copy fails.

    The whole copy then counts as failed.
    """
    last = (_ROWS - 1) * _stride(config), _ROWS * _stride(config)

    def at(start: int) -> tuple[int, int]:
        return start + last[0], start + last[1]

    return [
        BusError(Fault.HOST_READ_ERROR, 0, tags=0, host_errors=at(DATA_OFFSET)),
        BusError(Fault.HOST_WRITE_ERROR, 3, tags=2, host_errors=at(_OUTPUT)),
    ]


@dataclass(frozen=True)
class Silence:
    """A silence: the byte ranges [low, high) that do not answer, and the bus port that waits for
    them.
    """

    port: BusPort
    host_silence: tuple[int, int] = (0, 0)
    weight_silence: tuple[int, int] = (0, 0)

    @property
    def memories(self) -> dict[str, tuple[int, int]]:
        """Return the silent byte ranges as the keyword arguments of a run of the machine."""
        return {"host_silence": self.host_silence, "weight_silence": self.weight_silence}

    def check(self, image: Image, result: RunResult) -> None:
        """Fail unless a machine that ran `busy_program` reported a timeout of the port, and kept
        its data.
        """
        report = FaultReport(Fault.BUS_TIMEOUT, 0, self.port)
        _check(image, result, Status.BUSY | Status.FAULT, report)


SILENCES = (
    Silence(BusPort.HOST_READ, host_silence=(DATA_OFFSET, DATA_OFFSET + 64)),
    Silence(BusPort.HOST_READ, host_silence=(512, 640)),
    Silence(BusPort.HOST_WRITE, host_silence=(_OUTPUT, _OUTPUT + 64)),
    Silence(BusPort.WEIGHT_READ, weight_silence=(0, 1 << 20)),
)
"""Silences for `busy_program`, one each of its data, instructions, results and weights."""


def _check(image: Image, result: RunResult, status: Status, fault: FaultReport) -> None:
    assert result.status == status, f"STATUS is {result.status!r}, not {status!r}"
    found = FaultReport(result.fault_cause, result.fault_pc, result.fault_address)
    assert found == fault, f"{found} instead of {fault}"
    assert (result.host[:_OUTPUT] == image.host[:_OUTPUT]).all(), "memory has changed"


def _stride(config: Config) -> int:
    return 2 * max(config.input_pitch, config.output_pitch)


def busy_program(config: Config, seed: int, *, before: int = 0) -> Image:
    """Make a program on random data that copies in, multiplies with weights, and copies out.

    `before` NOPs come first. Tags that wait for the copies and the product come last.
    """
    rng = np.random.default_rng(seed)
    copy = {"buffer": 0, "rows": _ROWS, "blocks": 2, "tail": 1}
    pitches = {"stride": _stride(config)}
    program = [
        *[encode(Opcode.NOP)] * before,
        encode(Opcode.READ_HOST_MEMORY, host=DATA_OFFSET, **copy, **pitches),
        encode(Opcode.READ_WEIGHTS, tile=0, count=4),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=_ROWS, k_tiles=2, n_tiles=2),
        encode(Opcode.WRITE_HOST_MEMORY, host=_OUTPUT, **copy, **pitches),
        *[
            encode(Opcode.DEBUG_TAG, tag=number, wait=int(unit))
            for number, unit in enumerate(
                (Unit.HOST_READER, Unit.MATRIX_UNIT, Unit.HOST_WRITER, Unit.HOST_WRITER)
            )
        ],
        # with these NOPs before it, Halt is the first instruction of a fetch burst of its own
        *[encode(Opcode.NOP)] * 24,
        encode(Opcode.HALT),
    ]
    pages = 4 + -(-len(program) * INSTRUCTION_BYTES // HOST_PAGE_BYTES)
    return make_image(
        program,
        host=random_memory(rng, pages if before else 4),
        weights=random_tiles(rng, config, 4),
        program_offset=_BEHIND if before else 0,
    )


def weights_program(config: Config, seed: int) -> tuple[Image, list[BusError]]:
    """Make a program of many Read_Weights, each followed by a product, and a bus error for each.

    The numbers of tiles are such that some bursts are the last of their Read_Weights, and others
    are not. Each bus error hits the last tile of a Read_Weights alone.
    """
    rng = np.random.default_rng(seed)
    burst = config.max_burst_beats * config.weight_bus_bytes // config.tile_bytes or 1
    counts = [int(count) for count in rng.choice((1, 2, burst, burst + 1), _READS)]
    size = {"buffer": 0, "accumulator": 0, "rows": 1, "n_tiles": 1}
    lines = lines_in(config, host=DATA_OFFSET, line=0, rows=max(counts))
    program = [encode(Opcode.READ_HOST_MEMORY, **lines)]
    errors: list[BusError] = []
    for number, count in enumerate(counts):
        tile = number * (burst + 1)
        end = (tile + count) * config.tile_bytes
        bad = (end - config.tile_bytes, end)
        errors.append(BusError(Fault.WEIGHT_READ_ERROR, len(program), weight_errors=bad))
        program.append(encode(Opcode.READ_WEIGHTS, tile=tile, count=count))
        program.append(encode(Opcode.MATRIX_MULTIPLY, k_tiles=count, **size))
    program.append(encode(Opcode.HALT))
    pages = 1 + -(-(max(counts) * config.input_pitch) // HOST_PAGE_BYTES)
    weights = random_tiles(rng, config, _READS * (burst + 1))
    return make_image(program, host=random_memory(rng, pages), weights=weights), errors
