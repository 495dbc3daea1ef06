"""The web page over a frontier: how its crawls stand, and the means to put them right.

    guard     who may ask: tokens, cookies, and requests that other sites forge
    desk      one crawl, its frontier kept in threads of its own
    views     what each view shows, as values that become JSON
    actions   what people may do
    rows      the latest rows of a store
    server    HTTP, and the stream of events
    web/      the page itself: plain HTML, CSS and JavaScript modules

It is imported by `shoal dashboard` alone.
"""
