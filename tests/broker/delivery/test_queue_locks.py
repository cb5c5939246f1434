"""Leases on queues.

See docs/broker/consumers.md#queue-locks.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.delivery.queue_locks import LEASE_MS, LeaseTable, Place
from roquet.common.steps import finished

Q0, Q1 = ("T", "b", 0), ("T", "b", 1)


def test_a_queue_is_leased_to_one_client_of_a_group() -> None:
    leases = LeaseTable()
    assert leases.lock("g", "c", [Q0], 0) == [Q0]
    assert leases.lock("g", "d", [Q0, Q1], 1) == [Q1]
    assert leases.lock("h", "d", [Q0], 1) == [Q0], "another group has leases of its own"


def test_a_lease_ends_unless_it_is_renewed() -> None:
    leases = LeaseTable()
    leases.lock("g", "c", [Q0], 0)
    leases.lock("g", "c", [Q0], 30_000)
    assert leases.lock("g", "d", [Q0], 30_000 + LEASE_MS) == []
    assert leases.lock("g", "d", [Q0], 30_001 + LEASE_MS) == [Q0]
    assert leases.lock("g", "c", [Q0], 30_002 + LEASE_MS) == []


def test_only_its_holder_gives_a_lease_back() -> None:
    leases = LeaseTable()
    leases.lock("g", "c", [Q0], 0)
    leases.unlock("g", "d", [Q0])
    assert leases.lock("g", "d", [Q0], 1) == []
    leases.unlock("g", "c", [Q0, Q1])
    assert leases.lock("g", "d", [Q0], 2) == [Q0]


def test_forgetting_ended_leases_leaves_the_others() -> None:
    leases = LeaseTable()
    leases.lock("g", "c", [Q0], 0)
    leases.lock("g", "c", [Q1], 10)
    leases.lock("h", "c", [Q1], 0)
    finished(leases.drop_expired(LEASE_MS + 5))
    assert leases.lock("g", "d", [Q0, Q1], LEASE_MS + 5) == [Q0]


def test_ended_leases_of_one_large_group_are_forgotten_in_steps_and_one_that_was_renewed_stays() -> (
    None
):
    leases, queues = LeaseTable(), [("T", "b", number) for number in range(2000)]
    leases.lock("g", "c", queues, 0)
    now_ms = LEASE_MS + 1
    work = leases.drop_expired(now_ms)
    next(work)
    assert 0 < leases.count < len(queues)
    leases.lock("g", "d", queues[-2:], now_ms)
    steps = sum(1 for _ in work)
    assert (leases.count, steps > 5) == (2, True)
    assert leases.lock("g", "c", queues, now_ms) == queues[:-2]


calls = st.lists(
    st.tuples(
        st.sampled_from(["lock", "unlock"]),
        st.sampled_from("cde"),
        st.sets(st.sampled_from([Q0, Q1])),
        st.integers(0, LEASE_MS),
    )
)


@given(calls)
def test_no_queue_has_two_holders_at_a_time(made: list[tuple[str, str, set[Place], int]]) -> None:
    leases, now_ms = LeaseTable(), 0
    held: dict[Place, tuple[str, int]] = {}
    for call, client_id, queues, pause_ms in made:
        now_ms += pause_ms
        if call == "unlock":
            leases.unlock("g", client_id, queues)
            held = {
                queue: holder
                for queue, holder in held.items()
                if queue not in queues or holder[0] != client_id
            }
            continue
        for queue in leases.lock("g", client_id, queues, now_ms):
            holder, until_ms = held.get(queue, (client_id, 0))
            assert holder == client_id or until_ms < now_ms
            held[queue] = client_id, now_ms + LEASE_MS
