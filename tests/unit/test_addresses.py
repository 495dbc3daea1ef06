"""Kinds of addresses: which ones are public, and which are not for a crawler."""

from __future__ import annotations

import pytest

from shoal.addresses import Kind, kind_of, kind_of_host


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.215.14", None),
        ("2606:2800:21f:cb07::1", None),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("172.32.0.1", None),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("100.128.0.1", None),
        ("fd12:3456::1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b::5db8:d70e", None),
        ("2002:5db8:d70e::1", None),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("169.254.169.254", "cloud metadata"),
        ("::ffff:169.254.169.254", "cloud metadata"),
        ("fd00:ec2::254", "cloud metadata"),
        ("100.100.100.200", "cloud metadata"),
        ("168.63.129.16", "cloud metadata"),
        ("192.0.0.192", "cloud metadata"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("0.0.0.0", "reserved"),
        ("0.1.2.3", "reserved"),
        ("::", "reserved"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("2001:db8::1", "reserved"),
        ("2001:0:7f00:1::", "reserved"),
        ("fec0::1", "reserved"),
        ("64:ff9b:1::1", "reserved"),
        ("4000::1", "reserved"),
    ],
)
def test_an_address_has_a_kind(address: str, kind: Kind | None) -> None:
    """Only global unicast addresses have none; IPv4 within IPv6 counts as what it is."""
    assert kind_of(address) == kind


@pytest.mark.parametrize("text", ["", "site.test", "127.1", "1", "::1::", "1.2.3.4.5"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """Short and odd forms are the URL parser's business."""
    with pytest.raises(ValueError, match="does not appear to be"):
        kind_of(text)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://127.0.0.1/", "loopback"),
        ("http://127.0.0.9:8080/a", "loopback"),
        ("https://[::1]/", "loopback"),
        ("http://[::1]:8080/", "loopback"),
        ("http://localhost:8080/", "loopback"),
        ("http://localhost./", "loopback"),
        ("http://shop.localhost/", "loopback"),
        ("http://shop.localhost.:81/", "loopback"),
        ("http://10.0.0.1/", "private"),
        ("https://[fd00::1]:1/", "private"),
        ("http://93.184.215.14/", None),
        ("http://site.test/", None),
        ("http://notlocalhost/", None),
        ("http://localhost.site.test/", None),
    ],
)
def test_a_url_names_a_kind_of_address(url: str, kind: Kind | None) -> None:
    """By a literal address or as localhost; other names say nothing until they are looked up."""
    assert kind_of_host(url) == kind
