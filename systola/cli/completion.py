# SPDX-License-Identifier: Apache-2.0
"""The command tpu completion: it prints a script with which a shell completes command lines."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

HELP = 'print the completion of a shell, such as: eval "$(tpu completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from systola.cli.parser import make_parser

    # shtab has no type information.
    shtab: Any = import_module("shtab")
    print(shtab.complete(make_parser(), arguments.shell))
    return 0
