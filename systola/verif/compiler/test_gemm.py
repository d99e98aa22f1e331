# SPDX-License-Identifier: Apache-2.0
"""Tests of compiled matrix products on the golden model, against plain numpy."""

from __future__ import annotations

from itertools import pairwise
from itertools import product as all_of

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, decode
from systola.compiler.errors import CompileError
from systola.compiler.gemm import compile_gemm
from systola.compiler.program import Program
from systola.compiler.schedule import check_gemm, compile_chain
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.products import ARRAYS, product, random_layer, small_machine
from systola.verif.kit.seeds import random_seed

SPEED_TABLE = ((64, 64, 64), (16, 64, 64), (255, 16, 128), (16, 784, 512), (512, 512, 512))
SAMPLES = 100
"""Number of random sizes of products that the quick tests try for each array."""


class Bench:
    """A golden machine that runs random matrix products and compares their results with numpy."""

    def __init__(self, config: Config, seed: int) -> None:
        self.backend = GoldenBackend(config)
        self.rng = np.random.default_rng(seed)

    def check(self, m: int, k: int, n: int) -> Program:
        layer = random_layer(self.rng, k, n)
        a = self.rng.integers(-128, 128, (m, k), dtype=np.int8)
        compiled = compile_chain(self.backend.config, [layer], m)
        result = self.backend.run(compiled.bind(a))
        assert result.fault is None, (m, k, n, result.fault)
        assert np.array_equal(compiled.result(result.host), product(a, layer)), (m, k, n)
        return compiled


def opcodes(program: bytes) -> list[Opcode]:
    words = (program[at : at + INSTRUCTION_BYTES] for at in range(0, len(program), 16))
    return [entry.opcode for entry, _ in filter(None, map(decode, words))]


@pytest.mark.parametrize("name", ARRAYS)
def test_sizes(name: str) -> None:
    config = preset(name)
    bench = Bench(config, random_seed())
    top = 4 * max(config.rows, config.cols) + 1
    for size in all_of((1, top), repeat=3):
        bench.check(*size)
    for _ in range(SAMPLES):
        bench.check(*(int(size) for size in bench.rng.integers(1, top + 1, 3)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ARRAYS)
def test_every_size(name: str) -> None:
    config = preset(name)
    bench = Bench(config, random_seed())
    for size in all_of(range(1, 4 * max(config.rows, config.cols) + 2), repeat=3):
        bench.check(*size)


def test_machines_with_little_memory() -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(60):
        bench = Bench(small_machine(rng), int(rng.integers(1 << 30)))
        m, k, n = (int(size) for size in rng.integers(1, 60, 3))
        bench.check(m, k, n)


def test_chains_on_machines_with_little_memory() -> None:
    rng = np.random.default_rng(random_seed())
    compiled_ones = 0
    for _ in range(60):
        backend = GoldenBackend(small_machine(rng))
        widths = [int(width) for width in rng.integers(1, 30, int(rng.integers(3, 6)))]
        layers = [random_layer(rng, k, n) for k, n in pairwise(widths)]
        rows = int(rng.integers(1, 30))
        a = rng.integers(-128, 128, (rows, widths[0]), dtype=np.int8)
        try:
            compiled = compile_chain(backend.config, layers, rows)
        except CompileError:
            continue
        compiled_ones += 1
        result = backend.run(compiled.bind(a))
        assert result.fault is None, (backend.config, widths, rows, result.fault)
        for layer in layers:
            a = product(a, layer)
        assert np.array_equal(compiled.result(result.host), a), (backend.config, widths, rows)
    # Of 200 random chains of layers, 194 fitted the machine. Even if only 80 % fitted, less than 30
    # of 60 would be five standard deviations below the mean.
    assert compiled_ones > 30


@pytest.mark.parametrize("size", SPEED_TABLE)
def test_speed_table(size: tuple[int, int, int]) -> None:
    compiled = Bench(preset("base"), random_seed()).check(*size)
    if size == (64, 64, 64):
        # The program loads a table if the random layer has one, which depends on the seed.
        program = [code for code in opcodes(compiled.image.program) if code != Opcode.LOAD_TABLE]
        assert program == [
            Opcode.REQUIRE_MACHINE,
            Opcode.READ_HOST_MEMORY,
            Opcode.READ_WEIGHTS,
            Opcode.MATRIX_MULTIPLY,
            Opcode.LOAD_PARAMETERS,
            Opcode.ACTIVATE,
            Opcode.WRITE_HOST_MEMORY,
            Opcode.HALT,
        ]


def test_long_rows_come_in_segments() -> None:
    compiled = Bench(preset("tiny"), random_seed()).check(3, 5000, 9)
    program = compiled.image.program
    assert opcodes(program).count(Opcode.READ_HOST_MEMORY) > 1


def test_compile_gemm_binds_its_operand() -> None:
    rng = np.random.default_rng(random_seed())
    layer = random_layer(rng, 7, 5)
    a = rng.integers(-128, 128, (6, 7), dtype=np.int8)
    compiled = compile_gemm(
        preset("tiny"),
        a,
        layer.weights,
        layer.bias,
        layer.multiplier,
        layer.shift,
        rounding=layer.rounding,
        zero_point=layer.zero_point,
        function=layer.function,
        ceiling=layer.ceiling,
        table=layer.table,
    )
    result = GoldenBackend(preset("tiny")).run(compiled.image)
    assert np.array_equal(compiled.result(result.host), product(a, layer))
    assert np.array_equal(compiled.inputs[0].load(compiled.image.host), a)


def test_operands_that_no_window_holds() -> None:
    config = preset("base")
    for m, k, n, word in (
        (1, 1 << 24, 1, "K"),
        (1, 1, 1 << 24, "N"),
        (1 << 20, 1 << 12, 1, "operands"),
        (1, 1 << 20, 1 << 20, "weights"),
    ):
        with pytest.raises(CompileError, match=word):
            check_gemm(config, m, k, n)


def test_operands_that_do_not_belong_together() -> None:
    rng = np.random.default_rng(random_seed())
    first, second = random_layer(rng, 3, 4), random_layer(rng, 5, 6)
    with pytest.raises(CompileError, match="4 outputs feeds one of 5 inputs"):
        compile_chain(preset("tiny"), [first, second], 1)
    with pytest.raises(CompileError, match="at least 1"):
        compile_chain(preset("tiny"), [first], 0)
