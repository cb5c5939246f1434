"""Which files of an archive are merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.pipelines.archive.parquet import bins
from roquet.spark.pipelines.archive.state import ArchiveState, StoredFile


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([5], []),
        ([5, 5], [[0, 1]]),
        ([5, 5, 5], [[0, 1]]),
        ([5, 5, 5, 5], [[0, 1], [2, 3]]),
        ([5, 10, 5], [[0, 2]]),
        ([9, 9, 1], [[1, 2]]),
        ([10, 12, 5], []),
    ],
)
def test_neighbours_are_put_together_up_to_the_wanted_size(
    sizes: list[int], expected: list[list[int]]
) -> None:
    names = [f"{index}.parquet" for index in range(len(sizes))]
    state = ArchiveState(
        files={name: StoredFile(1, size) for name, size in zip(names, sizes, strict=True)}
    )

    assert bins(state, names, 10) == [[names[index] for index in each] for each in expected]


def test_a_day_with_few_files_is_left_as_it_is() -> None:
    names = [f"{index}.parquet" for index in range(4)]
    state = ArchiveState(files={name: StoredFile(1, 5) for name in names})

    assert bins(state, names, 1000, files_min=4) == [names]
    assert bins(state, names, 1000, files_min=5) == []


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(2, 4))
def test_each_small_file_is_merged_at_most_once_and_no_group_becomes_too_large(
    sizes: list[int], files_min: int
) -> None:
    names = [f"{index:02}.parquet" for index in range(len(sizes))]
    state = ArchiveState(
        files={name: StoredFile(1, size) for name, size in zip(names, sizes, strict=True)}
    )

    groups = bins(state, reversed(names), 10, files_min)

    merged = [name for group in groups for name in group]
    assert merged == sorted(set(merged))
    assert all(state.files[name].size < 10 for name in merged)
    assert all(len(group) >= files_min for group in groups)
    assert all(sum(state.files[name].size for name in group) <= 10 for group in groups)
