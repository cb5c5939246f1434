"""The content of consumerFilter.json: the filters of groups that are no tag expressions.

See docs/storage/files.md#the-json-of-state-files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from roquet.common.java import Int32, Int64
from roquet.protocol.bodies.body import Body, JsonMember, WriteOnly
from roquet.protocol.filters.tags import SQL92


@dataclass(frozen=True, slots=True)
class BloomData(Body):
    """The Bloom filter bits of one group (`positions`), of `bits` in all."""

    bits: Annotated[Int32, JsonMember("bitNum")]
    positions: Annotated[tuple[Int32, ...], JsonMember("bitPos")]


@dataclass(frozen=True, slots=True)
class FilterData(Body):
    """ConsumerFilterData: the filter of a group for a topic. Times in ms.

    `version` is that of the client's subscription (docs/protocol/json.md#subscriptions). Messages
    stored after `born_ms` were tested with the filter when they were stored. `dead_ms` is when the
    group's last member left, 0 while it has members.
    """

    WRITE_ONLY: ClassVar[WriteOnly] = {"dead": lambda self: self.is_dead}

    topic: str
    group: Annotated[str, JsonMember("consumerGroup")]
    expression: str
    version: Annotated[Int64, JsonMember("clientVersion")] = 0
    born_ms: Annotated[Int64, JsonMember("bornTime")] = 0
    dead_ms: Annotated[Int64, JsonMember("deadTime")] = 0
    bloom: Annotated[BloomData | None, JsonMember("bloomFilterData", is_optional=True)] = None
    expression_type: str = SQL92

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms


def _read_topics(json: Mapping[str, Any] | None) -> dict[str, dict[str, FilterData]]:
    return {
        topic: {
            group: FilterData.from_json(data)
            for group, data in (groups.get("groupFilterData") or {}).items()
        }
        for topic, groups in (json or {}).items()
    }


def _write_topics(filters: Mapping[str, Mapping[str, FilterData]]) -> dict[str, Any]:
    return {
        topic: {
            "groupFilterData": {group: data.to_json() for group, data in groups.items()},
            "topic": topic,
        }
        for topic, groups in filters.items()
    }


@dataclass(frozen=True, slots=True)
class FilterTable(Body):
    """Topic -> group -> filter."""

    filters: Annotated[
        Mapping[str, Mapping[str, FilterData]],
        JsonMember("filterDataByTopic", read=_read_topics, write=_write_topics),
    ] = field(default_factory=dict)
