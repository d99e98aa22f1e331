# SPDX-License-Identifier: Apache-2.0
"""Registers as SystemRDL 2.0 (Accellera). PeakRDL makes IP-XACT, UVM and other forms of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntFlag

from systola.arch.registers import (
    POD_REGISTER_TEXT,
    REGISTER_SPACE_BITS,
    REGISTER_TEXT,
    TRACE_DEPTH,
    Control,
    CycleClass,
    Feature,
    Interrupt,
    PodInterrupt,
    PodRegister,
    Register,
    RegisterText,
    Status,
)

_ACCESS = {
    "RO": "sw = r; hw = w;",
    "RW": "sw = rw; hw = r;",
    "RWL": "sw = rw; hw = r;",
    "WO": "sw = w; hw = r; singlepulse; reset = 0;",
    "W1C": "sw = rw; hw = rw; onwrite = woclr;",
}
"""Properties of the fields of a register, by its access."""
_FLAGS: Mapping[str, type[IntFlag]] = {
    "CONTROL": Control,
    "STATUS": Status,
    "IRQ_ENABLE": Interrupt,
    "IRQ_STATUS": Interrupt,
    "FEATURES": Feature,
}
_POD_FLAGS = {**_FLAGS, "IRQ_ENABLE": PodInterrupt, "IRQ_STATUS": PodInterrupt}
_Fields = Sequence[tuple[str, int, int]]
"""Name, highest bit and lowest bit of each field."""
_PAIRS: Mapping[Register, tuple[int, _Fields]] = {
    Register.COUNTERS: (len(CycleClass), (("low", 31, 0), ("high", 47, 32))),
    Register.TRACE: (TRACE_DEPTH, (("cycle", 31, 0), ("tag", 63, 32))),
}
"""Registers that are arrays of 64-bit entries, read as two words each: their length and fields."""


def systemrdl(cores: int | None = None) -> str:
    """Return the text of systola.rdl without its first comment: for one core, or for a pod of
    `cores` cores.
    """
    registers = [
        _register(register.name, register, text, *_PAIRS.get(register, (0, _fields(register.name))))
        for register, text in REGISTER_TEXT.items()
    ]
    lines = ["addrmap systola {", '  name = "Registers of a core";', *registers, "};"]
    if cores is not None:
        pages = f"[{cores}] @ 0x{1 << REGISTER_SPACE_BITS:x} += 0x{1 << REGISTER_SPACE_BITS:x}"
        own = [
            _register(register.name, register, text, 0, _fields(register.name, _POD_FLAGS))
            for register, text in POD_REGISTER_TEXT.items()
        ]
        lines += ["", "addrmap systola_pod {", '  name = "Registers of a pod";', *own]
        lines += [f"  systola core{pages};", "};"]
    return "\n".join([*lines, ""])


def _fields(name: str, flags: Mapping[str, type[IntFlag]] = _FLAGS) -> _Fields:
    if name == Register.GEOMETRY.name:
        return (("rows", 15, 0), ("columns", 31, 16))
    if name == PodRegister.FIRST_FAULT.name:
        return (("cause", 7, 0), ("core", 31, 8))
    if name not in flags:
        return (("value", 31, 0),)
    bits = ((str(flag.name).lower(), flag.value.bit_length() - 1) for flag in flags[name])
    return [(field, bit, bit) for field, bit in bits]


def _register(name: str, offset: int, text: RegisterText, entries: int, fields: _Fields) -> str:
    """Return a register in SystemRDL; if `entries` is not 0, an array of `entries` registers of 64
    bits.
    """
    access = _ACCESS[text.access]
    lines = [
        "  reg {",
        *(["    regwidth = 64; accesswidth = 32;"] if entries else []),
        f'    desc = "{text.access}: {text.doc}";',
        *(f"    field {{ {access} }} {field}[{high}:{low}];" for field, high, low in fields),
    ]
    place = f"[{entries}] @ 0x{offset:x} += 8" if entries else f" @ 0x{offset:x}"
    return "\n".join([*lines, f"  }} {name}{place};"])
