"""Who is let in, and what other sites cannot make a browser do."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest
from tests.dashboard.browser import shown

from shoal.dashboard.guard import Guard, check_bind
from shoal.errors import ConfigError
from shoal.frontier import open_frontier
from shoal.model import Link

TOKEN = "correct horse battery staple"


@pytest.fixture
def place(tmp_path):
    """That of a small crawl."""
    place = f"sqlite:{tmp_path}/small.shoal"
    with open_frontier(place, crawl="small") as frontier:
        frontier.add([Link("http://a.test/")])
    return place


def ask(url, path, method="GET", body=None, **headers):
    """One request as any program can send it: status, headers and body."""
    target = urlsplit(url)
    connection = http.client.HTTPConnection(target.hostname, target.port, timeout=10)
    try:
        connection.request(
            method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def paused(place):
    """Whether the crawl is."""
    with open_frontier(place, crawl="small", create=False) as frontier:
        return frontier.stats().paused


PAUSE = json.dumps({"do": "pause"})


def test_another_site_cannot_act(place, serve):
    """Without the page's secret, or with it from another origin, or from none, nothing is done."""
    url = serve(place)
    csrf = json.loads(ask(url, "/api/session")[2])["csrf"]
    own = url.rstrip("/")
    for headers in (
        {},
        {"Origin": own},
        {"X_Shoal_Csrf": csrf},
        {"X_Shoal_Csrf": csrf, "Origin": "http://evil.example"},
        {"X_Shoal_Csrf": csrf, "Origin": "null"},
        {"X_Shoal_Csrf": csrf, "Origin": own.replace("127.0.0.1", "localhost")},
        {"X_Shoal_Csrf": csrf + "x", "Origin": own},
        {"X_Shoal_Csrf": "", "Origin": own},
        {"X_Shoal_Csrf": "ü", "Origin": own},
    ):
        sent = {name: value.encode() for name, value in headers.items()}
        assert ask(url, "/api/act?crawl=small", "POST", PAUSE, **sent)[0] == 403, headers
        assert ask(url, "/logout", "POST", **sent)[0] == 403, headers
    assert ask(url, "/api/act?crawl=small", "GET", X_Shoal_Csrf=csrf, Origin=own)[0] == 405
    assert not paused(place)
    assert ask(url, "/api/act?crawl=small", "POST", PAUSE, X_Shoal_Csrf=csrf, Origin=own)[0] == 200
    assert paused(place)


def test_a_name_that_leads_here_is_not_enough(place, serve):
    """DNS rebinding: a page of that name would be of the same origin; only known names and addresses are."""
    url = serve(place, names=["crawl.internal"])
    port = urlsplit(url).port
    for host, status in (
        ("evil.example", 421),
        (f"evil.example:{port}", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
        ("[::1", 421),
        (f"localhost:{port}", 200),
        (f"[::1]:{port}", 200),
        ("crawl.internal", 200),
        ("CRAWL.internal:443", 200),
    ):
        for path in ("/", "/api/session", "/metrics", "/web/main.js"):
            assert ask(url, path, Host=host)[0] == status, (host, path)


def test_everything_has_a_strict_policy(place, serve):
    """On pages, data, errors and the stream."""
    url = serve(place)
    for path in (
        "/",
        "/web/main.js",
        "/api/overview?crawl=small",
        "/api/nothing",
        "/web/nothing",
        "/api/overview",
    ):
        headers = ask(url, path)[1]
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
    for name in ("..%2fserver.py", "%2e%2e/server.py", "../../guard.py"):
        assert ask(url, f"/web/{name}")[0] == 404


def test_who_has_no_token_sees_nothing(place, serve):
    """Neither pages nor data; metrics take the token as Prometheus sends it."""
    url = serve(place, token=TOKEN)
    assert ask(url, "/")[:1] == (303,)
    for path in ("/api/session", "/api/overview?crawl=small", "/api/events?crawl=small", "/metrics"):
        assert ask(url, path)[0] == 401
        assert ask(url, path, Authorization="Bearer wrong")[0] == 401
        assert ask(url, path, Authorization=f"Basic {TOKEN}")[0] == 401
        assert ask(url, path, Cookie=f"shoal_{urlsplit(url).port}={TOKEN}")[0] == 401
    status, headers, text = ask(url, "/metrics", Authorization=f"Bearer {TOKEN}")
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/plain")
    assert b'shoal_frontier_up{crawl="small"} 1' in text
    own = url.rstrip("/")
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert ask(url, "/login", "POST", f"token={TOKEN}", Origin="http://evil.example", **form)[0] == 403
    wrong = ask(url, "/login", "POST", "token=wrong", Origin=own, **form)
    assert (wrong[0], wrong[1]["Location"], wrong[1]["Set-Cookie"]) == (303, "/login?wrong", None)
    right = ask(url, "/login", "POST", f"token={TOKEN}", Origin=own, **form)
    cookie = right[1]["Set-Cookie"]
    assert (right[0], right[1]["Location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert ask(url, "/api/session", Cookie=cookie.partition(";")[0])[0] == 200


def test_one_logs_in_and_out(place, serve, look):
    """With the browser; a wrong token is told."""
    page = look(serve(place, token=TOKEN))
    page.fill("#token", "not this one, certainly")
    page.press("#token", "Enter")
    page.wait_for_selector("text=That is not the token.")
    page.fill("#token", TOKEN)
    page.click("text=Log in")
    shown(page, "overview")
    page.reload()
    shown(page, "controls")
    page.click("[aria-label='Pause and resume'] button:text-is('Pause')")
    page.wait_for_selector(".notice:has-text('Paused')")
    assert paused(place)
    page.click("text=Log out")
    page.wait_for_selector("#token")


def test_what_makes_no_sense_is_refused_in_a_sentence(place, serve):
    """No such crawl, no such order, no such action, values out of bounds; nothing is a 500."""
    url = serve(place)
    for path, words in (
        ("/api/overview?crawl=none", "there is no crawl 'none'"),
        ("/api/hosts?crawl=small&by=size", "this cannot be shown"),
        ("/api/hosts?crawl=small&limit=1000000", "this cannot be shown"),
        ("/api/history?crawl=small&minutes=x", "this cannot be shown"),
        ("/api/history?crawl=small&minutes=nan", "this cannot be shown"),
        ("/api/page?crawl=small&url=", "which URL?"),
        ("/api/page?crawl=small&url=nonsense", "nonsense"),
    ):
        status, _, body = ask(url, path)
        assert (status in (400, 404), words in json.loads(body)["error"]) == (True, True), (path, body)
    csrf = json.loads(ask(url, "/api/session")[2])["csrf"]
    for body in (
        "",
        "[]",
        "{",
        '{"do":"purge"}',
        '{"do":"redrive"}',
        '{"do":"rest","host":"a.test","seconds":-1}',
        '{"do":"rest","host":"a.test","seconds":1e300}',
        '{"do":"rest","host":"unknown.test","seconds":1}',
        '{"do":"delay","host":"a.test","delay_s":"fast"}',
        '{"do":"prioritize","url":"http://a.test/","priority":10}',
        '{"do":"prioritize","url":"http://b.test/","priority":1}',
        '{"do":"add","urls":[]}',
        '{"do":"add","urls":["\\ud800"]}',
        '{"do":"forget","url":"http://b.test/"}',
        '{"do":"limit","max_pages":0}',
        '{"do":"pause","more":1}',
    ):
        headers = {"X_Shoal_Csrf": csrf, "Origin": url.rstrip("/")}
        status, _, answer = ask(url, "/api/act?crawl=small", "POST", body, **headers)
        assert status == 400 or "rejected" in json.loads(answer)["said"], (body, answer)
        assert b"Traceback" not in answer


def test_other_addresses_need_a_long_token():
    """Only a loopback address is served without one."""
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        check_bind(host, None)
        check_bind(host, TOKEN)
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com", ""):
        with pytest.raises(ConfigError, match="--token"):
            check_bind(host, None)
        check_bind(host, TOKEN)
    with pytest.raises(ConfigError, match="too short"):
        check_bind("127.0.0.1", "short")


def test_a_guard_without_a_token_admits_all_and_knows_no_token():
    """And one with a token takes exactly that."""
    assert Guard(None).admits(None, None)
    assert not Guard(None).is_token("")
    guard = Guard(TOKEN)
    assert guard.admits(guard.cookie(), None)
    assert not guard.admits(Guard(TOKEN + "x").cookie(), None)
    assert Guard(TOKEN).cookie() == guard.cookie()
    assert Guard(TOKEN).csrf != guard.csrf
