# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/operators.md: which operators are supported, made from the code.

`python -m systola.compiler.reference --write docs` writes it, `--check docs` exits with status 1
where it is missing or out of date. What it says of an operator is the first paragraph of the
docstring of the function that translates it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc
from typing import Any

from systola.arch.pages import DOCS, Pages, filled, table, write_or_check
from systola.compiler.onnx import translate as onnx_translate
from systola.compiler.tflite import translate


def operators_page() -> str:
    """The text of docs/operators.md."""
    return filled(
        DOCS / "operators.md",
        tflite=_operators(translate.TRANSLATORS),
        onnx=_operators(onnx_translate.TRANSLATORS),
    )


PAGES: Pages = {"operators.md": operators_page}


def _operators(translators: Mapping[str, Callable[..., Any]]) -> str:
    together: dict[Callable[..., Any], list[str]] = {}
    for kind, translator in translators.items():
        together.setdefault(translator, []).append(kind)
    rows = [
        (", ".join(f"`{kind}`" for kind in kinds), _first_paragraph(translator))
        for translator, kinds in together.items()
    ]
    return table(("Operators", "What of them"), rows)


def _first_paragraph(function: Callable[..., Any]) -> str:
    return " ".join((getdoc(function) or "").split("\n\n")[0].split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; the exit status."""
    return write_or_check(PAGES, "systola.compiler.reference", arguments)


if __name__ == "__main__":
    sys.exit(main())
