"""What went over the connections to an address."""

from __future__ import annotations

from roquet.client._net.traffic import AddressTraffic


def test_an_address_without_a_connection_is_closed_or_silent() -> None:
    traffic = AddressTraffic()
    states = [
        traffic.metrics("a:1", None, is_name_server=True, is_silent=is_silent).state
        for is_silent in (False, True)
    ]
    assert states == ["closed", "silent"]
