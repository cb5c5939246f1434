"""Which connections a master accepts, and which one makes room for another."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.replication.admission import Admission, Candidate, networks

SAYS, MUTE = True, False


@pytest.mark.parametrize(
    ("places", "newcomer", "goes"),
    [
        pytest.param([("a", SAYS, 0, 9)] * 4, "b", 0, id="an address with all places gives one"),
        pytest.param([("a", SAYS, 0, 9), ("b", SAYS, 0, 1)] * 2, "b", None, id="equal shares"),
        pytest.param(
            [("a", SAYS, 0, 9), ("b", SAYS, 0, 1), ("a", SAYS, 0, 9)],
            "b",
            None,
            id="it would come back",
        ),
        pytest.param(
            [("a", SAYS, 0, 9), ("b", SAYS, 0, 1)], "c", None, id="many addresses push nobody out"
        ),
        pytest.param(
            [("a", SAYS, 0, 9), ("b", MUTE, 0, 0)], "c", 1, id="but for one that says nothing"
        ),
        pytest.param([("a", SAYS, 0, 9), ("b", SAYS, 101, 5)], "c", 1, id="or stands still"),
        pytest.param([("a", SAYS, 0, 9), ("b", SAYS, 100, 5)], "c", None, id="for long enough"),
        pytest.param(
            [("b", MUTE, 0, 0), ("a", SAYS, 0, 9), ("a", SAYS, 0, 8)],
            "c",
            2,
            id="most places, then use",
        ),
        pytest.param(
            [("a", SAYS, 0, 8), ("a", SAYS, 101, 9), ("a", MUTE, 0, 0)], "b", 2, id="the mute first"
        ),
        pytest.param([("a", SAYS, 0, 8), ("a", SAYS, 101, 9)], "b", 1, id="then who stands still"),
        pytest.param([("a", SAYS, 0, 9), ("a", SAYS, 0, 8)], "b", 1, id="then who has least"),
        pytest.param([("a", MUTE, 0, 0), ("a", MUTE, 0, 0)], "a", 0, id="of the mute the oldest"),
    ],
)
def test_the_connection_that_is_closed_for_a_newcomer(
    places: list[tuple[str, bool, int, int]], newcomer: str, goes: int | None
) -> None:
    assert Admission().to_close([Candidate(*each) for each in places], newcomer, 100) == goes


@pytest.mark.parametrize(
    ("text", "host", "is_among"),
    [
        ("", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.0/24; fd00::/8", "10.1.2.200", True),
        ("10.1.2.0/24; fd00::/8", "::ffff:10.1.2.200", True),
        ("10.1.2.0/24; fd00::/8", "fd00::1%eth0", True),
        ("10.1.2.0/24; fd00::/8", "fe80::1", False),
    ],
)
def test_addresses_and_networks(text: str, host: str, is_among: bool) -> None:
    assert Admission(networks(text)).allows(host) is is_among


@pytest.mark.parametrize("text", ["", " , ;", ";"])
def test_without_a_network_every_address_may_connect(text: str) -> None:
    assert networks(text) == ()
    assert Admission(networks(text)).allows("203.0.113.9")


@pytest.mark.parametrize(
    "text", ["10.1.2.3/8", "10.1.2", "master", "10.1.2.3:10912", "10.0.0.0/33"]
)
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition("/")[0]):
        networks(f"127.0.0.1, {text}")


def test_without_connections_none_makes_room() -> None:
    assert Admission().to_close([], "a", 100) is None


CANDIDATES = st.lists(
    st.builds(
        Candidate, st.sampled_from("abc"), st.booleans(), st.integers(0, 200), st.integers(0, 3)
    ),
    max_size=8,
)


@given(CANDIDATES, st.sampled_from("abcd"))
def test_a_useful_connection_goes_only_for_a_network_that_has_two_fewer(
    places: list[Candidate], newcomer: str
) -> None:
    index = Admission().to_close(places, newcomer, 100)

    counts = Counter(each.network for each in places)
    if index is None:
        return
    gone = places[index]
    assert counts[gone.network] == max(counts.values())
    is_useful = gone.has_reported and gone.stalled_ms <= 100
    assert not is_useful or counts[gone.network] >= counts[newcomer] + 2


@given(CANDIDATES, st.sampled_from("abcd"))
def test_taking_turns_with_newcomers_comes_to_an_end(
    places: list[Candidate], newcomer: str
) -> None:
    """However often useful connections of one network come, they get no more than its share."""
    places = [replace(each, has_reported=True, stalled_ms=0) for each in places]
    for _ in range(20):
        index = Admission().to_close(places, newcomer, 100)
        if index is None:
            break
        del places[index]
        places.append(Candidate(newcomer, True, 0, 9))
    else:
        pytest.fail("the newcomers push out the others for ever")
    counts = Counter(each.network for each in places)
    assert max(counts.values(), default=0) <= counts[newcomer] + 1
