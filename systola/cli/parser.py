# SPDX-License-Identifier: Apache-2.0
"""The command line of tpu: its commands, by group, and their common options."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from systola.cli.arguments import OneLineParser
from systola.sim.notices import Level

GROUPS: Mapping[str, Sequence[str]] = {
    "networks": ("run", "check", "quantize", "compile", "image", "train", "demo"),
    "programs": ("asm", "disasm", "gemm"),
    "hardware": ("verilog", "deliver", "synth", "bitstream", "selftest", "info"),
    "this command": ("cache", "completion"),
}
"""Names of the commands by group. Each command is a module of this package with HELP,
add_arguments() and execute()."""
COMMANDS = tuple(name for names in GROUPS.values() for name in names)


class _Parser(OneLineParser):
    """A parser that shows the commands by group, which argparse itself cannot do."""

    def format_help(self) -> str:
        width = max(map(len, COMMANDS))
        lines = ["usage: tpu COMMAND ...", "", "Systola, an open Tensor Processing Unit."]
        for title, names in GROUPS.items():
            lines += ["", f"{title}:"]
            lines += (f"  {name:<{width}}  {_module(name).HELP}" for name in names)
        lines += [
            "",
            "'tpu COMMAND --help' shows the options of a command, 'tpu --version' the version.",
            "",
        ]
        return "\n".join(lines)


def make_parser(commands_with_options: Collection[str] = COMMANDS) -> OneLineParser:
    """Make the parser of the whole command line; `execute` of its result runs a command.

    A command gets its options, and its module is imported, if `commands_with_options` has its name.
    """
    parser = _Parser(prog="tpu")
    parser.add_argument("--version", action="version", version=f"tpu {version('systola')}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=OneLineParser)
    for name in COMMANDS:
        if name not in commands_with_options:
            commands.add_parser(name)
            continue
        module = _module(name)
        command = commands.add_parser(
            name, help=module.HELP, description=module.HELP, allow_abbrev=False
        )
        module.add_arguments(command)
        _add_verbosity(command)
        command.set_defaults(execute=module.execute)
    return parser


def _module(command: str) -> ModuleType:
    return import_module(f"systola.cli.{command}")


def _add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Add -v and -q; the value is a Level."""
    choice = parser.add_mutually_exclusive_group()
    for option, level, text in (
        ("verbose", Level.VERBOSE, "show the commands of the tools that are run"),
        ("quiet", Level.QUIET, "show no progress, only results and mistakes"),
    ):
        choice.add_argument(
            f"-{option[0]}",
            f"--{option}",
            dest="level",
            action="store_const",
            const=level,
            default=Level.NORMAL,
            help=text,
        )
