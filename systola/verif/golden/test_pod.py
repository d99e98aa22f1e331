# SPDX-License-Identifier: Apache-2.0
"""Tests of golden pods: links by hand, random programs, cores in several orders, every fault."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from systola.arch.assembler import assemble, disassemble
from systola.arch.config import Config, preset
from systola.arch.isa import (
    LINK_OPCODES,
    Fault,
    LinkPart,
    Opcode,
    Side,
    encode,
)
from systola.golden.outcome import LimitReached, Outcome
from systola.golden.pod import Pod
from systola.verif.golden.rig import TINY, Rig
from systola.verif.kit.images import program_image, text_image
from systola.verif.kit.pod_programs import damage, random_pod
from systola.verif.kit.seeds import random_seed

LINKED = preset("tiny-links")
# On a link of this core, a row of 6 sums takes 24 bytes, three beats of 8, and a line one beat.
ODD = dataclasses.replace(LINKED, name="odd", rows=5, cols=6, columns_per_stage=3, host_bus_bytes=8)
# On a link of this core, a row of sums takes 18 beats. The link holds 64 beats.
BROAD = dataclasses.replace(LINKED, name="broad", rows=9, cols=18, columns_per_stage=3)
ORDERS = 4


def run(pod: Pod, *texts: str, order: random.Random | None = None) -> list[Outcome]:
    return pod.run([text_image(text) for text in texts], order=order)


def ends(pod: Pod, *texts: str) -> list[tuple[Fault, int, int] | None]:
    """Return the fault of each core (cause, pc, address), equal for every order of the cores."""
    found: list[list[Outcome]] = []
    for seed in range(ORDERS):
        found.append(run(pod, *texts, order=random.Random(seed) if seed else None))
    assert all(outcomes == found[0] for outcomes in found)
    faults = [outcome.fault for outcome in found[0]]
    return [fault and (fault.cause, fault.pc, fault.address) for fault in faults]


def test_lines_by_hand() -> None:
    """Check that cores send whole lines, unused bytes too, before the lines are overwritten."""
    pod = Pod(ODD, 3)
    for core, machine in enumerate(pod.machines):
        machine.buffer[0:3] = np.arange(18).reshape(3, 6) + 20 * core
    around = "send side=right, buffer=0, rows=3\nreceive side=left, buffer=1, rows=3"
    assert all(outcome.fault is None for outcome in run(pod, *[around] * 3))
    for core, machine in enumerate(pod.machines):
        before = (np.arange(18).reshape(3, 6) + 20 * ((core - 1) % 3)).tolist()
        assert machine.buffer[1:4].tolist() == before
        assert machine.buffer[0].tolist() == [20 * core + i for i in range(6)]
    assert [outcome.executed for outcome in run(pod, *[around] * 3)] == [3, 3, 3]


@pytest.mark.parametrize("config", [LINKED, ODD, BROAD], ids=lambda config: config.name)
def test_sums_by_hand(config: Config) -> None:
    """Check that Reduce adds received sums modulo 2^32, or replaces the old content by them."""
    pod = Pod(config, 2)
    one, two = pod.machines
    one.accumulators[:2] = 2**31 - 1
    two.accumulators[:2] = np.arange(2 * config.cols).reshape(2, -1) + 5
    run(
        pod,
        "send side=left, sums=1, accumulator=0, rows=2",
        "reduce side=right, accumulator=0, rows=1\n"
        "reduce side=right, accumulator=8, rows=1, accumulate=0",
    )
    expected = np.arange(config.cols, dtype=np.int64) + 5 + 2**31 - 1
    assert two.accumulators[0].tolist() == (expected - 2**32 * (expected >= 2**31)).tolist()
    assert two.accumulators[1].tolist() == [config.cols + 5 + i for i in range(config.cols)]
    assert two.accumulators[8].tolist() == [2**31 - 1] * config.cols


def test_two_neighbours_are_told_apart_in_a_ring_of_two() -> None:
    pod = Pod(LINKED, 2)
    one, two = pod.machines
    one.buffer[:, 0] = np.arange(1024) % 100
    run(
        pod,
        "send side=right, buffer=10, rows=2\nsend side=left, buffer=20, rows=2",
        "receive side=right, buffer=0, rows=2\nreceive side=left, buffer=2, rows=2",
    )
    assert two.buffer[:4, 0].tolist() == [20, 21, 10, 11]


def test_a_core_may_be_its_own_neighbour() -> None:
    pod = Pod(LINKED, 1)
    pod.machines[0].buffer[:, 0] = np.arange(1024) % 100
    text = "barrier\nsend side=left, buffer=3, rows=50\nreceive side=right, buffer=103, rows=50"
    (outcome,) = run(pod, text + "\nbarrier")
    assert outcome.fault is None and outcome.executed == 5
    assert pod.machines[0].buffer[103:153, 0].tolist() == list(range(3, 53))


def test_a_link_holds_so_many_beats() -> None:
    """Check that a link holds 16 beats: a Send of one beat more waits."""
    for rows, waits in ((16, False), (17, True)):
        found = ends(Pod(LINKED, 2), f"send side=right, buffer=0, rows={rows}", "nop")
        timeout = (Fault.LINK_TIMEOUT, 0, LinkPart.SEND_RIGHT)
        assert found == [timeout if waits else None, None]
    rows = 16 // 4
    for more, waits in ((0, False), (1, True)):
        text = f"send side=left, sums=1, accumulator=0, rows={rows + more}"
        assert (ends(Pod(LINKED, 2), text, "nop")[0] is not None) == waits


def test_what_nobody_took_is_dropped() -> None:
    pod = Pod(LINKED, 2)
    pod.machines[0].buffer[:2] = 7
    assert ends(pod, "send side=right, buffer=0, rows=2", "nop") == [None, None]
    waits = (Fault.LINK_TIMEOUT, 0, LinkPart.RECEIVE_LEFT)
    assert ends(pod, "nop", "receive side=left, buffer=0, rows=1") == [None, waits]


def test_instructions_go_on_beside_a_transfer() -> None:
    """Check that instructions run beside a waiting Send. All cores send more than a link holds.

    Only an instruction that overlaps the lines of the Send waits.
    """
    exchange = (
        "send side=right, buffer=0, rows=200\n{}\nreceive side=left, buffer=300, rows=200\n"
        "activate accumulator=0, buffer=300, rows=1, n_tiles=1, parameter=0"
    )
    apart = "activate accumulator=0, buffer=200, rows=1, n_tiles=1, parameter=0"
    meets = "activate accumulator=0, buffer=199, rows=1, n_tiles=1, parameter=0"
    # Read_Weights without a weight window is a fault, and a fault waits for the Send.
    reads = "read_weights tile=0, count=1"
    pod = Pod(LINKED, 3)
    assert ends(pod, *[exchange.format(apart)] * 3) == [None] * 3
    assert (
        ends(pod, *[exchange.format(meets)] * 3)
        == [(Fault.LINK_TIMEOUT, 0, LinkPart.SEND_RIGHT)] * 3
    )
    for machine in pod.machines:
        assert not machine.buffer[300].any()  # the Activate, which waits for the Send, did not run
    drained = exchange.format(reads)
    assert ends(pod, *[drained] * 3) == [(Fault.LINK_TIMEOUT, 0, LinkPart.SEND_RIGHT)] * 3


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_of_a_part_are_under_way(more: int) -> None:
    """Check that a core waits at a Send if the queue of Sends to the same side is full."""
    pod = Pod(LINKED, 2)
    pod.machines[1].buffer[0] = 5
    sends = "send side=right, buffer=0, rows=20\n" * (LINKED.queue_depth + more)
    texts = (sends + "receive side=right, buffer=900, rows=1", "send side=left, buffer=0, rows=1")
    assert ends(pod, *texts) == [(Fault.LINK_TIMEOUT, 0, LinkPart.SEND_RIGHT), None]
    assert pod.machines[0].buffer[900].any() == (not more)


def test_a_barrier_counts() -> None:
    """Check that two cores wait in vain at a second barrier if a third core has only one."""
    waits = (Fault.LINK_TIMEOUT, 0, LinkPart.BARRIER)
    assert ends(Pod(LINKED, 3), "barrier\nbarrier", "barrier", "nop\nbarrier\nbarrier") == [
        *(waits, None, waits)
    ]
    assert ends(Pod(LINKED, 3), *["barrier\n" * 5] * 3) == [None] * 3


def test_a_barrier_waits_for_what_came_before_it() -> None:
    text = "send side=right, buffer=0, rows=40\nbarrier\nreceive side=left, buffer=50, rows=40"
    assert ends(Pod(LINKED, 2), text, text) == [(Fault.LINK_TIMEOUT, 0, LinkPart.SEND_RIGHT)] * 2


def test_the_end_of_a_program_waits_for_transfers() -> None:
    """Check that a fault found before issue waits until all earlier instructions are complete."""
    pod = Pod(LINKED, 2)
    pod.machines[0].buffer[:40] = 9
    found = ends(
        pod,
        "send side=left, buffer=0, rows=40\n.word 0xFF",
        "receive side=right, buffer=50, rows=40",
    )
    assert found == [(Fault.ILLEGAL_OPCODE, 1, 0xFF), None]
    assert pod.machines[1].buffer[89, 0] == 9


def test_everybody_ends_where_somebody_waits_in_vain() -> None:
    pod = Pod(LINKED, 4)
    text = (
        "receive side=left, buffer=0, rows=1\nreduce side=right, accumulator=0, rows=1\n"
        "send side=left, buffer=100, rows=17\nsend side=right, buffer=100, rows=17"
    )
    parts = LinkPart.RECEIVE_LEFT | LinkPart.RECEIVE_RIGHT
    sends = LinkPart.SEND_LEFT | LinkPart.SEND_RIGHT
    found = ends(pod, "nop", text, "nop", "barrier")
    assert found == [
        None,
        (Fault.LINK_TIMEOUT, 0, parts | sends),
        None,
        (Fault.LINK_TIMEOUT, 0, LinkPart.BARRIER),
    ]


@pytest.mark.parametrize("sums", [0, 1])
def test_a_mismatch_stops_the_pod(sums: int) -> None:
    pod = Pod(LINKED, 3)
    taken = "receive side=left, buffer" if sums else "reduce side=left, accumulator"
    found = ends(
        pod, "barrier", f"send side=right, sums={sums}, buffer=0, rows=3", f"{taken}=0, rows=3"
    )
    stopped = (Fault.POD_STOPPED, 0, 0)
    assert found == [stopped, None, (Fault.LINK_KIND, 0, LinkPart.RECEIVE_LEFT)]


LIMITS = [
    (encode(Opcode.SEND, side=0, buffer=1020, rows=5), Fault.BUFFER_RANGE, 1020),
    (encode(Opcode.SEND, side=0, sums=1, accumulator=250, rows=7), Fault.ACCUMULATOR_RANGE, 250),
    (encode(Opcode.RECEIVE, side=1, buffer=1023, rows=2), Fault.BUFFER_RANGE, 1023),
    (encode(Opcode.REDUCE, side=1, accumulator=255, rows=2), Fault.ACCUMULATOR_RANGE, 255),
    (encode(Opcode.SEND, side=1, rows=1)[:-1] + b"\1", Fault.ILLEGAL_FIELD, 0),
    (encode(Opcode.BARRIER)[:-1] + b"\1", Fault.ILLEGAL_FIELD, 0),
]


@pytest.mark.parametrize(("word", "cause", "address"), LIMITS)
def test_faults_before_issue(word: bytes, cause: Fault, address: int) -> None:
    outcome, _ = Pod(LINKED, 2).run([program_image([encode(Opcode.NOP), word]), program_image([])])
    assert outcome.fault is not None
    assert (outcome.fault.cause, outcome.fault.pc, outcome.fault.address) == (cause, 1, address)
    # On a machine without links, the fields of a link instruction are not checked.
    assert Rig(TINY).fault(word) == (Fault.UNAVAILABLE, 0, word[0])


def test_the_other_memory_is_not_looked_at() -> None:
    sends = encode(Opcode.SEND, side=0, buffer=0, accumulator=9999, rows=1)
    sums = encode(Opcode.SEND, side=0, sums=1, buffer=99999, accumulator=0, rows=1)
    both = [program_image([sends, sums]), program_image([])]
    assert [outcome.fault for outcome in Pod(LINKED, 2).run(both)] == [None, None]


def test_a_machine_by_itself_has_no_neighbours() -> None:
    rig = Rig(LINKED)
    for opcode in sorted(LINK_OPCODES - {Opcode.BARRIER}):
        word = encode(opcode, side=Side.RIGHT, rows=1, **_needed(opcode))
        part = LinkPart.SEND_RIGHT if opcode == Opcode.SEND else LinkPart.RECEIVE_RIGHT
        assert rig.fault(word) == (Fault.LINK_TIMEOUT, 0, part)
    assert rig.fault(encode(Opcode.BARRIER)) == (Fault.LINK_TIMEOUT, 0, LinkPart.BARRIER)


def _needed(opcode: Opcode) -> dict[str, int]:
    return {Opcode.RECEIVE: {"buffer": 0}, Opcode.REDUCE: {"accumulator": 0}}.get(opcode, {})


def test_limit() -> None:
    endless = "loop count=1000000\nbarrier\nend_loop"
    with pytest.raises(LimitReached):
        Pod(LINKED, 2).run([text_image(endless), text_image(endless)], limit=100)


@pytest.mark.parametrize("cores", [2, 3, 8])
@pytest.mark.parametrize("config", [LINKED, ODD, BROAD], ids=lambda config: config.name)
def test_random_programs(config: Config, cores: int) -> None:
    """Check that random programs give all cores the right results, in several orders of the cores.

    The programs are also disassembled and assembled again, with the same result.
    """
    rng = random.Random(random_seed())
    writer = random_pod(rng, config, cores, steps=25 * cores)
    results: list[list[Outcome]] = []
    for number in range(ORDERS):
        pod, images = Pod(config, cores), writer.images()
        results.append(pod.run(images, order=random.Random(number) if number else None))
        assert all(outcome.fault is None for outcome in results[-1])
        writer.check(pod.machines, images)
    assert all(outcomes == results[0] for outcomes in results)
    for words in writer.words:
        program = b"".join(words)
        assert assemble(disassemble(program), config) == program


@pytest.mark.parametrize("cores", [2, 3, 5])
def test_random_damage(cores: int) -> None:
    """Check that each core ends alike in every order if an instruction is missing or damaged."""
    rng = random.Random(random_seed())
    seen: set[Fault] = set()
    # At least 12 programs run, and more until a link has failed. A link fails in two of five
    # damaged programs.
    for number in range(100):
        if number >= 12 and seen & {Fault.LINK_TIMEOUT, Fault.LINK_KIND}:
            break
        writer = random_pod(rng, LINKED, cores, steps=6 * cores)
        damage(rng, writer)
        results: list[tuple[list[Outcome], list[bytes]]] = []
        for order in range(ORDERS):
            pod, images = Pod(LINKED, cores), writer.images()
            outcomes = pod.run(images, order=random.Random(order) if order else None)
            memories = [m.buffer.tobytes() + m.accumulators.tobytes() for m in pod.machines]
            results.append((outcomes, memories))
        assert all(result == results[0] for result in results)
        seen |= {outcome.fault.cause for outcome in results[0][0] if outcome.fault}
    assert seen & {Fault.LINK_TIMEOUT, Fault.LINK_KIND}
