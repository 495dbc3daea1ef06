"""Credentials and headers by host: who gets them, and what is refused without showing a secret."""

from __future__ import annotations

import base64

import pytest

from shoal import ConfigError
from shoal.auth import HostHeaders, authorization

SECRET = "user:s3cret"
BASIC = "Basic " + base64.b64encode(SECRET.encode()).decode()
SITES = [
    "http://shop.example/",
    "https://shop.example/a?b=http://evil.example/",
    "http://shop.example:8080/",
    "https://www.shop.example/",
    "http://evilshop.example/",
    "http://shop.example.evil.example/",
    "http://evil.example/shop.example/",
    "http://shop.example@evil.example/",
    "http://127.0.0.1:8080/",
    "http://[::1]/",
    "http://xn--bcher-kva.example/",
]


def _sites(host: str) -> list[str]:
    headers = HostHeaders({host: SECRET}, {}, {})
    assert all(headers.of(url) in {(), (("Authorization", BASIC),)} for url in SITES)
    return [url for url in SITES if headers.of(url)]


@pytest.mark.parametrize(
    ("host", "sites"),
    [
        ("shop.example", SITES[:2]),
        ("SHOP.example", SITES[:2]),
        ("https://shop.example", SITES[1:2]),
        ("http://shop.example", SITES[:1]),
        ("shop.example:80", SITES[:1]),
        ("shop.example:443", SITES[1:2]),
        ("shop.example:8080", SITES[2:3]),
        ("*.shop.example", SITES[3:4]),
        ("127.0.0.1:8080", SITES[8:9]),
        ("[::1]", SITES[9:10]),
        ("bücher.example", SITES[10:]),
    ],
)
def test_only_the_host_that_is_named_gets_them(host: str, sites: list[str]) -> None:
    """On its own ports unless another one is named; no host whose name is alike."""
    assert _sites(host) == sites


def test_the_more_special_one_wins() -> None:
    """A host before all those below another one, credentials before a header of that name."""
    headers = HostHeaders(
        {"a.b.example": "bearer one"},
        {
            "a.b.example": {"authorization": "x", "X-A": "1"},
            "*.b.example": {"X-A": "2", "X-B": "3"},
        },
        {},
    )
    assert dict(headers.of("http://a.b.example/")) == {
        "Authorization": "Bearer one",
        "X-A": "1",
        "X-B": "3",
    }
    assert dict(headers.of("http://c.b.example/")) == {"X-A": "2", "X-B": "3"}


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("user:pass:word", "Basic dXNlcjpwYXNzOndvcmQ="),
        ("user:", "Basic dXNlcjo="),
        ("user:$PASSWORD", "Basic dXNlcjpoZWxsbyB3b3JsZA=="),
        ("user:pä", "Basic dXNlcjpww6Q="),
        ("user:pa$s", "Basic dXNlcjpwYSRz"),
        ("bearer abc.d-e_f==", "Bearer abc.d-e_f=="),
        ("Bearer $TOKEN", "Bearer t0ken"),
        ("$LOGIN", "Basic YTpi"),
        ("$BEARER", "Bearer t0ken"),
    ],
)
def test_credentials_become_a_header(value: str, header: str) -> None:
    """Basic (RFC 7617) or bearer (RFC 6750); what is written $NAME is read from the environment."""
    environment = {"PASSWORD": "hello world", "TOKEN": "t0ken", "LOGIN": "a:b", "BEARER": "bearer t0ken"}
    assert authorization(value, environment) == header


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        ({"s3cret@shop.example": SECRET}, {}),
        ({"s3cret/": SECRET}, {}),
        ({"ftp://shop.example": SECRET}, {}),
        ({"": SECRET}, {}),
        ({"*": SECRET}, {}),
        ({"*.": SECRET}, {}),
        ({"shop.*": SECRET}, {}),
        ({"shop.example": "s3cret"}, {}),
        ({"shop.example": "bearer "}, {}),
        ({"shop.example": "bearer s3\r\ncret"}, {}),
        ({"shop.example": "$NOT_SET"}, {}),
        ({"shop.example": "user:$NOT_SET"}, {}),
        ({}, {"shop.example": {"X-A": "s3\ncret"}}),
        ({}, {"shop.example": {"X A": "s3cret"}}),
    ],
)
def test_what_cannot_be_sent_is_refused_without_showing_it(
    auth: dict[str, str], headers: dict[str, dict[str, str]]
) -> None:
    """Neither the value, nor what stands where a host should."""
    with pytest.raises(ConfigError) as refused:
        HostHeaders(auth, headers, {})
    assert "cret" not in str(refused.value)
