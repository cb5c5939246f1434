"""The replication status of one broker, and the bounds of its log.

The status is the body of GET_BROKER_HA_STATUS (5.x's HARuntimeInfo). The bounds are in the body of
GET_BROKER_RUNTIME_INFO, in all versions. The members from `state` on are roquet's own; 5.x's tools
ignore them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roquet.protocol.json.numbers import json_long


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """A slave, as its master sees it. Offsets and sizes in bytes, times in ms.

    `acked` and `sent` are physical offsets, `behind` is the lag. `behind_ms` is the lag in time,
    `silent_ms` the time since the last report. `reason` is why the slave is disconnected, empty
    while it is connected.
    """

    address: str
    acked: int
    behind: int
    is_in_sync: bool
    bytes_per_s: int
    sent: int
    state: str = ""
    behind_ms: int = 0
    silent_ms: int = 0
    reason: str = ""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> SlaveStatus:
        return cls(
            str(json.get("addr", "")),
            json_long(json, "slaveAckOffset", 0),
            json_long(json, "diff", 0),
            bool(json.get("inSync", False)),
            json_long(json, "transferredByteInSecond", 0),
            json_long(json, "transferFromWhere", 0),
            str(json.get("state", "")),
            json_long(json, "diffMs", 0),
            json_long(json, "silentMs", 0),
            str(json.get("reason", "")),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "addr": self.address,
            "diff": self.behind,
            "inSync": self.is_in_sync,
            "slaveAckOffset": self.acked,
            "transferFromWhere": self.sent,
            "transferredByteInSecond": self.bytes_per_s,
            "state": self.state,
            "diffMs": self.behind_ms,
            "silentMs": self.silent_ms,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A slave, as it sees itself.

    `heard_ms` and `told_ms` are when it last heard from and reported to the master, in ms since the
    epoch, 0 for never. `reason` is why it does not replicate, empty while it does.
    """

    master: str
    bytes_per_s: int
    end: int
    heard_ms: int
    told_ms: int
    is_active: bool
    state: str = ""
    reason: str = ""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> FollowerStatus:
        return cls(
            str(json.get("masterAddr") or ""),
            json_long(json, "transferredByteInSecond", 0),
            json_long(json, "maxOffset", 0),
            json_long(json, "lastReadTimestamp", 0),
            json_long(json, "lastWriteTimestamp", 0),
            bool(json.get("activated", False)),
            str(json.get("state", "")),
            str(json.get("reason", "")),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "activated": self.is_active,
            "lastReadTimestamp": self.heard_ms,
            "lastWriteTimestamp": self.told_ms,
            "masterAddr": self.master,
            "masterFlushOffset": 0,
            "maxOffset": self.end,
            "transferredByteInSecond": self.bytes_per_s,
            "state": self.state,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class HaStatus:
    """The replication status of a broker.

    A master has `slaves`, a slave has `follower`. `end` is the physical offset of its log's end.
    `trouble` is what is wrong with its store, empty if nothing is.
    """

    end: int
    slaves: tuple[SlaveStatus, ...] = ()
    follower: FollowerStatus | None = None
    trouble: str = ""

    @property
    def is_master(self) -> bool:
        return self.follower is None

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> HaStatus:
        follower = json.get("haClientRuntimeInfo")
        return cls(
            json_long(json, "masterCommitLogMaxOffset", 0),
            tuple(SlaveStatus.from_json(each) for each in json.get("haConnectionInfo") or ()),
            None if json.get("master", True) else FollowerStatus.from_json(follower or {}),
            str(json.get("storeTrouble") or ""),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "haClientRuntimeInfo": None if self.follower is None else self.follower.to_json(),
            "haConnectionInfo": [slave.to_json() for slave in self.slaves],
            "inSyncSlaveNums": sum(slave.is_in_sync for slave in self.slaves),
            "master": self.is_master,
            "masterCommitLogMaxOffset": self.end,
            **({"storeTrouble": self.trouble} if self.trouble else {}),
        }


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
