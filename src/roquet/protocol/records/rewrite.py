"""Rewrites stored records for other topics and queues; message and properties stay the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from roquet.protocol.records.block import RecordBlock, scatter_field
from roquet.protocol.records.columns import Ints


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
    columns: tuple[tuple[str, npt.ArrayLike], ...] = (
        ("size", sizes),
        ("queue_id", queue_ids),
        ("queue_offset", queue_offsets),
        ("physical_offset", starts + at),
        ("store_ms", store_ms),
        ("prepared_offset", 0),
    )
    for name, values in columns:
        scatter_field(records, name, starts, block.hosts, values)
    return RecordBlock(at, bytes(records), starts, len(records))
