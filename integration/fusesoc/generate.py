# SPDX-License-Identifier: Apache-2.0
"""FuseSoC generator: a core with the delivery of a preset, see systola.core.

FuseSoC calls it with the name of a YAML file. The Python that it runs with must have `systola` and
PyYAML, which comes with FuseSoC.
"""

import sys
from pathlib import Path

import yaml

from systola.arch.config import preset
from systola.arch.shared_memory import SharedMemory
from systola.hdl.parts.fabric import Fabric
from systola.synth.delivery import delivery


def main(path: str) -> None:
    """Write the files but for the test benches, and the core that lists them, into this folder."""
    request = yaml.safe_load(Path(path).read_text())
    parameters = request["parameters"]
    config = preset(str(parameters["preset"]))
    cores, width = parameters.get("cores"), parameters.get("shared_memory")
    shared = SharedMemory(width) if cores and width else None
    contents = delivery(config, Fabric(parameters.get("fabric", "generic")), cores, shared)
    machine = {name: text for name, text in contents.items() if not name.startswith("try/")}
    for name, text in machine.items():
        Path(name).write_text(text)
    sources = [name for name in machine if name.endswith(".v")]
    core = {
        "name": request["vlnv"],
        "filesets": {"rtl": {"files": sources, "file_type": "verilogSource"}},
        "targets": {"default": {"filesets": ["rtl"]}},
    }
    # FuseSoC takes the name of the core's file from its VLNV.
    name = request["vlnv"].split(":")[2]
    Path(f"{name}.core").write_text("CAPI=2:\n" + yaml.safe_dump(core))


if __name__ == "__main__":
    main(sys.argv[1])
