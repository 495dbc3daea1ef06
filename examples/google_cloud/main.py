"""Scrape product pages with Google Cloud functions.

A schedule calls `start` every minute; `start` sends as many empty messages as slices are worth starting.
Each message calls `work`; one that holds URLs adds them as well.
"""

import os

import shoal
import shoal.function

FRONTIER = os.environ["FRONTIER"]
MOST = int(os.environ.get("MOST", "20"))  # slices at once

crawl = shoal.Crawl(
    "products",
    seeds=os.environ["SEEDS"].split(),
    scope="any",
    allow=os.environ["SITES"].split(),
    sort_query=True,
)


@crawl.page()
def page(page):
    """Read one row from a product's page, and follow all links to the sites above."""
    product = page.css("article.product")
    if product:
        yield {
            "id": product.css("::attr(data-id)").get(),
            "title": product.css("h1::text").get(),
            "price": product.css("[itemprop=price]::attr(content)").get(),
        }
    yield from page.links()


work = shoal.function.gcf(crawl, frontier=FRONTIER, store=os.environ["STORE"], limit_s=60, most=MOST)


def start(request):
    """Start as many slices as are worth starting now; when the crawl is finished, end the schedule."""
    if shoal.function.is_finished(crawl, frontier=FRONTIER):
        _post(f"https://cloudscheduler.googleapis.com/v1/{os.environ['SCHEDULE']}:pause", {})
        return {"finished": True}
    slices = shoal.function.fan_out(crawl, frontier=FRONTIER, most=MOST)
    if slices:
        messages = [{"data": "e30="}] * slices  # {}
        _post(f"https://pubsub.googleapis.com/v1/{os.environ['TOPIC']}:publish", {"messages": messages})
    return {"finished": False, "started": slices}


def _post(url, content):
    import google.auth  # of which `work` has no need
    from google.auth.transport.requests import AuthorizedSession

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    AuthorizedSession(credentials).post(url, json=content, timeout=20).raise_for_status()
