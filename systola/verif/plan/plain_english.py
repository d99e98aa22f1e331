# SPDX-License-Identifier: Apache-2.0
"""Checks that docstrings and comments are in plain English, as CONTRIBUTING.md has it.

Files that broke the rule when the check was made stand in plain_english.txt, which only shrinks.
`python -m systola.verif.plan.plain_english FILE...` shows the places in a file.
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

EXCEPTIONS = "systola/verif/plan/plain_english.txt"
MOST_WORDS = 25
"""Words of a sentence."""
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
"""Advice, and a pattern of words."""
CONTINUES = re.compile(r"(Of|That|Those|It|Its|As|Like|See|The same)\b")
"""Beginnings of a docstring that cannot be read without the name above it."""
DIRECTIVE = re.compile(r"#!|# (SPDX|noqa|type:|pyright:|ruff:|fmt:)")


def texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether it is a docstring, for all docstrings and comments."""
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
    """Return the places of a Python source that break the rule, but for the mood of verbs."""
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


def check(found: dict[str, bool], listed: list[str], before: list[str]) -> list[str]:
    """Return the problems: `found` has for each file whether it breaks the rule.

    `before` is the list of exceptions as it was.
    """
    problems = [f"{EXCEPTIONS} is not sorted"] * (listed != sorted(set(listed)))
    problems += [f"{file} is new in {EXCEPTIONS}" for file in listed if file not in before]
    for file in listed:
        if not found.get(file, False):
            problems.append(f"{file} is in plain English: take its line out of {EXCEPTIONS}")
    problems += [
        f"{file} is not in plain English: python -m systola.verif.plan.plain_english {file}"
        for file, is_broken in found.items()
        if is_broken and file not in listed
    ]
    return problems


def main() -> int:
    """Check all files in the repository, or show the places in those that are given."""
    if files := sys.argv[1:]:
        mood = moods(files)
        for file in files:
            for line, text in sorted(breaches((ROOT / file).read_text()) + mood.get(file, [])):
                print(f"{file}:{line}: {text}")
        return 0
    git = ["git", "-C", str(ROOT)]
    names = subprocess.run([*git, "ls-files", "*.py"], capture_output=True, text=True, check=True)
    files = [name for name in names.stdout.splitlines() if (ROOT / name).is_file()]
    mood = moods(files)
    found = {name: name in mood or bool(breaches((ROOT / name).read_text())) for name in files}
    listed = (ROOT / EXCEPTIONS).read_text().splitlines()
    old = subprocess.run([*git, "show", f"HEAD:{EXCEPTIONS}"], capture_output=True, text=True)
    problems = check(found, listed, listed if old.returncode else old.stdout.splitlines())
    print("\n".join(problems), end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
