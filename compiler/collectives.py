# SPDX-License-Identifier: Apache-2.0
"""What the cores of a pod do together, as instructions for each of them; bounds in docs/pod.md."""

from __future__ import annotations

from systola.arch.isa import Opcode, Side, encode


def all_reduce(core: int, cores: int, first: int, rows: int) -> list[bytes]:
    """Accumulator rows `first` to `first` + `rows` - 1 become the sums of those of all `cores`.

    One half of the rows goes around to the right, the other to the left, in pieces: each is added
    up on its way through all cores, and then goes around once more as it is.
    """
    half = rows // 2
    directions = (
        (Side.RIGHT, Side.LEFT, 1, first, rows - half),
        (Side.LEFT, Side.RIGHT, -1, first + rows - half, half),
    )
    words: list[bytes] = []
    for step in range(2 * (cores - 1)):
        for to, back, sign, start, count in directions:
            position = sign * core % cores
            for opcode, side, piece in (
                (Opcode.SEND, to, (position - step) % cores),
                (Opcode.REDUCE, back, (position - step - 1) % cores),
            ):
                begin, end = piece * count // cores, (piece + 1) * count // cores
                if begin == end:
                    continue
                where = {"side": side, "accumulator": start + begin, "rows": end - begin}
                if opcode == Opcode.SEND:
                    where["sums"] = 1
                else:
                    where["accumulate"] = int(step < cores - 1)
                words.append(encode(opcode, **where))
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
