# SPDX-License-Identifier: Apache-2.0
"""Tests that the files in examples/ work, and ImageBuilder puts arrays at the stated places."""

from __future__ import annotations

import re
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.arch.assembler import AssemblyError, assemble_program
from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.golden.machine import Machine
from systola.runtime import ImageBuilder, machine
from systola.verif.kit.checkout import ROOT
from systola.verif.kit.images import parameter_entry

FOLDER = ROOT / "examples"
SCRIPTS = sorted(
    # Other tests run the other scripts. verif/training/test_tutorials.py runs tutorial_*.py, and
    # verif/cli/test_networks_page.py runs digits_*.py, which need Keras and PyTorch. The script
    # sentences.py needs more libraries, too.
    path
    for path in FOLDER.glob("*.py")
    if not path.stem.startswith(("tutorial_", "digits_", "sentences"))
)
SAYS = {
    "matrix_product": "every byte equals numpy",
    "assembly_file": "every byte equals numpy",
    "network": "16 of 16 digits are right",
}
TINY = preset("tiny")


@pytest.mark.parametrize("backend", ["iss", "rtl"])
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts(
    path: Path,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", [str(path), backend])
    runpy.run_path(str(path), run_name="__main__")
    assert SAYS[path.stem] in capsys.readouterr().out


@pytest.mark.thorough
def test_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the machine finds the sentence that the float transformer finds.

    Without a library that it needs, the script prints the commands that install it.
    """
    monkeypatch.setattr("sys.argv", ["sentences.py", "Numbers go through a processor.", "iss"])
    monkeypatch.chdir(tmp_path)
    if not find_spec("litert_torch"):
        with pytest.raises(SystemExit, match="build/sentences/bin/pip install torch"):
            runpy.run_path(str(FOLDER / "sentences.py"), run_name="__main__")
        return
    runpy.run_path(str(FOLDER / "sentences.py"), run_name="__main__")
    printed = capsys.readouterr().out
    rows = re.findall(r"^ ?(-?[\d.]+) +(-?[\d.]+)  ([A-Z].*)$", printed, re.MULTILINE)
    assert rows[0][2] == "Chips multiply matrices of numbers."
    assert all(abs(float(found) - float(expected)) < 0.05 for found, expected, _ in rows)
    (cosine,) = re.findall(r"float network's: ([\d.]+)", printed)
    assert float(cosine) >= 0.995


def test_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the formula of examples/matrix_product.py with a scale of 1 / 80.

    As docs/first-program.md states, the formula is then wrong only for ties, which are sums halfway
    between two results.
    """
    source = (FOLDER / "matrix_product.py").read_text()
    for text in ("1 / 500", "sums / 500"):
        assert text in source
        source = source.replace(text, text.replace("500", "80"))
    monkeypatch.setattr("sys.argv", ["matrix_product.py", "iss"])
    names: dict[str, Any] = {}
    with pytest.raises(AssertionError, match="not what numpy says"):
        exec(source, names)
    sums, y = names["sums"], names["y"]
    wrong = y != np.clip(np.floor(sums / 80 + 0.5), -128, 127)
    assert (sums[wrong].tolist(), y[wrong].tolist()) == ([2600], [32])


def test_all_are_listed() -> None:
    page = (FOLDER / "README.md").read_text()
    for path in FOLDER.iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in page


def test_loop() -> None:
    code = assemble_program((FOLDER / "loop.s").read_text(), TINY)
    host = np.random.default_rng(3).integers(0, 256, 4096, dtype=np.uint8)
    host[1024 : 1024 + len(code)] = np.frombuffer(code, np.uint8)
    before = host.copy()
    assert Machine(TINY).run(host, np.zeros(0, np.uint8), 1024).fault is None
    before[128:168] = before[0:40]
    assert np.array_equal(host, before)


def test_places() -> None:
    """Check the offsets of arrays in an image by ImageBuilder, and the operands for the arrays.

    The arrays are larger than a block or a tile.
    """
    builder = ImageBuilder("tiny")
    a = np.arange(-20, 10, dtype=np.int8).reshape(3, 10)
    first, second = builder.matrix(a), builder.room(5, 6)
    assert first.operands == "host=0, rows=3, stride=12, blocks=3, tail=2"
    assert second.operands == "host=128, rows=5, stride=8, blocks=2, tail=2"
    w = np.arange(60, dtype=np.int8).reshape(10, 6)
    assert builder.weights(w[:4, :4]).operands == "tile=0, count=1"
    tiles = builder.weights(w)
    assert (tiles.operands, tiles.sizes) == ("tile=1, count=6", "k_tiles=3, n_tiles=2")
    table = builder.table(np.arange(-128, 128, dtype=np.int8))
    assert table == 256
    image = builder.build([encode(Opcode.HALT)])
    assert image.program_offset == 512
    assert image.host.size == 4096
    assert np.array_equal(image.host[0:10].view(np.int8), a[0])
    assert np.array_equal(image.host[12:22].view(np.int8), a[1])
    assert image.host[256:512].view(np.int8)[0] == -128
    assert image.weights.size == 7 * TINY.tile_bytes
    # All tiles along K of the first columns are stored before the first tile of the next columns.
    assert list(image.weights[4 * 16 :][:2]) == [4, 5]
    again = builder.build("halt")
    assert np.array_equal(again.host, image.host)


@pytest.mark.parametrize(
    ("scale", "multiplier", "left", "right"),
    [(0.25, 1 << 30, 0, 1), (1.0, 1 << 30, 1, 0), (96.0, 3 << 29, 7, 0), (0.0, 0, 0, 0)],
)
def test_parameters(scale: float, multiplier: int, left: int, right: int) -> None:
    builder = ImageBuilder("tiny")
    bias = np.array([5, -6, 70000, 1])
    entries = builder.parameters(scale, bias)
    assert entries.operands == "host=0, count=1"
    expected = parameter_entry(
        TINY,
        bias=bias.astype(np.int32),
        multiplier=np.full(4, multiplier, np.int32),
        left=np.full(4, left, np.uint8),
        right=np.full(4, right, np.uint8),
    )
    assert np.array_equal(builder.build("halt").host[: expected.size], expected)
    assert builder.parameters([0.5] * 9, [0] * 9).count == 3


def test_refusals() -> None:
    builder = ImageBuilder("tiny")
    for wrong in (np.zeros((2, 2)), np.zeros(4, np.int8), np.zeros((0, 4), np.int8), [[1, 2]]):
        with pytest.raises(ValueError, match="takes a matrix of int8, not "):
            builder.matrix(wrong)
        with pytest.raises(ValueError, match="takes a matrix of int8, not "):
            builder.weights(wrong)
    with pytest.raises(ValueError, match="a result has rows and columns, not 0 x 4"):
        builder.room(0, 4)
    with pytest.raises(ValueError, match="a table has 256 entries, not 255"):
        builder.table(np.zeros(255, np.int8))
    with pytest.raises(ValueError, match="a scale is at least 0 and below 128"):
        builder.parameters(128, [0])
    with pytest.raises(ValueError, match="a bias is a row of int32"):
        builder.parameters(1, [0.5])
    with pytest.raises(ValueError, match="a bias is a row of int32"):
        builder.parameters(1, [1 << 31])
    with pytest.raises(AssemblyError, match="line 1: the program is empty"):
        builder.build("")
    with pytest.raises(ValueError, match="unknown back end 'gpu'"):
        machine("tiny", backend="gpu")


def test_first_program() -> None:
    """Check that docs/first-program.md quotes a script and a line of the hardware unchanged.

    The page also has the command of a unit test, with the seed for the numbers on the page.
    """
    root = FOLDER.parent
    page = (root / "docs" / "first-program.md").read_text()
    script = (FOLDER / "matrix_product.py").read_text().split("\n", 1)[1].strip()
    assert f"```python\n{script}\n```" in page
    assert "\nSEED=1 .venv/bin/pytest verif/units/matrix/test_mxu_tile.py " in page
    line = "m.d.sync += column_partial.eq(partial[c] + products.products[c])"
    assert line in page
    assert (root / "hdl" / "matrix" / "mxu_tile.py").read_text().count(line) == 1


def test_index() -> None:
    """Check that docs/README.md has a link to every page."""
    folder = FOLDER.parent / "docs"
    index = (folder / "README.md").read_text()
    for path in folder.glob("*.md"):
        assert path.name == "README.md" or f"]({path.name})" in index
