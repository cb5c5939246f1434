"""Sound bytes of every kind, for fuzzers to begin with."""

from __future__ import annotations

import random
from functools import cache
from typing import Final

from roquet.protocol.records.message import tag_code
from roquet.storage.files.segments import file_name
from roquet.storage.store import Store
from tests.fuzz.targets import CONFIG, ROOT
from tests.simulation.disk import Drive
from tests.storage.records import append_one

BATCH: Final = (
    bytes.fromhex("0000001e0000000000000000000000000000000462617463" + "0006" + "4b455953016b")
    + b"h"
)
TEXTS: Final[dict[str, tuple[bytes, ...]]] = {
    "batch": (BATCH, b"TAGS\x01a\x02KEYS\x01b c\x02"),
    "state_file": (
        b'{"dataVersion":{"counter":3,"timestamp":1795193103506},"topicConfigTable":{"T":{"order":false,"perm":6,'
        b'"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}}}',
        b'{"offsetTable":{"T@g":{0:12,1:0,2:7}}}',
        b'{"offsetTable":{1:9,3:5}}',
        b'{"subscriptionGroupTable":{"g":{"brokerId":0,"groupName":"g","retryMaxTimes":16,"retryQueueNums":1}}}',
    ),
    "sql": (
        b"a > 5 AND (b = '5' OR NOT (colour IN ('red', 'it''s'))) -- note\n",
        b"/* x */ a NOT BETWEEN -1.5e3 AND b OR a IS NOT NULL = TRUE",
    ),
    "settings": (b"brokerRole=SLAVE\nlistenPort = 1\\\n 2\n# no\nkey:value\n",),
}


@cache
def store_files() -> dict[str, tuple[bytes, ...]]:
    """Log, queue, index and checkpoint of a small store, by the target that takes them."""
    drive = Drive(random.Random(1))
    store = Store(CONFIG, lambda: 1_700_000_000_000, drive.mount())
    store.open()
    for number in range(30):
        key, properties = b"%d" % number, b"TAGS\x01a\x02KEYS\x01%d" % number
        append_one(
            store,
            store.queue("T", number % 2),
            b"body %d" % number,
            properties,
            [key],
            tag_code("a"),
        )
    store.close()
    files = {path: bytes(file.cached[:]) for path, file in drive.names.files.items()}
    log = files[ROOT / "commitlog" / file_name(0)]
    (index,) = (data for path, data in files.items() if path.parent.name == "index")
    saved = files[ROOT / "checkpoint"]
    return {
        "record": (log,),
        "log": (log,),
        "queue": (files[ROOT / "consumequeue/T/1" / file_name(0)],),
        "index": (index,),
        "checkpoint": (saved,),
        "whole_store": (saved,),
    }


def samples(target: str) -> tuple[bytes, ...]:
    return TEXTS.get(target) or store_files()[target]
