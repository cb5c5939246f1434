"""What counts as one address, and which addresses give a place to others."""

from __future__ import annotations

import pytest

from roquet.places import crowds, network_of


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
    ("counts", "newcomer", "crowd"),
    [
        ({}, "a", ([], False)),
        ({"a": 1, "b": 1}, "c", (["a", "b"], False)),
        ({"a": 2, "b": 1}, "c", (["a"], True)),
        ({"a": 2, "b": 1}, "b", (["a"], False)),
        ({"a": 3, "b": 1}, "b", (["a"], True)),
        ({"a": 3, "b": 1}, "a", (["a"], False)),
    ],
)
def test_an_address_with_two_places_more_owes_one(
    counts: dict[str, int], newcomer: str, crowd: tuple[list[str], bool]
) -> None:
    assert crowds(counts, newcomer) == crowd
