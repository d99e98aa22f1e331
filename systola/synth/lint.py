# SPDX-License-Identifier: Apache-2.0
"""Verilator's lint of the generated Verilog: any warning that sim/lint.vlt does not waive fails."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from systola.arch.config import preset
from systola.sim.design import verilog_of
from systola.sim.verilator import LINT, environment, verilator_root

_OPTIONS = ("--lint-only", "--quiet", "--no-timing", "--top-module", "tpu")
_CONFIGURATIONS = ("tiny", "base", "7x5-parity", "40x36", "4x4-training-attention")
"""Configurations to lint:

- tiny is the smallest, base the default.
- 7x5-parity has parity, and sizes that are no powers of two.
- 40x36 has an array of several tiles.
- The last one trains, and has functions by curves.

The preset v1 is left out: Verilator takes minutes for its array in one piece, and it has no other
modules than 40x36.
"""


def main() -> int:
    """Lint the machines of _CONFIGURATIONS; return 1 if Verilator warns about one."""
    status = 0
    for name in _CONFIGURATIONS:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, f"tpu_{name}.v")
            source.write_text(verilog_of(preset(name)))
            verilator = verilator_root() / "bin" / "verilator"
            command = [verilator, *_OPTIONS, LINT, source]
            status |= subprocess.run(command, env=environment(), check=False).returncode != 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
