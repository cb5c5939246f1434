"""PURE: the offset of a stream, as Spark saves it in a checkpoint.

{"version": 1, "queues": {"orders": {"broker-a": {"0": 23}}},
 "since": {"orders": {"broker-a": {"0": 11}}}}

Invariants:
- Equal offsets have equal texts: Spark compares the texts.
- The two offsets of a batch determine its ranges, whatever the brokers have by then.
- A text of a later version is refused.
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
_FORM: Final = "offsets that a stream of roquet wrote"


class UnknownOffset(RoquetError):  # noqa: N818
    """A checkpoint has an offset that this version of roquet cannot read."""


@dataclass(frozen=True)
class StreamOffset:
    """The next offset to read of each queue.

    `since` has the start of the batch that ends here, for queues where the previous `StreamOffset`
    does not have it: all queues in the first batch of a query, later new queues and queues that
    lost messages. `is_first` marks the start of a new query. No batch ends there, so the first
    batch saves the start, and a start by time or at the latest is resolved only once.
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
        """Parse an offset of a checkpoint.

        :raises UnknownOffset: another version of roquet, or another source, wrote it.
        """
        version = tree.get("version")
        if version != VERSION or not tree.keys() <= {"version", "queues", "since", "first"}:
            raise UnknownOffset(
                f"the checkpoint has an offset of version {version!r}: {dict(tree)}; this roquet "
                f"reads version {VERSION}. Use the roquet that wrote the checkpoint, or a later "
                "one, or start with a new checkpoint"
            )
        return cls(
            _positions(tree.get("queues")),
            _positions(tree.get("since", {})),
            tree.get("first") is True,
        )

    def ranges_from(self, start: StreamOffset) -> Iterator[QueueRange]:
        """The ranges of the batch from `start` to this offset; only those with messages."""
        if self == start:
            return
        for queue, end in self.positions.items():
            first = self.since.get(queue, start.positions.get(queue))
            if first is None:
                raise UnknownOffset(
                    f"the checkpoint has no start offset of {queue}: {start.to_json()}"
                )
            if first < end:
                yield QueueRange(queue, first, end)


def _positions(tree: object) -> dict[MessageQueue, int]:
    positions: dict[MessageQueue, int] = {}
    for queue, number in by_queue("checkpoint", tree, _FORM):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise UnknownOffset(f"the checkpoint has an invalid offset of {queue}: {number!r}")
        positions[queue] = number
    return positions
