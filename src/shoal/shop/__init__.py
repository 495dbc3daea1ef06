"""Harbour Supply: a small web shop to crawl, bundled with shoal and served on this machine only.

`catalogue` says what is sold, `pages` answers requests, `server` puts the answers on a socket.
All content is a pure function of its URL: no files, no state, the same bytes every time.

    python -m shoal.shop        # serves the shop until Ctrl-C
"""

from shoal.shop.server import serve

__all__ = ["serve"]
