# SPDX-License-Identifier: Apache-2.0
"""Checks that docstrings and comments of all files are in plain English (CONTRIBUTING.md).

`python -m systola.verif.plan.plain_english FILE...` shows the places in some files only.
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
"""Advice for the author of a text, each with the pattern of words that it is about."""
CONTINUES = re.compile(r"(Of|That|Those|It|Its|As|Like|See|The same)\b")
"""Pattern of beginnings of docstrings that cannot be read without the name above them."""
DIRECTIVE = re.compile(r"#!|# (SPDX|noqa|type:|pyright:|ruff:|fmt:)")


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line and text of all docstrings and comments, with True for a docstring."""
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
    """Split a text into sentences; formulas, names and rows of tables do not count."""
    text = re.sub(r"``.*?``|`[^`]*`", "x", text, flags=re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )|\n(?=[^\n]*\|)", text)
    return [
        " ".join(sentence.split())
        for block in blocks
        if "|" not in block
        for sentence in re.split(r"(?<=[.!?:])\s+", block)
    ]


def breaches(source: str) -> list[tuple[int, str]]:
    """Return the places of a Python source that break the rule, except for the mood of verbs."""
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
    """Return for each file the function docstrings that do not begin with an imperative verb."""
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
    """Return a line for each place in the files that breaks the rule."""
    mood = moods(files, root)
    return [
        f"{file}:{line}: {text}"
        for file in files
        for line, text in sorted(breaches((root / file).read_text()) + mood.get(file, []))
    ]


def main() -> int:
    """Check the given files, or else all files in the repository."""
    git = ["git", "-C", str(ROOT), "ls-files", "*.py"]
    names = subprocess.run(git, capture_output=True, text=True, check=True).stdout.splitlines()
    problems = check(sys.argv[1:] or [name for name in names if (ROOT / name).is_file()])
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
