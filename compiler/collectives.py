# SPDX-License-Identifier: Apache-2.0
"""What the cores of a pod do together, as instructions for each of them; bounds in docs/pod.md."""

from __future__ import annotations

from collections.abc import Iterator

from systola.arch.isa import Opcode, Side, encode


def all_reduce(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """Accumulator rows `first` to `first` + `rows` - 1 become the sums of those of all `cores`.

    One half of the rows goes around to the right, the other to the left, in pieces: each is added
    up on its way through all cores, and then goes around once more as it is.
    """
    words = reduce_scatter(core, cores, first, rows)
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1, 2 * (cores - 1))):
        words += _exchange(way, "accumulator", _moved(piece, first), _moved(came, first), adds=0)
    return words


def reduce_scatter(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """The first half of all_reduce: the sums of all cores are in the rows of `share_of_rows`, the
    others hold sums of some."""
    words: list[bytes] = []
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1)):
        words += _exchange(way, "accumulator", _moved(piece, first), _moved(came, first), adds=1)
    return words


def share_of_rows(core: int, cores: int, rows: int) -> list[range]:
    """What of `rows` rows a core has the sums of after reduce_scatter."""
    found = [_piece(way, core, cores, rows, cores - 1) for way in (1, -1)]
    return [piece for piece in found if piece]


def all_gather_rows(core: int, cores: int, first: int, rows: int, lines: int) -> list[bytes]:
    """The second half of all_reduce for buffer lines, `lines` of them for each row: those from
    `first` on that belong to the rows that a core has become those of all cores."""
    words: list[bytes] = []
    for way, piece, came in _rounds(core, cores, rows, range(cores - 1, 2 * (cores - 1))):
        sent, received = (
            range(first + lines * part.start, first + lines * part.stop) for part in (piece, came)
        )
        words += _exchange(way, "buffer", sent, received)
    return words


def _rounds(core: int, cores: int, rows: int, steps: range) -> Iterator[tuple[int, range, range]]:
    """Of each step, for the way to the right, 1, and to the left, -1: what is sent there, and what
    comes from the other side."""
    for step in steps:
        for way in (1, -1):
            sent, came = (_piece(way, core, cores, rows, step + after) for after in (0, 1))
            yield way, sent, came


def _piece(way: int, core: int, cores: int, rows: int, step: int) -> range:
    """What a core sends in a step of what goes one way."""
    half = rows // 2
    start, count = (0, rows - half) if way == 1 else (rows - half, half)
    number = (way * core - step) % cores
    return range(start + number * count // cores, start + (number + 1) * count // cores)


def _moved(rows: range, first: int) -> range:
    return range(first + rows.start, first + rows.stop)


def _exchange(
    way: int, memory: str, sent: range, came: range, adds: int | None = None
) -> list[bytes]:
    """Instructions that send some rows or lines one way and take others from the other side.

    `adds`: whether sums that come are added; None for lines.
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
    """Puts `rows` buffer lines of all `cores`, each core's at `first`, behind each other: those of
    the core itself, then of its neighbour on the side they come from, and so on.

    Each line is sent on when it has come.
    """
    count, back = rows * (cores - 1), Side.LEFT if to == Side.RIGHT else Side.RIGHT
    return [
        encode(Opcode.RECEIVE, side=back, buffer=first + rows, rows=count),
        encode(Opcode.SEND, side=to, buffer=first, rows=count),
    ]


def broadcast(core: int, cores: int, root: int, first: int, rows: int) -> list[bytes]:
    """Buffer lines `first` to `first` + `rows` - 1 become those of core `root`.

    They go to the right from core to core, line by line. To both sides they would take twice as
    long where a line is one beat, as the buffer gives the link unit one in a cycle.
    """
    distance = (core - root) % cores
    lines = {"buffer": first, "rows": rows}
    words: list[bytes] = []
    if distance:
        words.append(encode(Opcode.RECEIVE, side=Side.LEFT, **lines))
    if distance < cores - 1:
        words.append(encode(Opcode.SEND, side=Side.RIGHT, **lines))
    return words
