"""The state of an archive, as text and from version to version."""

from __future__ import annotations

import json

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines.archive.state import ArchiveError, ArchiveState, StoredFile

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("%RETRY%g", "broker-b", 12)
FILE = StoredFile(10, 1000)


def test_a_state_comes_back_from_its_text() -> None:
    state = ArchiveState(
        3,
        {A: 7, B: 9},
        {"topic=orders/day=2026-11-21/x.parquet": FILE},
        "staged-00000003-ab",
        ("y",),
    )

    assert ArchiveState.from_json(state.to_json(), "here") == state


def test_new_rows_leave_what_was_there() -> None:
    first = ArchiveState().with_rows({A: 5}, {"a": FILE})
    second = first.with_rows({B: 3}, {"b": FILE})

    assert (second.version, second.progress, set(second.files)) == (2, {A: 5, B: 3}, {"a", "b"})
    assert (second.rows, second.size) == (20, 2000)


def test_files_stand_in_the_place_of_others() -> None:
    state = ArchiveState(2, {A: 5}, {"a": FILE, "b": FILE, "c": FILE}).with_fewer_files(
        ["a", "b"], {"ab": FILE}
    )

    assert (state.version, state.progress, set(state.files)) == (3, {A: 5}, {"c", "ab"})
    assert state.removed == ("a", "b")
    assert state.with_rows({}, {}).removed == (), "what one version removed is nothing to the next"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 1, "version": 2}', '{"format": 1, "files": 3}']
)
def test_what_is_no_state_is_told_by_its_file(text: str) -> None:
    with pytest.raises(ArchiveError, match="here is no valid state of an archive"):
        ArchiveState.from_json(text, "here")


def test_a_state_of_a_later_roquet_is_refused() -> None:
    later = json.loads(ArchiveState().to_json()) | {"format": 2}

    with pytest.raises(ArchiveError, match="here has format 2, this roquet reads format 1"):
        ArchiveState.from_json(json.dumps(later), "here")
