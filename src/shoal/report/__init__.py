"""A crawl looked back on: what there is to say of it, and the page that says it."""
