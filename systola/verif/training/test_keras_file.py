# SPDX-License-Identifier: Apache-2.0
"""Tests of damaged .keras files, and of a Keras that is missing or does not fit a file.

Keras itself is not needed: a folder called keras stands for it.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from systola.training import TrainingError
from systola.training.keras_file import read_keras

MEMBERS = {
    "metadata.json": b'{"keras_version": "3.15.1"}',
    "config.json": json.dumps({"class_name": "Sequential"}).encode(),
    "model.weights.h5": b"\x89HDF\r\n\x1a\n" + bytes(2000),
}
READS = """
def load_model(path, compile, safe_mode):
    assert not compile and safe_mode
    return "the model of " + path
"""


def archive(members: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return content.getvalue()


@pytest.fixture
def keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file m.keras and a folder called keras, which Python imports as Keras."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.partition(".")[0] == "keras"]:
        monkeypatch.delitem(sys.modules, name)
    folder = tmp_path / "keras"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "models.py").write_text(READS)
    Path("m.keras").write_bytes(archive(MEMBERS))
    return folder


@pytest.fixture(autouse=True)
def no_keras_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("keras", "keras.models"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def refusal(path: str = "m.keras") -> str:
    for name in ("keras", "keras.models"):
        sys.modules.pop(name, None)
    with pytest.raises(TrainingError) as caught:
        read_keras(path)
    line = str(caught.value)
    assert line.isprintable() and len(line) < 500
    return line


def test_whole_files(keras: Path) -> None:
    assert read_keras("m.keras") == "the model of m.keras"
    sys.modules.pop("keras.models")


def test_damaged_files(keras: Path) -> None:
    """Check that a damaged .keras file is refused before Keras reads it."""
    (keras / "models.py").write_text("raise AssertionError\n")
    whole = archive(MEMBERS)
    for place in range(0, len(whole), 97):
        Path("m.keras").write_bytes(whole[:place])
        assert "it is no .keras file" in refusal()
        # Bits are flipped only in the contents of the archive's members, which have checksums. The
        # header of a member, 30 bytes and the name, has none.
        if whole.rfind(b"PK\x03\x04", 0, place + 1) + 50 < place < whole.find(b"PK\x01\x02"):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << place % 8
            Path("m.keras").write_bytes(flipped)
            assert re.search("it is (no .keras file|damaged)", refusal())
    for name in MEMBERS:
        Path("m.keras").write_bytes(archive({n: d for n, d in MEMBERS.items() if n != name}))
        assert f"it has no {name}" in refusal()
        for broken in (b"{", b"[]", b"\xff", b"[" * 100_000):
            if name.endswith(".json"):
                Path("m.keras").write_bytes(archive(MEMBERS | {name: broken}))
                assert "it is no .keras file" in refusal()
    assert "cannot read it: no such file" in refusal("hf://stranger/m.keras")
    assert "cannot read it: is a directory" in refusal("keras")


def test_encrypted_files(keras: Path) -> None:
    """Check that an encrypted .keras file is refused.

    The test sets the flag for a password in the archive's directory and in each member's header.
    """
    whole = bytearray(archive(MEMBERS))
    for start, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = whole.find(start)
        while place >= 0:
            whole[place + flag] |= 1
            place = whole.find(start, place + 1)
    Path("m.keras").write_bytes(whole)
    assert "password" in refusal()


@pytest.mark.parametrize("error", ["ValueError", "KeyError", "TypeError", "OSError"])
def test_what_keras_cannot_read(keras: Path, error: str) -> None:
    """Check the message for an undamaged file that Keras refuses to read.

    The stand-in for Keras raises a long error about weights, with a line break and an escape
    sequence.
    """
    (keras / "models.py").write_text(
        "def load_model(path, compile, safe_mode):\n"
        f"    raise {error}('no\\n\\x1b[31m weights' * 100)\n"
    )
    assert "Keras cannot read it: " in refusal()


def test_no_keras(keras: Path) -> None:
    (keras / "__init__.py").unlink()
    (keras / "models.py").unlink()
    assert "Keras is not installed here: pip install 'systola[keras]' and a back" in refusal()


@pytest.mark.parametrize(
    "start",
    [
        "import no_such_back_end.python",
        "raise ImportError('no symbol')",
        "raise ValueError('Unable to import backend : nonsense')",
    ],
)
def test_no_back_end(keras: Path, start: str) -> None:
    (keras / "__init__.py").write_text(start)
    line = refusal()
    assert "Keras has no back end here (" in line and "KERAS_BACKEND=jax" in line
