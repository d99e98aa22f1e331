# SPDX-License-Identifier: Apache-2.0
"""tpu completion: what a shell needs to complete command lines."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

HELP = 'print the completion of a shell, such as: eval "$(tpu completion bash)"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    from systola.cli.parser import make_parser

    # Without type information.
    shtab: Any = import_module("shtab")
    print(shtab.complete(make_parser(), arguments.shell))
    return 0
