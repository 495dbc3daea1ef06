"""Being somebody: credentials and headers by host, a login before the crawl, and again when it is over."""

from __future__ import annotations

import re
import threading
from collections import Counter
from urllib.parse import parse_qs

import pytest
from tests.e2e.shell import Shell
from tests.servers import Reply, Request, ScriptedServer, page

FORM = b"""
    <form action=/search><input name=q></form>
    <form method=post action=/session>
    <input type=hidden name=csrf value="a&amp;b">
    <input name=user value=guest><input type=password name=password>
    <button name=go value=1>Log in</button></form>
"""
FOUND = "302 Found"
LINKS = "".join(f"<a href=/p/{n}>{n}</a>" for n in range(12))


class Members:
    """A site of 13 pages for members: a session lasts for `lasts` of them; strangers are sent away."""

    def __init__(self, lasts: int = 1_000, strangers: str = "redirect") -> None:
        self.lasts, self.strangers = lasts, strangers
        self.logins: list[dict[str, list[str]]] = []
        self.left: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Reply:
        with self._lock:
            return self._answer(request)

    def _answer(self, request: Request) -> Reply:
        if request.target == "/login":
            return page(FORM, "200 OK", "Set-Cookie: seen=1")
        if request.target == "/session":
            return self._log_in(request)
        if request.target == "/robots.txt":
            return page(b"", "404 Not Found")
        session = dict(re.findall(r"(\w+)=(\w+)", request.headers.get("cookie", ""))).get("session", "")
        if self.left.get(session, 0) > 0:
            self.left[session] -= 1
            return page(f"<h1>{request.target}</h1>{LINKS}".encode())
        if self.strangers == "redirect":
            return page(b"", FOUND, f"Location: /login?next={request.target}")
        if self.strangers == "401":
            return page(b"", "401 Unauthorized")
        return page(b"<h1>Please log in</h1>")

    def _log_in(self, request: Request) -> Reply:
        fields = parse_qs(request.body.decode(), keep_blank_values=True)
        self.logins.append(fields)
        good = fields.get("csrf") == ["a&b"] and fields.get("password") == ["pä&ss"]
        if request.method != "POST" or not good or "seen=1" not in request.headers.get("cookie", ""):
            return page(b"wrong", "403 Forbidden")
        session = f"s{len(self.logins)}"
        self.left[session] = self.lasts
        return page(b"", FOUND, "Location: /welcome", f"Set-Cookie: session={session}; Path=/")


ASYNC = """
@crawl.login{pages}
async def login(session):
    page = await session.get("{url}login")
    page = await session.submit(page.form(), {{"user": "me", "password": "{password}"}})
    if page.status != 200:
        raise shoal.LoggedOut("the password is wrong")
"""
PLAIN = ASYNC.replace("async ", "").replace("await ", "")
HANDLER = """
@crawl.page()
def row(page):
    if page.css("h1::text").get() == "Please log in":
        raise shoal.LoggedOut
    yield {"path": page.css("h1::text").get()}
    yield from page.links()
"""


def _scraper(
    shoal: Shell,
    server: ScriptedServer,
    login: str,
    *,
    pages: str = "",
    password: str = "pä&ss",
    settings: str = "",
) -> None:
    given = f'"members", seeds=["{server.url()}"], retry_delay_s=0.001{settings}'
    made = f"import shoal\n\ncrawl = shoal.Crawl({given})\n"
    filled = login.format(url=server.url(), password=password, pages=pages)
    shoal.write("members.py", made + filled + HANDLER)


def _assert_all_rows(shoal: Shell) -> None:
    assert Counter(row["path"] for row in shoal.rows()) == Counter(["/", *(f"/p/{n}" for n in range(12))])


# --- a login --------------------------------------------------------------------------------


@pytest.mark.parametrize("login", [ASYNC, PLAIN], ids=["async", "plain"])
def test_a_form_is_filled_in_before_the_first_page(shoal: Shell, login: str) -> None:
    """Once, with its hidden fields, its defaults replaced; its cookies are those of the crawl."""
    members = Members()
    with ScriptedServer(members) as server:
        _scraper(shoal, server, login)
        shoal("run", "members.py", "--strict")
    assert members.logins == [{"csrf": ["a&b"], "user": ["me"], "password": ["pä&ss"]}]
    targets = [request.target for request in server.requests]
    assert targets[:5] == ["/login", "/session", "/welcome", "/robots.txt", "/"]
    [submitted] = [request for request in server.requests if request.target == "/session"]
    assert submitted.headers["referer"] == server.url("/login")
    _assert_all_rows(shoal)


def test_each_process_logs_in(shoal: Shell) -> None:
    """Cookies are not shared by processes."""
    members = Members()
    with ScriptedServer(members) as server:
        _scraper(shoal, server, ASYNC)
        shoal("run", "members.py", "--strict", "--processes", "2")
    assert 1 <= len(members.logins) <= 2
    _assert_all_rows(shoal)


@pytest.mark.parametrize("strangers", ["redirect", "401", "page"])
def test_a_session_that_ends_is_renewed(shoal: Shell, strangers: str) -> None:
    """Whether the site redirects to its login, answers 401, or shows another page: no page is lost.

    Pages that meet the end together bring one login.
    """
    members = Members(lasts=8, strangers=strangers)
    with ScriptedServer(members) as server:
        _scraper(shoal, server, ASYNC, pages='("/login*")')
        shoal("run", "members.py", "--strict")
    assert len(members.logins) == 2
    _assert_all_rows(shoal)


def test_a_scraper_that_takes_all_pages_for_those_of_strangers_ends(shoal: Shell) -> None:
    """With a dead letter, after as many logins as a page has attempts."""
    members = Members(lasts=0, strangers="page")
    with ScriptedServer(members) as server:
        _scraper(shoal, server, ASYNC)
        ended = shoal("run", "members.py", "--retries", "1", code=1)
    assert "handler" not in ended.err
    assert [letter["reason"] for letter in shoal("dead", "--json").objects] == ["logged out"]
    assert len(members.logins) == 2


@pytest.mark.parametrize("login", [ASYNC, PLAIN], ids=["async", "plain"])
def test_a_login_that_fails_ends_the_crawl_and_loses_nothing(shoal: Shell, login: str) -> None:
    """One line and exit code 2; with the right password the same command goes on."""
    members = Members()
    with ScriptedServer(members) as server:
        _scraper(shoal, server, login, password="wrong")
        ended = shoal("run", "members.py", code=2)
        assert ended.err == "shoal: the login failed: the password is wrong [members.py:10]\n"
        status = shoal.status()
        assert (status["queued"], status["leased"], status["dead"], status["fetches"]) == (1, 0, 0, 0)
        _scraper(shoal, server, login)
        shoal("run", "members.py", "--strict")
    _assert_all_rows(shoal)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import asyncio; raise asyncio.CancelledError", "CancelledError"),
        ("session.get('http://127.0.0.1:1/')", "http://127.0.0.1:1/: refused: Connection refused"),
        ("session.get('nowhere')", "not an http(s) URL: 'nowhere'; write it like http://example.com/"),
        ("session.get('{url}p/1').form()", "ValueError: there is no form with a password on {url}p/1"),
        ("session.get('{url}p/1').form('#x')", "ValueError: there is no form #x on {url}p/1"),
        ("session.submit()", "TypeError"),
    ],
)
def test_whatever_goes_wrong_in_a_login_is_one_line(shoal: Shell, body: str, words: str) -> None:
    """What happened, and where in the scraper."""
    with ScriptedServer(Members(strangers="page")) as server:
        login = f"@crawl.login\ndef login(session):\n    {body}\n".format(url=server.url())
        shoal.write(
            "members.py",
            f"import shoal\ncrawl = shoal.Crawl('members', seeds=['{server.url()}'], retries=0)\n{login}",
        )
        ended = shoal("run", "members.py", code=2)
    [line] = ended.err.splitlines()
    assert line.startswith("shoal: the login failed: ")
    assert words.format(url=server.url()) in line
    assert "[members.py:5]" in line or "by itself" in line


def test_a_login_that_fails_in_one_of_several_processes_ends_all(shoal: Shell) -> None:
    """The message, and exit code 2."""
    with ScriptedServer(Members()) as server:
        _scraper(shoal, server, ASYNC, password="wrong")
        ended = shoal("run", "members.py", "--processes", "2", code=2)
    assert "the login failed: the password is wrong" in ended.err
    assert "Traceback" not in ended.err


def test_a_login_that_fails_for_a_moment_is_tried_again(shoal: Shell) -> None:
    """As pages are."""
    members = Members()
    answers = iter(["503 Service Unavailable", "429 Too Many Requests"])

    def flaky(request: Request) -> Reply:
        if request.target == "/session" and (status := next(answers, None)):
            return page(b"", status, "Retry-After: 0")
        return members(request)

    with ScriptedServer(flaky) as server:
        _scraper(shoal, server, PLAIN)
        shoal("run", "members.py", "--strict")
        assert server.count("/session") == 3
    _assert_all_rows(shoal)


def test_a_login_may_send_json(shoal: Shell) -> None:
    """And form data without a form."""
    login = """
@crawl.login
async def login(session):
    page = await session.post("{url}json", json={{"user": "me"}})
    assert page.json() == {{"ok": True}}
    await session.post("{url}form", {{"a": "1"}})
"""
    routes = {
        "/json": page(b'{"ok": true}', "200 OK", "Content-Type: application/json"),
        "/form": page(),
        "/": page(),
    }
    with ScriptedServer(routes) as server:
        _scraper(shoal, server, login)
        shoal("run", "members.py", "--strict")
        sent = {request.target: request for request in server.requests if request.method == "POST"}
    assert (sent["/json"].body, sent["/json"].headers["content-type"]) == (
        b'{"user":"me"}',
        "application/json",
    )
    assert sent["/form"].body == b"a=1"
    assert sent["/form"].headers["content-type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("status", "method", "body"),
    [("302 Found", "GET", b""), ("303 See Other", "GET", b""), ("307 Temporary Redirect", "POST", b"a=1")],
)
def test_a_redirect_after_a_post_is_followed_as_browsers_do(
    shoal: Shell, status: str, method: str, body: bytes
) -> None:
    """With a GET, unless the status says that the request is to be repeated."""
    login = "\n@crawl.login\ndef login(session):\n    session.post('{url}post', {{'a': '1'}})\n"
    routes = {"/post": page(b"", status, "Location: /next"), "/next": page(), "/": page()}
    with ScriptedServer(routes) as server:
        _scraper(shoal, server, login)
        shoal("run", "members.py", "--strict")
        [found] = [request for request in server.requests if request.target == "/next"]
    assert (found.method, found.body) == (method, body)


def test_what_was_posted_is_not_sent_on_to_another_site(shoal: Shell) -> None:
    """Not even if a redirect asks for that: it is a password."""
    login = "\n@crawl.login\ndef login(session):\n    session.post('{url}post', {{'a': 's3cret'}})\n"
    with ScriptedServer({"/": page()}) as other:
        routes = {"/post": page(b"", "307 Temporary Redirect", f"Location: {other.url('/next')}")}
        with ScriptedServer(routes) as server:
            _scraper(shoal, server, login)
            ended = shoal("run", "members.py", code=2)
        assert other.requests == []
    assert "would have what was sent to it sent to another site" in ended.err
    assert "s3cret" not in ended.err


def test_a_login_needs_cookies(shoal: Shell) -> None:
    """So it is refused without."""
    with ScriptedServer(Members()) as server:
        _scraper(shoal, server, ASYNC, settings=", cookies=False")
        assert shoal.refused("run", "members.py") == (
            "a crawl with a login needs cookies: leave cookies=False out"
        )


# --- credentials and headers by host ----------------------------------------------------------

BASIC = "Basic dXNlcjpzM2NyZXQ="  # user:s3cret


def _two_sites() -> tuple[ScriptedServer, ScriptedServer]:
    """The first one links and redirects to the second one, which links back."""
    second = ScriptedServer({"/": page(), "/r": page()})
    body = f'<a href="{second.url()}">a</a> <a href=/go>b</a>'.encode()
    first = ScriptedServer({"/": page(body), "/go": page(b"", FOUND, f"Location: {second.url('/r')}")})
    return first, second


def _seen(server: ScriptedServer, name: str) -> set[str | None]:
    return {request.headers.get(name) for request in server.requests}


def _assert_secret_is_nowhere(shoal: Shell, *texts: str) -> None:
    shown = [*texts, *(shoal(*command).out for command in (["status"], ["status", "--json"], ["export"]))]
    assert not [text for text in shown if "s3cret" in text or BASIC in text]
    for name, content in shoal.files().items():
        if not name.startswith(("given", "scraper")):
            assert b"s3cret" not in (content or b""), name
            assert BASIC.encode() not in (content or b""), name


@pytest.mark.parametrize("way", ["option", "environment", "file", "scraper"])
def test_credentials_go_to_their_host_alone(shoal: Shell, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Not to the target of a link or a redirect, nor into the state file, the log or what is shown.

    The process's environment is that of the nursery, so `alone` runs it.
    """
    first, second = _two_sites()
    with first, second:
        options: tuple[str, ...] = ("crawl", first.url(), "--scope", "any", "--allow-private")
        if way == "option":
            options += ("--auth", f"{first.address}=user:s3cret")
        elif way == "environment":
            options += ("--auth", f"{first.address}=user:$S3")
        elif way == "file":
            shoal.write("given.toml", f'[auth]\n"{first.address}" = "user:s3cret"\n')
            options += ("--auth-file", "given.toml")
        else:
            shoal.write(
                "scraper.py",
                f"import shoal\ncrawl = shoal.Crawl('test', seeds=['{first.url()}'], scope='any',"
                f" auth={{'{first.address}': 'user:s3cret'}})",
            )
            options = ("run", "scraper.py")
        process = shoal.start(*options, "-v", wrapper=("env", "S3=s3cret"))
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert _seen(first, "authorization") == {BASIC}
    assert _seen(second, "authorization") == {None}
    assert {request.target for request in second.requests} == {"/robots.txt", "/", "/r"}
    _assert_secret_is_nowhere(shoal, out, err)


def test_headers_may_be_for_one_host(shoal: Shell) -> None:
    """From a file; those for all hosts, and a proxy's password, are not kept either."""
    first, second = _two_sites()
    with first, second:
        shoal.write("given.toml", f'[headers."{first.address}"]\nX-Key = "s3cret"\nX-Other = "1"\n')
        options = ("--auth-file", "given.toml", "--header", "X-All: s3cret", "--scope", "any")
        ended = shoal("crawl", first.url(), "-v", *options)
    assert _seen(first, "x-key") == {"s3cret"}
    assert _seen(first, "x-all") == _seen(second, "x-all") == {"s3cret"}
    assert _seen(second, "x-key") == _seen(second, "x-other") == {None}
    _assert_secret_is_nowhere(shoal, ended.out, ended.err)


def test_a_login_goes_with_the_credentials_of_its_host(shoal: Shell) -> None:
    """Some sites have both."""
    members = Members()
    with ScriptedServer(members) as server:
        _scraper(shoal, server, ASYNC)
        shoal("run", "members.py", "--auth", f"{server.address}=user:s3cret", "--strict")
        assert _seen(server, "authorization") == {BASIC}


def test_credentials_are_not_given_in_a_url(shoal: Shell) -> None:
    """The refusal says how."""
    assert shoal.refused("crawl", "http://user:s3cret@127.0.0.1:9/") == (
        "leave user and password out of the URL, http://127.0.0.1:9/, and give them for its host:"
        " --auth, or auth={...}"
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--auth", "user:s3cret"),
        ("--auth", "127.0.0.1=s3cret"),
        ("--auth", "user:s3cret@127.0.0.1=x:y"),
        ("--auth", "127.0.0.1=user:$NOT_SET"),
        ("--auth-file", "missing.toml"),
        ("--auth-file", "broken.toml"),
        ("--auth-file", "other.toml"),
        ("--auth-file", "number.toml"),
    ],
    ids=str,
)
def test_credentials_that_cannot_be_right_are_refused(shoal: Shell, options: tuple[str, str]) -> None:
    """In one line, which does not show them."""
    shoal.write("broken.toml", '[auth]\n"a" = s3cret\n')
    shoal.write("other.toml", '[auht]\n"a" = "s3cret"\n')
    shoal.write("number.toml", '[auth]\n"a" = 5\n')
    assert "s3cret" not in shoal.refused("crawl", "http://127.0.0.1:9/", *options)
