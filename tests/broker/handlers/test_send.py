"""What becomes of a message that is sent, by the records in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.message import UNIQ_KEY, split_properties
from roquet.protocol.records.record import decode as decode_record
from roquet.protocol.remoting.command import decode
from tests.broker.send_sides import Side

FRAMES = Path(__file__).parents[2] / "golden" / "frames"
BATCHES = sorted(FRAMES.glob("*/320-send-batch-message-*.request.bin"))


def content(path: Path) -> bytes:
    """A frame without its length."""
    return path.read_bytes()[4:]


@pytest.mark.parametrize("path", BATCHES, ids=lambda path: f"{path.parent.name}/{path.name}")
async def test_messages_of_a_batch_keep_their_own_unique_keys(tmp_path: Path, path: Path) -> None:
    """A 5.x client names the batch, too; a Go client names the batch only."""
    frame = content(path)
    request = decode(frame)
    own = [
        split_properties(pairs.decode()).get(UNIQ_KEY) for _, _, pairs in split_batch(request.body)
    ]
    of_batch = split_properties(SendHeaderV2.read(request.fields).properties).get(UNIQ_KEY)

    side = Side(tmp_path, learns=False)
    assert side.take(frame) is not None
    queue = side.store.queue(request.fields["b"], int(request.fields["e"]))
    records = [
        decode_record(side.store.log.record_at(at) or b"") for at, *_ in queue.entries(0, 10)
    ]
    assert [record.properties.get(UNIQ_KEY) for record in records] == [
        key or of_batch for key in own
    ]
    side.store.abandon()
