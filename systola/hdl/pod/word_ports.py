# SPDX-License-Identifier: Apache-2.0
"""Layouts for the units of a pod's shared memory port; a word is as wide as this port."""

from dataclasses import dataclass

from amaranth.lib import data
from amaranth.utils import exact_log2

from systola.hdl.transfers.axi import Response


class WordBurst(data.StructLayout):
    """A burst of `length` + 1 words; `word` is the number of its first word in memory."""

    def __init__(self, *, address_bits: int, word_bytes: int):
        super().__init__({"word": address_bits - exact_log2(word_bytes), "length": 8})


class ReadWord(data.StructLayout):
    """A word from memory. `last`: it is the last word of its burst."""

    def __init__(self, *, word_bytes: int):
        super().__init__({"data": 8 * word_bytes, "response": Response, "last": 1})


class WriteWord(data.StructLayout):
    """A word for memory. `last`: it is the last word of its burst."""

    def __init__(self, *, word_bytes: int):
        super().__init__({"data": 8 * word_bytes, "strobe": word_bytes, "last": 1})


@dataclass(frozen=True, kw_only=True)
class NarrowPort:
    """A port of a core, `bus_bytes` wide, on a memory that has words of `word_bytes` bytes."""

    address_bits: int
    bus_bytes: int
    word_bytes: int
    max_burst_beats: int

    @property
    def ratio(self) -> int:
        """Return the number of beats in a word."""
        return self.word_bytes // self.bus_bytes

    @property
    def beat_bits(self) -> int:
        """Return the number of address bits that select a byte of a beat."""
        return exact_log2(self.bus_bytes)

    @property
    def word_bits(self) -> int:
        """Return the number of address bits that select a byte of a word."""
        return exact_log2(self.word_bytes)

    @property
    def most_words(self) -> int:
        """Return the largest number of words that a burst of a core touches."""
        return (self.max_burst_beats + self.ratio - 2) // self.ratio + 1

    @property
    def burst(self) -> WordBurst:
        """Return the layout of a burst of this port, in words."""
        return WordBurst(address_bits=self.address_bits, word_bytes=self.word_bytes)
