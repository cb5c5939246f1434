"""PURE: how far a stream is, as Spark keeps it in a checkpoint.

{"version": 1, "queues": {"orders": {"broker-a": {"0": 23}}}, "since": {"orders": {"broker-a": {"0": 11}}}}

Keeps: equal offsets are equal text (Spark compares the text); each batch can be planned again from its two offsets, to
       the same ranges, whatever the brokers hold by then; text of a later version is refused, not misread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.queue_json import by_queue, to_tree
from roquet.spark._options.ranges import QueueRange

VERSION: Final = 1
_FORM: Final = "the offsets that a stream of roquet writes"


class UnknownOffset(RoquetError):  # noqa: N818
    """An offset in a checkpoint that this version did not write; the message says what it is."""


@dataclass(frozen=True)
class StreamOffset:
    """The next offset to read of each queue.

    `since` says where the batch that ends here starts, for queues where the offset before does not tell: all of them
    in the first batch of a query, later those that are new and those that lost messages. `is_first` marks where a new
    query starts; no batch ends there, so that a start by time or at the latest is asked for once only.
    """

    positions: Mapping[MessageQueue, int]
    since: Mapping[MessageQueue, int] = field(default_factory=dict)
    is_first: bool = False

    def to_json(self) -> dict[str, object]:
        tree: dict[str, object] = {"version": VERSION, "queues": to_tree(self.positions.items())}
        if self.since:
            tree["since"] = to_tree(self.since.items())
        if self.is_first:
            tree["first"] = True
        return tree

    @classmethod
    def from_json(cls, tree: Mapping[str, object]) -> Self:
        """:raises UnknownOffset: it is of a later version, or of something else."""
        version = tree.get("version")
        if version != VERSION or not tree.keys() <= {"version", "queues", "since", "first"}:
            raise UnknownOffset(
                f"the checkpoint holds an offset of version {version!r}: {dict(tree)}; this roquet reads version "
                f"{VERSION}. Go on with the roquet that wrote it, or a later one, or start with a new checkpoint"
            )
        return cls(
            _positions(tree.get("queues")),
            _positions(tree.get("since", {})),
            tree.get("first") is True,
        )

    def ranges_from(self, start: StreamOffset) -> Iterator[QueueRange]:
        """What the batch from `start` to here reads; nothing where nothing came."""
        if self == start:
            return
        for queue, end in self.positions.items():
            first = self.since.get(queue, start.positions.get(queue))
            if first is None:
                raise UnknownOffset(
                    f"the checkpoint does not say where {queue} starts: {start.to_json()}"
                )
            if first < end:
                yield QueueRange(queue, first, end)


def _positions(tree: object) -> dict[MessageQueue, int]:
    positions: dict[MessageQueue, int] = {}
    for queue, number in by_queue("checkpoint", tree, _FORM):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise UnknownOffset(f"the checkpoint has {number!r} as the offset of {queue}")
        positions[queue] = number
    return positions
