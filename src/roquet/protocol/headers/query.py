"""Headers of queries by key: QUERY_MESSAGE 12.

See docs/pitfalls.md#trap-45 and docs/protocol/administration.md#query-by-key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from roquet.common.units import Int32, Int64
from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class QueryMessageHeader(Header):
    SPELLING: ClassVar = {"unique_key": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key: bool = False


@dataclass(frozen=True, slots=True)
class QueryMessageAnswer(Header):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64
