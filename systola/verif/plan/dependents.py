# SPDX-License-Identifier: Apache-2.0
"""A search, by the imports in the sources, for tests that a change of a hardware unit can break."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from systola.verif.kit.checkout import ROOT, module_name

WHOLE_MACHINE = ("system/test_instructions",)
"""Test modules of the whole machine, which are added to the tests of any unit."""


class UnknownUnitError(ValueError):
    """An error: no unit of the hardware has the given name; the text is one line for the user."""


@cache
def units() -> dict[str, Path]:
    """Return the source files of hdl/, by unit name, which is the file's name without ".py"."""
    return {path.stem: path for path in sorted((ROOT / "hdl").rglob("*.py"))}


def dependents(unit: str) -> frozenset[str]:
    """Return the test modules, such as "units/parts/test_walker", that depend on a hardware unit.

    A test module depends on the Amaranth components that it or its helpers import, and on all
    submodules of these components. A file of hdl/ without a component, such as commands.py, counts
    for every file that imports from it. Raises UnknownUnitError if hdl/ has no file `unit`.py.
    """
    if unit not in units():
        near = get_close_matches(unit, units(), n=3) or sorted(units())
        raise UnknownUnitError(f"unknown unit '{unit}' (did you mean {', '.join(near)}?)")
    folder = ROOT / "verif" / "units"
    files = (path for path in folder.rglob("test_*.py") if unit in _parts(path, unit))
    return frozenset({*map(module_name, files), *WHOLE_MACHINE})


def _parts(test: Path, unit: str) -> set[str]:
    """Return the names of the units that a test module instantiates, directly or as submodules.

    Helpers of the tests are in the set, too. If `unit` has no component, an import of it counts.
    """
    found: set[str] = set()
    left = [test]
    while left:
        for package, name, imported in _imports(left.pop()):
            helper = ROOT / package.replace(".", "/") / f"{name}.py"
            if f"{package}.".startswith("verif.units.") and helper.is_file():
                if helper != test and helper not in left and f"helper {name}" not in found:
                    found.add(f"helper {name}")
                    left.append(helper)
            elif package.startswith("hdl") and name in units() and name not in found:
                # An import of only a constant or a layout from a unit's file does not count.
                parts = _components(name)
                if imported & parts or (name == unit and not parts):
                    found.add(name)
                    left.append(units()[name])
    return found


@cache
def _imports(path: Path) -> tuple[tuple[str, str, frozenset[str]], ...]:
    """Return the imports from `systola` in a file: for each, package, module and imported names."""
    return tuple(_project_imports(ast.parse(path.read_text(encoding="utf-8"))))


def _project_imports(tree: ast.Module) -> Iterator[tuple[str, str, frozenset[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("systola."):
            package, _, module = (node.module or "").removeprefix("systola.").rpartition(".")
            names = frozenset(alias.name for alias in node.names)
            yield package, module, names
            # The imported names may be modules, as in `from systola.hdl import matrix_unit`.
            inside = f"{package}.{module}".lstrip(".")
            yield from ((inside, name, frozenset()) for name in names)


@cache
def _components(unit: str) -> frozenset[str]:
    """Return the names of the Amaranth components that a file of hdl/ defines.

    Functions of the file that return one of these components are in the set, too.
    """
    tree = ast.parse(units()[unit].read_text(encoding="utf-8"))
    classes = {
        item.name
        for item in tree.body
        if isinstance(item, ast.ClassDef)
        and any(ast.unparse(base).endswith(("Component", "Elaboratable")) for base in item.bases)
    }
    makers = {
        item.name
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and item.returns and _names(item.returns) & classes
    }
    return frozenset(classes | makers)


def _names(expression: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
