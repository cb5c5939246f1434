"""A task of Spark's that reads on from the slave when the master is killed under it, whoever made
the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pytest

from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.batch import plan, read
from roquet.spark._read.queue import CHUNK_RECORDS
from tests.interop.apache import require_java
from tests.interop.couples import SEND_OK, Couple, Maker
from tests.interop.roquet_cluster import RoquetNameServer

pytestmark = pytest.mark.interop

OURS, APACHE, _ = Maker
TOPIC = "Read"
COUNT = CHUNK_RECORDS + 2_000
"""So many that they are fetched in two parts."""
SIZE = 100
PROPERTIES: dict[str, str | int] = {
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 3_000,
}
SCHEMA = pa.schema([ARROW_SCHEMA.field("queueOffset")])


@pytest.fixture(
    params=[(OURS, OURS), (APACHE, APACHE), (APACHE, OURS)],
    ids=lambda makers: "-".join(m.value for m in makers),
)
def couple(request: pytest.FixtureRequest) -> Iterator[Couple]:
    master, slave = request.param
    if APACHE in request.param:
        require_java()
    with (
        RoquetNameServer() as names,
        Couple(
            names.address, master, slave, "ASYNC_MASTER", known=True, properties=PROPERTIES
        ) as couple,
    ):
        couple.master.start()
        couple.create_topic(TOPIC, 1)
        couple.slave.start()
        couple.await_topic_at_slave(TOPIC)
        yield couple


def test_a_task_reads_on_from_the_slave_when_the_master_dies(couple: Couple) -> None:
    assert couple.send(TOPIC, COUNT, queues=1, size=SIZE) == {SEND_OK}
    couple.await_same()
    options = {"nameServer": couple.namesrv, "subscribe": TOPIC, "noProgressTimeoutMs": "60000"}
    wanted = ReadOptions.of_batch(options)
    (part,) = plan(wanted)

    batches = read(part, wanted, SCHEMA)
    first = next(batches)
    couple.master.kill()
    rest = list(batches)

    assert 0 < first.num_rows < COUNT
    offsets = chain.from_iterable(
        batch.column("queueOffset").to_pylist() for batch in (first, *rest)
    )
    assert list(offsets) == list(range(COUNT))
