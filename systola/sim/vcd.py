# SPDX-License-Identifier: Apache-2.0
"""The variables of a waveform in a VCD file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_VARIABLE = re.compile(r"\$var \w+ (\d+) (\S+) (\S+)(?: \[\d+:\d+\])? \$end")


class Variable(NamedTuple):
    """A variable of a VCD file; several may share a `code`, which stands for them in changes."""

    path: str
    width: int
    code: str


def variables(lines: Iterable[str]) -> Iterator[Variable]:
    """Yield the variables of the header, and leave the changes in the iterator `lines`."""
    scopes: list[str] = []
    for line in lines:
        words = line.split()
        if words[:1] == ["$scope"]:
            scopes.append(words[2])
        elif words[:1] == ["$upscope"]:
            scopes.pop()
        elif words[:1] == ["$enddefinitions"]:
            return
        elif found := _VARIABLE.search(line):
            yield Variable(".".join([*scopes, found[3]]), int(found[1]), found[2])
