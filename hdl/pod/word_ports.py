# SPDX-License-Identifier: Apache-2.0
"""What passes between the units of a shared memory port, in words as wide as that."""

from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.hdl.transfers.axi import Response


class WordBurst(data.StructLayout):
    """A burst of `length` + 1 words from `word`, an address in words, on."""

    def __init__(self, *, address_bits: int, word_bytes: int):
        super().__init__({"word": address_bits - exact_log2(word_bytes), "length": 8})


class ReadWord(data.StructLayout):
    """A word from memory; `last`: of its burst."""

    def __init__(self, *, word_bytes: int):
        super().__init__({"data": 8 * word_bytes, "response": Response, "last": 1})


class WriteWord(data.StructLayout):
    """A word for memory; `last`: of its burst."""

    def __init__(self, *, word_bytes: int):
        super().__init__({"data": 8 * word_bytes, "strobe": word_bytes, "last": 1})


def most_words(*, bus_bytes: int, word_bytes: int, max_burst_beats: int) -> int:
    """How many words a burst of so many beats of `bus_bytes` touches at most."""
    ratio = word_bytes // bus_bytes
    return (max_burst_beats + ratio - 2) // ratio + 1
