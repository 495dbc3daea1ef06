"""No page, redirect or name server sends the crawler to what only this machine or network can reach."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.hostile.network import Names, everywhere
from tests.servers import ScriptedServer, page

import shoal
from shoal.access import Access
from shoal.addresses import Kind
from shoal.fetch import Fetcher, FetchSettings
from shoal.gate import Gate
from shoal.model import Failure, Response
from shoal.policy import Retries
from shoal.threads import HandlerThreads
from shoal.urls import host_key, normalize
from shoal.worker import fetch_settings

PUBLIC = "93.184.215.14"

LITERALS: dict[str, Kind] = {
    # this machine
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "127.0.0.1.": "loopback",
    "127.1": "loopback",
    "127.0.1": "loopback",
    "2130706433": "loopback",
    "0x7f000001": "loopback",
    "0x7F.0x0.0x0.0x1": "loopback",
    "0x7f.1": "loopback",
    "0177.0.0.1": "loopback",
    "0177.0.0.01": "loopback",
    "017700000001": "loopback",
    "127.0x000000001": "loopback",
    "%31%32%37.0.0.1": "loopback",
    "127%2e0%2e0%2e1": "loopback",
    "１２７.０.０.１": "loopback",
    "127。0。0。1": "loopback",
    "①②⑦.⓪.⓪.①": "loopback",
    "12\t7.0.0\n.1": "loopback",
    "public.test@127.0.0.1": "loopback",
    "public.test:80@127.0.0.1": "loopback",
    "[::1]": "loopback",
    "[0:0:0:0:0:0:0:1]": "loopback",
    "[::ffff:127.0.0.1]": "loopback",
    "[::ffff:7f00:1]": "loopback",
    "[::127.0.0.1]": "loopback",
    "[2002:7f00:1::]": "loopback",
    "[64:ff9b::127.0.0.1]": "loopback",
    # this network
    "10.0.0.1": "private",
    "10.1": "private",
    "167772161": "private",
    "012.0.0.1": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "0xc0a80101": "private",
    "0300.0250.1.1": "private",
    "100.64.0.1": "private",
    "100.127.255.255": "private",
    "[fc00::1]": "private",
    "[fd12:3456:789a::1]": "private",
    "[::ffff:192.168.1.1]": "private",
    "[2002:c0a8:101::1]": "private",
    "[64:ff9b::10.0.0.1]": "private",
    "169.254.1.1": "link-local",
    "[fe80::1]": "link-local",
    "[::ffff:169.254.1.1]": "link-local",
    # secrets of cloud machines
    "169.254.169.254": "cloud metadata",
    "2852039166": "cloud metadata",
    "0xa9fea9fe": "cloud metadata",
    "0251.0376.0251.0376": "cloud metadata",
    "169.254.43518": "cloud metadata",
    "[::ffff:169.254.169.254]": "cloud metadata",
    "[::ffff:a9fe:a9fe]": "cloud metadata",
    "[fd00:ec2::254]": "cloud metadata",
    "100.100.100.200": "cloud metadata",
    "168.63.129.16": "cloud metadata",
    "192.0.0.192": "cloud metadata",
    # nobody
    "224.0.0.1": "multicast",
    "239.255.255.250": "multicast",
    "[ff02::1]": "multicast",
    "0": "reserved",
    "0.0.0.0": "reserved",
    "0x0": "reserved",
    "0.1.2.3": "reserved",
    "[::]": "reserved",
    "[::ffff:0:127.0.0.1]": "reserved",
    "[2001:0:7f00:1::]": "reserved",
    "[2001:db8::1]": "reserved",
    "[fec0::1]": "reserved",
    "[64:ff9b:1::10.0.0.1]": "reserved",
    "192.0.2.1": "reserved",
    "198.18.0.1": "reserved",
    "198.51.100.1": "reserved",
    "203.0.113.1": "reserved",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
}
"""Hosts as pages may write them, and the kind of address that each is."""

NAMES = {
    "localhost": "127.0.0.1",
    "a.localhost": "::1",
    "localtest.me": "127.0.0.1",
    "127.0.0.1.nip.io": "127.0.0.1",
    "router.test": "192.168.0.1",
    "mapped.test": "::ffff:10.0.0.1",
    "metadata.google.internal": "169.254.169.254",
    "six.test": "fd00:ec2::254",
    "any.test": "0.0.0.0",
}
"""Names and where they lead."""

REDIRECTS = [
    "http://127.0.0.1/",
    "//2130706433/",
    "http:\\\\0x7f.1/",
    "http://u:p@[::1]/",
    "http://router.test/",
]


def _fetch(url: str, settings: FetchSettings, names: Names | None = None) -> Response | Failure:
    """One fetch in asyncio's loop."""

    async def fetch() -> Response | Failure:
        async with Fetcher(settings, resolver=names or Names({})) as fetcher:
            return await fetcher.fetch(url)

    return asyncio.run(fetch())


def _settings(seed: str = "http://public.test/", **settings: object) -> FetchSettings:
    """What a crawl from this seed fetches with."""
    return fetch_settings(shoal.Crawl("x", seeds=[seed], **settings))


def _assert_blocked(outcome: Response | Failure, what: str) -> None:
    assert isinstance(outcome, Failure), outcome
    assert (outcome.kind, "\n" in outcome.detail) == ("blocked", False)
    assert what in outcome.detail


@pytest.fixture
def server():
    """A server that gives away what it should not."""
    with ScriptedServer(lambda request: page(b"secret")) as server:
        yield server


# --- addresses in URLs


@pytest.mark.parametrize(("host", "kind"), LITERALS.items())
def test_an_address_that_is_not_public_is_refused(host, kind, server, monkeypatch):
    """However it is written: nothing is connected to. With the flag it is."""
    url = normalize(f"http://{host}/")
    with everywhere((server.host, server.port), monkeypatch) as connected:
        _assert_blocked(_fetch(url, _settings()), f" is a {kind} address")
        assert connected == []
        assert _fetch(url, _settings(allow_private=True)).body == b"secret"
    assert [f"[{address}]" if ":" in address else address for address in connected] == [host_key(url)]


@pytest.mark.parametrize(("host", "kind"), LITERALS.items())
def test_a_seed_opens_addresses_of_its_kind_only(host, kind, server, monkeypatch):
    """Who names an address as the seed wants it; the other kinds stay closed."""
    settings = _settings(normalize(f"http://{host}/"))
    assert settings.allow == {kind}
    other = "10.0.0.1" if kind == "loopback" else "127.0.0.1"
    with everywhere((server.host, server.port), monkeypatch) as connected:
        _assert_blocked(_fetch(f"http://{other}/", settings), other)
        assert connected == []
        assert _fetch(normalize(f"http://{host}/"), settings).body == b"secret"


@pytest.mark.parametrize("host", [*LITERALS, "localhost", "localhost.", "a.localhost"])
def test_a_proxy_is_not_sent_to_an_address_that_is_not_public(host, server):
    """An address in the URL itself is refused before the proxy hears of it. With the flag it is asked."""
    url, proxy = normalize(f"http://{host}/"), f"http://{server.address}"
    _assert_blocked(_fetch(url, _settings(proxy=proxy)), "address")
    assert server.connections == 0
    assert _fetch(url, _settings(proxy=proxy, allow_private=True)).body == b"secret"
    assert [request.target for request in server.requests] == [url]


# --- names


@pytest.mark.parametrize(("name", "address"), NAMES.items())
def test_a_name_is_judged_by_its_address(name, address, server, monkeypatch):
    """What the name means is checked as if it stood in the URL."""
    names = Names({name: [(address,)]})
    with everywhere((server.host, server.port), monkeypatch) as connected:
        _assert_blocked(_fetch(f"http://{name}/", _settings(), names), address)
        assert connected == []
        assert _fetch(f"http://{name}/", _settings(allow_private=True), names).body == b"secret"
    assert connected == [address]


def test_all_addresses_of_a_name_are_judged(server, monkeypatch):
    """Of several only the public ones are tried; if there is none, it is refused for good."""
    names = Names({"both.test": [("10.0.0.1", PUBLIC)], "none.test": [("127.0.0.1", "10.0.0.1", "::1")]})
    with everywhere((server.host, server.port), monkeypatch) as connected:
        assert _fetch("http://both.test/", _settings(), names).body == b"secret"
        assert connected == [PUBLIC]
        _assert_blocked(_fetch("http://none.test/", _settings(), names), "10.0.0.1 is a private address")
        assert connected == [PUBLIC]


def test_a_name_whose_answer_changes_gains_nothing(server, monkeypatch):
    """DNS rebinding: the address that was checked is the one connected to, and each new answer is checked."""
    names = Names({"rebind.test": [(PUBLIC,), ("127.0.0.1",)]})
    with everywhere((server.host, server.port), monkeypatch) as connected:
        assert _fetch("http://rebind.test/", _settings(), names).body == b"secret"
        assert (connected, names.asked) == ([PUBLIC], ["rebind.test"])
        _assert_blocked(_fetch("http://rebind.test/", _settings(), names), "127.0.0.1")
        assert connected == [PUBLIC]


def test_an_answer_that_is_no_address_is_no_way_in(server, monkeypatch):
    """A resolver that answers with nonsense leads nowhere."""
    names = Names({"odd.test": [("2130706433",)], "empty.test": [()]})
    with everywhere((server.host, server.port), monkeypatch) as connected:
        for host in ("odd.test", "empty.test"):
            assert isinstance(_fetch(f"http://{host}/", _settings(), names), Failure)
    assert connected == []


# --- other ways


@pytest.mark.parametrize("target", REDIRECTS)
def test_a_redirected_robots_txt_does_not_lead_inside(target, monkeypatch):
    """Each hop for robots.txt is a fetch like any other."""
    names = Names({"public.test": [(PUBLIC,)], "router.test": [("192.168.0.1",)]})

    async def read(settings):
        crawl = shoal.Crawl("gate")
        async with Fetcher(settings, resolver=names) as fetcher:
            gate = Gate(Access(crawl, fetcher, HandlerThreads(1)), crawl.settings, Retries())
            return await gate.read("http://public.test/")

    def answer(request):
        if request.headers["host"] == "public.test":
            return page(b"", "302 Found", f"Location: {target}")
        return page(b"User-agent: *\nDisallow: /", "200 OK", "Content-Type: text/plain")

    with ScriptedServer(answer) as server, everywhere((server.host, server.port), monkeypatch) as connected:
        rules = asyncio.run(read(_settings()))
        assert connected == [PUBLIC]
        assert isinstance(rules, Failure) or rules.allows("/")
        opened = asyncio.run(read(_settings(allow_private=True)))
        assert not opened.allows("/")


def test_only_the_guarded_modules_speak_to_web_sites():
    """Nothing else imports the HTTP client, so that there is no way around the guard."""
    source = Path(shoal.__file__).parent
    users = [path for path in source.rglob("*.py") if "import aiohttp" in path.read_text(encoding="utf-8")]
    assert {path.parent.relative_to(source) for path in users} == {Path("fetch")}
