"""The command line: arguments in, text out. What a command needs is imported when it runs.

Exit codes: 0 done; 1 nothing was fetched, or, with --strict, some pages became dead letters, or, with
--fail-on-broken, there are broken links; 2 bad usage or input; 130 interrupted.
"""

from shoal.cli import crawl, develop, export, look, mend, report
from shoal.cli.group import main, shoal

__all__ = ["crawl", "develop", "export", "look", "main", "mend", "report", "shoal"]
