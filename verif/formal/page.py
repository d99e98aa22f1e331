# SPDX-License-Identifier: Apache-2.0
"""The page docs/formal.md, generated from the proofs.

`python -m systola.verif.formal.page --write docs` writes it, `--check docs` exits with status 1
where it is missing or out of date.
"""

from __future__ import annotations

import sys

from systola.arch.pages import table, write_or_check
from systola.verif.formal.proofs import PROOFS

TEXT = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by `python -m systola.verif.formal.page --write docs` from the proofs in verif/formal/.
     Edit verif/formal/page.py instead. -->

# Proofs

```
make formal                  # all proofs and the faults planted for each, with a table
make formal PART=weight      # those with "weight" in the name of their unit or in their claim
```

Tests show what happens in the cases that somebody thought of, or that chance brought. A proof is
about all inputs in all cycles. Those here are in `verif/formal/`: properties in Amaranth around a
unit of `hdl/`, checked by SymbiYosys and the solver Yices, which both come from PyPI with
`make setup`. `make test-all` runs the quick ones, `make test` one
of each kind.

{proofs}
*Induction* holds for all time. *First n cycles* holds for so many cycles after reset, whatever
comes in them.

## How a proof is made

- A **harness** (`Harness` in `harness.py`) holds one unit. What the unit gets is free
  (`anything`), except for what its docstring demands of its surroundings: that is assumed.
- The **claim** is asserted of the ports, and never taken from the code of the unit. "Nothing is
  lost, doubled or reordered" is said of one word, chosen freely out of all that go in (`Tracked`).
- Induction needs to know which states the unit can be in. These **lemmas** may speak of registers
  inside (`Unit.inside`); they are proven together with the claim, for all time.
- Memories become registers. Reading a word while it is written gives anything at all
  (`FormalPlatform`), so a proof also shows that a unit never relies on it.
- Each proof comes with **planted faults**: a line of the unit is changed, and the proof must find a
  counterexample, without lemmas. A proof that cannot fail proves nothing.

A proof that fails leaves its log and `proof/engine_0/trace.vcd` in the folder that the table names.

## What is smaller than in the machine, and why that is enough

- Words of 4 bits in queues, which do not look at them. Rings of 3 to 6 places: they wrap around,
  are full and empty as longer ones. Addresses of 3 bits in interlocks, where they are compared.
- The burst cutter has addresses of 16 bits and counts of 7: they are only added and counted down.
  The host's read port has all its bits.
- The requantiser's multipliers are cut out, as solvers do not multiply; their products are
  anything. That a product is the sum of the products of halves is algebra; that a multiplier
  multiplies is tested, on every fabric.
- A write or a weight transfer has at most 6 or 12 beats a run, in a window of two pages.

## What is not proven

That the decoder hands on only transfers inside the windows, and so the window for the whole
machine: the proofs of the masters assume it of each command. That the scoreboard compares the right
regions. The datapath of the host reader, fetch, scalar unit, matrix unit, activation unit and the
array. All these are tested.
"""


def formal_page() -> str:
    """The text of docs/formal.md."""
    proofs = table(
        ("Unit", "Claim", "Proven", "Faults found"),
        (
            (f"`{proof.unit}`", proof.claim, proof.method, str(len(proof.faults)))
            for proof in PROOFS
        ),
    )
    return TEXT.format(proofs=proofs)


if __name__ == "__main__":
    sys.exit(write_or_check({"formal.md": formal_page}, "systola.verif.formal.page"))
