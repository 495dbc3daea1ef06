-- The frontier in one SQLite file: several crawls, several processes.
-- Rows are only appended to pages, so that the big table stays in order of arrival on disk.

CREATE TABLE crawls (
    id            INTEGER PRIMARY KEY,
    name          TEXT NOT NULL UNIQUE,
    description   TEXT NOT NULL DEFAULT '{}',    -- JSON
    limits        TEXT NOT NULL DEFAULT '{}',    -- JSON
    paused        INTEGER NOT NULL DEFAULT 0,
    epoch         INTEGER NOT NULL DEFAULT 0,    -- moves when a known URL becomes unknown
    token         INTEGER NOT NULL DEFAULT 0,    -- the last one given
    turn          INTEGER NOT NULL DEFAULT 0,    -- the last one given, see hosts.turn
    -- counters
    queued        INTEGER NOT NULL DEFAULT 0,
    delayed       INTEGER NOT NULL DEFAULT 0,
    retrying      INTEGER NOT NULL DEFAULT 0,
    held          INTEGER NOT NULL DEFAULT 0,    -- queued or in the overflow, of hosts at max_pages_per_host
    overflow      INTEGER NOT NULL DEFAULT 0,
    leased        INTEGER NOT NULL DEFAULT 0,
    done          INTEGER NOT NULL DEFAULT 0,
    dead          INTEGER NOT NULL DEFAULT 0,
    skipped       INTEGER NOT NULL DEFAULT 0,
    priority_0    INTEGER NOT NULL DEFAULT 0,    -- queued, by priority
    priority_1    INTEGER NOT NULL DEFAULT 0,
    priority_2    INTEGER NOT NULL DEFAULT 0,
    priority_3    INTEGER NOT NULL DEFAULT 0,
    priority_4    INTEGER NOT NULL DEFAULT 0,
    priority_5    INTEGER NOT NULL DEFAULT 0,
    priority_6    INTEGER NOT NULL DEFAULT 0,
    priority_7    INTEGER NOT NULL DEFAULT 0,
    priority_8    INTEGER NOT NULL DEFAULT 0,
    priority_9    INTEGER NOT NULL DEFAULT 0,
    hosts         INTEGER NOT NULL DEFAULT 0,
    ready_hosts   INTEGER NOT NULL DEFAULT 0,
    items         INTEGER NOT NULL DEFAULT 0,
    size_bytes    INTEGER NOT NULL DEFAULT 0,
    fetches       INTEGER NOT NULL DEFAULT 0,
    retries       INTEGER NOT NULL DEFAULT 0,
    losses        INTEGER NOT NULL DEFAULT 0,
    elapsed_ms    INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE hosts (
    id            INTEGER PRIMARY KEY,
    crawl         INTEGER NOT NULL,
    host          TEXT NOT NULL,                 -- the host key
    queued        INTEGER NOT NULL DEFAULT 0,
    overflow      INTEGER NOT NULL DEFAULT 0,
    leased        INTEGER NOT NULL DEFAULT 0,
    done          INTEGER NOT NULL DEFAULT 0,
    known         INTEGER NOT NULL DEFAULT 0,    -- 1 after its first commit
    crawl_delay_s REAL NOT NULL DEFAULT 0,       -- what robots.txt asks for
    started_at    REAL,                          -- start of the last fetch
    paused_until  REAL NOT NULL DEFAULT 0,
    latency_s     REAL NOT NULL DEFAULT 0,
    head          INTEGER NOT NULL DEFAULT -1,   -- priority of the next link; -1: none whose time has come
    due_at        REAL,                          -- 0: ready; later: waits until then; -1: given up, with links
                                                 -- to be buried; NULL: nothing to give
    turn          INTEGER NOT NULL,              -- the lower, the longer it has waited
    troubles      TEXT,                          -- JSON: shoal.caution.Caution; NULL: it is well
    set_delay_s   REAL,                          -- what somebody has set; NULL: nobody has
    error_rate    REAL NOT NULL DEFAULT 0,       -- of its attempts, a moving average
    UNIQUE (crawl, host)
);
CREATE INDEX ready_hosts ON hosts (crawl, head DESC, turn) WHERE due_at = 0;
CREATE INDEX waiting_hosts ON hosts (crawl, due_at) WHERE due_at > 0;
CREATE INDEX given_up_hosts ON hosts (crawl) WHERE due_at < 0;

CREATE TABLE pages (
    id            INTEGER PRIMARY KEY,           -- order of arrival
    crawl         INTEGER NOT NULL,
    fingerprint   INTEGER NOT NULL,
    host          INTEGER NOT NULL,
    url           TEXT NOT NULL,
    state         TEXT NOT NULL DEFAULT 'queued',
    priority      INTEGER NOT NULL,
    fresh         INTEGER NOT NULL DEFAULT 1,    -- 0 once it has been leased
    depth         INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    losses        INTEGER NOT NULL DEFAULT 0,
    not_before    REAL,                          -- set while it is delayed
    parent        INTEGER,                       -- the page that it was found on first
    extra         TEXT,                          -- JSON: key, via, cookie, meta, if any is there
    added_at      REAL NOT NULL,
    finished_at   REAL,
    status        INTEGER NOT NULL DEFAULT 0,
    reason        TEXT NOT NULL DEFAULT '',
    error         TEXT NOT NULL DEFAULT '',
    visit         TEXT,                          -- JSON: what its last visit found, if it is to be revisited
    UNIQUE (crawl, fingerprint)
);
CREATE INDEX host_queues ON pages (host, priority DESC, fresh, id) WHERE state = 'queued' AND not_before IS NULL;
CREATE INDEX overflows ON pages (host, priority DESC, id) WHERE state = 'overflow';
CREATE INDEX delayed ON pages (crawl, not_before) WHERE not_before IS NOT NULL;
CREATE INDEX dead ON pages (crawl, id) WHERE state = 'dead';
CREATE INDEX skipped ON pages (crawl, id) WHERE state = 'skipped';
CREATE INDEX dead_tally ON pages (crawl, reason, host) WHERE state = 'dead';
CREATE INDEX skipped_tally ON pages (crawl, reason, host) WHERE state = 'skipped';
CREATE INDEX visited ON pages (crawl, finished_at) WHERE visit IS NOT NULL;

CREATE TABLE leases (
    token         INTEGER NOT NULL,
    crawl         INTEGER NOT NULL,
    page          INTEGER NOT NULL,
    host          INTEGER NOT NULL,
    worker        TEXT NOT NULL,
    deadline      REAL NOT NULL,
    added_at      REAL NOT NULL,                 -- that of its page
    PRIMARY KEY (crawl, token)
) WITHOUT ROWID;

CREATE TABLE ages (                              -- queued pages by the minute in which they were added
    crawl         INTEGER NOT NULL,
    age           INTEGER NOT NULL,
    queued        INTEGER NOT NULL,
    PRIMARY KEY (crawl, age)
) WITHOUT ROWID;

CREATE TABLE history (                           -- see frontier/history.py: what a minute brought
    crawl         INTEGER NOT NULL,
    minute        INTEGER NOT NULL,
    done          INTEGER NOT NULL,
    dead          INTEGER NOT NULL,
    skipped       INTEGER NOT NULL,
    fetches       INTEGER NOT NULL,
    retries       INTEGER NOT NULL,
    losses        INTEGER NOT NULL,
    found         INTEGER NOT NULL,
    items         INTEGER NOT NULL,
    size_bytes    INTEGER NOT NULL,
    elapsed_ms    INTEGER NOT NULL,
    PRIMARY KEY (crawl, minute)
) WITHOUT ROWID;

CREATE TABLE cuts (                              -- links that trap rules have cut
    crawl         INTEGER NOT NULL,
    host          INTEGER NOT NULL,
    rule          TEXT NOT NULL,
    count         INTEGER NOT NULL,
    PRIMARY KEY (crawl, host, rule)
) WITHOUT ROWID;

CREATE TABLE shapes (                            -- how many links of a shape a host has had
    crawl         INTEGER NOT NULL,
    host          INTEGER NOT NULL,
    shape         INTEGER NOT NULL,
    count         INTEGER NOT NULL,
    PRIMARY KEY (crawl, host, shape)
) WITHOUT ROWID;

CREATE TABLE contents (                          -- which page had a content first
    crawl         INTEGER NOT NULL,
    digest        INTEGER NOT NULL,
    url           TEXT NOT NULL,
    PRIMARY KEY (crawl, digest)
) WITHOUT ROWID;

CREATE TABLE names (                             -- hosts by name, if politeness is by address
    crawl         INTEGER NOT NULL,
    name          TEXT NOT NULL,
    host          TEXT NOT NULL,                 -- the host key: its address, or the name itself
    PRIMARY KEY (crawl, name)
) WITHOUT ROWID;

CREATE TABLE surveys (                           -- what a report is to know of pages that have ended
    id            INTEGER PRIMARY KEY,
    crawl         INTEGER NOT NULL,
    fingerprint   INTEGER NOT NULL,
    data          BLOB NOT NULL,                 -- msgpack: shoal.model.Survey
    UNIQUE (crawl, fingerprint)
);

CREATE TABLE workers (
    crawl         INTEGER NOT NULL,
    name          TEXT NOT NULL,
    deadline      REAL NOT NULL,                 -- it is taken for dead unless it is heard of by then
    concurrency   INTEGER NOT NULL,
    since         REAL NOT NULL,
    pages_per_s   REAL NOT NULL,
    bytes_in_flight INTEGER NOT NULL,
    lag_s         REAL NOT NULL,
    settle_s      REAL NOT NULL,
    trouble       TEXT NOT NULL,
    PRIMARY KEY (crawl, name)
) WITHOUT ROWID;

CREATE TABLE items (
    id            INTEGER PRIMARY KEY,           -- order of commit
    crawl         INTEGER NOT NULL,
    page          INTEGER NOT NULL,
    data          TEXT NOT NULL                  -- JSON
);
CREATE INDEX items_of_page ON items (page);
CREATE INDEX items_of_crawl ON items (crawl, id);

CREATE TABLE positions (
    crawl         INTEGER NOT NULL,
    store         TEXT NOT NULL,
    length        INTEGER NOT NULL,
    PRIMARY KEY (crawl, store)
) WITHOUT ROWID;

CREATE TABLE producers (
    crawl         INTEGER NOT NULL,
    name          TEXT NOT NULL,
    deadline      REAL NOT NULL,
    PRIMARY KEY (crawl, name)
) WITHOUT ROWID;

CREATE TABLE slots (                             -- tickets for slices: see frontier/tickets.py
    crawl         INTEGER NOT NULL,
    slot          INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    state         TEXT NOT NULL,                 -- free, queued, running
    deadline      REAL NOT NULL,
    owner         TEXT NOT NULL DEFAULT '',
    tries         INTEGER NOT NULL,              -- how often it was sent again since somebody took it
    pages         INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (crawl, slot)
) WITHOUT ROWID;

CREATE TABLE nodes (                             -- who may take tickets
    crawl         INTEGER NOT NULL,
    name          TEXT NOT NULL,
    deadline      REAL NOT NULL,
    capacity      INTEGER NOT NULL,
    PRIMARY KEY (crawl, name)
) WITHOUT ROWID;
