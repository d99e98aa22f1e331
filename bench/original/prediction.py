# SPDX-License-Identifier: Apache-2.0
"""What the timing model says of the applications on several machines: whatif.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

WHATIF = Path(__file__).with_name("whatif.json")
UNCHANGED = "as it is"
"""The name of the machine that nothing has been changed of."""


@dataclass(frozen=True)
class Prediction:
    """An application on a machine."""

    application: str
    change: str
    cycles: int
    speed: float
    """Operations a second, by 10^12."""


def stored(path: Path = WHATIF) -> list[Prediction]:
    """What was predicted last."""
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Prediction(**entry) for entry in content]
