"""Spiders for processes: what tests/scrapy/test_processes.py writes into a project.

`shop` logs in with a form, and from there goes two ways: over a site, from listings to details, and over the
pages of members, who are told by a cookie. On the way there are a page that fails, one that is asked for
three times though it is always the same, and forms that are sent to one URL.
"""

import scrapy


class Shop(scrapy.Spider):
    """Many callbacks."""

    name = "shop"

    def __init__(self, site, members, **more):
        super().__init__(**more)
        self.site, self.members = site, members

    async def start(self):
        yield scrapy.Request(f"{self.members}/login", self.login)

    def login(self, response):
        """Fill in the form of the page."""
        form = {"token": response.css("[name=token]::attr(value)").get(), "password": "secret"}
        yield scrapy.FormRequest(response.urljoin("/login"), self.logged_in, formdata=form)

    def logged_in(self, response):
        """Begin with all that there is; the cookie goes with each request that needs it."""
        name, _, value = response.headers["Set-Cookie"].decode().partition(";")[0].partition("=")
        cookies = {name: value}
        yield scrapy.Request(self.site, self.listing)
        yield response.follow("/members/0", self.member, cookies=cookies, cb_kwargs={"cookies": cookies})
        yield response.follow("/missing", self.member, errback=self.instead)
        for n in range(3):
            yield response.follow("/poll", self.poll, dont_filter=True, meta={"n": n})
            yield scrapy.FormRequest(f"{self.members}/search", self.search, formdata={"q": f"word {n}"})

    def listing(self, response):
        """A page that leads to others; it is a product, too."""
        yield self.product(response)
        for n, href in enumerate(self.links(response)):
            callback = self.detail if n % 2 else self.listing
            yield response.follow(href, callback, cb_kwargs={"place": (n, response.url)} if n % 2 else {})

    async def detail(self, response, place):
        """As `listing`, but async."""
        number, _ = place
        assert number % 2 == 1
        yield self.product(response)
        for href in self.links(response):
            yield response.follow(href, self.listing)

    def links(self, response):
        """Those that lead to pages."""
        urls = map(response.urljoin, response.css("a::attr(href)").getall())
        return [url for url in urls if url.lower().startswith("http")]

    def product(self, response):
        """The row of a page."""
        article = response.css("article.product")
        return {
            "url": response.url,
            "id": article.attrib["data-id"],
            "title": article.css("h1::text").get(),
            "price": article.css("[itemprop=price]").attrib["content"],
        }

    def member(self, response, cookies):
        """A page for those who are logged in."""
        yield {"member": response.css("h1::text").get()}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.member, cookies=cookies, cb_kwargs={"cookies": cookies})

    def poll(self, response):
        """One of several requests that are the same."""
        yield {"poll": response.meta["n"]}

    def search(self, response):
        """What was sent with a form."""
        yield {"search": response.css("h1::text").get()}

    def instead(self, failure):
        """Where nothing is, there is something else."""
        yield {"failed": failure.value.response.status}
        yield scrapy.Request(f"{self.members}/instead", self.search)
