"""How replication stands at one broker: the body of GET_BROKER_HA_STATUS, which 5.x has (HARuntimeInfo), and what
every version says of its log in the body of GET_BROKER_RUNTIME_INFO.

`from_json` and `to_json` as in `bodies`. The members from `state` on are ours; 5.x's tools pass over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roquet.protocol.json.numbers import json_long


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """One slave, as its master sees it. Places and sizes in bytes, times in ms.

    `behind_ms`: how long the master has had what the slave lacks; `silent_ms`: since it was last heard.
    `reason`: why it is gone; empty while it is connected.
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
    """A slave, as it sees itself. `heard_ms` and `told_ms` are moments in ms since the epoch, 0 where there is none.

    `reason`: why it does not follow; empty while it does.
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
    """`slaves` of a master, `follower` of a slave; `end` of the broker's own log, in bytes.

    `trouble`: what is wrong with the broker's own store, empty while nothing is.
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
    """Where a broker's log begins and ends, in bytes."""

    start: int
    end: int

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> LogRange:
        return cls(
            json_long(json["table"], "commitLogMinOffset"),
            json_long(json["table"], "commitLogMaxOffset"),
        )
