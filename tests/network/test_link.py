from __future__ import annotations

from tests.network.link import CUT, GOOD, Direction, Quality

PACKET = bytes(1000)


def arrivals(direction: Direction, until_s: float) -> list[tuple[float, bytes]]:
    """What arrives by then, each with the time at which it was due."""
    found: list[tuple[float, bytes]] = []
    while direction.due_s is not None and direction.due_s <= until_s:
        due_s = direction.due_s
        found += [(due_s, packet) for packet in direction.arrived(due_s)]
    return found


def test_a_good_link_delivers_at_once() -> None:
    link = Direction("1")
    link.take(PACKET, 5.0)
    assert arrivals(link, 5.0) == [(5.0, PACKET)]


def test_a_delayed_packet_arrives_when_its_time_has_come_and_not_before() -> None:
    link = Direction("1")
    link.become(Quality(delay_s=0.2))
    link.take(PACKET, 5.0)
    assert arrivals(link, 5.1) == []
    assert arrivals(link, 5.2) == [(5.2, PACKET)]


def test_packets_do_not_overtake_each_other_when_the_delay_ends() -> None:
    link = Direction("1")
    link.become(Quality(delay_s=0.2))
    link.take(b"first", 5.0)
    link.become(GOOD)
    link.take(b"second", 5.1)
    assert [packet for _, packet in arrivals(link, 6.0)] == [b"first", b"second"]


def test_a_lossy_link_loses_its_share_and_the_same_packets_for_the_same_seed() -> None:
    def survivors(seed: str) -> list[bytes]:
        link = Direction(seed)
        link.become(Quality(loss=0.05))
        for number in range(2000):
            link.take(b"%d" % number, 0.0)
        return link.arrived(0.0)

    assert 1850 <= len(survivors("1")) <= 1950
    assert survivors("1") == survivors("1") != survivors("2")


def test_a_slow_link_sends_one_packet_after_the_other() -> None:
    link = Direction("1")
    link.become(Quality(bytes_per_s=10_000))
    for _ in range(3):
        link.take(PACKET, 1.0)
    assert [round(due_s, 3) for due_s, _ in arrivals(link, 9.0)] == [1.1, 1.2, 1.3]


def test_a_slow_link_loses_what_its_queue_has_no_room_for() -> None:
    link = Direction("1")
    link.become(Quality(bytes_per_s=10_000, queue_size_max=5500))
    for _ in range(20):
        link.take(PACKET, 1.0)
    assert len(link.arrived(9.0)) == 5
    link.take(PACKET, 9.0)
    assert arrivals(link, 9.1) == [(9.1, PACKET)]


def test_a_cut_link_loses_what_was_on_its_way_and_what_comes_later() -> None:
    link = Direction("1")
    link.become(Quality(delay_s=0.2))
    link.take(PACKET, 1.0)
    link.become(CUT)
    link.take(PACKET, 1.1)
    link.become(GOOD)
    assert link.arrived(9.0) == []
