"""What to do with an answer: every rule of the table, and what holds for all answers."""

from __future__ import annotations

from time import gmtime, strftime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model import Failure, FailureKind, Response, Sign
from shoal.policy import (
    Dead,
    Hop,
    Read,
    Redirect,
    Retries,
    Retry,
    Verdict,
    backoff_s,
    follow,
    is_cause,
    judge,
    retry,
    retry_after_s,
    sign_of,
)

NOW = 1_796_126_400.0  # Tue, 01 Dec 2026 12:00:00 GMT
RETRIES = Retries()


def _response(status: int, **headers: str) -> Response:
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response("http://a.example/", status, fields, b"")


def _judge(answer: Response | Failure, attempt: int = 1, draw: float = 0.5) -> Verdict:
    return judge(answer, attempt, retries=RETRIES, now=NOW, draw=draw)


# --- responses --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 203, 204, 205, 206, 226, 299])
def test_a_success_is_read(status: int) -> None:
    """Every 2xx is a page, even with a Location."""
    assert _judge(_response(status, location="/t")) == Read()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_has_its_location(status: int) -> None:
    """The location is handed on as it stands in the header, without the blanks around it."""
    assert _judge(_response(status, location=" ../t?x#y\t")) == Redirect("../t?x#y")


@pytest.mark.parametrize(
    ("header", "location"),
    [
        ("/caf\xc3\xa9", "/café"),
        ("/fa/\xd8\xa7\xd8\xb9", "/fa/اع"),
        ("/caf\xe9", "/caf%E9"),
        ("/caf\xe9?\xc3\xa9", "/caf%E9?%C3%A9"),
        ("http://b\xfccher.example/", "http://b%FCcher.example/"),
        ("/ツ", "/ツ"),
        ("/\ud800", "/\ud800"),
    ],
)
def test_a_location_outside_ascii(header: str, location: str) -> None:
    """UTF-8 where the octets are valid UTF-8, otherwise the octets in percent-encoding, as browsers do."""
    assert _judge(_response(302, location=header)) == Redirect(location)


def test_the_first_of_several_locations_counts() -> None:
    """A second Location header is not looked at."""
    answer = Response("http://a.example/", 302, (("location", "/a"), ("location", "/b")), b"")
    assert _judge(answer) == Redirect("/a")


@pytest.mark.parametrize("headers", [{}, {"location": ""}, {"location": " \t"}])
def test_a_redirect_to_nowhere_is_dead(headers: dict[str, str]) -> None:
    """Without a location there is nothing to follow; only a 300 has choices in its body."""
    assert _judge(_response(302, **headers)) == Dead("redirect without a location")
    assert _judge(_response(300, **headers)) == Read()


@pytest.mark.parametrize(
    "status",
    [0, 99, 101, 199, 304, 305, 306, 400, 401, 403, 404, 405, 410, 418, 421, 451, 501, 505, 600, 999],
)
def test_a_permanent_status_is_dead_at_once(status: int) -> None:
    """Asking again would bring the same answer."""
    assert _judge(_response(status, location="/t", retry_after="5")) == Dead(f"HTTP {status}")


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 507, 511, 520, 524, 599])
def test_a_transient_status_is_tried_again(status: int) -> None:
    """After a backoff; the host goes on meanwhile."""
    assert _judge(_response(status), attempt=2) == Retry(f"HTTP {status}", 1.0, 0.0)
    assert _judge(_response(status), attempt=4) == Dead(f"HTTP {status}")


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_pauses_the_host(status: int) -> None:
    """As long as it says, up to the limit; and it holds for the page as well."""
    assert _judge(_response(status, retry_after="120")) == Retry(f"HTTP {status}", 120.0, 120.0)
    assert _judge(_response(status, retry_after="7200")) == Retry(f"HTTP {status}", 3600.0, 3600.0)
    assert _judge(_response(status, retry_after="0")) == Retry(f"HTTP {status}", 0.5, 0.0)
    date = "Tue, 01 Dec 2026 12:00:30 GMT"
    assert _judge(_response(status, retry_after=date)) == Retry(f"HTTP {status}", 30.0, 30.0)


def test_retry_after_shorter_than_the_backoff_does_not_shorten_it() -> None:
    """The page comes back after the backoff, the host before."""
    assert _judge(_response(503, retry_after="1"), attempt=3, draw=0.75) == Retry("HTTP 503", 3.0, 1.0)


def test_retry_after_holds_though_the_page_is_given_up() -> None:
    """The host wants its rest, whatever becomes of this page."""
    assert _judge(_response(429, retry_after="9"), attempt=4) == Dead("HTTP 429", 9.0)


@pytest.mark.parametrize("headers", [{}, {"retry_after": "soon"}, {"retry_after": "0"}])
def test_429_without_a_time_asks_for_no_pause(headers: dict[str, str]) -> None:
    """How long its host is left alone then depends on how it was before: see the tests of caution."""
    assert _judge(_response(429, **headers), attempt=2) == Retry("HTTP 429", 1.0, 0.0)
    assert _judge(_response(429, **headers), attempt=4) == Dead("HTTP 429", 0.0)


# --- failures ---------------------------------------------------------------------------------

TRANSIENT: dict[FailureKind, str] = {
    "dns": "host not found",
    "refused": "connection refused",
    "reset": "connection reset",
    "tls": "TLS",
    "timeout": "timeout",
    "truncated": "truncated body",
    "protocol": "broken HTTP",
}
PERMANENT: dict[FailureKind, str] = {
    "blocked": "blocked address",
    "decoding": "broken content coding",
    "too_large": "too large",
}


def test_every_failure_has_a_verdict() -> None:
    """No kind is left out of the two tables and the tests below."""
    assert set(TRANSIENT) | set(PERMANENT) | {"robots"} == set(get_args(FailureKind))


@pytest.mark.parametrize(("kind", "reason"), TRANSIENT.items())
def test_a_transient_failure_is_tried_again(kind: FailureKind, reason: str) -> None:
    """After a backoff, until the attempts are used up; the reason stays the same."""
    assert _judge(Failure(kind, "details"), attempt=3) == Retry(reason, 2.0, 0.0)
    assert _judge(Failure(kind, "details"), attempt=4) == Dead(reason)
    assert _judge(Failure(kind, "details"), attempt=5) == Dead(reason)


@pytest.mark.parametrize(("kind", "reason"), PERMANENT.items())
def test_a_permanent_failure_is_dead_at_once(kind: FailureKind, reason: str) -> None:
    """Asking again would bring the same answer."""
    assert _judge(Failure(kind, "details")) == Dead(reason)


def test_a_bad_certificate_is_dead_at_once() -> None:
    """Other trouble with TLS may pass; a certificate stays as it is."""
    failure = Failure("tls", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed")
    assert _judge(failure) == Dead("TLS certificate")


def test_robots_txt_out_of_reach_waits_longer() -> None:
    """A whole site hangs on it, so its backoff starts from the pause for hosts."""
    failure = Failure("robots", "robots.txt: HTTP 503")
    verdicts = [_judge(failure, attempt) for attempt in (1, 2, 3, 4)]
    assert verdicts == [
        Retry("robots.txt unreachable", 2.5),
        Retry("robots.txt unreachable", 5.0),
        Retry("robots.txt unreachable", 10.0),
        Dead("robots.txt unreachable"),
    ]


# --- delays -----------------------------------------------------------------------------------

ATTEMPTS = st.integers(1, 10_000)
DRAWS = st.floats(0, 1, exclude_max=True)
SECONDS = st.floats(0, 1e6)
ANY_RETRIES = st.builds(
    Retries,
    max_attempts=st.integers(1, 20),
    base_s=SECONDS,
    cap_s=SECONDS,
    pause_s=SECONDS,
    max_retry_after_s=SECONDS,
)


@given(ATTEMPTS, DRAWS)
def test_a_backoff_is_between_nothing_and_its_upper_end(attempt: int, draw: float) -> None:
    """Never 0, never over the cap, and its upper end doubles with each attempt until there."""
    top_s = min(300.0, 2.0 ** min(attempt - 1, 10))
    assert 0.05 * top_s <= backoff_s(attempt, RETRIES, draw) <= top_s


@given(ATTEMPTS, DRAWS, ANY_RETRIES)
def test_a_later_attempt_never_waits_less(attempt: int, draw: float, retries: Retries) -> None:
    """With the same draw, backoffs only grow."""
    assert backoff_s(attempt, retries, draw) <= backoff_s(attempt + 1, retries, draw) <= retries.cap_s


@given(st.integers(-10, 1000), st.text(), st.text(), ATTEMPTS, ANY_RETRIES, DRAWS)
def test_every_response_gets_a_verdict(
    status: int, location: str, retry_after: str, attempt: int, retries: Retries, draw: float
) -> None:
    """Whatever the headers say; a delay covers the pause, and nothing is tried more often than allowed."""
    answer = _response(status, location=location, retry_after=retry_after)
    verdict = judge(answer, attempt, retries=retries, now=NOW, draw=draw)
    if isinstance(verdict, Retry):
        assert attempt < retries.max_attempts
        assert 0 <= verdict.pause_s <= verdict.delay_s <= max(retries.cap_s, retries.max_retry_after_s)
    elif isinstance(verdict, Dead):
        assert verdict.reason
        assert 0 <= verdict.pause_s <= max(retries.cap_s, retries.max_retry_after_s)


def test_retry_counts_attempts() -> None:
    """Any reason will do: the last attempt is dead, those before wait for a backoff or the pause."""
    reason, once = "handler raised", Retries(max_attempts=1)
    assert retry(reason, 1, "handler", retries=RETRIES, draw=0.5) == Retry(reason, 0.5)
    assert retry(reason, 1, "handler", retries=RETRIES, draw=0.5, pause_s=3.0) == Retry(reason, 3.0, 3.0)
    assert retry(reason, 4, "handler", retries=RETRIES, draw=0.5) == Dead(reason)
    assert retry(reason, 1, "handler", retries=once, draw=0.5) == Dead(reason)


BY_CAUSE = {"dns": 1, "404": 3, "5xx": 2, "503": 6, "certificate": 2, "too_large": 2}


@pytest.mark.parametrize(
    ("answer", "attempts"),
    [
        (Failure("dns", ""), 1),
        (Failure("refused", ""), 4),
        (Failure("tls", "certificate has expired"), 2),
        (Failure("tls", "wrong version number"), 4),
        (Failure("too_large", ""), 2),
        (Failure("decoding", ""), 1),
        (_response(404), 3),
        (_response(410), 1),
        (_response(500), 2),
        (_response(501), 2),
        (_response(503), 6),
        (_response(429), 4),
    ],
)
def test_attempts_can_be_set_for_each_cause(answer: Response | Failure, attempts: int) -> None:
    """By its name, its status or the class of that; the more exact one counts; all others stay."""
    retries = Retries(by_cause=BY_CAUSE)

    def verdict(attempt: int) -> Verdict:
        return judge(answer, attempt, retries=retries, now=NOW, draw=0.5)

    tried_again = [isinstance(verdict(attempt), Retry) for attempt in range(1, 8)]
    assert tried_again == [attempt < attempts for attempt in range(1, 8)]


def test_the_names_of_causes() -> None:
    """All kinds of failures, what handlers raise, statuses and their classes; nothing else."""
    assert all(map(is_cause, [*get_args(FailureKind), "certificate", "handler", "404", "999", "4xx", "5xx"]))
    assert not any(map(is_cause, ["", "DNS", "2xx", "04", "1000", "http 500"]))


SIGNS: list[tuple[Sign, list[Response | Failure]]] = [
    ("fine", [_response(status) for status in (200, 204, 301, 304, 404, 403, 408, 425, 500, 501, 507)]),
    ("fine", [Failure(kind, "") for kind in ("too_large", "decoding")]),
    ("busy", [_response(429), _response(429, retry_after="5"), _response(503, retry_after="soon")]),
    ("busy", [Failure("robots", "", busy=True)]),
    ("failing", [_response(status) for status in (502, 503, 504, 520, 522, 524)]),
    ("failing", [Failure(kind, "") for kind in ("dns", "refused", "reset", "timeout", "protocol", "robots")]),
    ("failing", [Failure("tls", "handshake failure")]),
    ("", [Failure("tls", "certificate has expired"), Failure("truncated", ""), Failure("blocked", "")]),
]


@pytest.mark.parametrize(("sign", "answers"), SIGNS)
def test_what_an_answer_tells_about_its_host(sign: Sign, answers: list[Response | Failure]) -> None:
    """Whether it is well, asked too often, or in trouble; of some answers nothing follows."""
    assert {sign_of(answer) for answer in answers} == {sign}


# --- Retry-After --------------------------------------------------------------------------------

DATES = st.from_regex(
    r"((Tue,?|Tuesday,|[0-3]?[0-9]|De[cz]|01-Dec-26|2026|9999|[0-2][0-9]:[0-9]2:[06]0|GMT|[+-][0-9]{4,8}"
    r"|[(),:\0-]) ?){0,8}"
)


@given(st.one_of(st.text(), DATES, st.from_regex(r"[0-9]{1,400}")), st.floats(0, 4e9))
def test_no_retry_after_raises(value: str, now: float) -> None:
    """Any text is a time from now or nothing."""
    asked_s = retry_after_s(value, now)
    assert asked_s is None or 0 <= asked_s < float("inf")


@pytest.mark.parametrize("form", ["%a, %d %b %Y %T GMT", "%A, %d-%b-%y %T GMT", "%a %b %e %T %Y"])
@given(seconds=st.integers(0, 10**8))
def test_the_three_forms_of_a_date_mean_the_same(form: str, seconds: int) -> None:
    """RFC 9110, section 5.6.7: IMF-fixdate, RFC 850 and asctime, all of them in GMT."""
    assert retry_after_s(strftime(form, gmtime(NOW + seconds)), NOW) == seconds


# --- redirects ----------------------------------------------------------------------------------

A, B, C = "http://a.example/", "http://a.example/b", "http://a.example/c"


def test_a_redirect_becomes_a_link_with_its_chain() -> None:
    """The chain ends with the page that redirects; the link is known by its URL alone."""
    assert follow(B, A, (), set_cookie=False) == Hop(B, (A,), "")
    assert follow(C, B, (A,), set_cookie=True) == Hop(C, (A, B), "")


@pytest.mark.parametrize(("target", "page", "via"), [(A, A, ()), (A, B, (A,)), (B, C, (A, B))])
def test_coming_back_is_a_loop_unless_a_cookie_was_set(target: str, page: str, via: tuple[str, ...]) -> None:
    """With a cookie the page may be another one now: it is fetched again, under a key of its own."""
    assert follow(target, page, via, set_cookie=False) == Dead("redirect loop")
    assert follow(target, page, via, set_cookie=True) == Hop(target, (*via, page), f"redirect {len(via) + 1}")


def test_a_target_that_is_no_url_is_dead() -> None:
    """Among them those whose scheme is not allowed."""
    assert follow(None, A, (), set_cookie=True) == Dead("redirect to an invalid URL")


@pytest.mark.parametrize("target", [C, "http://a.example/9"])
@pytest.mark.parametrize("set_cookie", [True, False])
def test_the_tenth_redirect_is_the_last(target: str, set_cookie: bool) -> None:
    """`limit` redirects in a row are followed, not one more, with cookies or without."""
    via = tuple(f"http://a.example/{number}" for number in range(20, 29))
    assert isinstance(follow(target, A, via, set_cookie=set_cookie), Hop)
    assert follow(target, A, (*via, B), set_cookie=set_cookie) == Dead("too many redirects")
    assert follow(B, A, (), set_cookie=set_cookie, limit=0) == Dead("too many redirects")


@given(st.lists(st.sampled_from([A, B, C]), min_size=11, max_size=11))
def test_bouncing_with_cookies_ends(targets: list[str]) -> None:
    """However a site bounces its visitor, no link of the chain is taken for another, and the end comes."""
    page, via, seen = A, (), {(A, "")}
    for number, target in enumerate(targets):
        hop = follow(target, page, via, set_cookie=True)
        if number == 10:
            assert hop == Dead("too many redirects")
        else:
            assert isinstance(hop, Hop)
            assert (hop.url, hop.key) not in seen
            page, via = hop.url, hop.via
            seen.add((hop.url, hop.key))
