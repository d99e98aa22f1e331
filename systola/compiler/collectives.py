# SPDX-License-Identifier: Apache-2.0
"""Operations that the cores of a pod do together, as instructions for each core.

The least number of cycles that each operation can take is in docs/pod.md. The cores form a ring.
"""

from __future__ import annotations

from collections.abc import Iterator

from systola.arch.isa import Opcode, Side, encode


def all_reduce(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """Return the instructions with which core `core` takes part in a sum over all cores of a pod.

    The pod has `cores` cores. Accumulator rows `first` to `first` + `rows` - 1 of each core become
    the sums of these rows of all cores. One half of the rows goes around the ring of cores to the
    right, the other half to the left, in pieces. A piece is added up on its way through all cores.
    Then the sums go around once more, unchanged.
    """
    words = reduce_scatter(core, cores, first, rows)
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1, 2 * (cores - 1))):
        words += _exchange(way, "accumulator", _moved(piece, first), _moved(came, first), adds=0)
    return words


def reduce_scatter(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """Return the instructions of one core for the first half of all_reduce, in which sums are made.

    After these instructions a core has complete sums in some rows, which share_of_rows returns. The
    core's other rows hold sums of some cores only.
    """
    words: list[bytes] = []
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1)):
        words += _exchange(way, "accumulator", _moved(piece, first), _moved(came, first), adds=1)
    return words


def share_of_rows(core: int, cores: int, rows: int) -> list[range]:
    """Return the ranges of rows in which core `core` has complete sums after reduce_scatter.

    Rows are counted from 0, and `rows` is the number of all rows.
    """
    found = [_piece(way, core, cores, rows, cores - 1) for way in (1, -1)]
    return [piece for piece in found if piece]


def all_gather_rows(core: int, cores: int, first: int, rows: int, lines: int) -> list[bytes]:
    """Return the instructions with which one core takes part in a copy of buffer lines to all
    cores.

    The lines go around in the same way as sums do in the second half of all_reduce. Each of `rows`
    rows of sums has `lines` buffer lines, and the lines of row 0 begin at line `first`. At the
    start a core has the lines of the rows that share_of_rows returns. After the instructions each
    core has the lines of all rows.
    """
    words: list[bytes] = []
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1, 2 * (cores - 1))):
        sent, received = (
            range(first + lines * part.start, first + lines * part.stop) for part in (piece, came)
        )
        words += _exchange(way, "buffer", sent, received)
    return words


def _rounds(core: int, cores: int, rows: int, steps: range) -> Iterator[tuple[int, range, range]]:
    """Yield a direction, the rows that a core sends and the rows that it receives, for each
    exchange.

    In each of the `steps`, all cores exchange rows with their neighbours once in each direction.
    The direction, called way, is 1 for rows that move to the right and -1 for rows that move to the
    left.
    """
    for step in steps:
        for way in (1, -1):
            sent, came = (_piece(way, core, cores, rows, step + after) for after in (0, 1))
            yield way, sent, came


def _piece(way: int, core: int, cores: int, rows: int, step: int) -> range:
    """Return the rows that a core sends in one step to the right (`way` 1) or to the left (-1).

    One half of all rows goes each way, in as many pieces as there are cores.
    """
    half = rows // 2
    start, count = (0, rows - half) if way == 1 else (rows - half, half)
    number = (way * core - step) % cores
    return range(start + number * count // cores, start + (number + 1) * count // cores)


def _moved(rows: range, first: int) -> range:
    return range(first + rows.start, first + rows.stop)


def _exchange(
    way: int, memory: str, sent: range, came: range, adds: int | None = None
) -> list[bytes]:
    """Return instructions that send rows to the neighbour on one side, and receive rows from the
    neighbour on the other side.

    Rows move to the right if `way` is 1, and to the left if it is -1. `memory` is "accumulator" for
    rows of sums, or "buffer" for lines. For sums, `adds` is 1 if received rows are added to the
    accumulators, and 0 if they replace rows there. For lines, `adds` is None.
    """
    to, back = (Side.RIGHT, Side.LEFT) if way == 1 else (Side.LEFT, Side.RIGHT)
    words: list[bytes] = []
    if sent:
        at = {"side": to, memory: sent.start, "rows": len(sent)}
        words.append(encode(Opcode.SEND, **at, sums=int(adds is not None)))
    if came:
        at = {"side": back, memory: came.start, "rows": len(came)}
        if adds is None:
            words.append(encode(Opcode.RECEIVE, **at))
        else:
            words.append(encode(Opcode.REDUCE, **at, accumulate=adds))
    return words


def all_gather(cores: int, first: int, rows: int, to: Side) -> list[bytes]:
    """Return instructions, equal for all cores, that copy `rows` buffer lines of each core to all.

    Each core has its own lines at line `first`. The lines of the other `cores` - 1 cores come after
    these, first the lines of the neighbour on the side opposite to `to`. Each core sends lines on,
    to the side `to`, as soon as they come.
    """
    count, back = rows * (cores - 1), Side.LEFT if to == Side.RIGHT else Side.RIGHT
    return [
        encode(Opcode.RECEIVE, side=back, buffer=first + rows, rows=count),
        encode(Opcode.SEND, side=to, buffer=first, rows=count),
    ]


def broadcast(core: int, cores: int, root: int, first: int, rows: int) -> list[bytes]:
    """Return the instructions of core `core` that copy buffer lines of core `root` to all other
    cores.

    The lines are `first` to `first` + `rows` - 1. They go to the right from core to core, line by
    line. A copy to both sides at once would take twice as long if a line is one beat of a link.
    This is because the buffer gives the link unit only one line in a cycle.
    """
    distance = (core - root) % cores
    lines = {"buffer": first, "rows": rows}
    words: list[bytes] = []
    if distance:
        words.append(encode(Opcode.RECEIVE, side=Side.LEFT, **lines))
    if distance < cores - 1:
        words.append(encode(Opcode.SEND, side=Side.RIGHT, **lines))
    return words
