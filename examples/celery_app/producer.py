"""Queue URLs: those given on the command line, the first of them before all others.

python producer.py https://site.example/index https://site.example/page1
"""

import sys

from scraper import scrape

first, *others = sys.argv[1:]
print(repr(scrape.apply_async(args=[first], priority=9)))
for url in others:
    print(repr(scrape.delay(url)))
