"""Cookies as browsers keep them: each goes back to its own site only."""

from __future__ import annotations

from http.cookies import Morsel

import aiohttp

from shoal.scope import registrable_domain


class CookieJar(aiohttp.CookieJar):
    """aiohttp's jar, with cookies sent back as they came (RFC 6265 section 5.4), never quoted or escaped."""

    def _build_morsel(self, cookie: Morsel[str]) -> Morsel[str]:
        morsel: Morsel[str] = Morsel()
        # set() would refuse names that servers do use
        morsel.__setstate__(  # type: ignore[attr-defined]
            {"key": cookie.key, "value": cookie.value, "coded_value": cookie.coded_value}
        )
        return morsel

    @staticmethod
    def _is_domain_match(domain: str, hostname: str) -> bool:
        """Never for more than the site: a public suffix is nobody's (RFC 6265 section 5.3 step 5)."""
        site = registrable_domain(hostname)
        within = domain == site or domain.endswith("." + site)
        return within and aiohttp.CookieJar._is_domain_match(domain, hostname)
