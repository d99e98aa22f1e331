# SPDX-License-Identifier: Apache-2.0
"""Tests of the counted work of programs and its energy.

The expected counts are made by hand, or are the RTL's counters.
"""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest

from systola.arch.assembler import assemble
from systola.arch.config import preset
from systola.arch.isa import Rounding
from systola.bench.convolution import make_case
from systola.bench.energy import (
    count_application,
    count_network,
    count_step,
    originals,
    stored,
)
from systola.bench.networks import BATCHES, NETWORKS
from systola.bench.original.result import stored as results_of_originals
from systola.bench.original.shapes import applications
from systola.bench.table import find, stored_results
from systola.bench.training import STEPS
from systola.bench.workloads import CONVOLUTIONS, IDEAL, PRODUCTS
from systola.compiler.gemm import compile_gemm
from systola.golden.window import Window
from systola.timing.activity import Activity, activity
from systola.timing.energy import PICO, energies, unit_energies
from systola.timing.estimate import estimate
from systola.timing.record import Unit
from systola.timing.technology import LINK_BYTE, TECHNOLOGIES
from systola.verif.compiler.stored_networks import stored_program
from systola.verif.kit.random_windows import pixel_window
from systola.verif.kit.seeds import random_seed

TINY, BASE = preset("tiny"), preset("base")
NM_45, NM_7 = TECHNOLOGIES

BY_HAND = """
    load_parameters host=0x2000, parameter=0, count=1
    read_weights tile=0, count=2
    read_host_memory host=0x1000, buffer=0, rows=3, stride=8, blocks=2, tail=4
    matrix_multiply buffer=0, accumulator=0, rows=3, k_tiles=2, n_tiles=1
    activate accumulator=0, buffer=64, rows=3, n_tiles=1, parameter=0, function=relu
    write_host_memory host=0x3000, buffer=64, rows=3, stride=4, blocks=1, tail=4
    halt
"""


def counts(text: str, config=TINY) -> Activity:
    return activity(config, assemble(text))


def test_by_hand():
    """Check the counted work of a small product: 3 samples, 8 inputs and 4 outputs.

    The expected counts are made by hand, for an array of 4 x 4. Buffer lines and beats of the buses
    have 4 bytes.
    """
    assert counts(BY_HAND) == Activity(
        macs=6 * 16,  # two weight tiles along K, with three vectors each
        # A vector is written into one register for all four columns of a row, and into 16 sums.
        array_registers=6 * (4 + 64) + 2 * 2 * 16,
        buffer=4 * (6 + 6 + 3 + 3),  # lines: from the host, to the array, results, to the host
        accumulators=16 * (6 + 3 + 3),  # rows: six written, three of them added, three read
        accumulator_adds=3 * 4,
        weight_fifo=2 * 2 * 16,
        lane_multiplies=3 * 4,
        lane_adds=3 * 4 * 4,
        host=9 * 4 + 6 * 4 + 3 * 4,
        weights=2 * 16,
    )


def test_energy_by_hand():
    """Check the energy of the counted product: each count times its published energy.

    The published energies are of memories of 4 KiB, 4 KiB and 64 bytes.
    """
    (found, _) = energies(TINY, counts(BY_HAND), 3 * 8 * 4)
    assert found.units == pytest.approx(
        {
            "array": 96 * 0.3e-12,
            "array registers": 472 * 0.25e-12,
            "unified buffer": 72 * 1.25e-12,
            "accumulators": (192 * 1.25 + 12 * 0.1) * 1e-12,
            "weight FIFO": 64 * 1.25e-12,
            "activation unit": (12 * 3.1 + 48 * 0.1) * 1e-12,
            "host memory": 72 * 162.5e-12,
            "weight memory": 32 * 162.5e-12,
            "links": 0.0,
        }
    )
    assert found.tops_per_watt == pytest.approx(2 * 96 * 1e-12 / found.joules)


@pytest.mark.parametrize("technology", TECHNOLOGIES, ids=lambda each: each.name)
def test_sum_over_the_counters(technology):
    """Check that a program's energy is the sum of the energies of its counters, each by itself."""
    done = Activity(**{name: 1000 + n for n, name in enumerate(asdict(Activity()))})
    alone = [
        sum(unit_energies(BASE, Activity(**{name: count}), technology).values())
        for name, count in asdict(done).items()
    ]
    whole = sum(unit_energies(BASE, done, technology).values())
    assert whole == pytest.approx(sum(alone), rel=1e-12)
    missing = {"array_registers"} if technology is NM_7 else set[str]()
    assert {name for name, part in zip(asdict(done), alone, strict=True) if not part} == missing


@pytest.mark.parametrize(
    ("counter", "unit"),
    [
        ("host", "host memory"),
        ("weights", "weight memory"),
        ("links", "links"),
        ("buffer", "unified buffer"),
        ("weight_fifo", "weight FIFO"),
        ("array_registers", "array registers"),
    ],
)
def test_twice_the_bytes(counter, unit):
    """Check that twice the bytes of a unit take twice the energy in this unit.

    The energy of all other units stays the same.
    """
    done = counts(BY_HAND) + Activity(links=64)
    before = unit_energies(TINY, done, NM_45)
    after = unit_energies(TINY, replace(done, **{counter: 2 * getattr(done, counter)}), NM_45)
    assert before[unit] > 0
    assert after == pytest.approx(before | {unit: 2 * before[unit]})


def test_ports():
    """Check the energy of a byte of host or weight memory, and of a byte on a link.

    Both energies are the same in all technologies.
    """
    done = Activity(host=1, weights=1, links=1)
    for technology in TECHNOLOGIES:
        found = unit_energies(BASE, done, technology)
        assert found["host memory"] == found["weight memory"] == pytest.approx(162.5 * PICO)
        assert found["links"] == LINK_BYTE * PICO == 15.625 * PICO


def test_memories():
    """Check that a memory has the energy of the smallest published memory that is large enough.

    Memories larger than all published ones have the energy of the largest.
    """
    sizes = (1, 8192, 8193, 32768, 32769, 1 << 20, 1 << 25)
    assert [NM_45.memory_byte(n) for n in sizes] == [1.25, 1.25, 2.5, 2.5, 12.5, 12.5, 12.5]
    assert [NM_7.memory_byte(n) * 8 for n in sizes] == [7.5, 7.5, 8.5, 8.5, 14, 14, 14]


@pytest.mark.parametrize("work", [*PRODUCTS, *CONVOLUTIONS], ids=str)
def test_vectors_that_the_rtl_counted(work):
    """Check the counted products against ARRAY_ACTIVE of the RTL.

    This counter has the cycles in which a vector enters the array.
    """
    counters = find(stored_results(), work, IDEAL)["counters"]
    if work in PRODUCTS:
        image = compile_gemm(
            BASE,
            np.zeros((work.m, work.k), np.int8),
            np.zeros((work.k, work.n), np.int8),
            *(np.full(work.n, value, np.int32) for value in (0, 1 << 30, 0)),
            rounding=Rounding.SINGLE,
        ).image
    else:
        image = make_case(BASE, work, seed=0).image
    assert activity(BASE, image.program).macs == counters["array_active"] * BASE.peak_macs


@pytest.mark.parametrize("counted", originals(), ids=lambda each: each.name)
def test_original_beside_the_rtl(counted):
    """Check the counted work of the original's applications against stored RTL runs.

    A vector has 65,536 products.
    """
    result = results_of_originals()[counted.name]
    assert counted.activity.macs == 65_536 * result.counters["array_active"]
    assert counted.activity.weights == result.weight_bytes
    assert counted.macs == result.macs


def test_stored_counts():
    """Check that a new count of a network gives the stored numbers of docs/energy.md."""
    network = next(each for each in NETWORKS if each.file.startswith("mlp_tutorial"))
    found = count_network(network, 16)
    assert found in stored()
    assert {each.name for each in stored() if each.batch == 1} == {each.title for each in NETWORKS}
    assert [each.name for each in originals()] == list(applications())


@pytest.mark.exhaustive
def test_all_stored_counts():
    """Check that new counts of all networks, training steps and applications equal stored counts.

    `make bench-energy` must be run after a change of the compiler or of training.
    """
    found = [count_network(network, batch) for network in NETWORKS for batch in BATCHES]
    found += [count_step(step) for step in STEPS]
    assert [*found, *map(count_application, applications())] == stored()


@pytest.mark.parametrize("name", ["std_resnet8_cifar", "ds_cnn_kws", "lstm_digits_rows_k2"])
def test_beside_the_timing_model(name):
    """Check that the timing model, which follows each unit, adds up the same work as the counts."""
    image, _ = stored_program(name, BASE, 1)
    found, expected = activity(BASE, image.program), estimate(BASE, image)
    assert (found.macs + found.wide_macs) / BASE.peak_macs == expected.busy[Unit.ARRAY]
    assert found.weights == expected.traffic.weights
    assert found.host == expected.traffic.host_in + expected.traffic.host_out


LOOP = """
    set_register register=1, value=2
    loop count=3
        loop count=1, count_register=1
            {body}
        end_loop
        set_register register=1, first=1, value=1
    end_loop
    halt
"""


def test_loops_that_depend_on_registers():
    """Check the counted work of a loop with a count in a register: it runs 3, 4 and 5 times."""
    body = "vector operation=add, buffer=0, operand=8, destination=16, rows=2, parameter=0"
    once = counts(f"{body}\nhalt")
    assert once.lane_multiplies == 3 * 2 * TINY.cols
    assert counts(LOOP.format(body=body)) == once.scaled(12)


def test_loop_whose_window_is_set_at_its_end():
    """Check the counted work of a loop: its first iteration has another window than later ones."""
    small, large = (
        f"set_config_window height={n}, width={n}, pitch={n}, kernel_height=1, kernel_width=1, "
        f"stride_y=1, stride_x=1, dilation_y=1, dilation_x=1, out_height={n}, out_width={n}"
        for n in (2, 3)
    )
    pool = "pool buffer=0, destination=32, blocks=1, parameter=0, reduction=max"
    found = counts(f"{small}\nloop count=5\n{pool}\n{large}\nend_loop\nhalt")
    # Each pixel is one line that is read and one line that is written.
    assert found.buffer == 2 * TINY.line_bytes * (4 + 4 * 9)


def test_halt_in_a_loop():
    body = "random destination=0, rows=1"
    assert counts(f"loop count=9\n{body}\nhalt\nend_loop\nhalt").buffer == TINY.line_bytes


def test_a_program_that_does_not_end():
    with pytest.raises(ValueError, match="no instruction 1"):
        counts("nop")


def convolve(window: Window, channels: int, k_tiles: int) -> str:
    operands = ", ".join(f"{name}={value}" for name, value in vars(window).items())
    return (
        f"set_config_window {operands}\n"
        f"convolve buffer=0, accumulator=0, plane=0, k_tiles={k_tiles}, n_tiles=2, "
        f"channels={channels}\nhalt"
    )


def inside(window: Window, i: int, j: int) -> int:
    """Return the number of windows with tap (i, j) inside the feature map, window by window."""
    found = 0
    for p, q in product(range(window.out_height), range(window.out_width)):
        y = window.top + p * window.stride_y + i * window.dilation_y
        x = window.left + q * window.stride_x + j * window.dilation_x
        found += 0 <= y < window.height and 0 <= x < window.width
    return found


@pytest.mark.parametrize("case", range(4))
def test_lines_of_a_convolution(case):
    """Check that a convolution reads a line for each tap inside the map, and none for the fill."""
    window = pixel_window(random.Random(random_seed() + case))
    taps = product(range(window.kernel_height), range(window.kernel_width))
    lines = sum(inside(window, i, j) for i, j in taps)
    found = counts(convolve(window, 0, 3))
    assert found.buffer == 2 * 3 * lines * TINY.line_bytes
    vectors = 2 * 3 * window.taps * window.windows
    assert found.macs == vectors * TINY.peak_macs
    rows = 2 * window.windows
    assert found.accumulators == 4 * TINY.cols * (2 * vectors - rows)


def test_lines_of_packed_channels():
    """Check the lines that a convolution with packed channels reads.

    A row of 6 pixels of 2 channels has 3 lines of 4 bytes. Each of the three rows of the kernel
    reads rows of the map. The kernel's first row lies outside the map for the first row of windows,
    and its last row for the last.
    """
    window = Window(
        **{"height": 6, "width": 6, "pitch": 3, "kernel_height": 3, "kernel_width": 2},
        **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1, "top": -1, "left": 0},
        **{"out_height": 6, "out_width": 5},
    )
    assert counts(convolve(window, 2, 1)).buffer == 2 * (5 + 6 + 5) * 3 * TINY.line_bytes


def test_words_of_16_bits_take_their_passes():
    """Check that a product of int16 vectors and int16 weights takes four passes of bytes."""
    config = preset("small")
    text = (
        "read_weights tile=0, count={tiles}\n"
        "matrix_multiply buffer=0, accumulator=0, rows=5, k_tiles=1, n_tiles=1{more}\nhalt"
    )
    narrow = counts(text.format(tiles=1, more=""), config)
    wide = counts(text.format(tiles=2, more=", wide_vectors=1, wide_weights=1"), config)
    assert (narrow.macs, narrow.wide_macs) == (5 * 64, 0)
    assert (wide.macs, wide.wide_macs) == (0, 4 * 5 * 64)
    assert wide.weights == 2 * narrow.weights


def test_neighbours():
    """Check the counted work of a core that sends sums, and of a core that receives them.

    Beats of a link are as wide as the host port.
    """
    config = preset("tiny-links")
    sent = counts("send side=right, sums=1, accumulator=0, rows=3\nhalt", config)
    assert (sent.links, sent.accumulators) == (3 * 16, 3 * 16)
    taken = counts("reduce side=left, accumulator=0, rows=3\nhalt", config)
    assert (taken.accumulators, taken.accumulator_adds, taken.links) == (2 * 3 * 16, 12, 0)
