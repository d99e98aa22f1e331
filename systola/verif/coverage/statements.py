# SPDX-License-Identifier: Apache-2.0
"""Lasting names of the statements of Verilog that Yosys has written; waivers use these names.

Line numbers, and the numbers in names that Yosys makes, change with every change of the hardware.
So a statement is named by the first signal of the Amaranth source that it decides, and by its
condition. The condition is written with signals of the Amaranth source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

_MADE = re.compile(r"\\(\$\S+)\s")
"""Pattern of a wire with a name that Yosys or Amaranth has made up, such as `$12`."""
_NUMBERED = re.compile(r"\\?([\w.]+)(?:\$\d+)+\s?")
"""Pattern of a source signal's name with a number, as another signal has the same name."""
_ASSIGNMENT = re.compile(r"\s*(?:assign )?(\S+(?: \[[\d:]+\])?)\s+(?:<=|=) (.*);")
_CHOICE = re.compile(r"(.*) \? (.*) : (.*)")
_TEST = re.compile(r"\s+if \((.*)\)(?: begin)?")
_CALL = re.compile(r"(choice_\d+) \(.*, \{ (.*) \}\)")
_ARM = re.compile(r"\s*\d+'b([?1]+):")
_COMPARED = re.compile(r"(?:! (\S+(?: \[[\d:]+\])?)|(\S+(?: \[[\d:]+\])?) == \d+'h([0-9a-f]+))")
_DECLARATION = re.compile(r"  (?:wire|reg|input|output) (?:\[(\d+):0\] )?([^\s;]+)")
_DEPTH = 12
_LONGEST = 150
_UNKNOWN = 99
"""Width assumed for a signal without a declaration, so large that no list of cases is complete."""


def statement_names(verilog: str) -> list[str]:
    """Return the statement's name for each line, counted from 1, or "" for a line without one."""
    names = [""]
    lines: list[str] = []
    for line in verilog.splitlines():
        if line.startswith("module "):
            names += _names(lines)
            lines = []
        lines.append(line)
    return names + _names(lines)


def _names(lines: list[str]) -> list[str]:
    """Return the names of the statements on a module's lines, and "" for other lines.

    Equal names get a number from the second on, such as " (2)".
    """
    module = _Module(lines)
    seen: Counter[str] = Counter()
    names: list[str] = []
    for name in module.names():
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if name and seen[name] > 1 else name)
    return names


class _Module:
    """The assignments of a module: the value of each wire, and the users of each wire."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._values: dict[str, str] = {}
        self._users: dict[str, list[str]] = {}
        self._calls: dict[str, tuple[str, list[str]]] = {}
        self._widths: dict[str, int] = {}
        for line in lines:
            if declared := _DECLARATION.match(line):
                self._widths[declared[2]] = int(declared[1] or "0") + 1
            if match := _ASSIGNMENT.fullmatch(line):
                target, value = match[1], match[2]
                if target.startswith("\\$"):
                    self._values[target[1:]] = value
                for wire in _MADE.findall(value + " "):
                    self._users.setdefault(wire, []).append(target)
                if call := _CALL.fullmatch(value.strip()):
                    self._calls[call[1]] = target, call[2].split(" , ")

    def names(self) -> Iterator[str]:
        """Yield the statement's name for each line of the module, or "" for a line without one."""
        function = ""
        for line, following in pairwise([*self._lines, ""]):
            if line.startswith("  function "):
                function = line.split()[-2]
            elif line == "  endfunction":
                function = ""
            match = _ASSIGNMENT.fullmatch(line)
            if function in self._calls:
                yield self._arm(line, *self._calls[function])
            elif match and (choice := _CHOICE.fullmatch(match[2])):
                yield f"{self._decided(match[1])}: {self._condition(choice[1])}"
            elif (test := _TEST.fullmatch(line)) and (first := _ASSIGNMENT.fullmatch(following)):
                yield f"{self._decided(first[1])}: {self._condition(test[1])}"
            else:
                yield ""

    def _arm(self, line: str, target: str, conditions: list[str]) -> str:
        if line.strip() == "default:":
            every = "all " if self._complete(conditions) else ""
            return f"{self._decided(target)}: none of {every}{len(conditions)} cases"
        if match := _ARM.fullmatch(line):
            condition = self._condition(conditions[match[1].index("1")])
            return f"{self._decided(target)}: case {condition}"
        return ""

    def _complete(self, conditions: list[str]) -> bool:
        """Return whether the conditions compare one selector with each of its values."""
        tests = [
            _COMPARED.fullmatch(" ".join(self._values.get(wire.strip()[1:], "").split()))
            for wire in conditions
        ]
        selectors = {test[1] or test[2] for test in tests if test}
        values = {int(test[3] or "0", 16) for test in tests if test}
        if None in tests or len(selectors) != 1:
            return False
        return len(values) == 1 << self._width(selectors.pop())

    def _width(self, signal: str) -> int:
        """Return the width in bits of a signal, or of a part of a signal."""
        name, _, part = signal.partition("[")
        if part:
            high, _, low = part.rstrip("]").partition(":")
            return int(high) - int(low or high) + 1
        return self._widths.get(name.strip(), _UNKNOWN)

    def _decided(self, target: str) -> str:
        """Return the first signal of the source that depends on a wire."""
        level, known = [target], {target}
        while level:
            for name in level:
                if not name.startswith("\\$"):
                    return _plain(name)
            users = [user for name in level for user in self._users.get(name.split()[0][1:], [])]
            level = [user for user in dict.fromkeys(users) if user not in known]
            known.update(level)
        return "nothing"

    def _condition(self, text: str) -> str:
        """Return a condition as an expression of source signals, cut if it is long."""
        text = text.strip() + " "
        for _ in range(_DEPTH):
            longer = _MADE.sub(self._value, text)
            if longer == text or len(longer) > 4 * _LONGEST:
                break
            text = longer
        text = _plain(text)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

    def _value(self, wire: re.Match[str]) -> str:
        value = self._values.get(wire[1])
        if value is None or " ? " in value or "choice_" in value:
            return wire[0]
        value = value.strip()
        return f"({value} )" if " " in value else f"{value} "


def _plain(text: str) -> str:
    """Return Verilog without numbers and backslashes in names, and without spaces at brackets."""
    text = _NUMBERED.sub(r"\1 ", text + " ")
    text = re.sub(r"\\(\S+)\s", r"\1 ", text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\( ", "(", re.sub(r" ([),\[])", r"\1", text))
