# SPDX-License-Identifier: Apache-2.0
"""The predictions of the timing model for the applications on several machines: whatif.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

WHATIF = Path(__file__).with_name("whatif.json")
UNCHANGED = "as it is"
"""Name of the unchanged machine."""


@dataclass(frozen=True)
class Prediction:
    """A prediction for an application on a machine."""

    application: str
    change: str
    cycles: int
    speed: float
    """Speed in 10^12 operations a second."""


def stored(path: Path = WHATIF) -> list[Prediction]:
    """Return the predictions that were stored last."""
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Prediction(**entry) for entry in content]
