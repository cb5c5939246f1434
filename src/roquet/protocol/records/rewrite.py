"""Rewrites stored records for other topics and queues; message and properties stay the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from roquet.protocol.records.block import RecordBlock, v6_more
from roquet.protocol.records.columns import Ints, scatter
from roquet.protocol.records.message import BORN_HOST_V6, STORE_HOST_V6


def moved_sizes(block: RecordBlock, topics: Sequence[bytes]) -> Ints:
    """The size in bytes of each record with its new topic."""
    shape = block.shape
    sizes = np.fromiter(map(len, topics), np.int64, len(topics))
    return block.sizes + sizes - (shape.topic_end - shape.topic_at)


def rewritten(
    block: RecordBlock,
    topics: Sequence[bytes],
    queue_ids: Ints,
    queue_offsets: Ints,
    at: int,
    store_ms: int,
) -> RecordBlock:
    """Rewrite the records of `block` for other queues, from physical offset `at` on.

    Their prepared transaction offset becomes 0: they belong to no transaction any more.

    :param block: sound records.
    :param topics: the new topic of each record, at most 127 bytes.
    :param store_ms: the new store time of all records.
    """
    data, shape, sizes = block.data, block.shape, moved_sizes(block, topics)
    pieces: list[bytes] = []
    heads = (block.starts.tolist(), (shape.topic_at - 1).tolist())
    for start, head_end, topic, rest, end in zip(
        *heads, topics, shape.topic_end.tolist(), block.ends.tolist(), strict=True
    ):
        pieces += (data[start:head_end], len(topic).to_bytes(1, "big"), topic, data[rest:end])
    ends = np.cumsum(sizes)
    starts = ends - sizes
    records = bytearray().join(pieces)
    born_more = v6_more(block.sys_flags, BORN_HOST_V6)
    both_more = born_more + v6_more(block.sys_flags, STORE_HOST_V6)
    scatter(records, ">i4", starts, sizes)
    scatter(records, ">i4", starts + 12, queue_ids)
    scatter(records, ">i8", starts + 20, queue_offsets)
    scatter(records, ">i8", starts + 28, starts + at)
    scatter(records, ">i8", starts + 56 + born_more, np.full(len(block), store_ms))
    scatter(records, ">i8", starts + 76 + both_more, np.zeros(len(block)))
    return RecordBlock(at, bytes(records), starts, len(records))
