# SPDX-License-Identifier: Apache-2.0
"""Tests of coverage: bins are hit by their events only, records add up, the page shows them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, Operation, encode
from systola.golden.machine import Machine
from systola.verif.coverage import __main__ as command
from systola.verif.coverage import record
from systola.verif.coverage.__main__ import PRESETS, main
from systola.verif.coverage.counted import Point, counting_verilog, modules_of, read_points
from systola.verif.coverage.functional import Observer, functional_bins, outside_fault_bin
from systola.verif.coverage.page import page
from systola.verif.coverage.probes import probes, with_probes
from systola.verif.coverage.record import Coverage
from systola.verif.coverage.statements import statement_names
from systola.verif.coverage.summary import (
    Part,
    functional_parts,
    idle,
    matches,
    point_parts,
    total,
    waivers,
)
from systola.verif.kit import machines
from systola.verif.kit.images import make_image, random_memory
from systola.verif.kit.programs import random_program
from systola.verif.kit.scoreboard import check_end, ends_in
from systola.verif.kit.seeds import random_seed
from systola.verif.regress.job import jobs, run_job

CONFIG = preset("small")
HALT = encode(Opcode.HALT)
COPY = {"rows": 4, "stride": CONFIG.input_pitch, "blocks": 1, "tail": CONFIG.rows}


def hits(*words, observer=None, fault=None):
    """Return the bins that a program hits. The program must end in `fault`, or else at Halt."""
    golden = observer or Observer(CONFIG)
    image = make_image([*words, HALT], host=random_memory(np.random.default_rng(0), 4))
    check_end(golden.run(image.host.copy(), image.weights, 0).fault, ends_in(fault))
    return {name for name, count in golden.hits.items() if count}


def vector(operation, rows=2, **operands):
    where = {"buffer": 0, "operand": 8, "destination": 16, "rows": rows, "parameter": 0}
    return encode(Opcode.VECTOR, operation=operation, **{**where, **operands})


def read(buffer):
    return encode(Opcode.READ_HOST_MEMORY, host=0x1000, buffer=buffer, **COPY)


def write(buffer, host=0x2000):
    return encode(Opcode.WRITE_HOST_MEMORY, host=host, buffer=buffer, **COPY)


def test_names_are_unique():
    names = [f"{group}: {name}" for group, names in functional_bins().items() for name in names]
    assert len(set(names)) == len(names) > 1000


def test_every_hit_is_a_bin():
    """Check that programs count hits only under names of bins."""
    names = {f"{group}: {name}" for group, names in functional_bins().items() for name in names}
    observer = Observer(CONFIG)
    for index in range(40):
        fault = Fault.LOOP if index % 2 else None
        image = random_program(CONFIG, f"{random_seed()} {index}", fault=fault)
        outcome = observer.run(image.host.copy(), image.weights, image.program_offset)
        check_end(outcome.fault, ends_in(fault))
    assert set(observer.hits) <= names, set(observer.hits) - names


def test_the_observer_is_the_golden_model():
    image = random_program(CONFIG, random_seed())
    results = []
    for machine in (Machine(CONFIG), Observer(CONFIG)):
        host = image.host.copy()
        results.append((machine.run(host, image.weights, image.program_offset), host.tobytes()))
        check_end(results[-1][0].fault)
    assert results[0] == results[1]


def test_fields_and_modes():
    found = hits(vector(Operation.ADD, zero_point=-128), vector(Operation.COPY, destination=0))
    assert {
        "opcodes: vector",
        "fields: vector operation: add",
        "fields: vector zero_point: least",
        "fields: vector zero_point: zero",
        "fields: vector buffer_register: register 0",
        "modes: vector add int8 to int8",
        "modes: vector replaces a",
    } <= found
    assert "modes: vector replaces b" not in found
    assert "fields: vector zero_point: most" not in found


def test_hazards():
    nop = encode(Opcode.NOP)
    found = hits(read(0), vector(Operation.ADD, destination=64), write(64), *[nop] * 8, read(66))
    pairs = {name for name in found if name.startswith("hazards: lines")}
    assert pairs == {
        "hazards: lines: read_host_memory writes, vector a reads, near",
        "hazards: lines: vector writes, write_host_memory reads, near",
        "hazards: lines: write_host_memory reads, read_host_memory writes, far",
    }


def test_hazards_of_host_memory():
    found = hits(write(0, host=0x1010), read(8))
    assert "hazards: host bytes: write_host_memory writes, read_host_memory reads, near" in found
    assert not any("host bytes" in name for name in hits(write(0, host=0x3000), read(8)))


def test_control():
    end = encode(Opcode.END_LOOP)
    outer, inner = (encode(Opcode.LOOP, count=count) for count in (2, 1))
    step = encode(Opcode.SET_REGISTER, register=1, first=1, value=-1)
    found = hits(outer, inner, end, step, end)
    assert {
        "control: 2 loops open",
        "control: a loop of one pass",
        "control: a loop of more passes",
        "control: an empty loop",
        "control: a register that wraps around",
        "control: a loop body that fits the instruction buffer",
    } <= found
    assert not {"control: 3 loops open", "control: an operand that wraps around"} & found


def test_faults():
    outside = hits(read(CONFIG.buffer_lines), fault=Fault.BUFFER_RANGE)
    assert "faults: buffer_range of read_host_memory" in outside
    reserved = hits(encode(Opcode.NOP)[:15] + b"\1", fault=Fault.ILLEGAL_FIELD)
    assert "faults: illegal_field of nop" in reserved
    illegal = hits(bytes(16), fault=Fault.ILLEGAL_OPCODE)
    assert "faults: illegal_opcode" in illegal
    assert not [name for name in illegal if "later pass" in name]
    loop = encode(Opcode.LOOP, count=2)
    move = encode(Opcode.SET_REGISTER, register=1, value=CONFIG.buffer_lines)
    moving = encode(Opcode.READ_HOST_MEMORY, host=0x1000, buffer=0, buffer_register=1, **COPY)
    found = hits(loop, moving, move, encode(Opcode.END_LOOP), fault=Fault.BUFFER_RANGE)
    assert "faults: in a later pass of a loop" in found
    assert outside_fault_bin(Fault.BUS_TIMEOUT) == "faults: bus_timeout"
    assert outside_fault_bin(Fault.LOOP) is None


def test_probes_stand_in_the_top_module():
    text = "module other(a);\nendmodule\nmodule tpu(a);\n  wire x;\nendmodule\nmodule last(a);\n"
    lines = with_probes("\n" + text + "endmodule\n").splitlines()
    places = [number for number, line in enumerate(lines) if "probe_" in line]
    assert len(places) == len(probes())
    assert lines[places[-1] + 1] == "endmodule" and lines[places[-1] + 2].startswith("module last")


def test_points(tmp_path):
    def line(page, number, what, count):
        values = {"f": "tpu.v", "l": number, "n": 1, "page": page, "o": what, "h": "TOP.tpu"}
        text = "".join(f"\1{name}\2{value}" for name, value in values.items())
        return f"C '{text}' {count}"

    file = tmp_path / "coverage.dat"
    file.write_text(
        "# SystemC::Coverage-3\n"
        + "\n".join(
            (
                line("v_line/tpu", 2, "block", 3),
                line("v_branch/tpu", 2, "if", 0),
                line("v_branch/tpu", 6, "if", 0),
                line("v_branch/tpu", 7, "cond_then", 1),
                line("v_branch/tpu", 7, "cond_else", 2),
                line("v_toggle/tpu", 5, "probe_1:0->1", 4),
                line("v_toggle/tpu", 5, "probe_1:1->0", 4),
            )
        )
    )
    idle = "    if (\\$auto$verilog_backend.cc:2355:dump_module$89 ) begin end\n"
    text = "module a(x);\n  wire x;\nendmodule\nmodule \\b.c (x);\n  wire y;\n" + idle
    text += "  assign y = x ? 1'h0 : z;\n"
    modules = modules_of(text)
    assert modules[2] == "a" and modules[5] == "b.c"
    assert read_points(file, text) == Counter(
        {
            Point("line", "a", 2, "block"): 3,
            Point("branch", "a", 2, "if"): 0,
            Point("branch", "b.c", 7, "y: x, then"): 1,
            Point("branch", "b.c", 7, "y: x, else"): 2,
            Point("probe", "b.c", 5, "1"): 4,
        }
    )


def coverage(counts, version="1", **functional):
    points = {Point("line", "a", line, "block"): count for line, count in enumerate(counts, 1)}
    return Coverage(Counter(functional), {"small": Counter(points)}, {"small": version})


def test_records_add_up(tmp_path, monkeypatch):
    whole = coverage([1, 0, 0], one=1)
    whole.add(coverage([1, 2, 0], one=1, two=5))
    assert whole.hits == {"one": 2, "two": 5}
    (part,) = point_parts(whole, "small")
    assert (len(part.covered), len(part.missing)) == (2, 1)
    monkeypatch.setattr(record, "counting_verilog", lambda config: "text")
    monkeypatch.setattr(record, "content_key", lambda text: "1")
    file = tmp_path / "new" / "coverage.json"
    whole.write(file)
    assert Coverage.read(file) == whole
    monkeypatch.setattr(record, "content_key", lambda text: "another")
    assert Coverage.read(file) == Coverage(whole.hits)
    whole.add(coverage([0], version="2"))
    assert [len(part.missing) for part in point_parts(whole, "small")] == [1]


def test_waivers(tmp_path):
    (part,) = point_parts(coverage([1, 0, 0]), "small", ["line a: 2 *"])
    assert (len(part.covered), part.waived, part.missing) == (1, ["line a: 2 block"], ["3 block"])
    assert idle(["line a: 2 *", "line a: 1 *"], [part]) == ["line a: 1 *"]
    assert part.share == 0.5
    assert total([part, Part("line", "b", [], [], [])]).share == 0.5
    assert all(reason for reason in waivers().values())


def test_waivers_of_statements():
    """Check that waivers match names of statements, not lines, and only `*` is special in them."""
    points = Counter(
        {
            Point("branch", "a", 3, "y: x[0], then"): 0,
            Point("branch", "a", 5, "y: x[0], else"): 4,
            Point("branch", "a", 9, "y: x[1] (2), then"): 0,
        }
    )
    waived = ["branch a: y: x[0], *", "branch a: y: x[1] (?), then", "branch a: y: x[0], else"]
    (part,) = point_parts(Coverage(points={"small": points}), "small", waived)
    assert part.waived == ["branch a: y: x[0], then"]
    assert part.missing == ["y: x[1] (2), then"]
    assert idle(waived, [part]) == waived[1:]


def test_reasons_of_waivers():
    """Check that the measured machines have or lack the features that waivers give as reasons."""
    attention, bare = (machines.machine(name) for name in PRESETS)
    for each in (attention, bare):
        assert not each.parity and not each.links
        assert each.cols == each.output_pitch == each.host_bus_bytes == 4
    assert all((attention.depthwise, attention.wide, attention.tables, attention.training))
    assert attention.attention and not bare.wide and not bare.tables


@pytest.mark.thorough
def test_waivers_name_statements():
    """Check that each waiver of lines or branches matches a statement of the tested machines."""
    known: set[str] = set()
    for preset_name in PRESETS:
        text = counting_verilog(machines.machine(preset_name))
        for module, name in zip(modules_of(text), statement_names(text), strict=True):
            if name:
                known.add(f"line {module}: {name}")
                known.update(f"branch {module}: {name}, {arm}" for arm in ("then", "else"))
    patterns = [name for name in waivers() if name.startswith(("line ", "branch "))]
    assert len(patterns) > 10
    assert [each for each in patterns if not any(matches(name, each) for name in known)] == []


def test_a_waiver_of_something_covered_fails(tmp_path, capsys, monkeypatch):
    """Check that `make coverage` fails for a waived item that is covered or absent, naming it."""
    covered, absent = "branch a: y: x, then", "branch a: y: z, then"
    points = Counter({Point("branch", "a", 3, "y: x, then"): 1})
    some = Coverage(points={"small": points}, versions={"small": "1"})
    monkeypatch.setattr(Coverage, "read", lambda path: some)
    monkeypatch.setattr(command, "waivers", lambda: {covered: "why", absent: "why"})
    file = tmp_path / "c.json"
    file.touch()
    page = str(tmp_path / "index.html")
    assert main(["--programs", "0", "--file", str(file), "--page", page]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("a waiver")] == [
        f"a waiver of nothing: {covered}",
        f"a waiver of nothing: {absent}",
    ]
    assert "1 covered, 0 waived, 0 missing" in next(x for x in lines if x.startswith("small, b"))


def test_page():
    some = coverage([1, 0])
    text = page(some, {"line a: 9 *": "why < not"}, "SEED=1")
    assert "why &lt; not" in text and "SEED=1" in text and "2 block" in text
    names = {part.name for part in functional_parts(some)}
    assert names == {*functional_bins(), "probes"}


def test_nothing_run_is_nothing_covered(tmp_path, capsys):
    arguments = ["--programs", "0", "--file", str(tmp_path / "c.json")]
    assert main([*arguments, "--page", str(tmp_path / "index.html")]) == 1
    assert "opcodes" in capsys.readouterr().out
    assert Path(tmp_path, "index.html").exists()


@pytest.mark.thorough
def test_a_run():
    """Check a few programs on the simulator that counts: they pass, and most opcodes are hit."""
    (job,) = jobs("programs", ["tiny"], random_seed(), 0, 12, counting=True)
    report = run_job(job)
    assert not report.failures
    found = {part.name: part for part in functional_parts(report.coverage)}
    assert found["opcodes"].share > 0.6
    modules = point_parts(report.coverage, "tiny")
    assert {part.group for part in modules} == {"line", "branch", "toggle"}
    assert total(part for part in modules if part.group == "line").share > 0.4
    assert "host AR: moves" in found["probes"].covered
