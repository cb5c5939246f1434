"""What our Spark source reads from a store's files, beside what the log has by a reader that shares
nothing with it.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from tests.interop.stored import Stored, log_queues
from tests.spark.store_rows import Row, rows

NOT_OF_APPLICATIONS = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "SCHEDULE_TOPIC_", "OFFSET_MOVED_EVENT")
PART = "200000"
"""Bytes: the log is cut into some dozens of parts."""


def assert_read_as_rows(store_dir: Path) -> None:
    """Every message in a queue is one row, with what was sent; and without being asked for, those
    of applications.
    """
    stored = log_queues(store_dir)
    topics = sorted({topic for topic, _ in stored})
    found = rows(store_dir, subscribe=",".join(topics), bytesPerPartition=PART)
    assert len({row["commitLogOffset"] for row in found}) == len(found)
    by_place = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in found}
    for (topic, queue_id), has in stored.items():
        for offset, each in has.items():
            assert_says(by_place.pop((topic, queue_id, offset)), each)
    assert by_place == {}
    plain = {topic for topic in topics if not topic.startswith(NOT_OF_APPLICATIONS)}
    assert {row["topic"] for row in rows(store_dir)} == plain


def assert_says(row: Row, each: Stored) -> None:
    said: dict[str, Any] = {
        "at": row["commitLogOffset"],
        "flags": row["sysFlag"],
        "crc": row["bodyCRC"],
    }
    assert said == {
        "at": each.at,
        "flags": each.sys_flag,
        "crc": zlib.crc32(each.body) & 0x7FFFFFFF,
    }
    assert row["body"].decode() == each.text
    assert dict(row["properties"]) == {
        name: value for name, value in each.properties.items() if value
    }
    assert (row["tags"], row["keys"]) == (each.properties.get("TAGS"), each.properties.get("KEYS"))
    assert row["msgId"] == each.properties.get("UNIQ_KEY", each.offset_message_id)
