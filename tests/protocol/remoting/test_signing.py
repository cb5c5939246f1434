"""Signed requests beside what Apache's programs signed."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from roquet.errors import ConfigError
from roquet.protocol.remoting.codes import VERSION
from roquet.protocol.remoting.command import Command, decode
from roquet.protocol.remoting.frame import FrameBuffer
from roquet.protocol.remoting.signing import SIGNATURE, UNIQUE_KEY_QUERY, Credentials, signed_text
from tests.golden.collection import ROOT

KEYS = Credentials("golden-access", "golden-secret")
FIELDS = {"topic": "T", "Zone": "z", "a": "1", "B": "2", "i": "KEYS\x01k\x022", "n": "broker-a"}
MADE_BY_THE_JAR: tuple[tuple[str | None, dict[str, str], bytes, str], ...] = (
    (None, {}, b"", "N/HMlCsFeJjToUdKA0pRAkLhWII="),
    (None, FIELDS, b"BODY", "NFo8mjdY470nYksKo6gTryR6WW4="),
    ("token/1", FIELDS, b"\x00\xff\n", "080iDLaLJMddqwVK95g6uR/RV20="),
    ("token/1", {"bname": "ü", "queueId": "0"}, b"", "fXgKPxz+ybwcxHgycVbbM0AhAm0="),
)
"""Token, fields, body, and the Signature that AclClientRPCHook.doBeforeRequest of
rocketmq-acl-4.9.7.jar added for SessionCredentials("AK-éü", "geheim-秘密")."""
SIGNED = sorted(
    path
    for path in ROOT.glob("frames/signed-*/*.request.bin")
    if b'"Signature"' in path.read_bytes()
)


def golden(path: Path) -> Command:
    (frame,) = FrameBuffer().feed(path.read_bytes())
    return decode(frame)


@pytest.mark.parametrize(
    "path", [path for path in SIGNED if not path.name.startswith("12-")], ids=lambda path: path.name
)
def test_requests_of_java_and_go_clients_get_the_signature_they_came_with(path: Path) -> None:
    theirs = golden(path)
    plain = {
        name: value for name, value in theirs.fields.items() if name not in ("AccessKey", SIGNATURE)
    }
    ours = KEYS.signed(Command(theirs.code, plain, theirs.body))
    assert ours.fields == theirs.fields


@pytest.mark.parametrize(("token", "fields", "body", "signature"), MADE_BY_THE_JAR)
def test_apache_s_hook_signs_the_same(
    token: str | None, fields: dict[str, str], body: bytes, signature: str
) -> None:
    ours = Credentials("AK-éü", "geheim-秘密", token).signed(Command(310, fields, body))
    assert ours.fields[SIGNATURE] == signature
    assert ours.fields.get("SecurityToken") == token


def test_the_signed_text_is_the_values_by_the_order_of_their_names_and_the_body() -> None:
    fields = {"topic": "T", "AccessKey": "AK", "b": "2", SIGNATURE: "none"}
    assert signed_text(fields, b"BODY") == b"AK2TBODY"


def test_a_request_that_is_sent_again_is_signed_anew_and_was_not_changed() -> None:
    request = Command(310, {"e": "0"}, b"x")
    first = KEYS.signed(request)
    assert request.fields == {"e": "0"}
    request.fields["e"] = "1"
    assert KEYS.signed(request).fields[SIGNATURE] != first.fields[SIGNATURE]
    assert KEYS.signed(first) == first


def test_the_frame_holds_the_signed_request() -> None:
    request = Command(310, {"e": "0"}, b"x", opaque=7)
    (frame,) = FrameBuffer().feed(KEYS.encode(request))
    assert decode(frame) == KEYS.signed(request)


def test_a_query_by_unique_key_is_signed_so_that_4_9_and_5_x_brokers_check_the_same() -> None:
    """4.9 leaves the field out of the text, 5.x does so for callers of 4.9.3 and before.

    See docs/protocol/remoting.md#signed-requests.
    """
    signed = KEYS.signed(Command(12, {"topic": "T", UNIQUE_KEY_QUERY: "true"}))
    assert signed.fields[SIGNATURE] == KEYS.signed(Command(12, {"topic": "T"})).fields[SIGNATURE]
    assert signed.fields[UNIQUE_KEY_QUERY] == "true"
    assert (signed.version, KEYS.signed(Command(12)).version) == (399, VERSION)


def test_secrets_are_in_no_representation() -> None:
    shown = repr(Credentials("the-account", "the-secret", "the-token"))
    assert "the-account" in shown
    assert "secret" not in shown
    assert "the-token" not in shown


def test_credentials_go_to_other_processes() -> None:
    whole = Credentials("a", "b", "c")
    assert pickle.loads(pickle.dumps(whole)) == whole


@pytest.mark.parametrize("keys", [("", "secret"), ("account", "")])
def test_an_empty_key_is_refused(keys: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="_key is empty"):
        Credentials(*keys)
