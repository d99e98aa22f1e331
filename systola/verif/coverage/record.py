# SPDX-License-Identifier: Apache-2.0
"""A coverage record that adds up over programs, processes, machines and days."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import astuple, dataclass, field
from pathlib import Path

from systola.arch.isa import Fault
from systola.sim.build import content_key
from systola.sim.library import Simulator
from systola.verif.coverage.counted import Point, counting_verilog, read_points
from systola.verif.coverage.functional import Observer, outside_fault_bin
from systola.verif.kit.machines import machine


@dataclass
class Coverage:
    """A record of covered bins and points.

    `hits` counts functional bins, by "group: bin". `points` counts the points of each preset's
    Verilog, with 0 for points never passed. `versions` identifies this Verilog, by preset.
    """

    hits: Counter[str] = field(default_factory=Counter[str])
    points: dict[str, Counter[Point]] = field(default_factory=dict[str, Counter[Point]])
    versions: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, machine: Simulator, golden: Observer, faults: Counter[Fault]) -> Coverage:
        """Return the coverage of a simulator from `counting_library` and of its golden model.

        `faults` counts the faults that the simulated machine has reported.
        """
        config = machine.config
        text = counting_verilog(config)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "coverage.dat")
            machine.write_coverage(file)
            points = read_points(file, text)
        hits = golden.hits.copy()
        for cause, count in faults.items():
            if name := outside_fault_bin(cause):
                hits[name] += count
        return cls(hits, {config.name: points}, {config.name: content_key(text)})

    def add(self, other: Coverage) -> None:
        """Add the hits of another record, which is newer.

        Points of older versions of the Verilog no longer count.
        """
        self.hits.update(other.hits)
        for name, points in other.points.items():
            if self.versions.get(name) != other.versions[name]:
                self.points[name] = Counter()
                self.versions[name] = other.versions[name]
            self.points[name].update(points)

    def write(self, path: Path) -> None:
        """Write the coverage record to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        points = {
            name: [[*astuple(point), count] for point, count in counted.items()]
            for name, counted in self.points.items()
        }
        path.write_text(
            json.dumps({"hits": self.hits, "points": points, "versions": self.versions}) + "\n"
        )

    @classmethod
    def read(cls, path: Path) -> Coverage:
        """Return a coverage record from a file, without points of hardware that has changed."""
        entry = json.loads(path.read_text())
        versions = {
            name: version
            for name, version in entry["versions"].items()
            if content_key(counting_verilog(machine(name))) == version
        }
        points = {
            name: Counter({Point(*values): count for *values, count in entry["points"][name]})
            for name in versions
        }
        return cls(Counter(entry["hits"]), points, versions)
