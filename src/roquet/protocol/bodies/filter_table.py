"""The content of consumerFilter.json: the filters of groups that are no tag expressions.

See docs/storage/files.md#the-json-of-state-files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roquet.protocol.filters.tags import SQL92
from roquet.protocol.json.numbers import as_int32, json_int, json_long


@dataclass(frozen=True, slots=True)
class BloomData:
    """The Bloom filter bits of one group (`positions`), of `bits` in all."""

    bits: int
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FilterData:
    """ConsumerFilterData: the filter of a group for a topic. Times in ms.

    `version` is that of the client's subscription (docs/protocol/json.md#subscriptions). Messages
    stored after `born_ms` were tested with the filter when they were stored. `dead_ms` is when the
    group's last member left, 0 while it has members.
    """

    topic: str
    group: str
    expression: str
    version: int
    born_ms: int
    dead_ms: int = 0
    bloom: BloomData | None = None
    expression_type: str = SQL92

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> FilterData:
        bloom = json.get("bloomFilterData")
        return cls(
            str(json["topic"]),
            str(json["consumerGroup"]),
            str(json["expression"]),
            json_long(json, "clientVersion", 0),
            json_long(json, "bornTime", 0),
            json_long(json, "deadTime", 0),
            BloomData(json_int(bloom, "bitNum"), tuple(map(as_int32, bloom["bitPos"])))
            if bloom
            else None,
            str(json.get("expressionType") or SQL92),
        )

    def to_json(self) -> dict[str, Any]:
        bloom = (
            {"bitNum": self.bloom.bits, "bitPos": list(self.bloom.positions)}
            if self.bloom is not None
            else None
        )
        return {
            **({"bloomFilterData": bloom} if bloom is not None else {}),
            "bornTime": self.born_ms,
            "clientVersion": self.version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


@dataclass(frozen=True, slots=True)
class FilterTable:
    """Topic -> group -> filter."""

    filters: Mapping[str, Mapping[str, FilterData]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> FilterTable:
        by_topic = json.get("filterDataByTopic") or {}
        return cls(
            {
                topic: {
                    group: FilterData.from_json(data)
                    for group, data in (of.get("groupFilterData") or {}).items()
                }
                for topic, of in by_topic.items()
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "filterDataByTopic": {
                topic: {
                    "groupFilterData": {group: data.to_json() for group, data in groups.items()},
                    "topic": topic,
                }
                for topic, groups in self.filters.items()
            }
        }
