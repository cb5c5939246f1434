"""Checks startingOffsetsByTimestampStrategy=error: each queue must have a message of its time."""

from __future__ import annotations

from collections.abc import Iterator

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import none_so_young
from roquet.spark._options.start_end import AtTime
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.rows import RowChoice
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scanner import LogScanner, arrival_at
from roquet.storetool.read.queue_entries import entries_of


def check_times(files: StoreFiles, broker_name: str, options: StoreOptions, end: int) -> None:
    """Check that each wanted queue has a message stored at or after its starting time.

    :param end: the physical offset of the log's end.
    :raises OptionError: a queue has none, and the strategy is `error`; or the store has no queues.
    """
    wants = RowChoice(options, broker_name).wants
    places = {
        MessageQueue(topic, broker_name, number): (topic, number) for topic, number in files.queues
    }
    asked = [
        (queue, options.starting.of(queue)) for queue, key in sorted(places.items()) if wants(*key)
    ]
    strict = [(queue, at.ms) for queue, at in asked if isinstance(at, AtTime) and not at.or_latest]
    if (
        not places
        and isinstance(options.starting.default, AtTime)
        and not options.starting.default.or_latest
    ):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy: {files.root} has no queues, "
            "so only latest is possible"
        )
    old = {queue: ms for queue, ms in strict if _last_ms(files, places[queue]) < ms}
    for queue, ms in old.items():
        if not any(
            key == places[queue] and stored >= ms for key, stored in _not_in_queues(files, end)
        ):
            raise none_so_young(queue, ms)


def _last_ms(files: StoreFiles, key: tuple[str, int]) -> int:
    """The store time (ms) of the last message of a queue; -1 without messages."""
    entries = entries_of(files, *key)
    last = entries.read(max(0, entries.end() - 1), 1)
    record = arrival_at(files.log, int(last[0]["physical"])) if len(last) else ""
    return -1 if isinstance(record, str) else record.store_ms


def _not_in_queues(files: StoreFiles, end: int) -> Iterator[tuple[tuple[str, int], int]]:
    """Queue and store time of the records at the end of the log that are in no queue yet."""
    start = max(
        (entries_of(files, *key).log_end() for key in files.queues), default=files.log.start
    )
    for block in LogScanner(files.log, end, start=start, limit=end).blocks():
        shape = block.shape
        topics = [
            block.data[at:to].decode()
            for at, to in zip(shape.topic_at, shape.topic_end, strict=True)
        ]
        yield from zip(
            zip(topics, block.queue_ids.tolist(), strict=True), block.store_ms.tolist(), strict=True
        )
