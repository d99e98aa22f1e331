# SPDX-License-Identifier: Apache-2.0
"""Tests of waveforms of a program, and of save files for GTKWave and Surfer.

A save file groups the waveform's signals by unit, and gives names to values such as opcodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from systola.arch.config import preset
from systola.runtime import ImageBuilder
from systola.runtime.rtl import RtlBackend
from systola.sim import verilator
from systola.sim.vcd import variables
from systola.sim.verilator import waveform_suffix
from systola.sim.waves import save_files
from systola.verif.cli.test_errors import run


@pytest.mark.thorough
def test_machine(tmp_path: Path) -> None:
    """Check that the waveform and its save files are complete after the machine is closed."""
    builder = ImageBuilder("tiny")
    with RtlBackend(preset("tiny"), waves=tmp_path / "w.vcd") as machine:
        result = machine.run(builder.build("nop\nhalt"))
    assert result.fault is None
    saved = (tmp_path / "w.gtkw").read_text().splitlines()
    assert saved[0] == f'[dumpfile] "{tmp_path / "w.vcd"}"'
    assert {"-tpu.core.fetch", "-tpu.core.matrix_unit", "-tpu.core.unified_buffer"} <= set(saved)
    text = (tmp_path / "w.vcd").read_text()
    assert re.search(r"^#\d+\n", text, re.MULTILINE)
    # Each signal in the save files, also a field of a structure, must be in the waveform.
    there = {each.path for each in variables(text.splitlines())}
    shown = [line.partition("[")[0] for line in saved if line.startswith("tpu.")]
    assert "tpu.tpu.core.activation_unit.planner.step_pause" in shown
    assert set(shown) <= there
    added = re.findall(r"^variable_add (.*)$", (tmp_path / "w.sucl").read_text(), re.MULTILINE)
    assert added == shown


def times(waveform: Path) -> list[int]:
    """Return all times in a VCD file, in half cycles, since the clock changes twice a cycle."""
    return [int(each) for each in re.findall(r"^#(\d+)$", waveform.read_text(), re.MULTILINE)]


def rise(waveform: Path, name: str) -> int:
    """Return the time at which the signal `name` of a VCD file first becomes 1."""
    text = waveform.read_text()
    code = re.search(rf"\$var wire 1 (\S+) {name} \$end", text)
    assert code
    before, found, _ = text.partition(f"\n1{code[1]}\n")
    assert found
    return int(re.findall(r"^#(\d+)$", before, re.MULTILINE)[-1])


@pytest.mark.thorough
def test_a_window_of_cycles(tmp_path: Path) -> None:
    """Check a waveform of a window of cycles only; here the window is within the second run."""
    image = ImageBuilder("tiny").build("nop\nhalt")
    with RtlBackend(preset("tiny"), waves=tmp_path / "all.vcd") as machine:
        cycles = machine.run(image).cycles
        assert cycles
        machine.run(image)
    begin, end = cycles + 5, cycles + 20
    window = (begin, end)
    with RtlBackend(preset("tiny"), waves=tmp_path / "part.vcd", window=window) as machine:
        for _ in range(2):
            machine.run(image)
    shown, every = times(tmp_path / "part.vcd"), times(tmp_path / "all.vcd")
    assert len(shown) == 2 * (end - begin)
    assert set(shown) < set(every)
    assert shown[0] > rise(tmp_path / "all.vcd", "irq")  # The first run has ended before.
    assert shown == list(range(shown[0], shown[0] + len(shown)))


@pytest.mark.thorough
def test_window_counts_from_start(tmp_path: Path) -> None:
    image = ImageBuilder("tiny").build("nop\nhalt")
    with RtlBackend(preset("tiny"), waves=tmp_path / "all.vcd") as machine:
        cycles = machine.run(image).cycles
    assert cycles
    with RtlBackend(preset("tiny"), waves=tmp_path / "part.vcd", window=(3, 9)) as machine:
        machine.run(image)
    # The signal irq is a register, so it rises at a clock edge. The host sees its value half a
    # cycle later.
    start = rise(tmp_path / "all.vcd", "irq") + 1 - 2 * cycles
    assert times(tmp_path / "part.vcd") == list(range(start + 6, start + 18))


def test_instructions_have_names(tmp_path: Path) -> None:
    program = ImageBuilder("tiny").build("nop\nset_register register=1, value=7\nhalt\nnop").program
    save = save_files(tmp_path / "w.fst", "", "tpu", cycle=2, scope="tpu.", program=program)
    lines = save.read_text().splitlines()
    # A zoom of z in GTKWave's file means that 200 pixels show 2^-z half cycles. The expected zoom
    # shows a cycle in 16 pixels.
    assert 2 ** -float(lines[2].split()[0].removeprefix("*")) == pytest.approx(200 / 16 * 2, 1e-4)
    files = [Path(line.removeprefix("^1 ")) for line in lines if line.startswith("^1 ")]
    shown = {
        lines[number + 1]: file.read_text().splitlines()
        for file in files
        for number, line in enumerate(lines)
        if line.endswith(str(file))
    }
    prefix = "tpu.tpu.core.sequencer.decoded__payload__"
    assert list(shown) == [f"{prefix}kind[27:0]", f"{prefix}pc[27:0]"]
    opcodes, numbers = shown.values()
    assert {"0000001 nop", "0000002 halt"} < set(opcodes)
    assert len(opcodes) == 28
    assert numbers == [
        "0000000 require_machine rows=4, columns=4, host_bus=4, weight_bus=4",
        "0000001 nop",
        "0000002 set_register first=0, second=0, register=1, value=7",
        "0000003 halt",
    ]


@pytest.mark.parametrize("text", ["5", "7:7", "9:3", "a:b", "-1:4", f"0:{1 << 41}"])
def test_mistakes(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(f"run m --input x --output y --waves={text}", capsys)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "--waves" in err


def test_other_formats(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a waveform is called \.vcd or \.fst, not w\.txt"):
        RtlBackend(preset("tiny"), waves=tmp_path / "w.txt")


def test_fst_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that waveforms are VCD if the C++ compiler finds no lz4, which FST files need."""
    waveform_suffix.cache_clear()
    monkeypatch.setattr(verilator, "make_variables", lambda: ["CXX=false"])
    assert waveform_suffix() == ".vcd"
    waveform_suffix.cache_clear()


@pytest.mark.thorough
def test_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = "systola/models/mlp_tutorial_pc_softmax.tflite"
    status, _, err = run(
        f"run {model} --input systola/models/digits_test.npz --limit 2 --preset tiny "
        f"--output {tmp_path / 'y.npz'} --waves 1000:1100",
        capsys,
    )
    assert status == 0
    found = re.search(r"^waveform: (.*)$", err, re.MULTILINE)
    assert found
    waveform = Path(found[1])
    assert waveform.suffix == waveform_suffix()
    assert waveform.stat().st_size > 1000
    assert waveform.with_suffix(".gtkw").exists()
    assert (
        f"in {waveform.parent}: surfer --command-file {waveform.stem}.sucl {waveform.name}" in err
    )
