"""Scrape product pages with AWS Lambda.

A schedule calls `start` every minute; `start` calls `work` as often as is worth it, side by side.
URLs may come through a queue as well: it calls `work` too.
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


work = shoal.function.handler(crawl, frontier=FRONTIER, store=os.environ["STORE"], most=MOST)


def start(event, context):
    """Start as many slices as are worth starting now; when the crawl is finished, end the schedule."""
    import boto3  # which comes with Lambda, but takes its time: `work` does without

    if shoal.function.is_finished(crawl, frontier=FRONTIER):
        boto3.client("events").disable_rule(Name=os.environ["SCHEDULE"])
        return {"finished": True}
    slices = shoal.function.fan_out(crawl, frontier=FRONTIER, most=MOST)
    client = boto3.client("lambda")
    for _ in range(slices):
        client.invoke(FunctionName=os.environ["WORK"], InvocationType="Event", Payload=b"{}")
    return {"finished": False, "started": slices}
