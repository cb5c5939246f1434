"""Who a client says it is."""

from __future__ import annotations

import random
from ipaddress import ip_address

from roquet.client._net.identity import address_bytes, local_address, new_client_id


def test_two_clients_of_one_process_have_different_ids() -> None:
    assert new_client_id(random.Random(1)) != new_client_id(random.Random(2))


def test_a_client_of_a_unit_has_its_name_at_the_end() -> None:
    assert new_client_id(random.Random(1), "u") == f"{new_client_id(random.Random(1))}@u"


def test_a_client_id_begins_with_an_address_of_this_host() -> None:
    assert new_client_id(random.Random(1)).partition("@")[0] == local_address()
    ip_address(local_address())


def test_message_ids_hold_the_address_of_the_client_id() -> None:
    assert address_bytes("10.0.0.1@x", random.Random(1)) == bytes([10, 0, 0, 1])
    assert len(address_bytes("fd00::2@x", random.Random(1))) == 16
    assert len(address_bytes("a name@x", random.Random(1))) == 4
