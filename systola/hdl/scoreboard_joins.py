# SPDX-License-Identifier: Apache-2.0
"""The connections of the scoreboard with the units: queues of commands, and lists.

A unit takes commands from its queue. It reports to a list how far its oldest instruction has got.
"""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.control.scoreboard import Scoreboard
from systola.hdl.matrix.matrix_unit import MatrixUnit
from systola.hdl.transfers.host_reader import HostReader
from systola.hdl.transfers.host_writer import HostWriter
from systola.hdl.transfers.weight_fetch import WeightFetch


def join_units(
    m: Module,
    board: Scoreboard,
    reader: HostReader,
    weights: WeightFetch,
    matrix: MatrixUnit,
    activation: ActivationUnit,
    writer: HostWriter,
) -> None:
    """Connect each unit with its queue, and with the lists that have its instructions."""
    connect(m, board.host_reads, reader.transfers)
    connect(m, board.host_read, reader.entries)
    connect(m, board.weights, weights.queue)
    connect(m, board.matrix, matrix.queue)
    connect(m, board.activate, activation.queue)
    connect(m, board.host_writes, writer.queue)
    for unit, names in (
        (reader, ("host_reading",)),
        (matrix, ("matrix_reading", "matrix_summing")),
        (activation, ("activate_reading", "activate_operands", "activate_writing")),
        (writer, ("host_writing",)),
    ):
        for name in names:
            connect(m, getattr(unit, name), getattr(board, name))


def settled_queue(m: Module, queue: wiring.PureInterface, name: str) -> Signal:
    """Return a signal that is high if the oldest command already awaited no entry a cycle ago.

    Lines are written one cycle after the lists let them go. So a unit that uses lines at once must
    wait one cycle longer.
    """
    settled = Signal(name=name)
    m.d.sync += settled.eq(queue.unblocked & ~queue.pop)
    return settled
