# SPDX-License-Identifier: Apache-2.0
"""The comparisons of a step of the activation unit with older instructions."""

from systola.arch.config import Config
from systola.hdl.commands import parameter_space, table_space
from systola.hdl.parts.interlock import Check


def checks(config: Config) -> list[Check]:
    """Return the interlock's checks: which addresses of a step are compared with which lists."""
    entries, tables = parameter_space(config), table_space(config)
    return [
        Check(watched="host_reading", address="read", used="reads"),
        Check(watched="activate_writing", address="read", used="reads_first"),
        Check(watched="operand_writing", address="read", used="reads_operand"),
        Check(watched="matrix_summing", address="row", used="sums"),
        Check(watched="matrix_reading", address="line", used="narrow"),
        Check(watched="host_writing", address="line", used="narrow"),
        Check(watched="host_reading", address="line", used="narrow"),
        # An int16 result writes two lines, but one address is compared. So the step waits until the
        # awaited instructions have left these lists.
        Check(watched="matrix_reading", used="wide"),
        Check(watched="host_writing", used="wide"),
        Check(watched="host_reading", used="wide"),
        Check(watched="loading", address="parameter", space=entries, used="final"),
        Check(watched="loading", address="table", space=tables, used="looks_up"),
        *([Check(watched="tiles_reading", used="final")] if config.training else []),
    ]
