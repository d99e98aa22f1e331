# SPDX-License-Identifier: Apache-2.0
"""One AXI4 port for the memories of all cores of a pod."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.shared_memory import SharedMemory
from systola.hdl.pod.read_mux import ReadMux
from systola.hdl.pod.read_widener import ReadWidener
from systola.hdl.pod.weight_broadcast import WeightBroadcast
from systola.hdl.pod.word_ports import NarrowPort
from systola.hdl.pod.write_mux import WriteMux
from systola.hdl.pod.write_widener import WriteWidener
from systola.hdl.transfers.axi import ReadSignature, WriteSignature, master_ports


def memory_ports(config: Config, cores: int, shared: SharedMemory) -> dict[str, wiring.Member]:
    """Return the AXI4 masters of a pod in which all cores share one memory."""
    size = {"address_bits": config.address_bits, "data_bytes": shared.word_bytes}
    read_ids, write_ids = ceil_log2(_readers(cores, shared)), ceil_log2(max(cores, 2))
    return {
        "memory_read": Out(ReadSignature(**size, id_bits=read_ids)),
        "memory_write": Out(WriteSignature(**size, id_bits=write_ids)),
    }


def _readers(cores: int, shared: SharedMemory) -> int:
    return cores + (1 if shared.broadcast else cores)


class MemoryMux(wiring.Component):
    """A unit that joins the ports of `cores` cores to a read and a write half of one AXI4 port.

    | port                                     | meaning |
    |---|---|
    | `host_read`, `host_write`, `weight_read` | slaves, one of each for each core |
    | `together`                               | all cores start in this cycle |
    | `memory_read`, `memory_write`            | the masters |

    A read of host memory by core i has the ID i, and so has a write. A read of weights has the ID
    `cores`, or without broadcast `cores` + i. Bursts consist of whole words of the memory. So the
    first and the last word of a read may have bytes that were not requested. The docstrings of the
    units in this folder describe their buffers and their order of service.
    """

    def __init__(self, *, config: Config, cores: int, shared: SharedMemory):
        shared.check(config)
        self._config, self._cores, self._shared = config, cores, shared
        ports = master_ports(config).items()
        super().__init__(
            {
                **{name: In(port.signature).array(cores) for name, port in ports},
                "together": In(1),
                **memory_ports(config, cores, shared),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, shared = self._cores, self._shared
        size = {"address_bits": self._config.address_bits, "word_bytes": shared.word_bytes}
        reads = m.submodules.reads = ReadMux(readers=_readers(count, shared), **size)
        writes = m.submodules.writes = WriteMux(writers=count, **size)
        connect(m, reads.bus, flipped(self.memory_read))
        connect(m, writes.bus, flipped(self.memory_write))
        host_port = self._port(self._config.host_bus_bytes)
        weight_port = self._port(self._config.weight_bus_bytes)
        weights = list[ReadWidener]()
        for number in range(count):
            host = m.submodules[f"host_{number}"] = ReadWidener(port=host_port)
            weight = m.submodules[f"weight_{number}"] = ReadWidener(port=weight_port)
            writer = m.submodules[f"writer_{number}"] = WriteWidener(port=host_port)
            weights.append(weight)
            connect(m, flipped(self.host_read[number]), host.bus)
            connect(m, flipped(self.weight_read[number]), weight.bus)
            connect(m, flipped(self.host_write[number]), writer.bus)
            connect(m, host.request, reads.requests[number])
            connect(m, writer.request, writes.requests[number])
            connect(m, writer.words, writes.words[number])
            m.d.comb += [
                host.word_valid.eq(reads.word_valid[number]),
                host.word.eq(reads.word),
                weight.word.eq(reads.word),
                writer.answered.eq(writes.answered[number]),
                writer.answer.eq(writes.answer),
            ]
        if not shared.broadcast:
            for number, weight in enumerate(weights, count):
                connect(m, weight.request, reads.requests[number])
                m.d.comb += weight.word_valid.eq(reads.word_valid[number])
            return m
        broadcast = m.submodules.broadcast = WeightBroadcast(cores=count, **size)
        connect(m, broadcast.request, reads.requests[count])
        m.d.comb += [
            broadcast.together.eq(self.together),
            broadcast.word_valid.eq(reads.word_valid[count]),
            broadcast.last.eq(reads.word.last),
        ]
        for number, weight in enumerate(weights):
            connect(m, weight.request, broadcast.requests[number])
            m.d.comb += weight.word_valid.eq(broadcast.to[number])
        return m

    def _port(self, bus_bytes: int) -> NarrowPort:
        return NarrowPort(
            address_bits=self._config.address_bits,
            bus_bytes=bus_bytes,
            word_bytes=self._shared.word_bytes,
            max_burst_beats=self._config.max_burst_beats,
        )
