# SPDX-License-Identifier: Apache-2.0
"""The functions that find Yosys and nextpnr, and run them with a log and a sign of life."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tqdm import tqdm

from systola.synth.errors import SynthesisError, SynthesisUsageError

MINIMUM = {"yosys": (0, 70), "nextpnr": (0, 11)}
"""Oldest versions that are used from PATH: the versions that measured the project's figures. Older
versions lack families or map other memories to block RAM."""

_STEP = re.compile(r"(?:[\d.]+\. Executing (.+?)(?: pass.*| \(.*)?\.?$)|(?:Info: ((?!\s).{4,60}))")
"""Pattern of the present step of Yosys or nextpnr in a line of its log."""


@dataclass(frozen=True)
class Tool:
    """A program that can be run, and the version that it reports, such as `Yosys 0.70`."""

    name: str
    path: str
    version: str


@lru_cache
def find_tool(name: str) -> Tool:
    """Find the tool called `name` (`yosys`, `nextpnr-ecp5`, ...).

    A tool on PATH comes first if it is new enough, then the YoWASP package of that name from PyPI.
    Raises SynthesisUsageError with the package to install if there is neither.
    """
    minimum = MINIMUM[name.split("-")[0]]
    packaged = f"yowasp-{name}"
    beside = Path(sys.executable).with_name(packaged)
    for path in (shutil.which(name), str(beside), shutil.which(packaged)):
        version = _version(path) if path and Path(path).exists() else None
        if path and version and _numbers(version) >= minimum:
            return Tool(name, path, version)
    wanted = ".".join(map(str, minimum))
    raise SynthesisUsageError(
        f"{name} is missing: install '{packaged}' with pip (make synth does), or put {name} "
        f"{wanted} or newer on PATH"
    )


def run_tool(tool: Tool, arguments: Sequence[str], *, folder: Path, log: str, what: str) -> None:
    """Run a tool in `folder`; its log goes to the file `log` there.

    `what` and the present step of the tool are shown on stderr. Raises SynthesisError with the
    tool's own words if it fails.
    """
    started = time.monotonic()
    last = problem = ""
    with (
        tqdm(bar_format="{desc} [{elapsed}]", desc=what, leave=False, disable=None) as bar,
        subprocess.Popen(
            [tool.path, "-l", log, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        if bar.disable:
            print(f"{what} ...", file=sys.stderr, flush=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if step := _STEP.match(line):
                    bar.set_description_str(f"{what}: {step[1] or step[2]}"[:90].rstrip())
                if line.startswith("ERROR"):
                    problem = problem or line.strip()
                last = line.strip() or last
        except KeyboardInterrupt:
            process.terminate()
            raise
    seconds = time.monotonic() - started
    if process.returncode:
        raise SynthesisError(f"{what}: {problem or last or 'no result'} (log: {folder / log})")
    print(f"{what}: {seconds:.0f} s", file=sys.stderr, flush=True)


def _version(path: str) -> str | None:
    """Return the first `Yosys 0.70` or `nextpnr-0.11` in the output of `--version`."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=600
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\b(?:Yosys |nextpnr-)\d+\.\d+[\w.+-]*", done.stdout + done.stderr)
    return match[0].rstrip(".") if match else None


def _numbers(version: str) -> tuple[int, ...]:
    match = re.search(r"(\d+)\.(\d+)", version)
    assert match is not None
    return int(match[1]), int(match[2])
