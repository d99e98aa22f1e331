# SPDX-License-Identifier: Apache-2.0
"""Signatures of the AXI ports, with the flat member names of the AMBA specification.

AMBA AXI and ACE Protocol Specification, ARM IHI 0022. All bursts are INCR and full width.
"""

from amaranth.hdl import Value
from amaranth.lib import enum, wiring
from amaranth.lib.enum import EnumView
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config

BOUNDARY_BYTES = 4096
"""Boundary in bytes: no burst crosses a multiple of it (IHI 0022, A3.4.1)."""


class Response(enum.Enum, shape=2):
    """A response of a memory, in RRESP or BRESP."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


def is_error(response: EnumView) -> Value:
    """Return whether a transfer with this response has failed: SLVERR or DECERR."""
    return response.as_value()[1]


class ReadSignature(wiring.Signature):
    """A signature that has the read channels AR and R, seen from the master.

    | members                                        | meaning |
    |---|---|
    | `arvalid`, `arready`                           | handshake of a burst's request |
    | `arid`, `araddr`, `arlen`, `arsize`, `arburst` | the burst: ID, byte address, beats - 1, size
                                                       of a beat (full width), INCR |
    | `rvalid`, `rready`                             | handshake of a beat |
    | `rid`, `rdata`, `rresp`, `rlast`               | the beat: ID of its burst, data, Response,
                                                       last beat of its burst |
    """

    def __init__(self, *, address_bits: int, data_bytes: int, id_bits: int = 1):
        super().__init__(
            {
                "arid": Out(id_bits),
                "araddr": Out(address_bits),
                "arlen": Out(8),
                "arsize": Out(3, init=exact_log2(data_bytes)),
                "arburst": Out(2, init=1),
                "arvalid": Out(1),
                "arready": In(1),
                "rid": In(id_bits),
                "rdata": In(8 * data_bytes),
                "rresp": In(Response),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


class WriteSignature(wiring.Signature):
    """A signature that has the write channels AW, W and B, seen from the master.

    | members                                        | meaning |
    |---|---|
    | `awvalid`, `awready`                           | handshake of a burst's announcement |
    | `awid`, `awaddr`, `awlen`, `awsize`, `awburst` | the burst: ID, byte address, beats - 1, size
                                                       of a beat (full width), INCR |
    | `wvalid`, `wready`                             | handshake of a beat |
    | `wdata`, `wstrb`, `wlast`                      | the beat: data, enables of its bytes, last
                                                       beat of its burst |
    | `bvalid`, `bready`                             | handshake of the answer to a burst |
    | `bid`, `bresp`                                 | the answer: ID of the burst, Response |
    """

    def __init__(self, *, address_bits: int, data_bytes: int, id_bits: int = 1):
        super().__init__(
            {
                "awid": Out(id_bits),
                "awaddr": Out(address_bits),
                "awlen": Out(8),
                "awsize": Out(3, init=exact_log2(data_bytes)),
                "awburst": Out(2, init=1),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(8 * data_bytes),
                "wstrb": Out(data_bytes),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(id_bits),
                "bresp": In(Response),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )


def master_ports(config: Config) -> dict[str, wiring.Member]:
    """Return the masters of a machine: host memory, and weight memory, which is only read."""
    host = {"address_bits": config.address_bits, "data_bytes": config.host_bus_bytes}
    weight = {"address_bits": config.address_bits, "data_bytes": config.weight_bus_bytes}
    return {
        "host_read": Out(ReadSignature(**host)),
        "host_write": Out(WriteSignature(**host)),
        "weight_read": Out(ReadSignature(**weight)),
    }


class LiteSignature(wiring.Signature):
    """A signature that has the channels of AXI4-Lite with 32-bit data, seen from the master.

    | members                                  | meaning |
    |---|---|
    | `awvalid`, `awready`, `awaddr`, `awprot` | address of a write, and its protection (ignored) |
    | `wvalid`, `wready`, `wdata`, `wstrb`     | data of a write, and enables of its bytes |
    | `bvalid`, `bready`, `bresp`              | answer to a write |
    | `arvalid`, `arready`, `araddr`, `arprot` | address of a read, and its protection (ignored) |
    | `rvalid`, `rready`, `rdata`, `rresp`     | data of a read, and the answer |
    """

    def __init__(self, *, address_bits: int):
        super().__init__(
            {
                "awaddr": Out(address_bits),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(Response),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_bits),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(Response),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )
