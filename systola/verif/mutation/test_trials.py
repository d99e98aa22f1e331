# SPDX-License-Identifier: Apache-2.0
"""Tests that a machine and a pod, each without a fault, pass all trials of their regressions.

A second run of the trials must take the same cycles as the first.
"""

import pytest

from systola.arch.config import preset
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed
from systola.verif.mutation.design import POD, MachineDesign
from systola.verif.mutation.pod_trials import pod_trials
from systola.verif.mutation.trial import survive
from systola.verif.mutation.trials import quick_trials

PROGRAMS = 20


@pytest.mark.thorough
def test_trials():
    config = preset(preset_name("tiny"))
    passes(MachineDesign(config), quick_trials(config, random_seed(), PROGRAMS))


@pytest.mark.thorough
def test_trials_of_a_pod():
    passes(POD, pod_trials(POD, random_seed(), PROGRAMS))


def passes(design, trials):
    usual, _ = survive(design, None, 0, trials, None)
    _, late = survive(design, None, 0, trials, usual)
    assert late is None
