# SPDX-License-Identifier: Apache-2.0
"""Operations that the cores of a pod do together, as instructions for each core.

The cores form a ring and are numbered from 0 to the right. The least number of cycles that each
operation can take is in docs/pod.md.

| word | meaning |
|---|---|
| way | the direction in which rows move: 1 to the right, -1 to the left |
| step | an exchange of all cores with both neighbours, counted from 0 |
"""

from __future__ import annotations

from collections.abc import Iterator

from systola.arch.isa import Opcode, Side, encode


def all_reduce(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """Return the instructions with which core `core` takes part in a sum over all cores of a pod.

    The pod has `cores` cores. In each core, accumulator rows `first` to `first` + `rows` - 1 are
    replaced by the sums of the same rows of all cores. One half of the rows goes around the ring to
    the right, the other half to the left, in pieces. On its first way around the ring a piece is
    added up. On its second way the complete sums are copied to all cores.
    """
    words = reduce_scatter(core, cores, first, rows)
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1, 2 * (cores - 1))):
        words += _exchange(way, "accumulator", _moved(piece, first), _moved(came, first), adds=0)
    return words


def reduce_scatter(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """Return the instructions of core `core` for the first half of all_reduce, in which sums are
    made.

    The arguments are as in all_reduce. After these instructions the core has complete sums in the
    rows that share_of_rows returns. The core's other rows hold sums of some cores only.
    """
    words: list[bytes] = []
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1)):
        words += _exchange(way, "accumulator", _moved(piece, first), _moved(came, first), adds=1)
    return words


def share_of_rows(core: int, cores: int, rows: int) -> list[range]:
    """Return the ranges of rows in which core `core` has complete sums after reduce_scatter.

    Rows are counted from 0 at the first of the `rows` rows that are summed.
    """
    found = [_piece(way, core, cores, rows, cores - 1) for way in (1, -1)]
    return [piece for piece in found if piece]


def all_gather_rows(core: int, cores: int, first: int, rows: int, lines: int) -> list[bytes]:
    """Return the instructions with which core `core` takes part in a copy of buffer lines to all
    cores.

    The lines belong to `rows` rows, with `lines` lines for each row; row 0 begins at line `first`.
    At the start a core has the lines of the rows that share_of_rows returns. At the end each core
    has the lines of all rows. The lines go around the ring in the same way as sums do in the second
    half of all_reduce.
    """
    words: list[bytes] = []
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1, 2 * (cores - 1))):
        sent, received = (
            range(first + lines * part.start, first + lines * part.stop) for part in (piece, came)
        )
        words += _exchange(way, "buffer", sent, received)
    return words


def _rounds(core: int, cores: int, rows: int, steps: range) -> Iterator[tuple[int, range, range]]:
    """Yield each exchange of core `core` as a way, the rows that it sends and the rows that it
    receives.

    Each step in `steps` has two exchanges, first with way 1 and then with way -1. Rows are counted
    from 0.
    """
    for step in steps:
        for way in (1, -1):
            sent, came = (_piece(way, core, cores, rows, step + after) for after in (0, 1))
            yield way, sent, came


def _piece(way: int, core: int, cores: int, rows: int, step: int) -> range:
    """Return the rows, counted from 0, that core `core` sends in step `step` in direction `way`.

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
    """Return instructions that exchange rows with both neighbours.

    The rows `sent` go to the next core in direction `way`. The rows `came` come from the core on
    the other side.

    `memory` is "accumulator" for rows of sums, or "buffer" for lines. For sums, `adds` is 1 if
    received rows are added to the accumulators, and 0 if received rows replace the rows there. For
    lines, `adds` is None.
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

    At the start each core has its own lines from line `first` on. At the end the lines of the other
    `cores` - 1 cores come after its own lines. The first of them are the lines of its neighbour on
    the side opposite to `to`. Each core sends its own lines to side `to`, and
    passes on the lines that it receives.
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
    line. To send lines to both sides, the root would read each line twice, and the buffer gives the
    link unit one line a cycle. So this would take twice as long if a line is one beat of a link.
    """
    distance = (core - root) % cores
    lines = {"buffer": first, "rows": rows}
    words: list[bytes] = []
    if distance:
        words.append(encode(Opcode.RECEIVE, side=Side.LEFT, **lines))
    if distance < cores - 1:
        words.append(encode(Opcode.SEND, side=Side.RIGHT, **lines))
    return words
