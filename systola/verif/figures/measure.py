# SPDX-License-Identifier: Apache-2.0
"""The command `make figures`: it runs the campaigns of the page and stores their results.

`python -m systola.verif.figures.measure [NAME ...]`: all campaigns take some hours.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Sequence

from systola.bench.moment import commit_and_changes, today
from systola.cli.arguments import OneLineParser, whole_number
from systola.verif.figures.campaigns import CAMPAIGNS, Campaign
from systola.verif.figures.record import FIGURES, Figure, store
from systola.verif.kit.checkout import ROOT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make figures` and return the exit status, 1 if a campaign fails."""
    parser = OneLineParser(prog="figures", description=__doc__)
    names = [campaign.name for campaign in CAMPAIGNS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--seed", type=whole_number(1), help="that of a campaign which is to go on where it stopped"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in names]:
        print(f"figures: no campaign {unknown[0]}: {', '.join(names)}", file=sys.stderr)
        return 2
    failed = False
    for campaign in CAMPAIGNS:
        if options.names and campaign.name not in options.names:
            continue
        print(f"== {campaign.name}: {campaign.what}", flush=True)
        figure = run(campaign, options.seed or random.randrange(1, 1 << 32))
        store(campaign.name, figure, FIGURES)
        print("\n".join(figure.results), flush=True)
        failed |= not figure.passed
    return int(failed)


def run(campaign: Campaign, seed: int) -> Figure:
    """Run one campaign, print its output to stderr at once, and return its figure."""
    before = commit_and_changes()
    started = time.monotonic()
    command = [sys.executable, "-m", campaign.module]
    command += [argument.format(seed=seed) for argument in campaign.arguments]
    output: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            sys.stderr.write(line)
    return Figure(
        passed=process.returncode == 0,
        results=tuple(campaign.results("".join(output))),
        seed=seed,
        seconds=round(time.monotonic() - started),
        date=today(),
        commit=before,
    )


if __name__ == "__main__":
    sys.exit(main())
