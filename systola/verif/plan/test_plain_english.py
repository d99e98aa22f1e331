# SPDX-License-Identifier: Apache-2.0
"""Tests that the check of the language finds breaches, and accepts plain English."""

from __future__ import annotations

from pathlib import Path

import pytest

from systola.verif.plan.plain_english import breaches, check, moods

BROKEN = [
    '"""Of each level how many iterations are left."""',
    '"""That of the inputs, likewise."""',
    '"""Cycles from a choice to the first look at what is asked for without it."""',
    '"""The fault is noted in the cycle behind."""',
    '"""The operation in front of the loop."""',
    '"""An address: who has one may tell of others."""',
    '"""A signal that tells when a transfer ends."""',
    "# The last entry, or the one before.",
    "# Two lines of a comment, the second\n# of which begins with those of another.",
    f'"""A sentence {"and a word " * 9}."""',
]
PLAIN = [
    '"""The fault that exceeding limit number `limit` raises; NONE for a limit that is noted."""',
    '"""Offset of the inputs\' gradient, [block][step][sample]."""',
    '"""A unit that fetches. It waits for one tile, and for no other; this one tile is used."""',
    '"""What is a tile? A block of weights."""',
    "x = 'what it says, behind those of the text of a message'",
    "# `what` is a name here, and so is ``who``.",
    "# type: ignore[what]",
    f'"""Items:\n\n{"".join(f"- a bit with a name of {n} words{chr(10)}" for n in "abcdefgh")}"""',
]


@pytest.mark.parametrize("source", BROKEN)
def test_it_finds(source: str) -> None:
    assert breaches(f"{source}\n")


@pytest.mark.parametrize("source", PLAIN)
def test_it_lets_be(source: str) -> None:
    assert not breaches(f"{source}\n")


def test_mood(tmp_path: Path) -> None:
    source = tmp_path / "functions.py"
    source.write_text('def f():\n    """The value."""\n\n\ndef g():\n    """Return it."""\n')
    assert [line for line, _ in moods([str(source)], tmp_path)["functions.py"]] == [2]


def test_places(tmp_path: Path) -> None:
    """Check that a wrong word and a wrong mood of a verb are listed with file and line number.

    A file without either is not listed.
    """
    (tmp_path / "clean.py").write_text('"""A module."""\n')
    (tmp_path / "words.py").write_text('"""A module."""\n# The cycle behind the load.\n')
    (tmp_path / "mood.py").write_text('def f():\n    """The value."""\n')
    places = check(["clean.py", "words.py", "mood.py"], tmp_path)
    assert [":".join(place.split(":")[:2]) for place in places] == ["words.py:2", "mood.py:2"]
