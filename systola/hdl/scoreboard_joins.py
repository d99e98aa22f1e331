# SPDX-License-Identifier: Apache-2.0
"""The connections of the scoreboard with the units: queues, lists, and awaited entries.

A unit takes commands from its queue. It reports to a list how far its oldest instruction has got.
"""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring

from systola.arch.config import Config
from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.control.hazards import list_of
from systola.hdl.control.scoreboard import Scoreboard
from systola.hdl.matrix.matrix_unit import MatrixUnit
from systola.hdl.transfers.host_reader import HostReader
from systola.hdl.transfers.host_writer import HostWriter
from systola.hdl.transfers.weight_fetch import WeightFetch

Watching = MatrixUnit | ActivationUnit | HostWriter
"""A unit that waits for entries of lists."""


def join_reader(m: Module, board: Scoreboard, reader: HostReader) -> None:
    """Connect the unit that reads host memory."""
    queue = board.host_reads
    m.d.comb += [
        reader.transfer.eq(queue.command),
        reader.transfer_valid.eq(queue.unblocked),
        queue.pop.eq(reader.transfer_pop),
        reader.entry.eq(board.host_read.command),
        board.host_read.pop.eq(reader.entry_pop),
    ]
    _report(m, board.host_reading, reader.advance, reader.advance_to, reader.done)


def join_weights(m: Module, config: Config, board: Scoreboard, weights: WeightFetch) -> None:
    """Connect the unit that fetches weights."""
    queue = board.weights
    _take(m, queue, weights, weights.command_pop)
    if config.training:
        settled = settled_queue(m, queue, "weights_settled")
        m.d.comb += weights.unblocked.eq(queue.unblocked & settled)


def join_matrix(m: Module, board: Scoreboard, matrix: MatrixUnit) -> None:
    """Connect the matrix unit."""
    _take(m, board.matrix, matrix, matrix.command_pop)
    _show_awaited(m, board, board.matrix, matrix)
    _report(m, board.matrix_reading, matrix.advance_read, matrix.advance_read_to, matrix.read_done)
    _report(m, board.matrix_summing, matrix.advance_sum, matrix.advance_sum_to, matrix.sum_done)


def join_activation(m: Module, board: Scoreboard, unit: ActivationUnit) -> None:
    """Connect the activation unit."""
    _take(m, board.activate, unit, unit.command_pop)
    _show_awaited(m, board, board.activate, unit)
    _report(m, board.activate_reading, unit.advance_read, unit.advance_read_to, unit.rows_done)
    _report(m, board.activate_writing, unit.advance_write, unit.advance_write_to, unit.write_done)
    m.d.comb += board.activate_operands.retire.eq(unit.lines_done)


def join_writer(m: Module, board: Scoreboard, writer: HostWriter) -> None:
    """Connect the unit that writes host memory."""
    queue = board.host_writes
    _take(m, queue, writer, writer.done)
    _show_awaited(m, board, queue, writer)
    _report(m, board.host_writing, writer.advance, writer.advance_to, writer.done)
    m.d.comb += writer.blocked.eq(queue.blocked.host_memory)


def settled_queue(m: Module, queue: wiring.PureInterface, name: str) -> Signal:
    """Return whether the oldest command of a queue awaited no entry in the cycle before, either.

    Lines are written a cycle later than the lists let them go. So a unit that uses lines at once
    must use them a cycle later, too.
    """
    settled = Signal(name=name)
    m.d.sync += settled.eq(queue.unblocked & ~queue.pop)
    return settled


def _take(m: Module, queue: wiring.PureInterface, unit: Watching | WeightFetch, pop: Value) -> None:
    """Offer the oldest command of a queue to its unit, which drops it with `pop`."""
    m.d.comb += [
        unit.command.eq(queue.command),
        unit.command_valid.eq(queue.valid),
        queue.pop.eq(pop),
    ]


def _report(
    m: Module, entries: wiring.PureInterface, advance: Value, advance_to: Value, retire: Value
) -> None:
    """Report to a list the progress of its oldest instruction, see ListSignature."""
    m.d.comb += [
        entries.advance.eq(advance),
        entries.advance_to.eq(advance_to),
        entries.retire.eq(retire),
    ]


def _show_awaited(
    m: Module, board: Scoreboard, queue: wiring.PureInterface, unit: Watching
) -> None:
    """Connect the masks of a unit's queue with the unit, and the progress of the lists that they
    name.

    The queue and the unit may have the masks in different orders.
    """
    for mask, _ in unit.masks.shape():
        m.d.comb += [
            unit.masks[mask].eq(queue.masks[mask]),
            unit.progress[mask].eq(getattr(board, list_of(mask)).progress),
        ]
