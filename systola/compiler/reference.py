# SPDX-License-Identifier: Apache-2.0
"""The tables of supported operators in docs/operators.md, made from the code.

`python -m systola.compiler.reference --write docs` writes the page. With `--check docs` the command
exits with status 1 if the page is missing or out of date. The text of an operator on the page comes
from the function that translates the operator: the first paragraph of the function's docstring,
without the verb "Translate".
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
    """Return the whole text of docs/operators.md, with new tables in it."""
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
        (", ".join(f"`{kind}`" for kind in kinds), _translation(translator))
        for translator, kinds in together.items()
    ]
    return table(("Operators", "Translation"), rows)


def _translation(translator: Callable[..., Any]) -> str:
    """Return the first paragraph of a translator's docstring, as one line without "Translate"."""
    text = " ".join((getdoc(translator) or "").split("\n\n")[0].split())
    text = text.removeprefix("Translate ")
    return text[:1].upper() + text[1:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write docs/operators.md or check it; return the exit status of the command."""
    return write_or_check(PAGES, "systola.compiler.reference", arguments)


if __name__ == "__main__":
    sys.exit(main())
