"""The operators' key-value table."""

from __future__ import annotations

import pytest

from roquet.nameserver.kv_config import SIZE_MAX, KvConfig


def test_a_value_is_found_under_its_namespace_only() -> None:
    kv = KvConfig()
    kv.put("A", "key", "1")
    kv.put("B", "key", "2")

    assert kv.get("A", "key") == "1"
    assert kv.get("B", "key") == "2"
    assert kv.get("A", "other") is None
    assert kv.get("C", "key") is None


def test_a_namespace_without_keys_is_none() -> None:
    kv = KvConfig()
    kv.put("A", "key", "1")
    assert kv.pairs("A") == {"key": "1"}

    kv.delete("A", "key")

    assert kv.pairs("A") is None
    assert kv.to_json() == {"configTable": {}}


def test_deleting_what_is_not_there_changes_nothing() -> None:
    kv = KvConfig({"A": {"key": "1"}})

    kv.delete("A", "other")
    kv.delete("B", "key")

    assert kv.pairs("A") == {"key": "1"}


def test_the_file_has_apaches_form() -> None:
    kv = KvConfig()
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")

    document = kv.to_json()

    assert document == {"configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4;broker-b:4"}}}
    assert KvConfig.from_json(document).to_json() == document


def test_a_file_without_a_table_is_an_empty_one() -> None:
    assert KvConfig.from_json({}).to_json() == {"configTable": {}}


def test_a_table_that_would_be_too_large_is_refused_and_a_value_can_be_replaced() -> None:
    kv, large = KvConfig(), "v" * (SIZE_MAX // 2)
    assert kv.size == 0
    kv.put("n", "a", large)
    with pytest.raises(ValueError, match="would have"):
        kv.put("n", "b", large)
    kv.put("n", "a", large)
    kv.put("n", "c", "v")
    assert kv.pairs("n") == {"a": large, "c": "v"}


def test_what_was_deleted_or_replaced_counts_no_more() -> None:
    kv, half = KvConfig({"n": {"old": "v"}}), "v" * (SIZE_MAX // 2)
    for _ in range(3):
        kv.put("n", "a", half)
        kv.delete("n", "a")
    kv.delete("n", "a")
    kv.delete("n", "old")
    assert kv.size == 0


def test_many_small_pairs_are_bounded_too() -> None:
    kv = KvConfig({"n": {str(number): "" for number in range(SIZE_MAX // 64)}})
    with pytest.raises(ValueError, match="allowed is"):
        kv.put("n", "k", "")
