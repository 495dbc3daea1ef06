"""Which Redis may be used, how it is reached, and what is said of one that cannot be."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.e2e.redis_shop import NAME, Shop
from tests.e2e.shell import PATIENCE_S, Shell
from tests.redis_servers import FakeRedis, bulk
from tests.servers import ScriptedServer, page
from tests.services import PostgresServer, RedisServer, free_port
from tests.site import Site
from tests.waiting import until

SECRET = "s3cr3t"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis with a password for the user ann."""
    with RedisServer(appendonly=True) as server:
        with server.client() as client:
            rights = {"enabled": True, "keys": ["*"], "categories": ["+@all"]}
            client.acl_setuser("ann", passwords=[f"+{SECRET}"], **rights)
        yield server


def commands(url: str) -> list[list[str]]:
    """Commands that want to use the frontier."""
    return [
        ["worker", "shop.py", "--frontier", url, "-o", "rows.jsonl"],
        ["status", "--frontier", url],
        ["add", "http://a.test/", "--frontier", url],
    ]


def assert_refused(shop: Shop, url: str, message: str) -> None:
    """Each command says so in one line, without any secret, and changes nothing."""
    shop.scraper("http://127.0.0.1:1/")
    for command in commands(url):
        line = shop.shoal.refused(*command)
        assert re.search(message, line), line
        assert SECRET not in line


# --- what cannot be used --------------------------------------------------------------------------


def test_nobody_listens_there(shop: Shop):
    """Host or port are wrong, or Redis is down."""
    port = free_port()
    url = f"redis://ann:{SECRET}@127.0.0.1:{port}/0"
    assert_refused(shop, url, rf"the frontier redis://127\.0\.0\.1:{port}/0 cannot be used.*refused")


BAD_LOGINS = {
    "wrong password": "//ann:wrong@",
    "no such user": f"//bob:{SECRET}@",
    "password without user": f"//:{SECRET}@",
}


@pytest.mark.parametrize("login", BAD_LOGINS)
def test_the_login_is_wrong(shop: Shop, login: str):
    """That is told apart from a server that is away."""
    shop.client.config_set("requirepass", "another")
    try:
        url = shop.url.replace("//", BAD_LOGINS[login])
        assert_refused(shop, url, "refuses this user or password")
        assert_refused(shop, shop.url, "refuses this user or password")
    finally:
        shop.client.config_set("requirepass", "")


def test_there_is_no_such_database(shop: Shop):
    """Redis has 16 unless told otherwise."""
    assert_refused(shop, shop.url.replace("/0", "/99"), r"redis://127\.0\.0\.1:\d+/99 .*out of range")


def test_an_http_server_is_no_redis(shop: Shop, site: Site):
    """It answers something else."""
    url = f"redis://:{SECRET}@127.0.0.1:{site.port}/0"
    assert_refused(shop, url, rf"the frontier redis://127\.0\.0\.1:{site.port}/0 ")


@pytest.mark.slow
def test_a_server_that_says_nothing_is_no_redis(shop: Shop):
    """It is given ten seconds."""
    with ScriptedServer(lambda request: page(b"<h1>Welcome</h1>")) as web:
        url = f"redis://:{SECRET}@{web.address}/0"
        line = shop.shoal.refused("status", "--frontier", url)
    assert re.search(rf"the frontier redis://{re.escape(web.address)}/0 cannot be used.*[Tt]imeout", line)


def test_a_postgresql_server_is_no_redis(shop: Shop, postgres: PostgresServer):
    """It hangs up."""
    assert_refused(
        shop, f"redis://:{SECRET}@127.0.0.1:{postgres.port}/0", r"redis://127\.0\.0\.1:\d+/0 cannot"
    )


def test_an_old_redis(shop: Shop):
    """What it lacks is a version."""
    with FakeRedis({"INFO": bulk(["redis_version:5.0.7"])}) as old:
        url = old.url.replace("//", f"//:{SECRET}@")
        shop.scraper("http://127.0.0.1:1/")
        assert "is Redis 5.0: shoal needs 6.2 or later" in shop.shoal.refused(*commands(url)[0])


def test_a_redis_that_throws_keys_away(shop: Shop, site: Site):
    """It says what to set."""
    shop.scraper(site.url)
    shop.drain()
    shop.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert_refused(shop, shop.url, r"maxmemory-policy allkeys-lru.*would lose URLs: set it to noeviction")
    finally:
        shop.client.config_set("maxmemory-policy", "noeviction")


def test_a_redis_that_keeps_nothing(shoal: Shell, site: Site):
    """It may be used, with a warning: in the tests of a user it is what one wants."""
    with RedisServer() as server:
        shop = Shop(shoal, server.url, server.client())
        shop.scraper(site.url)
        warnings = [line for line in shop.drain().err.splitlines() if "keeps nothing on disk" in line]
    assert len(warnings) == 1
    assert "warning: redis://127.0.0.1" in warnings[0]


URLS = {
    "no host": ("redis:", r"not a Redis URL|unknown frontier|cannot be used"),
    "another kind": (
        "mysql://127.0.0.1/0",
        r"unknown frontier 'mysql://127\.0\.0\.1/0': use sqlite:FILE or redis",
    ),
    "a file": ("books.shoal", r"unknown frontier 'books\.shoal'"),
    "port": ("redis://127.0.0.1:port/0", r"not a Redis URL: redis://127\.0\.0\.1:port/0"),
    "option": ("redis://127.0.0.1:1/0?colour=red", r"not a Redis URL: .*colour"),
    "slash in the password": (f"redis://:a/{SECRET}@127.0.0.1:1/0", r"not a Redis URL: .*%XX"),
    "no master": ("redis+sentinel://127.0.0.1:1", r"not a Redis URL: .*name of the master"),
}


@pytest.mark.parametrize("case", URLS)
def test_what_is_no_url_of_a_redis(shop: Shop, case: str):
    """The line shows what it is, without its secrets."""
    url, message = URLS[case]
    assert_refused(shop, url, message)


def test_a_crawl_that_is_not_there(shop: Shop, site: Site):
    """On an empty Redis, and beside others."""
    assert f"there is no crawl in {shop.url} yet" in shop.shoal.refused("status", "--frontier", shop.url)
    shop.scraper(site.url)
    shop.drain()
    line = shop.shoal.refused("status", "--frontier", shop.url, "--crawl", "books")
    assert f"{shop.url} has no crawl 'books': it has '{NAME}'" in line
    assert shop.client.keys("*books*") == []


# --- how it is reached ----------------------------------------------------------------------------


def test_no_command_shows_the_password(shop: Shop, site: Site):
    """Nor keeps it: not in Redis, not in a file, not in the log."""
    url = shop.url.replace("//", f"//ann:{SECRET}@")
    secret = Shop(shop.shoal, url, shop.client)
    shop.scraper(site.url)
    said = [secret.drain("--log-json"), secret.drain("--verbose")]
    said += [
        shop.shoal(command, "--frontier", url) for command in ("status", "pause", "resume", "dead", "export")
    ]
    assert [ended for ended in said if SECRET in ended.out + ended.err] == []
    assert [name for name, content in shop.shoal.files().items() if SECRET.encode() in (content or b"")] == []
    values = [shop.client.dump(key) for key in shop.client.scan_iter()]
    assert [value for value in values if SECRET.encode() in value] == []


def test_login_and_prefix_from_the_environment_and_the_url(shop: Shop, site: Site, monkeypatch):
    """REDIS_USERNAME and REDIS_PASSWORD; ?prefix=NAME keeps crawls apart."""
    shop.client.config_set("requirepass", "another")
    try:
        shop.scraper(site.url)
        command = shop.command("--drain")
        command[command.index(shop.url)] = f"{shop.url}?prefix=mine"
        environment = {"REDIS_USERNAME": "ann", "REDIS_PASSWORD": SECRET}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        worker = Shell(shop.shoal.folder, shop.shoal._nursery).start(*command)
        worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == 0
        keys = set(shop.client.scan_iter())
        assert keys
        assert all(key.startswith(b"mine:{shop}:") for key in keys)
    finally:
        shop.client.config_set("requirepass", "")


def test_a_redis_behind_tls(shoal: Shell, site: Site, tmp_path_factory):
    """Its certificate is checked; a CA of one's own is named in the URL."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    with TlsRedis(tmp_path_factory.mktemp("ca")) as server:
        shop = Shop(shoal, f"{server.url}?ssl_ca_certs={server.ca}", server.client())
        shop.scraper(site.url)
        shop.drain()
        assert shop.status()["done"] == 20
        with shop.working():
            until(lambda: shop.client.llen(f"shoal:{{{NAME}}}:inbox") == 0)
            shop.client.lpush(f"shoal:{{{NAME}}}:inbox", f"{site.url}?x")
            until(lambda: shop.stats().done == 21)
        line = shop.shoal.refused("status", "--frontier", server.url)
        assert re.search(
            r"the frontier rediss://127\.0\.0\.1:\d+/0 cannot be used just now: .*CERTIFICATE", line
        )
        plain = server.url.replace("rediss:", "redis:")
        assert re.search(r"redis://127\.0\.0\.1:\d+/0 ", shop.shoal.refused("status", "--frontier", plain))
        missing = f"{server.url}?ssl_ca_certs=/none.pem"
        assert re.search(r"rediss://127", shop.shoal.refused("status", "--frontier", missing))


class TlsRedis(RedisServer):
    """A Redis that speaks TLS only, with a certificate of a CA of its own."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.pem"
        certificate, key = _certificate(folder)
        files = ["--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", self.ca]
        super().__init__(*map(str, files), "--tls-auth-clients", "no", appendonly=True)
        self._options += ["--port", "0", "--tls-port", str(self.port)]

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis("127.0.0.1", self.port, ssl=True, ssl_ca_certs=str(self.ca))


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a CA, and a certificate for 127.0.0.1: its file and that of its key."""

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl(*new, "-x509", "-days", 2, "-subj", "/CN=test CA", "-keyout", "ca.key", "-out", "ca.pem", *usage)
    openssl(*new, "-subj", "/CN=test", "-keyout", "server.key", "-out", "server.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    signed_by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", "names")
    openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", *signed_by)
    return folder / "server.pem", folder / "server.key"


def test_trouble_that_lasts_is_told_and_a_stop_obeyed(shoal: Shell, site: Site):
    """A worker whose Redis has gone says so, and SIGTERM ends it all the same."""
    with RedisServer(appendonly=True) as server:
        shop = Shop(shoal, server.url, server.client())
        shop.scraper(site.url)
        worker = shop.shoal.start(*shop.command())
        until(lambda: shop.begun(worker.pid))
        until(lambda: shop.stats().done == 20)
        server.kill()
        assert worker.stderr is not None
        while "nothing is lost, trying again" not in worker.stderr.readline():
            assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=15)
        assert worker.returncode in (2, 130)
