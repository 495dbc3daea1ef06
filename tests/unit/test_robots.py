"""robots.txt: from bytes to rules, and what the rules allow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model import Failure, FailureKind, Response
from shoal.robots import ALLOW_ALL, DISALLOW_ALL, MAX_BYTES, Rules, from_answer, parse


def _rules(*lines: str, agent: str = "shoal") -> Rules:
    return parse("\n".join(("User-agent: *", *lines)).encode(), agent)


def _allows(path_query: str, *lines: str) -> bool:
    return _rules(*lines).allows(path_query)


def _answer(status: int, body: bytes = b"User-agent: *\nDisallow: /x\n") -> Response:
    return Response("http://a.example/robots.txt", status, (), body, 1.5)


# --- matching ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/fish", ["/fish", "/fish.html", "/fishheads/x", "/fish?id=1"], ["/Fish", "/catfish", "/?id=fish"]),
        ("/fish/", ["/fish/", "/fish/?id=1"], ["/fish", "/fish.html"]),
        ("/fish*", ["/fish", "/fish/x"], ["/catfish"]),
        ("/*.php", ["/a.php", "/a/b.php?c", "/?f=a.php"], ["/", "/php/", "/a.PHP"]),
        ("/*.php$", ["/a.php", "/a.php/b.php"], ["/a.php?x", "/a.php5", "/a.php/"]),
        ("/a$", ["/a"], ["/a/", "/a?", "/"]),
        ("/a*a$", ["/aa", "/aba"], ["/a", "/aab"]),
        ("/a**b", ["/ab", "/axb"], ["/ba"]),
        ("*", ["/", "/x?y"], []),
        ("/*s=", ["/?s=1", "/s=/"], ["/s/"]),
        ("/*?s=", ["/?s=1", "/a?s=1"], ["/?r=1&s=1"]),
        ("/a$b", ["/a$b", "/a%24bc"], ["/a"]),
        ("fish", [], ["/fish", "/"]),
        ("http://a.example/x", [], ["/x"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    """A pattern matches from the start of the path; "*" is anything and a "$" at its end is the end."""
    rules = _rules(f"Disallow: {pattern}")
    assert [path for path in matching if rules.allows(path)] == []
    assert [path for path in others if not rules.allows(path)] == []


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/ツ", ["/%E3%83%84", "/%e3%83%84", "/ツ"], ["/%E3%83"]),
        ("/%e3%83%84", ["/%E3%83%84", "/ツ"], []),
        ("/a%62c", ["/abc", "/a%62c", "/%61bc"], []),
        ("/~a", ["/~a", "/%7Ea", "/%7ea"], []),
        ("/a b", ["/a%20b"], ["/ab"]),
        ("/a|b", ["/a|b", "/a%7Cb"], []),
        ("/a(1)", ["/a(1)", "/a%281%29"], []),
        ("/a%2Fb", ["/a%2fb"], ["/a/b"]),
        ("/a/b", ["/a/b"], ["/a%2Fb"]),
        ("/a%3Fb", ["/a%3fb"], ["/a?b"]),
        ("/*%2F*", ["/a/9%2F11/"], ["/path/index.html"]),
        ("/%2A", ["/*", "/%2a"], ["/x"]),
        ("/a-%24", ["/a-$", "/a-%24"], ["/a-"]),
        ("/100%", ["/100%", "/100%25"], ["/100"]),
        ("/%zz", ["/%zz", "/%25zz"], []),
        ("/r?u=http://b", ["/r?u=http%3A%2F%2Fb", "/r?u=http://b"], ["/r?u=http:%2Fb"]),
        ("/r?u=http%3a%2f%2fb", ["/r?u=http%3A%2F%2Fb", "/r?u=http://b"], []),
        ("/*?u=*/b$", ["/r?u=a/b", "/r?u=a%2Fb"], ["/r%3Fu=a/b"]),
    ],
)
def test_percent_encoding(pattern: str, matching: list[str], others: list[str]) -> None:
    """Spellings that RFC 9309 2.2.2 calls equal match each other, and no others do."""
    rules = _rules(f"Disallow: {pattern}")
    assert [path for path in matching if rules.allows(path)] == []
    assert [path for path in others if not rules.allows(path)] == []


def test_the_longest_rule_wins() -> None:
    """Order in the file does not matter; wildcards count as characters."""
    assert _allows("/p/x", "Disallow: /", "Allow: /p")
    assert _allows("/p/x", "Allow: /p", "Disallow: /")
    assert not _allows("/page.htm", "Allow: /page", "Disallow: /*.htm")
    assert _allows("/page.htm", "Allow: /page.", "Disallow: /*.ht")
    assert not _allows("/x", "Allow: /", "Disallow: /*")
    assert _allows("/", "Disallow: /", "Allow: /$")


@pytest.mark.parametrize("pattern", ["/p", "/*p", "/p$", "/%70", "/p?q"])
def test_allow_wins_among_equals(pattern: str) -> None:
    """Of two rules with the same length the permissive one counts, whatever their order."""
    assert _allows("/p?q" if "?" in pattern else "/p", f"Allow: {pattern}", f"Disallow: {pattern}")
    assert _allows("/p?q" if "?" in pattern else "/p", f"Disallow: {pattern}", f"Allow: {pattern}")


def test_an_empty_rule_says_nothing() -> None:
    """`Disallow:` without a path allows everything, and takes nothing away from other rules."""
    assert _allows("/x", "Disallow:")
    assert not _allows("/x", "Disallow:", "Disallow: /x", "Allow:")


def test_robots_txt_itself_is_allowed() -> None:
    """The file cannot forbid itself; another of that name elsewhere it can."""
    rules = _rules("Disallow: /")
    assert rules.allows("/robots.txt")
    assert DISALLOW_ALL.allows("/robots.txt")
    assert not rules.allows("/a/robots.txt")


def test_the_two_constants() -> None:
    """ALLOW_ALL allows everything, DISALLOW_ALL nothing."""
    assert ALLOW_ALL.allows("/")
    assert not DISALLOW_ALL.allows("/")
    assert not DISALLOW_ALL.allows("/a?b")


def test_many_wildcards_cost_linear_time() -> None:
    """A pattern made to blow up a backtracking matcher is just one that does not match."""
    rules = _rules("Disallow: /" + "*a" * 1000 + "b")
    assert rules.allows("/" + "a" * 8000)
    assert not rules.allows("/" + "a" * 8000 + "b")


_PATTERNS = st.text("/ab*$", min_size=1, max_size=6)
_PATHS = st.text("/ab", max_size=8).map("/".__add__)


def _expected(rules: list[tuple[bool, str]], path: str) -> bool:
    """The verdict by regular expressions."""
    best = (0, True)
    for allow, pattern in rules:
        body = pattern.removesuffix("$")
        regex = ".*".join(map(re.escape, body.split("*"))) + ("$" if body != pattern else "")
        if re.match(regex, path):
            # A "$" that is not at the end stands for itself, and is then written as three octets.
            best = max(best, (len(pattern) + 2 * body.count("$"), allow))
    return best[1]


@given(st.lists(st.tuples(st.booleans(), _PATTERNS), max_size=6), _PATHS)
def test_any_set_of_rules_is_matched_like_regular_expressions(
    rules: list[tuple[bool, str]], path: str
) -> None:
    """The precompiled rules give the verdict that the definition gives."""
    lines = [f"{'Allow' if allow else 'Disallow'}: {pattern}" for allow, pattern in rules]
    assert _allows(path, *lines) == _expected(rules, path)


# --- parsing ----------------------------------------------------------------------------------

GROUPS = b"""
User-agent: one
Disallow: /1

User-agent: two
User-agent: three/2.0
Crawl-delay: 7
Sitemap: http://a.example/map.xml
Disallow: /23

User-agent: *
Disallow: /all

User-agent: TWO
Disallow: /2
"""


@pytest.mark.parametrize(
    ("agent", "forbidden", "delay_s"),
    [
        ("one", {"/1"}, None),
        ("two", {"/23", "/2"}, 7.0),
        ("Three", {"/23"}, 7.0),
        ("other", {"/all"}, None),
        ("on", {"/all"}, None),
        ("one-more", {"/all"}, None),
        ("one/1.0 (+http://a.example)", {"/1"}, None),
        ("Mozilla/5.0 (compatible; One/1.0; +http://a.example)", {"/1"}, None),
        ("Mozilla/5.0 (X11; Linux x86_64) one/1.0", {"/all"}, None),
        ("", {"/all"}, None),
        ("*", {"/all"}, None),
        ("(odd)", {"/all"}, None),
    ],
)
def test_the_group_of_an_agent(agent: str, forbidden: set[str], delay_s: float | None) -> None:
    """All groups that name the product token count together; if there are none, those for "*"."""
    rules = parse(GROUPS, agent)
    assert {path for path in ("/1", "/23", "/all", "/2") if not rules.allows(f"{path}/")} == forbidden
    assert rules.crawl_delay_s == delay_s


def test_an_own_group_without_rules_allows_everything() -> None:
    """A group that names the agent replaces the one for "*", even if it is empty."""
    rules = parse(b"User-agent: *\nDisallow: /\nCrawl-delay: 9\nUser-agent: shoal\n", "shoal")
    assert rules.allows("/x")
    assert rules.crawl_delay_s is None


@pytest.mark.parametrize(
    "line", ["Crawl-delay: 5", "Sitemap: http://a.example/", "Host: a", "# note", "<br>", ""]
)
def test_only_rules_end_a_list_of_agents(line: str) -> None:
    """Other lines between two User-agent lines leave both in one group."""
    rules = parse(f"User-agent: shoal\n{line}\nUser-agent: other\nDisallow: /x\n".encode(), "shoal")
    assert not rules.allows("/x")


def test_a_group_ends_with_the_next_agent_after_a_rule() -> None:
    """Even if the rule was empty."""
    rules = parse(b"User-agent: shoal\nDisallow:\nUser-agent: other\nDisallow: /x\n", "shoal")
    assert rules.allows("/x")


def test_rules_before_any_agent_are_nobodys() -> None:
    """Nor do they stop the rest from being read."""
    rules = parse(b"Crawl-delay: 1\nDisallow: /y\n\nUser-agent: *\nDisallow: /x\n", "shoal")
    assert rules.allows("/y")
    assert not rules.allows("/x")
    assert rules.crawl_delay_s is None


@pytest.mark.parametrize(
    "body",
    [
        b"User-agent: *\r\nDisallow: /x\r\n",
        b"User-agent: *\rDisallow: /x\r",
        b"User-agent: *\n\r\n\rDisallow: /x",
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /x",
        b"\xef\xbbUser-agent: *\nDisallow: /x",
        b"  user-AGENT\t:   *   # all\n\tdisallow :\t/x \t# why\n",
        b"User-agent *\nDisallow /x",
        b"User-agent: * and more\nDisallow: /x",
        b"\0\xff\xfe\n\n::\n:\nUser-agent\nDisallow\nUser-agent: *\nDisallow: /x\n" + b"\xff" * 1000,
        b"User-agent: *\nDisallow: /x\n" + b"#" * 1_000_000,
        b"User-agent: *\nDisallow: /" + b"long" * 50_000 + b"\nDisallow: /x\n",
    ],
)
def test_ways_to_write_the_same_file(body: bytes) -> None:
    """Line ends, byte order marks, blanks, case, comments, missing colons and rubbish change nothing."""
    rules = parse(body, "shoal")
    assert not rules.allows("/x")
    assert rules.allows("/y")


@pytest.mark.parametrize(
    "body", [b"", b"\0" * 100, b"<!doctype html><p>User-agent: *<p>Disallow: /", b"allow all, disallow none"]
)
def test_what_is_not_a_robots_txt_allows_everything(body: bytes) -> None:
    """Bytes without a line that is understood are an empty file."""
    assert parse(body, "shoal") == ALLOW_ALL


def test_a_rule_cut_in_two_by_the_limit_is_not_read() -> None:
    """The part before the cut would be a rule that nobody wrote: here, one that forbids everything."""
    head = b"User-agent: *\nDisallow: /x\n"
    line = b"\nDisallow: /"
    body = head + b"#" * (MAX_BYTES - len(head) - len(line)) + line + b"private\n"
    for cut in (body, body[:MAX_BYTES]):
        rules = parse(cut, "shoal")
        assert rules.allows("/y")
        assert not rules.allows("/x")
    assert parse(b"#" * MAX_BYTES, "shoal") == ALLOW_ALL


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [
        ("0", 0.0),
        ("10", 10.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("2 # seconds", 2.0),
        *(
            (value, None)
            for value in ("", "-1", "+1", "1e3", "inf", "nan", "1_0", "1,5", "10s", "soon", "9" * 400)
        ),
    ],
)
def test_crawl_delays(value: str, delay_s: float | None) -> None:
    """A plain decimal number of seconds counts, anything else is as if it were not there."""
    assert _rules(f"Crawl-delay: {value}").crawl_delay_s == delay_s


def test_the_first_valid_crawl_delay_counts() -> None:
    """In a group, also one put together from several."""
    assert _rules("Crawl-delay: x", "Crawl-delay: 3", "Crawl-delay: 4").crawl_delay_s == 3.0


def test_sitemaps_belong_to_everybody() -> None:
    """They are listed once, in their order, wherever they stand."""
    body = "Sitemap: /a.xml\nUser-agent: other\nsitemap:http://a.example/ツ\nSitemap:\nSitemap: /a.xml\n"
    assert parse(body.encode(), "shoal").sitemaps == ("/a.xml", "http://a.example/ツ")


@given(st.binary(max_size=200), st.text(max_size=30), st.text(max_size=30))
def test_parsing_never_raises(body: bytes, agent: str, path: str) -> None:
    """Whatever the bytes, the agent and the path."""
    rules = parse(b"User-agent: *\nDisallow: /" + body, agent)
    assert rules.allows("/" + path) in (True, False)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n \t#*$%/?")), st.text())
def test_percent_encoding_everything_changes_nothing(name: str, rest: str) -> None:
    """A path that is forbidden by its text is forbidden in percent-encoding, and the other way round."""
    encoded = "".join(f"%{octet:02x}" for octet in name.encode())
    assert not _allows(f"/{encoded}{rest}", f"Disallow: /{name}")
    assert not _allows(f"/{name}{rest}", f"Disallow: /{encoded}")


# --- the answer to the request ------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 206])
def test_a_success_is_parsed(status: int) -> None:
    """What a 2xx brings are the rules."""
    rules = from_answer(_answer(status), "shoal")
    assert isinstance(rules, Rules)
    assert not rules.allows("/x")


@pytest.mark.parametrize("status", [204, 300, 301, 302, 304, 308, 400, 401, 403, 404, 410, 418, 451, 499])
def test_an_unavailable_file_allows_everything(status: int) -> None:
    """Redirects without end and client errors mean that there is no such file."""
    assert from_answer(_answer(status, b""), "shoal") == ALLOW_ALL


@pytest.mark.parametrize("status", [101, 429, 500, 501, 502, 503, 504, 505, 599, 999])
def test_an_unreachable_file_defers(status: int) -> None:
    """Server errors, 429 and what is no HTTP status at all become a failure that says so."""
    assert from_answer(_answer(status), "shoal") == Failure("robots", f"robots.txt: HTTP {status}", 1.5)


@pytest.mark.parametrize("kind", ["timeout", "reset", "truncated", "protocol", "decoding", "too_large"])
def test_a_failed_fetch_defers(kind: FailureKind) -> None:
    """The failure is about robots.txt, and its details say what happened."""
    answer = from_answer(Failure(kind, "it broke", 2.0), "shoal")
    assert answer == Failure("robots", f"robots.txt: {kind}: it broke", 2.0)


@pytest.mark.parametrize("kind", ["blocked", "dns", "refused", "tls"])
def test_a_host_that_cannot_be_reached_keeps_its_own_failure(kind: FailureKind) -> None:
    """It is not robots.txt that is out of reach but the whole host, and the reason says so."""
    failure = Failure(kind, "details")
    assert from_answer(failure, "shoal") is failure
