"""Files of logs that go because they are old, or because their drive is full: what is kept, and
what is answered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tests.simulation.nodes import BrokerNode

if TYPE_CHECKING:
    from tests.simulation.broker_set import BrokerSet

ALL_DAY: Final = ";".join(map(str, range(24)))
FILE_SIZES: Final = (8_192, 16_384)
PASS_S: Final = 75.0
"""So long after its start a broker has looked twice, at least, for files that may go."""


def keep_for(nodes: Iterable[BrokerNode], chance: random.Random, hours: int) -> None:
    """Before their start: these brokers delete what nobody has written to for so long, at any hour
    of the day.
    """
    _change(nodes, chance, hours, ALL_DAY)


def keep_while_there_is_room(nodes: Iterable[BrokerNode], chance: random.Random) -> None:
    """Before their start: these brokers delete nothing before their drive is full."""
    _change(nodes, chance, 72, "04")


def _change(
    nodes: Iterable[BrokerNode], chance: random.Random, hours: int, delete_when: str
) -> None:
    size, queue_size = chance.choice(FILE_SIZES), 20 * chance.choice((10, 50))
    for node in nodes:
        store = replace(
            node.config.store,
            mapped_file_size_commit_log=size,
            mapped_file_size_consume_queue=queue_size,
            flush_consume_queue_thorough_interval=chance.choice((2_000, 10_000)),
            file_reserved_time=hours,
            delete_when=delete_when,
            delete_commit_log_files_interval=chance.choice((0, 100, 1_000)),
            max_hash_slot_num=10,
            max_index_num=50,
        )
        node.config = replace(node.config, store=store)


def let_drive_fill(node: BrokerNode, files: int) -> None:
    """From now on there is room for so many more files of the log before the oldest have to go."""
    drive, store = node.host.drive, node.config.store
    drive.capacity = round(
        (drive.used + files * store.mapped_file_size_commit_log) / store.retention.forced_above
    )


def files_go_when_they_may(brokers: BrokerSet) -> Callable[[], None]:
    """A log loses its oldest file only when nothing was written to that for so long, or when the
    drive is full.
    """
    followers = [LogStart(brokers, node) for node in brokers.brokers.values()]

    def check() -> None:
        for follower in followers:
            follower.check()

    return check


class LogStart:
    """Invariant: `_written_s[start]` is when the log was last seen to grow in the file that starts
    there.
    """

    def __init__(self, brokers: BrokerSet, node: BrokerNode) -> None:
        self._set = brokers
        self._node = node
        self._seen = (0, 0, 0)
        self._written_s: dict[int, float] = {}

    def check(self) -> None:
        broker = self._node.broker
        if broker is None:
            return
        log, life = broker.store.log, self._node.life
        seen = (life, log.start, log.end)
        if seen == self._seen or not log.file_starts:
            return
        old_life, start, end = self._seen
        self._seen = seen
        if life != old_life:
            return
        now_s, size = self._set.cluster.sim.now_s, log.file_size
        if log.end > end:
            for written in range(max(end - end % size, log.start), log.end, size):
                self._written_s[written] = now_s
        for gone in range(start, log.start, size) if end else ():
            self._check_gone(gone, now_s)
        if log.start > start and end:
            self._set.note_deleted(self._node.name, log.start)

    def _check_gone(self, start: int, now_s: float) -> None:
        drive, rules = self._node.host.drive, self._node.config.store.retention
        age_ms = (now_s - self._written_s.get(start, 0.0)) * 1000
        is_old, is_full = age_ms >= rules.kept_ms, drive.fullness > rules.forced_above
        assert is_old or is_full, (
            f"{self._node.name} lets the file at {start} go, written to {age_ms:.0f} ms ago; "
            f"{drive.fullness:.0%} of the drive are in use"
        )
