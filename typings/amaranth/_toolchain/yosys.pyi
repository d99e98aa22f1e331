# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

class Yosys:
    def run(
        self, args: Sequence[str], stdin: str = "", *, ignore_warnings: bool = False
    ) -> str: ...

def find_yosys(requirement: Callable[[Any], bool]) -> Yosys: ...
