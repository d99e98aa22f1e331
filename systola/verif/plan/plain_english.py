# SPDX-License-Identifier: Apache-2.0
"""Checks that docstrings and comments of all files are in plain English (CONTRIBUTING.md).

`python -m systola.verif.plan.plain_english FILE...` checks only the files that are named.
"""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from systola.verif.kit.checkout import ROOT

MOST_WORDS = 25
"""Largest number of words in a sentence."""
PATTERNS = {
    "a noun in place of": r"\bwhat(ever)?\b(?![^.]*\?)",
    "a noun in place of (of)": r"\b(that|those) of\b",
    "a noun in place of (one)": r"\b(that|this|the) ones?\b(?= *[.,;:)]|"
    r" (that|which|is|are|in|of|for|has|have|was|with|and|before|after|behind)\b)|\bthe ones\b",
    "after, before, for": r"\b(behind|in front of)\b",
    "a noun in place of (who)": r"\bwho(m|se)?\b",
    "asserts, shows, for": r"\b(tells|says)\b",
    "the thing itself in place of": r"\b(likewise|see there)\b",
}
"""Pattern (regular expression) of words that are not allowed, by the advice in their place."""
CONTINUES = re.compile(r"(Of|That|Those|It|Its|As|Like|See|The same)\b")
"""Pattern of the first words of a docstring that only continues the name above it."""
DIRECTIVE = re.compile(r"#!|# (SPDX|noqa|type:|pyright:|ruff:|fmt:)")


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each docstring and comment of a source: line number, text, and True for a docstring."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text, True
            case _:
                pass
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [t for t in tokens if t.type == tokenize.COMMENT and not DIRECTIVE.match(t.string)]
    # Comments in lines one after the other, in the same column, are one text.
    runs = groupby(enumerate(comments), lambda each: (each[1].start[0] - each[0], each[1].start[1]))
    for _, run in runs:
        lines = [comment for _, comment in run]
        yield lines[0].start[0], "\n".join(c.string.lstrip("#: ") for c in lines), False


def sentences(text: str) -> list[str]:
    """Split a text into sentences, with each text in backquotes as "x", and without table rows."""
    text = re.sub(r"``.*?``|`[^`]*`", "x", text, flags=re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )|\n(?=[^\n]*\|)", text)
    return [
        " ".join(sentence.split())
        for block in blocks
        if "|" not in block
        for sentence in re.split(r"(?<=[.!?:])\s+", block)
    ]


def breaches(source: str) -> list[tuple[int, str]]:
    """Return line number and advice for each text of a Python source that is not plain English.

    The mood of verbs is not checked here.
    """
    found: list[tuple[int, str]] = []
    for line, text, is_docstring in texts(source):
        if is_docstring and (match := CONTINUES.match(text)):
            found.append((line, f"a docstring begins with '{match[0]}'"))
        for sentence in sentences(text):
            for advice, pattern in PATTERNS.items():
                if match := re.search(pattern, sentence, re.IGNORECASE):
                    found.append((line, f"{advice} '{match[0]}': {sentence}"))
            words = sum(any(map(str.isalpha, word)) for word in sentence.split())
            if words > MOST_WORDS:
                found.append((line, f"{words} words in a sentence: {sentence}"))
    return sorted(found)


def moods(files: list[str], root: Path = ROOT) -> dict[str, list[tuple[int, str]]]:
    """Return, by file, function docstrings without an imperative verb at their beginning.

    Each has its line number and the message of ruff's rule D401.
    """
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "D401"]
    done = subprocess.run(
        [*ruff, "--output-format", "json", *files], cwd=root, capture_output=True, text=True
    )
    found: dict[str, list[tuple[int, str]]] = {}
    for each in json.loads(done.stdout):
        file = str(Path(each["filename"]).relative_to(root))
        found.setdefault(file, []).append((each["location"]["row"], each["message"]))
    return found


def check(files: list[str], root: Path = ROOT) -> list[str]:
    """Return a line, with file, line number and advice, for each text that is not plain English."""
    mood = moods(files, root)
    return [
        f"{file}:{line}: {text}"
        for file in files
        for line, text in sorted(breaches((root / file).read_text()) + mood.get(file, []))
    ]


def main() -> int:
    """Check the files named on the command line, or all Python files in the repository without any.

    Prints the places that are not plain English, and returns the exit status.
    """
    git = ["git", "-C", str(ROOT), "ls-files", "*.py"]
    names = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    problems = check(sys.argv[1:] or [name for name in names if (ROOT / name).is_file()])
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
