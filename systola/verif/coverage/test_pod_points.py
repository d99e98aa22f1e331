# SPDX-License-Identifier: Apache-2.0
"""A test that the pod programs of verif/mutation cover lines and branches of the pod's modules."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from systola.hdl.verilog import generate_pod
from systola.sim.pod_library import build_pod
from systola.verif.coverage.counted import OPTIONS, Point, read_points
from systola.verif.coverage.record import Coverage
from systola.verif.coverage.summary import BARS, point_parts, total
from systola.verif.kit.seeds import random_seed
from systola.verif.mutation.design import POD
from systola.verif.mutation.pod_trials import pod_trials
from systola.verif.mutation.trial import CYCLE_LIMIT, MEMORIES

PROGRAMS = 120
_MODULES = re.compile(
    r"pod\b.*|tpu\.link_watchdog|tpu\.core\.(link_unit|decoder\.link|scoreboard\."
    r"(link_gate|(send|receiv)ing_(left|right))).*"
)
"""Pattern of the modules of hdl/pod and hdl/link, and of the modules for links in hdl/control."""


@pytest.mark.thorough
@pytest.mark.exhaustive  # the build of the simulator that counts takes four minutes
def test_lines_and_branches(tmp_path: Path) -> None:
    verilog = generate_pod(POD.config, POD.cores, shared=POD.shared)
    how = {"options": OPTIONS, "optimise": "-O1"}
    library = build_pod(verilog, POD.config, POD.cores, POD.shared, **how)
    trials = pod_trials(POD, random_seed(), PROGRAMS)
    points: Counter[Point] = Counter()
    file = tmp_path / "coverage.dat"
    for memory in MEMORIES:
        with POD.simulator(library, 0, memory) as pod:
            for trial in trials:
                if trial.memory == memory:
                    trial.run(pod, CYCLE_LIMIT)
            pod.write_coverage(file)
        points.update(read_points(file, verilog))
    of_pods = Counter(
        {point: count for point, count in points.items() if _MODULES.fullmatch(point.module)}
    )
    parts = point_parts(Coverage(points={POD.name: of_pods}), POD.name)
    for kind, bar in BARS.items():
        part = total(part for part in parts if part.group == kind)
        missing = [f"{p.name}: {name}" for p in parts if p.group == kind for name in p.missing]
        print(
            f"{kind}: {100 * part.share:.1f} % of {len(part.covered) + len(part.missing)}", missing
        )
        assert part.share >= bar
