# SPDX-License-Identifier: Apache-2.0
"""The Verilog of a configuration, which is converted only once."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import lru_cache
from pathlib import Path

from systola.arch.config import Config
from systola.arch.shared_memory import SharedMemory
from systola.hdl.parts.fabric import Fabric
from systola.sim.build import built_once, content_key

_PACKAGES = ("systola.arch", "systola.hdl")


def is_hierarchical(verilog: str) -> bool:
    """Return whether the array is a grid of `mxu_tile`, a module worth compiling on its own."""
    return "\nmodule mxu_tile" in verilog


def verilog_of(config: Config, fabric: Fabric = Fabric.GENERIC, *, promises: bool = False) -> str:
    """Return module `tpu` for `config`, from the cache unless the hardware description has changed.

    The text lacks the blocks of `fabric`, see systola.sim.primitives. For `promises` see generate.
    """

    def make(work: Path) -> Path:
        # Imported here: Amaranth loads slowly, and is not needed with a filled cache.
        from systola.hdl.verilog import generate

        result = work / "tpu.v"
        result.write_text(generate(config, fabric, promises=promises))
        return result

    key = content_key(_description(), repr(config), fabric.value, repr(promises))
    what = f"converting '{config.name}' to Verilog"
    return built_once("verilog", f"{key}.v", what, make).read_text()


def pod_verilog_of(
    config: Config,
    cores: int,
    stages: int,
    shared: SharedMemory | None = None,
    *,
    uneven: bool = False,
) -> str:
    """Return module `pod` with `cores` cores of `config`, from the cache unless the hardware
    changed.

    `config` has links. The text has promises. For `stages`, `shared` and `uneven` see Pod.
    """

    def make(work: Path) -> Path:
        from systola.hdl.verilog import generate_ring

        result = work / "pod.v"
        ring = generate_ring(config, cores, stages, shared, promises=True, uneven=uneven)
        result.write_text(ring)
        return result

    choices = (str(cores), str(stages), repr(shared), str(uneven))
    key = content_key(_description(), repr(config), *choices)
    what = f"converting a ring of {cores} '{config.name}' to Verilog"
    ring = built_once("verilog", f"{key}.v", what, make).read_text()
    return f"{ring}\n{verilog_of(config, promises=True)}"


@lru_cache(maxsize=1)
def _description() -> bytes:
    """Return bytes that change with everything that the Verilog depends on, except the
    configuration.
    """
    parts = [importlib.metadata.version("amaranth").encode()]
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec else []:
            for path in sorted(Path(location).rglob("*")):
                if path.suffix in (".py", ".v"):
                    parts += [path.name.encode(), path.read_bytes()]
    return content_key(*parts).encode()
