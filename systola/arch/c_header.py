# SPDX-License-Identifier: Apache-2.0
"""Registers, their bits and the faults as a C header, for the driver of a host."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from enum import IntFlag

from systola.arch.isa import FAULT_TEXT, Fault
from systola.arch.registers import (
    CYCLE_CLASS_TEXT,
    IDENTITY,
    POD_IDENTITY,
    POD_REGISTER_TEXT,
    PROGRAM_ALIGNMENT,
    REGISTER_SPACE_BITS,
    REGISTER_TEXT,
    TRACE_DEPTH,
    VERSION,
    BusPort,
    CheckedMemory,
    Control,
    CycleClass,
    Feature,
    Interrupt,
    PodInterrupt,
    Status,
    counter_offset,
)

_FLAGS: tuple[tuple[str, type[IntFlag], str], ...] = (
    ("CONTROL", Control, "bits of CONTROL, of a pod, too"),
    ("STATUS", Status, "bits of STATUS; a pod has no WAITING"),
    ("IRQ", Interrupt, "bits of IRQ_STATUS and IRQ_ENABLE"),
    ("FEATURE", Feature, "bits of FEATURES"),
    ("POD_IRQ", PodInterrupt, "bits of IRQ_STATUS and IRQ_ENABLE of a pod"),
    ("BUS", BusPort, "bits of FAULT_ADDRESS after BUS_TIMEOUT"),
    ("MEMORY", CheckedMemory, "bits of FAULT_ADDRESS after MEMORY_ERROR"),
)


def c_header() -> str:
    """Return the text of systola.h without its first comment: macros only, for C and C++."""
    numbers = (
        ("ID_VALUE", IDENTITY, "value of ID"),
        ("POD_ID_VALUE", POD_IDENTITY, "value of ID of a pod"),
        ("VERSION_VALUE", VERSION, "value of VERSION"),
        ("PAGE_BYTES", 1 << REGISTER_SPACE_BITS, "of registers; core i of a pod has page i + 1"),
        ("PROGRAM_ALIGNMENT", PROGRAM_ALIGNMENT, "in bytes, of the start of a program"),
        ("TRACE_DEPTH", TRACE_DEPTH, "pairs of words in TRACE"),
    )
    lines = ["#ifndef SYSTOLA_H", "#define SYSTOLA_H", "", "/* Numbers. */"]
    lines += (define(name, value, text) for name, value, text in numbers)
    lines += ["", "/* Byte offsets of the registers, of 32 bits each. */"]
    for register, text in REGISTER_TEXT.items():
        lines.append(define(register.name, register, f"{text.access}: {text.doc}"))
    lines += [
        "",
        "/* Byte offsets of the low words of the counters; the high words are 4 further. */",
    ]
    for which in CycleClass:
        lines.append(
            define(f"COUNTER_{which.name}", counter_offset(which), CYCLE_CLASS_TEXT[which])
        )
    lines += ["", "/* Byte offsets of the registers of a pod. */"]
    for pod_register, text in POD_REGISTER_TEXT.items():
        name = f"POD_{pod_register.name}"
        lines.append(define(name, pod_register, f"{text.access}: {text.doc}"))
    for prefix, flags, what in _FLAGS:
        lines += ["", f"/* {what[0].upper()}{what[1:]}. */", *_members(prefix, flags)]
    lines += ["", "/* Values of FAULT_CAUSE, and the meaning of FAULT_ADDRESS after each. */"]
    for fault in Fault:
        meaning, address = FAULT_TEXT[fault]
        lines.append(define(f"FAULT_{fault.name}", fault, f"{meaning}. FAULT_ADDRESS: {address}"))
    return "\n".join([*lines, "", "#endif", ""])


def define(name: str, value: int, text: str) -> str:
    """Return the definition of a macro SYSTOLA_`name`, with `text` as a comment above it.

    `value` is an unsigned number of up to 32 bits. `text` must not contain the end of a comment.
    """
    comment = textwrap.fill(f"/* {text.replace('`', '')} */", 96, subsequent_indent="   ")
    return f"{comment}\n#define SYSTOLA_{name} 0x{value:x}u"


def _members(prefix: str, flags: type[IntFlag]) -> Iterator[str]:
    return (f"#define SYSTOLA_{prefix}_{flag.name} 0x{flag.value:x}u" for flag in flags)
