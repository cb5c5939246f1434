"""Long work in steps: its items in parts, one step, all steps at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.steps import PART, Steps, finished, in_one, in_parts


@given(st.lists(st.integers(), max_size=70), st.integers(1, 40))
def test_parts_are_all_items_in_order_and_only_the_last_is_shorter(
    items: list[int], size: int
) -> None:
    parts = list(in_parts(items, size))

    assert [item for part in parts for item in part] == items
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts)


def test_a_part_has_a_size_of_its_own_if_none_is_given() -> None:
    assert [len(part) for part in in_parts(range(2 * PART + 1))] == [PART, PART, 1]


def test_items_are_taken_when_their_part_is() -> None:
    taken = list[int]()

    def numbers() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    assert list(islice(in_parts(numbers(), 3), 2)) == [[0, 1, 2], [3, 4, 5]]
    assert taken == [0, 1, 2, 3, 4, 5]


def test_nothing_has_no_parts() -> None:
    assert list(in_parts([])) == []


def test_a_function_becomes_work_of_one_step_that_is_done_after_it() -> None:
    calls = list[str]()

    def work() -> int:
        calls.append("done")
        return 7

    steps = in_one(work)()
    assert calls == []
    next(steps)
    assert calls == []
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert (end.value.value, calls) == (7, ["done"])


def test_work_may_be_asked_for_again() -> None:
    numbers = count()
    steps = in_one(lambda: next(numbers))

    assert [finished(steps()), finished(steps())] == [0, 1]


def test_all_steps_are_run_at_once_and_the_result_comes_back() -> None:
    steps = list[int]()

    def work() -> Steps[str]:
        for number in range(5):
            steps.append(number)
            yield
        return "result"

    assert finished(work()) == "result"
    assert steps == [0, 1, 2, 3, 4]


def test_an_error_of_a_step_is_that_of_the_work() -> None:
    def wrong() -> Steps[None]:
        yield
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        finished(wrong())


def test_work_may_be_done_in_the_steps_of_other_work() -> None:
    def inner() -> Steps[int]:
        yield
        return 1

    def outer() -> Steps[int]:
        first = yield from inner()
        yield
        return first + 1

    assert sum(1 for _ in outer()) == 2
    assert finished(outer()) == 2
