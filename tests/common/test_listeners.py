"""A fact is told to all that listen, in their order."""

from __future__ import annotations

from roquet.common.listeners import Listeners


def test_nobody_has_to_listen() -> None:
    Listeners[int]()(7)


def test_each_is_told_in_the_order_of_adding() -> None:
    told: list[tuple[str, int]] = []
    changed = Listeners[int]()
    changed.add(
        lambda number: told.append(("first", number)),
        lambda number: told.append(("second", number)),
    )
    changed.add(lambda number: told.append(("third", number)))
    changed(7)
    assert told == [("first", 7), ("second", 7), ("third", 7)]
    changed(8)
    assert [number for _, number in told] == [7, 7, 7, 8, 8, 8]


def test_who_is_added_while_it_is_told_hears_the_next_one() -> None:
    told: list[str] = []
    changed = Listeners[[]]()
    changed.add(lambda: changed.add(lambda: told.append("newcomer")))
    changed()
    assert told == []
    changed()
    assert told == ["newcomer"]
