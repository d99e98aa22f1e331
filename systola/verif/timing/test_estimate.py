# SPDX-License-Identifier: Apache-2.0
"""Tests of the estimate of a program's cycles, by properties that hold for any hardware.

The estimate is compared with the RTL in verif/system/test_estimate.py.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from systola.arch.assembler import assemble
from systola.arch.config import HOST_PAGE_BYTES, preset
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, REGISTERS, Rounding
from systola.compiler.gemm import compile_gemm
from systola.compiler.host_stage import HostStage
from systola.compiler.network import compile_network
from systola.timing import estimate as module
from systola.timing.estimate import Walk, estimate, estimated_work
from systola.timing.matrix_unit import MatrixUnit
from systola.timing.memory_speed import MemorySpeed
from systola.timing.record import Estimate, Unit
from systola.verif.compiler.stored_networks import (
    CONVOLUTIONAL,
    RECURRENT,
    stored_model,
    stored_program,
)
from systola.verif.kit.programs import random_program
from systola.verif.kit.seeds import random_seed

CONFIG = preset("base")
NETWORKS = (*CONVOLUTIONAL, *RECURRENT)


def product(m: int, k: int, n: int) -> Image:
    return compile_gemm(
        CONFIG,
        np.zeros((m, k), np.int8),
        np.zeros((k, n), np.int8),
        np.zeros(n, np.int32),
        np.full(n, 1 << 30, np.int32),
        np.zeros(n, np.int32),
        rounding=Rounding.SINGLE,
    ).image


def assembled(text: str) -> Image:
    return Image(assemble(text), np.zeros(HOST_PAGE_BYTES, np.uint8), 0, np.zeros(0, np.uint8))


def test_empty_program():
    """Check the cycles of a program of one Halt.

    Two fetches are requested in cycles 1 and 5, and their beats come from cycle 4 to 11. Halt
    leaves the fetch unit in cycle 8 and is issued in cycle 17. The third instruction after Halt
    leaves the fetch unit in cycle 14. So a third fetch is requested in cycle 17, just before Halt
    ends fetching. The fetch's last beat comes in cycle 23. DONE is set 3 cycles later, when all
    buses are idle.
    """
    assert estimate(CONFIG, assembled("halt")).cycles == 26


def test_product_on_paper():
    """Check the estimate of a product of 64x64x64 by the figures of docs/architecture.md."""
    result = estimate(CONFIG, product(64, 64, 64))
    assert result.busy[Unit.ARRAY] == 64 * 4 * 4
    assert result.cycles == pytest.approx(1111, abs=2)


def test_bytes():
    result = estimate(CONFIG, product(100, 40, 20))
    parameters = 2 * 9 * CONFIG.output_pitch
    assert result.traffic.host_in == 100 * 3 * 16 + parameters
    assert result.traffic.host_out == 100 * 2 * 16
    assert result.traffic.weights == 3 * 2 * 256


@pytest.mark.parametrize("name", NETWORKS)
def test_slower_memory_is_never_faster(name):
    image, _ = stored_program(name, CONFIG, 4)
    latencies = [estimate(CONFIG, image, MemorySpeed(n)).cycles for n in (0, 1, 7, 30, 100, 1000)]
    assert latencies == sorted(latencies)
    assert latencies[0] < latencies[-1]
    stalls = [estimate(CONFIG, image, MemorySpeed(0, p)).cycles for p in (0, 0.1, 0.5, 0.9)]
    assert stalls == sorted(stalls)
    assert stalls[0] < stalls[-1]


def close(a: Estimate, b: Estimate) -> None:
    assert a.cycles == b.cycles
    assert [(t.tag, t.passes) for t in a.tags] == [(t.tag, t.passes) for t in b.tags]
    assert [t.cycles for t in a.tags] == pytest.approx([t.cycles for t in b.tags])
    assert [t.traffic for t in a.tags] == [t.traffic for t in b.tags]
    assert a.traffic == b.traffic
    assert a.busy == pytest.approx(b.busy)


@pytest.mark.parametrize("latency", [0, 30])
@pytest.mark.parametrize("name", NETWORKS)
def test_loop_that_ends_early_equals_all_of_it(name, latency, monkeypatch):
    image, _ = stored_program(name, CONFIG, 30)
    short = estimate(CONFIG, image, MemorySpeed(latency))
    monkeypatch.setattr(module, "STEADY", 1 << 30)
    monkeypatch.setattr(module, "UNSTEADY", 1 << 30)
    close(short, estimate(CONFIG, image, MemorySpeed(latency)))


def with_segments(monkeypatch: pytest.MonkeyPatch, image: Image, size: int) -> tuple[Estimate, int]:
    """Return the estimate of an image, and how many instructions were simulated for it.

    The estimate divides a program into segments of `size` instructions. The estimate of a known
    segment is reused, so that its instructions are not simulated again.
    """
    walked = 0
    issue = Walk._issue

    def counted(*arguments: Any) -> bool:
        nonlocal walked
        walked += 1
        return issue(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "SEGMENT", size)
        patch.setattr(Walk, "_issue", counted)
        # The estimate of an image is kept, so a copy of the image is estimated here.
        return estimate(CONFIG, replace(image)), walked


@pytest.mark.parametrize("name", NETWORKS)
def test_known_segments_change_nothing(name, monkeypatch):
    """Check that the reuse of known segments, here of one instruction, changes no estimate."""
    image, _ = stored_program(name, CONFIG, 30)
    known, _ = with_segments(monkeypatch, image, 1)
    walked, _ = with_segments(monkeypatch, image, 1 << 30)
    assert known == walked


def test_known_segments_of_random_programs(monkeypatch):
    """Check the reuse of known segments in loops of random programs, with all hazards."""
    saved = 0
    # Each iteration clears the registers, so that operands stay within their limits.
    clear = "".join(f"set_register register={number}\n" for number in range(1, REGISTERS))
    begin, end = assemble("loop count=6\n" + clear), assemble("end_loop\nhalt")
    for number in range(60):
        image = random_program(CONFIG, f"{random_seed()} segments {number}")
        image = replace(image, program=begin + image.program[:-INSTRUCTION_BYTES] + end)
        known, few = with_segments(monkeypatch, image, 1)
        walked, many = with_segments(monkeypatch, image, 1 << 30)
        assert known == walked
        saved += many - few
        # Six programs are tried, or more until one of them reuses a segment.
        if number >= 5 and saved:
            break
    assert saved


def test_equal_iterations_are_walked_once(monkeypatch):
    """Check a loop over 4 batches with a loop over 16 samples in it.

    The estimate simulates the first iterations in full. In other iterations it simulates only the
    parts that differ, at their start and their end.
    """
    one = """
        read_host_memory host=0, buffer=0, rows=32, stride=16, blocks=1, tail=16
        vector operation=copy, buffer=0, destination=32, rows=32, parameter=0
        vector operation=add, buffer=32, operand=0, destination=64, rows=32, parameter=0
    """
    load = "load_parameters host=1024, parameter=0, count=1"
    loops = f"{load}\nloop count=4\nloop count=16\n{50 * one}\nend_loop\nend_loop\nhalt"
    image = assembled(loops)
    length = len(image.program) // INSTRUCTION_BYTES
    _, walked = with_segments(monkeypatch, image, 4)
    assert walked < 4 * length


LOOPS = """
    loop count=1000
      loop count=3
        read_host_memory host=0, buffer=0+r1, rows=32, stride=16, blocks=1, tail=16
        set_register register=1, value=16, first=1
      end_loop
      debug_tag tag=1
      write_host_memory host=2048, buffer=0, rows=3, stride=16, blocks=1, tail=16
      debug_tag tag=0
      set_register register=1
    end_loop
    halt
"""


def test_nested_loops():
    result = estimate(CONFIG, assembled(LOOPS))
    assert result.traffic.host_in == 1000 * 3 * 32 * 16
    assert result.traffic.host_out == 1000 * 3 * 16
    assert [tag.passes for tag in result.tags] == [1000, 1000]
    assert result.tags[0].traffic.host_out == result.traffic.host_out
    assert result.tags[1].traffic.host_in == result.traffic.host_in
    # The host port moves a beat in each cycle, and loses one cycle between instructions.
    assert result.cycles == pytest.approx(1000 * 3 * 33, rel=0.01)


def test_work_of_every_iteration():
    """Check that the work of all iterations is listed in order, also if estimate() skips them."""
    image = assembled(LOOPS.replace("1000", "60"))
    work = estimated_work(CONFIG, image)
    reads = [each for each in work if each.unit == Unit.HOST_READ]
    writes = [each for each in work if each.unit == Unit.HOST_WRITE]
    assert [each.number for each in reads] == 180 * [2]
    assert [each.number for each in writes] == 60 * [6]
    assert all(a.begin < b.begin for a, b in pairwise(reads))
    assert all(each.end - each.begin >= 32 for each in reads)
    assert max(each.end for each in work) < estimate(CONFIG, image).cycles


def test_weights_are_those_of_the_product():
    image = product(100, 40, 20)
    work = estimated_work(CONFIG, image)
    (weights,) = (each for each in work if each.unit == Unit.WEIGHTS)
    (array,) = (each for each in work if each.unit == Unit.ARRAY)
    assert weights.number == array.number
    # the weights are 3 x 2 tiles of 256 bytes, with 16 bytes in a cycle
    assert weights.end - weights.begin == 3 * 2 * 16
    assert weights.begin < array.begin < weights.end < array.end


@pytest.mark.parametrize("name", NETWORKS)
def test_sums(name):
    image, _ = stored_program(name, CONFIG, 5)
    result = estimate(CONFIG, image, MemorySpeed(30))
    assert sum(tag.cycles for tag in result.tags) + result.rest == pytest.approx(result.cycles)
    for of in ("host_in", "host_out", "weights"):
        of_tags = sum(getattr(tag.traffic, of) for tag in result.tags)
        assert of_tags == getattr(result.traffic, of) > 0
    assert all(tag.cycles >= 0 for tag in result.tags)


def test_program_without_end():
    image = product(1, 16, 16)
    with pytest.raises(ValueError, match="no instruction"):
        estimate(CONFIG, replace(image, program=image.program[:-16]))


def test_large_batch_takes_no_longer_to_estimate(monkeypatch):
    """Check that a large batch takes no longer to estimate than a small batch.

    The cycles of iterations that are skipped must be counted.
    """
    calls = []
    run = MatrixUnit.run
    monkeypatch.setattr(MatrixUnit, "run", lambda *x: calls.append(1) or run(*x))
    cycles = []
    for samples in (40, 2000):
        network = compile_network(CONFIG, stored_model(CONVOLUTIONAL[0]), samples)
        calls.clear()
        cycles.append(
            sum(
                estimate(CONFIG, stage.program.image).cycles
                for stage in network.stages
                if not isinstance(stage, HostStage)
            )
        )
    assert cycles[1] / 2000 == pytest.approx(cycles[0] / 40, rel=0.05)
    assert len(calls) < 400


def test_tags_wait_for_their_units():
    """Check the cycles of tags that wait and of tags that do not.

    A tag that waits for no unit is recorded at once. A tag that waits is late, and so is a tag
    after it. The read is issued in cycle 17, as is any first instruction. The first tag is issued
    one interval later, and it is recorded in the next cycle.
    """
    text = """
        read_host_memory host=0, buffer=0, rows=100, stride=16, blocks=1, tail=16
        debug_tag tag=0, wait=0
        debug_tag tag=1, wait=1
        debug_tag tag=2, wait=0
        halt
    """
    before, waiting, behind = estimate(CONFIG, assembled(text)).tags
    assert before.cycles == 17 + 3 + 1
    assert waiting.cycles == pytest.approx(100, abs=10)
    assert behind.cycles == 1
    assert waiting.limit == Unit.HOST_READ
