# SPDX-License-Identifier: Apache-2.0
"""`make bench-energy`: counts of the README's networks, steps, and the original's applications.

The counts are in energy.json. Energies are made of them when a page is written.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from tqdm import tqdm

from systola.arch.config import PRESETS, Config, preset
from systola.bench.networks import BATCHES, NETWORKS, StoredNetwork
from systola.bench.original.compiled import compiled
from systola.bench.original.result import PRESET as ORIGINAL
from systola.bench.original.shapes import applications
from systola.bench.training import STEPS, Step, trained
from systola.bench.workloads import PRESET
from systola.runtime.api import compile
from systola.timing.activity import Activity, activity

RESULTS = Path(__file__).with_name("energy.json")


@dataclass(frozen=True)
class Counted:
    """A count of the operations of an average inference, a training step, or a batch."""

    name: str
    batch: int
    preset: str
    macs: int
    """Multiply-accumulates, without padding of any kind."""
    activity: Activity

    @property
    def config(self) -> Config:
        """The configuration of the machine."""
        return preset(self.preset)


def count_network(network: StoredNetwork, batch: int) -> Counted:
    """Compile a stored network for `batch` inferences at a time, and count the operations of one
    inference.
    """
    content = (files("systola.models") / network.file).read_bytes()
    report = compile(content, preset=PRESET, batch=batch).estimate()
    return Counted(network.title, batch, PRESET, report.macs, report.activity)


def count_application(name: str) -> Counted:
    """Compile an application of the original, and count the operations of a whole batch."""
    config, application = PRESETS[ORIGINAL], applications()[name]
    work = compiled(config, application)
    done = activity(config, work.image.program)
    return Counted(application.name, application.batch, ORIGINAL, work.macs, done)


def count_step(step: Step) -> Counted:
    """Count the operations of a step of training, from the program that the machine would run.

    The step itself runs on back end "fast", which needs no simulator.
    """
    found = trained(step, "fast")[1].energy
    assert found is not None
    name = f"784-512-10, {step.optimizer}"
    return Counted(name, step.batch, step.name, found.operations // 2, found.activity)


def stored(path: Path = RESULTS) -> list[Counted]:
    """Return the counts of operations that the last `make bench-energy` stored."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Counted(**{**each, "activity": Activity(**each["activity"])}) for each in content]


def steps() -> list[Counted]:
    """Return the counts of operations of the steps of training."""
    return [each for each in stored() if each.preset.endswith("-training")]


def originals() -> list[Counted]:
    """Return the counts of operations of the original's applications."""
    return [each for each in stored() if each.preset == ORIGINAL]


def main() -> int:
    """Count everything, store it, and write the pages; return the exit status."""
    from systola.bench.energy_page import write_pages

    found = [
        count_network(network, batch)
        for network in tqdm(NETWORKS, desc="networks", unit="network")
        for batch in BATCHES
    ]
    found += [count_step(step) for step in tqdm(STEPS, desc="steps", unit="step")]
    found += [count_application(name) for name in tqdm(applications(), desc="applications")]
    content = [asdict(each) for each in found]
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
