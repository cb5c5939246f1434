"""Errors that answers stand for, by what Apache's 4.9.7 broker said."""

from __future__ import annotations

import pytest

from roquet.errors import AccessDenied, ResponseError
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

AT = "127.0.0.1:10911"
CLASS = "org.apache.rocketmq.acl.common.AclException: "
SOURCE = ", org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)"


def refusal(response: Command) -> ResponseError:
    with pytest.raises(ResponseError) as caught:
        checked(response, AT)
    return caught.value


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("No accessKey is configured", "give credentials"),
        ("No acl config for nobody", "knows no such access key"),
        (
            "Check signature failed for accessKey=app",
            "the secret key is not the one of this access key",
        ),
        ("Need admin permission for request code=25, but accessKey=app is not", "admin: true"),
        ("No default permission for T, or a comma", "lacks this permission"),
    ],
)
def test_what_access_control_says_comes_with_advice(reason: str, advice: str) -> None:
    error = refusal(Command(1, remark=f"{CLASS}{reason}{SOURCE}"))
    assert isinstance(error, AccessDenied)
    assert (error.code, error.remark, error.address) == (1, reason, AT)
    assert str(error).startswith(f"{AT} denies access: {reason}; ")
    assert advice in str(error)
    assert "org.apache" not in str(error)


def test_any_other_error_is_what_it_was() -> None:
    error = refusal(Command(17, remark="topic AclException not exist"))
    assert type(error) is ResponseError
    assert str(error) == f"{AT} answered code 17: topic AclException not exist"


def test_an_answer_without_a_remark_is_an_error_all_the_same() -> None:
    assert str(refusal(Command(1))) == f"{AT} answered code 1: "


def test_a_response_of_an_unexpected_code_is_an_error() -> None:
    response = Command(17, remark="no topic")

    assert checked(response, "a:1", (0, 17)) is response
    with pytest.raises(ResponseError, match="a:1 answered code 17: no topic"):
        checked(response, "a:1")
