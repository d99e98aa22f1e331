# SPDX-License-Identifier: Apache-2.0
"""Tests that each program begins with Require_Machine, and so stops on any other machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import INSTRUCTION_BYTES, Fault, Opcode
from systola.cli.main import main
from systola.golden.machine import Machine
from systola.runtime import ImageBuilder, compile, machine
from systola.runtime.compiled_model import CompiledModel
from systola.training import SGD, Dense, Sequential
from systola.verif.kit.checkout import PACKAGE

MODELS = PACKAGE / "models"
NUMBERS = {
    "tiny": (4, 4, 4, 4),
    "small": (8, 8, 8, 8),
    "base": (16, 16, 16, 16),
    "6x3": (6, 3, 8, 8),
    "8x8-training": (8, 8, 8, 8),
}
"""Sizes of the machine of each preset.

The sizes are: rows and columns of the array, bytes of a beat on the host port and the weight port.
"""


def word(name: str) -> bytes:
    """Return the instruction word of Require_Machine for a preset, encoded as isa.md describes."""
    rows, columns, host, weights = NUMBERS[name]
    number = 0x07 | rows << 8 | columns << 20 | host << 32 | weights << 44
    return number.to_bytes(INSTRUCTION_BYTES, "little")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that gets the first instruction word of each program on the golden model."""
    found: list[bytes] = []
    start = Machine.start

    def watched(
        self: Machine, host: NDArray[np.uint8], weights: NDArray[np.uint8], program_offset: int
    ) -> None:
        found.append(host[program_offset : program_offset + INSTRUCTION_BYTES].tobytes())
        start(self, host, weights, program_offset)

    monkeypatch.setattr(Machine, "start", watched)
    return found


def product(*extra: str) -> Callable[[str], None]:
    def run(name: str) -> None:
        arguments = ["gemm", "5", "9", "7", "--preset", name, "--backend", "iss", *extra]
        assert main(arguments) == 0

    return run


def network(file: str) -> Callable[[str], None]:
    def run(name: str) -> None:
        model = compile(MODELS / file, preset=name, batch=2)
        assert isinstance(model, CompiledModel)
        shapes = [each.shape for each in model.inputs]
        model.run(*(np.zeros((3, *shape), np.int8) for shape in shapes), backend="iss")

    return run


def own_program(name: str) -> None:
    image = ImageBuilder(name).build("halt")
    assert machine(name, backend="iss").run(image).fault is None


def training(cores: int) -> Callable[[str], None]:
    """Return a function that trains, evaluates and runs a network on `cores` cores.

    The training is long enough to run the program that reads the weights, too.
    """

    def run(name: str) -> None:
        rng = np.random.default_rng(0)
        x, y = rng.uniform(0, 1, (24, 5)), rng.integers(0, 3, 24)
        model = Sequential([Dense(6, "relu"), Dense(3)])
        model.compile(SGD(0.1), preset=name, backend="iss", cores=cores)
        model.fit(x, y, batch_size=8, verbose=0)
        model.evaluate(x, y)
        model.predict(x)

    return run


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (product(), "tiny"),
        (product(), "6x3"),
        (product("--cores", "2"), "base"),
        (network("fc_perchannel_06.tflite"), "small"),
        (network("cnn_s2_valid5_same3_1x1.tflite"), "small"),
        (own_program, "tiny"),
        (own_program, "6x3"),
        (training(1), "8x8-training"),
        (training(2), "8x8-training"),
    ],
)
def test_programs_begin_with_their_machine(
    work: Callable[[str], None], name: str, begun: list[bytes]
) -> None:
    work(name)
    assert begun
    assert set(begun) == {word(name)}


@pytest.mark.parametrize("other", ["tiny", "small", "base", "6x3"])
def test_other_machines_stop(other: str) -> None:
    """Check that a program stops on each machine for which it was not built, and writes no byte."""
    config = preset(other)
    for name in NUMBERS:
        builder = ImageBuilder(name)
        operand, result = builder.matrix(np.ones((3, 3), np.int8)), builder.room(3, 3)
        image = builder.build(
            f"read_host_memory {operand.operands}, buffer=0\n"
            f"write_host_memory {result.operands}, buffer=0\n"
            "halt"
        )
        host = image.host.copy()
        fault = Machine(config).run(host, image.weights, image.program_offset).fault
        if NUMBERS[name] == NUMBERS[other]:
            assert fault is None
            continue
        assert fault is not None
        assert (fault.cause, fault.pc, fault.address) == (Fault.OTHER_MACHINE, 0, 0)
        assert np.array_equal(host, image.host)


@pytest.mark.parametrize(
    "wider",
    [replace(preset("small"), host_bus_bytes=16), replace(preset("small"), weight_bus_bytes=16)],
    ids=["host", "weights"],
)
def test_an_array_with_another_bus_is_another_machine(wider: Config) -> None:
    config = preset("small")
    image = ImageBuilder(config).build("halt")
    fault = Machine(wider).run(image.host.copy(), image.weights, image.program_offset).fault
    assert fault is not None
    assert fault.cause == Fault.OTHER_MACHINE
    assert image.program[0] == Opcode.REQUIRE_MACHINE
