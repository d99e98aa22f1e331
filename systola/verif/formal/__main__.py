# SPDX-License-Identifier: Apache-2.0
"""The command `make formal`: it runs the proofs, lets each find planted faults, prints a table.

`python -m systola.verif.formal [PART ...]` runs the proofs with a unit or claim that contains a
PART. The exit status is 1 if a proof does not hold or a fault is not found, and 2 for a mistake in
the arguments.
"""

from __future__ import annotations

import shutil
import sys

from tqdm import tqdm

from systola.cli.arguments import OneLineParser
from systola.sim.build import build_root
from systola.verif.formal.proof import Fault, Proof, ToolsMissing, check
from systola.verif.formal.proofs import PROOFS

COLUMNS = "{:18} {:82} {:22} {:>6}  {}"


def main() -> int:
    parser = OneLineParser(prog="formal", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="a part of a unit or a claim")
    chosen = parser.parse_args().parts
    proofs = [
        proof
        for proof in PROOFS
        if not chosen or any(part in f"{proof.unit} {proof.claim}" for part in chosen)
    ]
    if not proofs:
        units = ", ".join(dict.fromkeys(proof.unit for proof in PROOFS))
        print(f"no proof has {' or '.join(chosen)} in its name (units: {units})", file=sys.stderr)
        return 2
    runs: list[tuple[Proof, Fault | None]] = []
    for proof in proofs:
        runs += [(proof, fault) for fault in (None, *proof.faults)]
    folder = build_root() / "formal"
    failures = 0
    print(COLUMNS.format("unit", "claim", "how", "time", "verdict"))
    with tqdm(runs, leave=False, disable=None) as bar:
        for number, (proof, fault) in enumerate(bar):
            bar.set_description_str(proof.unit)
            place = folder / f"{number}_{proof.unit}"
            verdict = check(proof, place, fault)
            found = fault is not None and verdict.counterexample
            good = found if fault else verdict.holds
            failures += not good
            claim = f"- with {fault.new}" if fault else proof.claim
            how = f"first {proof.fault_depth} cycles" if fault else proof.method
            said = f"found: {verdict.what}" if found else verdict.what
            if fault and not found:
                said = f"FAULT NOT FOUND ({verdict.what})"
            elif not good:
                said = f"FAILED: {said} (log and trace: {place})"
            bar.write(
                COLUMNS.format(
                    "" if fault else proof.unit,
                    " ".join(claim.split())[:82],
                    how,
                    f"{verdict.seconds:.0f} s",
                    said,
                )
            )
            if good:
                shutil.rmtree(place)
    total = len(runs)
    print(f"{total - failures} of {total} as they should be")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ToolsMissing as missing:
        print(missing, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
