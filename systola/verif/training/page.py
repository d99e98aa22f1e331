# SPDX-License-Identifier: Apache-2.0
"""Makes docs/training.md and docs/training.svg from stored results.

The results come from `curves --store` and `make bench-train`.
`python -m systola.verif.training.page --write docs` fills the table and draws the curves. `--check
docs` exits with status 1 where the pages are out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.bench import training as steps
from systola.views.plots import new_figure, to_svg

STORED = Path(__file__).with_name("curves.json")
STORED_LONG = Path(__file__).with_name("long_curves.json")


def picture(results: Sequence[dict[str, Any]]) -> bytes:
    """Draw the loss curves of the machine and of float32 for each task; return the SVG."""
    figure = new_figure(4 * len(results) if len(results) > 1 else 6, 3.2)
    for number, result in enumerate(results, 1):
        axes = figure.add_subplot(1, len(results), number)
        numbers = range(1, len(result["epochs"]) + 1)
        for key, label, line in (("loss", "the machine", "o-"), ("float_loss", "float32", "x--")):
            axes.plot(numbers, [epoch[key] for epoch in result["epochs"]], line, label=label)
        axes.set(title=result["name"], xlabel="epoch", xticks=list(numbers), ylim=(0, None))
        if number == 1:
            axes.set_ylabel("loss")
            axes.legend()
    return to_svg(figure)


def results_table(results: Sequence[dict[str, Any]]) -> str:
    """Return a table with the results of each task after its last epoch.

    The table also has the largest difference between the losses of the machine and of float32 in
    any epoch.
    """
    rows: list[tuple[str, ...]] = []
    for result in results:
        epochs = result["epochs"]
        last = epochs[-1]
        worst = max(abs(epoch["loss"] / epoch["float_loss"] - 1) for epoch in epochs)
        rows.append(
            (
                result["name"],
                f"{last['loss']:.4f} / {last['float_loss']:.4f}",
                f"{worst:.2%}",
                f"{last['accuracy']:.2%} / {last['float_accuracy']:.2%}",
                f"{last['test']:.2%} / {last['float_test']:.2%}",
            )
        )
    header = ("task", "loss, the machine's / float32's", "largest difference of an epoch")
    return table((*header, "accuracy, training", "accuracy, test"), rows)


def stored(path: Path = STORED) -> list[dict[str, Any]]:
    """Return the training results that were stored last."""
    return json.loads(path.read_text(encoding="utf-8"))


PAGES: Pages = {
    "training.md": lambda: filled(
        DOCS / "training.md",
        curves=results_table(stored()),
        long=results_table(stored(STORED_LONG)),
        steps=steps.steps_table(steps.stored()),
    ),
    "training.svg": lambda: picture(stored()).decode(),
}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.verif.training.page"))
