# SPDX-License-Identifier: Apache-2.0
"""The reference page docs/operators.md: which operators are supported, generated from the code.

`python -m systola.compiler.reference --write docs` writes it, `--check docs` exits with status 1
where it is missing or out of date. What it says of an operator is the first paragraph of the
docstring of the function that translates it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc
from typing import Any

from systola.arch.pages import Pages, table, write_or_check
from systola.compiler.onnx import translate as onnx_translate
from systola.compiler.tflite import translate

_NOTICE = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by `python -m systola.compiler.reference --write docs` from the docstrings of the
     functions that translate operators. Edit these instead. -->
"""

_TEXT = """
What a network may consist of. What is int8 is calculated by the machine; what has other types, and
the few things that it has no unit for, stay on the host, and the report of a run names them with
their share of the work. An operator that is not here, or has options that are not supported, is
refused by its place in the model and its name before anything runs.
"""


def operators_page() -> str:
    """The text of docs/operators.md."""
    return "\n".join(
        (
            _NOTICE,
            "# Operators",
            _TEXT,
            "## TensorFlow Lite",
            "",
            _operators(translate.TRANSLATORS),
            "## ONNX",
            "",
            "As ONNX Runtime's quantiser makes them: float32 operators between DequantizeLinear",
            "and QuantizeLinear (QDQ), or QLinear operators (QOperator), of int8 or uint8.",
            "",
            _operators(onnx_translate.TRANSLATORS).rstrip("\n"),
            "",
        )
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
