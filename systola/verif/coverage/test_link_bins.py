# SPDX-License-Identifier: Apache-2.0
"""A test that random programs of pods, whole and damaged, hit every bin of link instructions."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from systola.arch.config import preset
from systola.verif.coverage.links import link_bins, observed_run
from systola.verif.kit.pod_programs import damage, random_pod
from systola.verif.kit.seeds import random_seed

CONFIG = preset("tiny-links")
CORES = 3
MOST = 400
"""Number of programs that together must hit all bins; usually a third of them suffices."""


@pytest.mark.thorough
def test_random_programs_hit_all_bins() -> None:
    """Check that the random programs of verif/system/test_pod.py hit all bins of links."""
    hits: Counter[str] = Counter()
    bins = link_bins()
    for number in range(MOST):
        rng = random.Random(f"{random_seed()} bins {number}")
        writer = random_pod(rng, CONFIG, CORES, steps=rng.choice((3, 10, 25)) * CORES)
        if number % 2:
            damage(rng, writer)
        _, found = observed_run(CONFIG, writer.images(), rng)
        hits.update(found)
        if all(hits[name] for name in bins):
            break
    assert not {name for name, count in hits.items() if count} - set(bins)
    assert [name for name in bins if not hits[name]] == []
