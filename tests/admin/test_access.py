"""Keys and TLS by their names, in mappings and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.admin.access import Access, access_of, read_access_file, with_access_file
from roquet.errors import ConfigError
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.tls import Tls


def test_nothing_said_is_neither_signed_nor_encrypted() -> None:
    assert access_of({"accessKey": "", "topic": "T"}) == Access()


def test_names_mean_what_they_say() -> None:
    values = {
        "accessKey": "a",
        "secretKey": "b",
        "securityToken": "c",
        "tlsCaFile": "ca.pem",
        "tlsVerify": "ca",
    }
    assert access_of(values) == Access(
        credentials=Credentials("a", "b", "c"), tls=Tls("ca.pem", verify="ca")
    )


@pytest.mark.parametrize(
    ("values", "tls"),
    [
        ({"useTLS": "TRUE"}, Tls()),
        ({"useTLS": "false", "tlsCaFile": "ca.pem"}, None),
        ({"tlsCertFile": "c", "tlsKeyFile": "k", "tlsKeyPassword": "p"}, Tls(None, "c", "k", "p")),
    ],
)
def test_what_only_tls_has_asks_for_tls(values: dict[str, str], tls: Tls | None) -> None:
    assert access_of(values).get("tls") == tls


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"accessKey": "a"}, "secretKey is missing"),
        ({"secretKey": "hidden"}, "accessKey is missing"),
        ({"useTLS": "perhaps"}, "useTLS: 'perhaps' is neither"),
        ({"tlsVerify": "some"}, "verify is 'some', allowed are full, ca, none"),
        ({"tlsKeyFile": "k.pem"}, "k.pem without a certificate"),
    ],
)
def test_what_does_not_fit_together_is_explained(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        access_of(values)
    assert "hidden" not in str(refused.value)


def test_secrets_are_in_no_representation() -> None:
    values = {"accessKey": "account", "secretKey": "hidden-1", "securityToken": "hidden-2"}
    tls = {"tlsCertFile": "c", "tlsKeyPassword": "hidden-3"}
    shown = repr(access_of(values | tls))
    assert "account" in shown
    assert "hidden" not in shown


def test_a_file_may_be_that_of_mqadmin(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("# keys\naccessKey: rocketmq2\nsecretKey: '12345678'\n")
    assert read_access_file(file) == {"accessKey": "rocketmq2", "secretKey": "12345678"}


def test_what_is_said_beside_a_file_counts_more(tmp_path: Path) -> None:
    file = tmp_path / "access"
    file.write_text("accessKey=of-file\nsecretKey=s\n")
    values = {"accessfile": str(file), "accesskey": "own", "topic": "T"}
    assert with_access_file(values) == {"secretKey": "s", "accesskey": "own", "topic": "T"}


def test_a_file_with_something_else_is_refused_without_showing_it(tmp_path: Path) -> None:
    file = tmp_path / "access"
    file.write_text("secretKey=hidden\nsecret=hidden\n")
    with pytest.raises(ConfigError, match="secret is none of accessKey, ") as refused:
        with_access_file({"accessFile": str(file)})
    assert "hidden" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="absent: No such file"):
        with_access_file({"accessFile": str(tmp_path / "absent")})
