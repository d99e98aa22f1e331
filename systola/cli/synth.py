# SPDX-License-Identifier: Apache-2.0
"""The command tpu synth: it reports resources and clock of the machine, or a unit, on an FPGA."""

from __future__ import annotations

import argparse

from systola.cli.arguments import add_json, configuration, one_of, whole_number
from systola.cli.errors import UserError
from systola.cli.output import STANDARD_OUTPUT, write_output
from systola.cli.pod import add_cores
from systola.cli.report import to_json
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.targets import DEFAULT_TARGET, TARGETS, Target

HELP = "synthesise the machine or a unit for an FPGA: resources, clock, critical path"

_DEFAULT_PRESET = "small"
"""The largest named preset that the default target has room for."""
_DEFAULT_SEEDS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--target",
        type=one_of("target", TARGETS),
        default=DEFAULT_TARGET,
        metavar="T",
        help=f"{', '.join(TARGETS)} (default: {DEFAULT_TARGET})",
    )
    parser.add_argument(
        "--preset",
        type=configuration,
        default=_DEFAULT_PRESET,
        metavar="P",
        help=f"tiny, small, base, v1 or ROWSxCOLS (default: {_DEFAULT_PRESET})",
    )
    parser.add_argument(
        "--unit", metavar="U", help="one unit alone, such as mxu (default: the whole machine)"
    )
    parser.add_argument(
        "--seeds",
        type=whole_number(0, 1000),
        default=_DEFAULT_SEEDS,
        metavar="N",
        help=f"placements; 0 stops after synthesis (default: {_DEFAULT_SEEDS})",
    )
    parser.add_argument("--speed", metavar="S", help="speed grade (default: the slowest)")
    parser.add_argument(
        "--frequency",
        type=whole_number(1, 1000),
        metavar="MHZ",
        help="goal of place and route: routing takes long if much is slower",
    )
    add_cores(parser, "a pod of N cores in a ring, instead of the machine")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    target: Target = arguments.target
    # Imported here: other commands do not need it.
    from systola.synth.flow import measure
    from systola.synth.report import text

    try:
        figures = measure(
            target,
            arguments.preset,
            unit=arguments.unit,
            speed=arguments.speed,
            seeds=arguments.seeds,
            cores=arguments.cores,
            frequency=arguments.frequency,
        )
    except SynthesisUsageError as error:
        raise UserError(str(error)) from None
    if arguments.json:
        write_output(arguments.json, to_json(figures))
    if arguments.json != STANDARD_OUTPUT:
        print(text(figures))
    if figures["lacks"]:
        raise SynthesisError(f"does not fit {target.name}: {', '.join(figures['lacks'])}")
    return 0
