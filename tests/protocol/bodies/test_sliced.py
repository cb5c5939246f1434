"""Bodies that are made in parts are those that are made at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.common.steps import PART, finished
from roquet.protocol.bodies import sliced as sliced_bodies
from roquet.protocol.bodies.tables import (
    DataVersion,
    GroupConfig,
    GroupTable,
    OffsetTable,
    Registration,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect
from tests.protocol.strategies import text

counts = st.integers(0, 3 * PART)
versions = st.builds(DataVersion, st.integers(0, 9), st.integers(0, 9), st.integers(0, 1))


@given(counts, text, versions)
def test_topics_and_registrations(count: int, name: str, version: DataVersion) -> None:
    table = TopicTable(
        {f"{name}{at}": TopicConfig(f"{name}{at}", at) for at in range(count)}, version
    )
    assert finished(sliced_bodies.table(table)) == dump_bytes(table.to_json())
    assert finished(sliced_bodies.registration(table)) == dump_bytes(Registration(table).to_json())


@given(counts, text, versions)
def test_groups(count: int, name: str, version: DataVersion) -> None:
    table = GroupTable({f"{name}{at}": GroupConfig(f"{name}{at}") for at in range(count)}, version)
    assert finished(sliced_bodies.table(table)) == dump_bytes(table.to_json())


@given(counts, text, st.integers(0, 3))
def test_offsets(count: int, name: str, queues: int) -> None:
    table = OffsetTable({f"{name}{at}@g": dict.fromkeys(range(queues), at) for at in range(count)})
    assert finished(sliced_bodies.table(table, dump_dialect)) == dump_dialect(table.to_json())


@given(counts)
def test_tables_with_objects_as_keys(count: int) -> None:
    items = {dump_bytes({"queueId": at}).decode(): {"maxOffset": at} for at in range(count)}
    assert finished(sliced_bodies.object_keys(items.items())) == dump_dialect(ObjectKeys(items))


def test_a_table_of_thousands_takes_many_steps() -> None:
    table = TopicTable({str(at): TopicConfig(str(at)) for at in range(100 * PART)})
    assert sum(1 for _ in sliced_bodies.table(table)) == 100
