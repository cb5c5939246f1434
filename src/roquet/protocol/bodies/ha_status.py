"""The replication status of one broker, and the bounds of its log.

The status is the body of GET_BROKER_HA_STATUS (5.x's HARuntimeInfo). The bounds are in the body of
GET_BROKER_RUNTIME_INFO, in all versions. The members from `state` on are roquet's own; 5.x's tools
ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from roquet.common.java import Int64
from roquet.protocol.bodies.body import Body, JsonMember, WriteOnly
from roquet.protocol.json.numbers import json_long


@dataclass(frozen=True, slots=True)
class SlaveStatus(Body):
    """A slave, as its master sees it. Offsets and sizes in bytes, times in ms.

    `acked` and `sent` are physical offsets, `behind` is the lag. `behind_ms` is the lag in time,
    `silent_ms` the time since the last report. `reason` is why the slave is disconnected, empty
    while it is connected.
    """

    address: Annotated[str, JsonMember("addr")] = ""
    acked: Annotated[Int64, JsonMember("slaveAckOffset")] = 0
    behind: Annotated[Int64, JsonMember("diff")] = 0
    is_in_sync: Annotated[bool, JsonMember("inSync")] = False
    bytes_per_s: Annotated[Int64, JsonMember("transferredByteInSecond")] = 0
    sent: Annotated[Int64, JsonMember("transferFromWhere")] = 0
    state: Annotated[str, JsonMember("state", is_roquet_only=True)] = ""
    behind_ms: Annotated[Int64, JsonMember("diffMs", is_roquet_only=True)] = 0
    silent_ms: Annotated[Int64, JsonMember("silentMs", is_roquet_only=True)] = 0
    reason: Annotated[str, JsonMember("reason", is_roquet_only=True)] = ""


@dataclass(frozen=True, slots=True)
class FollowerStatus(Body):
    """A slave, as it sees itself.

    `heard_ms` and `told_ms` are when it last heard from and reported to the master, in ms since the
    epoch, 0 for never. `reason` is why it does not replicate, empty while it does.
    """

    WRITE_ONLY: ClassVar[WriteOnly] = {"masterFlushOffset": lambda _: 0}

    master: Annotated[str, JsonMember("masterAddr")] = ""
    bytes_per_s: Annotated[Int64, JsonMember("transferredByteInSecond")] = 0
    end: Annotated[Int64, JsonMember("maxOffset")] = 0
    heard_ms: Annotated[Int64, JsonMember("lastReadTimestamp")] = 0
    told_ms: Annotated[Int64, JsonMember("lastWriteTimestamp")] = 0
    is_active: Annotated[bool, JsonMember("activated")] = False
    state: Annotated[str, JsonMember("state", is_roquet_only=True)] = ""
    reason: Annotated[str, JsonMember("reason", is_roquet_only=True)] = ""


@dataclass(frozen=True, slots=True)
class HaStatus(Body):
    """The replication status of a broker.

    A master has `slaves`, a slave has `follower`. `end` is the physical offset of its log's end.
    `trouble` is what is wrong with its store, empty if nothing is.
    """

    WRITE_ONLY: ClassVar[WriteOnly] = {
        "inSyncSlaveNums": lambda self: sum(slave.is_in_sync for slave in self.slaves),
        "master": lambda self: self.is_master,
    }

    end: Annotated[Int64, JsonMember("masterCommitLogMaxOffset")] = 0
    slaves: Annotated[tuple[SlaveStatus, ...], JsonMember("haConnectionInfo")] = ()
    follower: Annotated[FollowerStatus | None, JsonMember("haClientRuntimeInfo")] = None
    trouble: Annotated[str, JsonMember("storeTrouble", is_optional=True)] = ""

    @property
    def is_master(self) -> bool:
        return self.follower is None

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Self:
        """As `Body.from_json`. A 5.x master has a follower's members, too, without a meaning."""
        if json.get("master", True):
            follower = None
        else:
            follower = {"activated": False, **(json.get("haClientRuntimeInfo") or {})}
        return super(HaStatus, cls).from_json({**json, "haClientRuntimeInfo": follower})


@dataclass(frozen=True, slots=True)
class LogRange:
    """The first physical offset of a broker's log, and the one after its last record."""

    start: int
    end: int

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> LogRange:
        return cls(
            json_long(json["table"], "commitLogMinOffset"),
            json_long(json["table"], "commitLogMaxOffset"),
        )
