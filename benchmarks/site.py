#!/usr/bin/env python3
"""A reproducible web site for crawler benchmarks: build it, serve it, check a crawl against it.

    site.py build DIR [--pages 20000] [--hosts 16] [--seed 1] [--kb 30] [--port 8800]
    site.py serve DIR [--gzip]     start nginx (one worker) in the background
    site.py reset DIR              start a new, empty access log
    site.py check DIR [ITEMS]      compare a crawler's items and the access log with the truth
    site.py stop  DIR              stop nginx

The hosts are 127.0.0.2, 127.0.0.3, ... on one port, and every page can be reached by
links from http://127.0.0.2:PORT/ . The same arguments always give the same bytes.

Each page describes one product, to be read like this (CSS selectors):

    id     article.product      attribute data-id
    title  article.product h1   text
    price  [itemprop=price]     attribute content

A page has exactly one canonical URL (the one in truth.jsonl), but links spell it in many
ways: relative, root-relative, absolute, with ./ and ../, a fragment, an upper-case scheme,
lower-case percent-encoding, or the query in another order. A crawler that deduplicates by
canonical URL fetches each page once. There are three shapes of URL:

    /shop/CATEGORY/SLUG-N.html   /caf%C3%A9/SLUG-N.html   /view?cat=C&item=N

DIR then holds www/HOST/... (the pages), site.json (the arguments), truth.jsonl (one
{"url", "id", "title", "price"} a page) and, once served, nginx.conf, nginx.pid, access.log.
Standard library only; `serve` needs an nginx binary. Python 3.11 or later.
"""

import argparse
import collections
import html
import json
import math
import multiprocessing
import os
import pathlib
import posixpath
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

# ruff: noqa: SIM905 - the words below read better as text
FANOUT = 8  # children of a page in the tree that makes every page reachable
NAV = 10  # a host's first pages, linked from the menu of all its pages
SIGMA = 0.6  # spread of the page sizes (log-normal)
CATEGORIES = "audio bikes books camping garden kitchen lamps music office shoes toys travel".split()
WORDS = (
    "amber anchor basil birch bright bronze canyon cedar clear cobalt copper coral crisp delta "
    "drift ember fern field fjord flint forest garnet gentle glacier granite harbor hazel heron "
    "indigo island ivory jade juniper lagoon larch light linen lunar maple marble meadow misty "
    "morning mossy ocean olive onyx opal orchid pebble pine plain polar prairie quartz quiet "
    "raven ridge river robin saffron sand sierra silver slate solar spruce steady stone summit "
    "sunny thistle timber tundra valley velvet violet walnut willow winter the and of with for "
    "a in is on as that from every made used very small large long easy to your our it"
).split()
NOUNS = "Café table,Desk lamp,Tent & poles,Field guide,Teapot,Road bike,Radio,Notebook,Boots,Globe".split(",")


# --- The site's map: everything here is a pure function of (site, page number) ---------------


class Site:
    """Page numbers to URLs. Page i is number i // hosts on host i % hosts."""

    def __init__(self, pages, hosts, seed, kb, port):
        self.pages, self.hosts, self.seed, self.kb, self.port = pages, hosts, seed, kb, port

    def rng(self, page):
        return random.Random(f"{self.seed}/{page}")

    def host(self, page):
        return f"127.0.0.{2 + page % self.hosts}"

    def on_host(self, host):
        """How many pages the host numbered `host` has."""
        return (self.pages - host + self.hosts - 1) // self.hosts

    def location(self, page):
        """(path, query) of the page's canonical URL."""
        local, pick = page // self.hosts, page * 7919 % 10
        if local == 0:
            return "/", ""
        slug = f"{WORDS[page % 80]}-{WORDS[page * 31 % 80]}-{page}.html"
        if pick < 6:
            return f"/shop/{CATEGORIES[page * 13 % 12]}/{slug}", ""
        if pick < 8:
            return f"/caf%C3%A9/{slug}", ""
        return "/view", f"cat={page * 13 % 12}&item={page}"

    def file(self, page):
        """Where nginx finds the page, below www/HOST/."""
        path, query = self.location(page)
        if query:
            return "view/{}/{}.html".format(*(value for _, value in parse_qsl(query)))
        return unquote(path).strip("/") or "index.html"

    def url(self, page):
        path, query = self.location(page)
        return f"http://{self.host(page)}:{self.port}{path}" + ("?" + query if query else "")

    def item(self, page):
        rng = self.rng(f"item {page}")
        title = f"{rng.choice(WORDS[:80]).title()} {rng.choice(NOUNS)} <{page}>"
        return {
            "url": self.url(page),
            "id": f"P{page:07d}",
            "title": title,
            "price": f"{rng.uniform(1, 900):.2f}",
        }

    def spell(self, target, base, rng):
        """One of the ways to write a link from page `base` to page `target`."""
        path, query = self.location(target)
        base_path = self.location(base)[0]
        if "%" in path and rng.random() < 0.3:
            path = path.replace("%C3%A9", "%c3%a9")
        if query and rng.random() < 0.3:
            query = "&".join(reversed(query.split("&")))
        tail = ("?" + query if query else "") + (
            rng.choice(("#reviews", "#specs")) if rng.random() < 0.1 else ""
        )
        way = rng.random()
        if target % self.hosts != base % self.hosts or way < 0.15:
            scheme = "HTTP" if rng.random() < 0.05 else "http"
            return f"{scheme}://{self.host(target)}:{self.port}{path}{tail}"
        if way < 0.5 or path == "/":
            return path + tail
        if way < 0.55:
            return f"/shop/./..{path}{tail}"
        if query and base_path == path:
            return tail
        relative = posixpath.relpath(path, posixpath.dirname(base_path))
        return ("./" if way < 0.65 else "") + relative + tail

    def links(self, page, rng):
        """The pages that `page` links to, as {section: [page, ...]}; 40 to 60 links in all."""
        host, local = page % self.hosts, page // self.hosts
        size = self.on_host(host)

        def pick(h):  # skewed: a host's early pages are linked more often
            return int(self.on_host(h) * rng.random() ** 1.5) * self.hosts + h

        menu = [n * self.hosts + host for n in range(min(NAV, size))]
        children = [
            n * self.hosts + host for n in range(local * FANOUT + 1, min(local * FANOUT + FANOUT + 1, size))
        ]
        partners = [pick(rng.randrange(self.hosts)) for _ in range(rng.randint(3, 6))]
        if page == 0:
            partners = list(range(1, self.hosts))
        parent = [(local - 1) // FANOUT * self.hosts + host] if local else []
        fixed = len(menu) + len(children) + len(partners) + len(parent) + 6  # 6: see footer
        related = [pick(host) for _ in range(max(4, rng.randint(40, 60) - fixed))]
        related[-3:] = related[:3]  # the same product linked twice on one page
        return {
            "menu": menu,
            "parent": parent,
            "children": children,
            "related": related,
            "partners": partners,
        }


# --- Pages -----------------------------------------------------------------------------------

STYLE = "".join(
    f".c{n}>.w{n * 7 % 40}{{margin:{n}px auto;color:#{n * 4321:06x};flex:1 1 {n}%}}\n" for n in range(1, 12)
)
SCRIPT = "".join(
    f"window.q=window.q||[];q.push(function(a,b){{if(a<{n}&&b>0)return'<a href=\"/no/{n}\">x</a>'}});\n"
    for n in range(6)
)


def prose(rng, count):
    words = rng.choices(WORDS, k=count)
    return " ".join(words).capitalize() + "."


def filler(rng, size):
    """About `size` bytes of nested blocks, lists, tables and inline scripts."""
    out, have = [], 0
    while have < size:
        kind = rng.random()
        if kind < 0.70:
            css, start, bold, end = rng.randrange(40), prose(rng, 40), prose(rng, 4), prose(rng, 30)
            text = f'<p class="c{css}">{start} <b>{bold}</b> {end}</p>\n'
            depth = rng.randint(0, 6)
            text = f'<div class="w{depth}">' * depth + text + "</div>" * depth + "\n"
        elif kind < 0.85:
            cells = "".join(f"<td>{word}</td><td>{len(word)}</td>" for word in rng.choices(WORDS, k=12))
            text = f'<table class="specs"><tr>{cells}</tr></table>\n'
        elif kind < 0.95:
            text = "<ul>" + "".join(f"<li><em>{prose(rng, 6)}</em></li>" for _ in range(8)) + "</ul>\n"
        else:
            text = f"<script>{SCRIPT}</script>\n"
        out.append(text)
        have += len(text)
    return "".join(out)


def page_html(site, page):
    rng = site.rng(page)
    item = {key: html.escape(value) for key, value in site.item(page).items()}
    groups = site.links(page, rng)

    def anchor(target, css="link"):
        href = html.escape(site.spell(target, page, rng))
        name = html.escape(site.item(target)["title"])
        return f'<a class="{css}" href="{href}">{name}</a>'

    menu = "".join(f"<li>{anchor(p, 'menu')}</li>" for p in groups["menu"])
    crumbs = "".join(anchor(p, "up") for p in groups["parent"])
    cards = "\n".join(
        f'<div class="card"><div class="in">{anchor(p)}'
        f'<span class="price">&euro;{rng.randint(1, 99)}.00</span></div></div>'
        for p in groups["children"] + groups["related"]
    )
    partners = "".join(f"<li>{anchor(p, 'out')}</li>" for p in groups["partners"])
    top = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{item['title']} - shop</title>\n"
        f"<style>\n{STYLE}</style>\n<script>\n{SCRIPT}</script></head>\n<body>\n"
        f'<header><nav><ul>{menu}</ul></nav><p class="crumbs">{crumbs}</p></header>\n<main>\n'
        f'<article class="product" data-id="{item["id"]}"><h1 itemprop="name">{item["title"]}</h1>\n'
        f'<p>Price: <span itemprop="price" content="{item["price"]}">'
        f"&euro;{item['price']}</span></p></article>\n"
    )
    end = (
        f'<section class="cards">\n{cards}\n</section></main>\n<footer><ul>{partners}</ul>'
        '<a href="#top">Top</a> <a href="#reviews">Reviews</a> <a href="">Reload</a> '
        '<a href="mailto:shop@example.org">Mail</a> <a href="javascript:void(0)">Print</a> '
        '<a href="tel:+10000000">Call</a></footer>\n</body></html>\n'
    )
    sigma2 = SIGMA * SIGMA
    size = 1024 * min(120, max(5, rng.lognormvariate(math.log(site.kb) - sigma2 / 2, SIGMA)))
    return top + filler(rng, size - len(top) - len(end)) + end


def write_pages(job):
    """Write the pages numbered `numbers`; returns their size in bytes."""
    site, www, numbers = job
    total = 0
    for page in numbers:
        path = www / site.host(page) / site.file(page)
        path.parent.mkdir(parents=True, exist_ok=True)
        total += path.write_bytes(page_html(site, page).encode())
    return total


def build(directory, site):
    shutil.rmtree(directory / "www", ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    step = 500
    jobs = [
        (site, directory / "www", range(start, min(start + step, site.pages)))
        for start in range(0, site.pages, step)
    ]
    with multiprocessing.Pool() as pool:
        total = sum(pool.imap_unordered(write_pages, jobs))
    for host in range(min(site.hosts, site.pages)):
        (directory / "www" / site.host(host) / "robots.txt").write_text("User-agent: *\nDisallow:\n")
    with (directory / "truth.jsonl").open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(site.item(page)) + "\n" for page in range(site.pages))
    (directory / "site.json").write_text(json.dumps(vars(site)) + "\n")
    print(f"{site.pages} pages, {total / site.pages / 1024:.1f} KiB on average, start at {site.url(0)}")


# --- Server ----------------------------------------------------------------------------------

NGINX = """\
{user}daemon on;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  types {{ text/html html; text/plain txt; }}
  default_type text/html;
  charset utf-8;
  log_format compact '$server_addr $request_uri $status $msec';
  access_log {dir}/access.log compact buffer=64k flush=1s;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 120s;
  keepalive_requests 100000000;
  gzip {gzip};
  server {{
{listen}
    root {dir}/www/$server_addr;
    location / {{ }}
    location = /view {{ try_files /view/$arg_cat/$arg_item.html =404; }}
  }}
}}
"""


def nginx_pid(directory):
    """The pid of this site's running nginx, or None."""
    try:
        pid = int((directory / "nginx.pid").read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    return pid


def serve(directory, site, gzip):
    if nginx_pid(directory):
        sys.exit("already running")
    listen = "\n".join(
        f"    listen {site.host(host)}:{site.port} backlog=4096;" for host in range(site.hosts)
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    config = directory / "nginx.conf"
    config.write_text(NGINX.format(dir=directory, listen=listen, user=user, gzip="on" if gzip else "off"))
    (directory / "access.log").unlink(missing_ok=True)
    subprocess.run(["nginx", "-c", config, "-p", directory, "-e", directory / "error.log"], check=True)
    print(f"serving {site.url(0)} (pid file {directory / 'nginx.pid'})")


def flush_log(directory, empty=False):
    """Make nginx write out its buffered log lines; with `empty`, start a new log."""
    pid = nginx_pid(directory)
    if empty:
        (directory / "access.log").unlink(missing_ok=True)
    if pid:
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.3)


def stop(directory):
    pid = nginx_pid(directory)
    if pid:
        os.kill(pid, signal.SIGTERM)
        while nginx_pid(directory):
            time.sleep(0.05)


# --- Check -----------------------------------------------------------------------------------


def canonical(url):
    """The canonical spelling of any URL of this site."""
    parts = urlsplit(url)
    path = re.sub("/+", "/", posixpath.normpath(parts.path or "/"))
    query = urlencode(sorted(parse_qsl(parts.query)))
    return f"http://{parts.netloc.lower()}{quote(unquote(path))}" + ("?" + query if query else "")


def check_items(truth, path):
    """Count a crawler's items by what is wrong with them. An item is known by its id or url."""
    by_url = {item["url"]: item for item in truth.values()}
    seen, wrong, unknown, broken = collections.Counter(), 0, 0, 0
    with pathlib.Path(path).open(encoding="utf-8", errors="replace") as lines:
        for line in filter(str.strip, lines):
            try:
                got = json.loads(line)
            except ValueError:  # a killed crawler leaves half a line
                broken += 1
                continue
            want = truth.get(got.get("id")) or by_url.get(canonical(got.get("url") or ""))
            if not want:
                unknown += 1
                continue
            seen[want["id"]] += 1
            same = all(str(got[key]) == want[key] for key in ("id", "title", "price") if key in got)
            wrong += not (same and canonical(got.get("url", want["url"])) == want["url"])
    return {
        "items": seen.total() + unknown,
        "missing": len(truth) - len(seen),
        "duplicated": seen.total() - len(seen),
        "wrong": wrong,
        "unknown": unknown,
        "broken": broken,
    }


def check_log(directory, site, truth):
    """Count the fetches in the access log (robots.txt aside), from the first to the last."""
    pages, errors, times = collections.Counter(), 0, []
    urls = {item["url"] for item in truth.values()}
    with (directory / "access.log").open(encoding="utf-8") as lines:
        for line in lines:
            host, uri, status, when = line.split()
            url = canonical(f"http://{host}:{site.port}{uri}")
            if uri != "/robots.txt":
                pages[url] += 1
                times.append(float(when))
                errors += status != "200" or url not in urls
    seconds = max(times) - min(times) if times else 0.0
    return {
        "fetches": pages.total(),
        "seconds": round(seconds, 2),
        "fetches_per_s": round(pages.total() / seconds, 1) if seconds else None,
        "pages_fetched": len(urls & pages.keys()),
        "pages_fetched_again": sum(count > 1 for count in pages.values()),
        "never_fetched": len(urls - pages.keys()),
        "not_a_page": errors,
    }


def check(directory, site, items):
    """Print the report as JSON; true if every page came out exactly once and right."""
    with (directory / "truth.jsonl").open(encoding="utf-8") as lines:
        truth = {item["id"]: item for item in map(json.loads, lines)}
    report = {"pages": len(truth)}
    if items:
        report |= check_items(truth, items)
    if (directory / "access.log").exists():
        flush_log(directory)
        report |= check_log(directory, site, truth)
    print(json.dumps(report, indent=1))
    return not any(report.get(key) for key in ("missing", "duplicated", "wrong", "unknown", "broken"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("build", "serve", "reset", "check", "stop"))
    parser.add_argument("dir", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("items", nargs="?", help="check: the crawler's items, JSON lines")
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--hosts", type=int, default=16, help="at most 250")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kb", type=float, default=30, help="average size of a page in KiB")
    parser.add_argument("--port", type=int, default=8800)
    parser.add_argument("--gzip", action="store_true", help="serve: compress")
    args = parser.parse_args()
    if args.command == "build":
        build(args.dir, Site(args.pages, args.hosts, args.seed, args.kb, args.port))
        return
    site = Site(**json.loads((args.dir / "site.json").read_text()))
    if args.command == "serve":
        serve(args.dir, site, args.gzip)
    elif args.command == "reset":
        flush_log(args.dir, empty=True)
    elif args.command == "check":
        sys.exit(0 if check(args.dir, site, args.items) else 1)
    elif args.command == "stop":
        stop(args.dir)


if __name__ == "__main__":
    main()
