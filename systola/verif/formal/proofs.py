# SPDX-License-Identifier: Apache-2.0
"""All proofs, in the order in which `make formal` runs them."""

from systola.verif.formal import (
    arithmetic,
    bursts,
    links,
    masters,
    numbers,
    pods,
    ports,
    queues,
    shared,
    training,
    waiting,
)
from systola.verif.formal.proof import Proof

PROOFS: tuple[Proof, ...] = (
    *queues.PROOFS,
    *bursts.PROOFS,
    *ports.PROOFS,
    *links.PROOFS,
    *pods.PROOFS,
    *shared.PROOFS,
    *masters.PROOFS,
    *waiting.PROOFS,
    *numbers.PROOFS,
    *training.PROOFS,
    *arithmetic.PROOFS,
)
