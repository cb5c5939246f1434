"""What counts as one address, and which addresses give a place to others."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from roquet.common.shared_places import Shares, network_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_who_has_one_address_of_a_network_has_all(host: str, network: str) -> None:
    assert network_of(host) == network


@pytest.mark.parametrize(
    ("holders", "newcomer", "largest", "largest_must_yield_to"),
    [
        ("", "a", [], False),
        ("ab", "c", ["a", "b"], False),
        ("aab", "c", ["a"], True),
        ("aab", "b", ["a"], False),
        ("aaab", "b", ["a"], True),
        ("aaab", "a", ["a"], False),
    ],
)
def test_who_has_two_places_more_must_yield_one(
    holders: str, newcomer: str, largest: list[str], largest_must_yield_to: bool
) -> None:
    shares = Shares(holders)
    assert list(shares.largest) == largest
    assert shares.largest_must_yield_to(newcomer) == largest_must_yield_to


def test_shares_know_who_has_most_whatever_comes_and_goes() -> None:
    shares, counts, rng = Shares[str](), Counter[str](), random.Random(7)
    for _ in range(2000):
        holder = rng.choice("abcdef")
        if counts[holder] and rng.random() < 0.5:
            count = rng.randint(1, counts[holder])
            shares.drop(holder, count)
            counts[holder] -= count
        else:
            shares.add(holder)
            counts[holder] += 1
        most = max(counts.values())
        assert {*shares.largest} == {each for each, count in counts.items() if count == most > 0}
        assert [shares.count(each) for each in "abcdef"] == [counts[each] for each in "abcdef"]
