# SPDX-License-Identifier: Apache-2.0
"""The campaigns (long runs of tests) with results on the page docs/trust.md.

The page states the same sizes of the campaigns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Campaign:
    """A campaign that `python -m MODULE ARGUMENTS` runs; for a user `command` does the same.

    `{seed}` stands for a new seed. The results are all texts in the output that match `pattern`.
    """

    name: str
    what: str
    module: str
    arguments: tuple[str, ...]
    command: str
    pattern: str

    def results(self, output: str) -> list[str]:
        """Return the texts in a campaign's output that are its results, in order."""
        return [" ".join(found.split()) for found in re.findall(self.pattern, output, re.MULTILINE)]


_TOTAL = r"^\d+ programs, .* failures$"
_PASSED = r"^\d+ passed"


def _regress(kind: str, what: str, count: int) -> Campaign:
    return Campaign(
        name=kind,
        what=what,
        module="systola.verif.regress",
        arguments=("--kind", kind, "--programs", str(count), "--seed", "{seed}"),
        command=f"make regress KIND={kind} N={count} SEED={{seed}}",
        pattern=_TOTAL,
    )


CAMPAIGNS = (
    _regress("programs", "random programs against the golden model, on four configurations", 2_500),
    _regress("garbage", "words that nobody meant: a result or a named fault, never a hang", 5_000),
    _regress("errors", "one beat of a bus answers with an error", 500),
    _regress("silence", "one burst is never answered, with a time-out", 500),
    _regress("resets", "a soft reset or the reset input in any cycle", 500),
    _regress("writes", "the host writes registers all the time", 500),
    Campaign(
        name="coverage",
        what="what random programs of every kind cover: of instructions and hazards, of Verilog",
        module="systola.verif.coverage",
        arguments=("--fresh", "--programs", "100", "--seed", "{seed}"),
        command="make coverage N=100 SEED={seed}",
        pattern=r"^(?:bins|\S+, (?:line|branch|toggle)) .*$",
    ),
    Campaign(
        name="mutation",
        what="faults planted in the machine, one at a time: does the regression find them",
        module="systola.verif.mutation",
        arguments=("--mutants", "1000", "--programs", "60", "--seed", "{seed}"),
        command="make mutate N=1000 PROGRAMS=60 SEED={seed}",
        pattern=r"^\d+ mutants: .*$",
    ),
    Campaign(
        name="pods",
        what="the same in what makes several machines a pod",
        module="systola.verif.mutation",
        arguments=("--pod", "--mutants", "250", "--programs", "240", "--seed", "{seed}"),
        command="make mutate POD=1 N=250 PROGRAMS=240 SEED={seed}",
        pattern=r"^\d+ mutants: .*$",
    ),
    Campaign(
        name="networks",
        what="1,000 networks one after the other without a reset, every byte that of LiteRT",
        module="pytest",
        arguments=("-q", "--exhaustive", "-k", "thousand", "verif/system/test_many_networks.py"),
        command="pytest --exhaustive -k thousand verif/system/test_many_networks.py",
        pattern=_PASSED,
    ),
    Campaign(
        name="requantiser",
        what="the requantiser against its formula",
        module="systola.verif.arithmetic.requantiser",
        arguments=("--cases", "100000000", "--seed", "{seed}"),
        command="make arithmetic SEED={seed}",
        pattern=r"requantiser, .*$",
    ),
    Campaign(
        name="multipliers",
        what="all products of two operands, in the blocks of each fabric",
        module="pytest",
        arguments=("-q", "verif/units/matrix/test_multiplier_row.py"),
        command="pytest verif/units/matrix/test_multiplier_row.py",
        pattern=_PASSED,
    ),
    Campaign(
        name="chain",
        what="the same bytes and cycles on all simulators and netlists",
        module="systola.verif.chain",
        arguments=("--programs", "4", "--seed", "{seed}", "--netlist", "ecp5", "generic"),
        command="make chain N=4 NETLIST='ecp5 generic' SEED={seed}",
        pattern=r"^.*: \d+ cycles, .*$",
    ),
    Campaign(
        name="formal",
        what="proofs, and planted faults that they must find",
        module="systola.verif.formal",
        arguments=(),
        command="make formal",
        pattern=r"^\d+ of \d+ as they should be$",
    ),
)
"""All campaigns, in the order of the page."""
