# SPDX-License-Identifier: Apache-2.0
"""The command `make arithmetic`: it compares the requantiser with its formula, in C++.

A random case runs in each cycle.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from systola.cli.arguments import OneLineParser, whole_number
from systola.hdl.activation.requantiser import Requantiser
from systola.sim.build import built_once, content_key
from systola.sim.verilator import (
    OPTIMISE,
    VERILATE_FLAGS,
    compile_model,
    run_tool,
    toolchain,
    verilator_root,
)
from systola.verif.units.unit import TOP, convert

WIDTHS = (8, 16)
"""Widths of a result in bits: 8 on all machines, 16 on machines with 16-bit modes."""
STAGES = (
    *("MULTIPLIER_STAGE", "SHIFT_STAGE", "ROUNDING_STAGE", "OFFSET_STAGE", "CLAMP_STAGE"),
    "LATENCY",
)
_HARNESS = Path(__file__).with_suffix(".cpp")


def program(bits: int, **stages: int) -> Path:
    """Return a program that compares requantiser and formula, built if it is missing.

    `stages` are constants, such as LATENCY, that the program takes in place of the Requantiser's.
    """
    text = convert(Requantiser(bits=bits))
    constants = {name: getattr(Requantiser, name) for name in STAGES} | {"BITS": bits} | stages
    defines = " ".join(f"-D{name}={value}" for name, value in constants.items())
    key = content_key(toolchain(), text, _HARNESS.read_bytes(), defines)

    def make(work: Path) -> Path:
        source, log = work / "unit.v", work / "build.log"
        source.write_text(text)
        verilate = [
            str(verilator_root() / "bin" / "verilator"),
            *("--cc", "--exe", "--Mdir", str(work), "--top-module", TOP, "--prefix", "Vunit"),
            *("-o", "compare", "-CFLAGS", defines, "-Wno-fatal"),
            *VERILATE_FLAGS,
            *map(str, (source, _HARNESS)),
        ]
        run_tool(verilate, log=log)
        variables = [f"OPT_FAST={OPTIMISE}", f"OPT_GLOBAL={OPTIMISE}"]
        compile_model(work, "Vunit", variables=variables, log=log)
        return work / "compare"

    return built_once("arithmetic", key, f"building the requantiser of {bits} bits", make)


def compare(bits: int, seed: int, count: int, **stages: int) -> tuple[bool, str]:
    """Return whether requantiser and formula agree in `count` random cases, and the report."""
    command = [str(program(bits, **stages)), str(seed), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode == 0, done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make arithmetic` and return the exit status, 1 if a case differs."""
    parser = OneLineParser(prog="arithmetic", description=__doc__)
    parser.add_argument(
        "--cases", type=whole_number(1, (1 << 63) - 1), default=100_000_000, metavar="N"
    )
    parser.add_argument(
        "--seed", type=whole_number(1, (1 << 63) - 1), default=random.randrange(1, 1 << 32)
    )
    options = parser.parse_args(arguments)
    print(f"SEED={options.seed}")
    failed = False
    for bits in WIDTHS:
        equal, text = compare(bits, options.seed, options.cases)
        print(f"requantiser, results of {bits} bits: {text}", flush=True)
        failed |= not equal
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
