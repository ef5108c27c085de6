-- A store as version 10 wrote it: a backup, which has a place in a log and no log. It is never changed: every later version opens it.

CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
    number INTEGER PRIMARY KEY,
    client_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    expiry_seconds INTEGER NOT NULL,
    connected INTEGER NOT NULL,
    ends_ms INTEGER NOT NULL,
    will_due_ms INTEGER NOT NULL,
    retry_interval_ms INTEGER,
    ack_timeout_ms INTEGER,
    will_topic TEXT,
    will_qos INTEGER,
    will_retain INTEGER,
    will_delay_ms INTEGER,
    will_expiry_seconds INTEGER,
    will_properties BLOB,
    will_payload BLOB,
    user_name TEXT,
    claimed_name TEXT,
    rules TEXT,
    listener TEXT,
    mount_point TEXT
) STRICT;

CREATE TABLE subscription (
    session INTEGER NOT NULL,
    filter TEXT NOT NULL,
    options INTEGER NOT NULL,
    subscription_id INTEGER NOT NULL,
    PRIMARY KEY (session, filter)
) STRICT, WITHOUT ROWID;

CREATE TABLE incoming (
    session INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    PRIMARY KEY (session, packet_id)
) STRICT, WITHOUT ROWID;

-- What recovery needs stands first: it reads neither payloads nor, where they are large, their pages.
CREATE TABLE body (
    number INTEGER PRIMARY KEY,
    size INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    recorded_ms INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    publisher TEXT
) STRICT;

-- body is NULL once PUBREC came; packet_number and transmissions are, until it was sent.
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    body INTEGER,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    packet_number INTEGER,
    transmissions INTEGER,
    subscription_ids TEXT,
    share TEXT
) STRICT;

CREATE TABLE retained (
    topic TEXT PRIMARY KEY,
    expires_ms INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    source_client TEXT,
    source_user TEXT,
    source_listener TEXT,
    owner_client TEXT,
    owner_listener TEXT
) STRICT;

CREATE TABLE delayed (
    number INTEGER PRIMARY KEY,
    due_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    owner_client TEXT,
    owner_listener TEXT
) STRICT;
CREATE INDEX delayed_due ON delayed (due_ms);

PRAGMA application_id = 1215262057;
CREATE TABLE letter (
    number INTEGER PRIMARY KEY,
    dropped_ms INTEGER NOT NULL,
    receiver TEXT NOT NULL,
    cause TEXT NOT NULL,
    reason_code INTEGER,
    attempts INTEGER NOT NULL,
    first_sent_ms INTEGER,
    last_sent_ms INTEGER,
    qos INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB NOT NULL,
    payload BLOB NOT NULL,
    publisher TEXT
) STRICT;

PRAGMA user_version = 10;

INSERT INTO meta VALUES ('heartbeat_ms', 1700000000000), ('next_number', 100), ('wall_ms', 1700000000000), ('boot_id', 0), ('boot_ms', 0);
INSERT INTO meta VALUES ('position', 41), ('digest_low', 5), ('digest_high', 6), ('mark_check', 6813282930718883886);
INSERT INTO session VALUES
    (1, 'pigeon', 5, 3600, 1, 9223372036854775807, 9223372036854775807, NULL, 1500, 'loft/lost', 1, 1, 5000, 60, x'0101', x'6C6F7374', 'ann', NULL, 'allow read a
', NULL, NULL),
    (2, 'old', 3, 604800, 0, 1700000600000, 9223372036854775807, 20000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'bob', NULL, 'field', 'tenant/');
INSERT INTO subscription VALUES (1, '$share/loft/grain/#', 1, 7), (2, 'grain/+', 2, 0);
INSERT INTO incoming VALUES (1, 65535);
INSERT INTO body VALUES (10, 120, 1700000060000, 1699999990000, 2, 0, 'grain/wheat', x'0101', x'77', 'farmer');
INSERT INTO entry VALUES
    (20, 1, 10, 1, 0, 5, 2, '7,9', '$share/loft/grain/#'),
    (21, 2, 10, 2, 1, NULL, NULL, NULL, NULL),
    (22, 2, NULL, 2, 0, 1, 1, NULL, NULL);
INSERT INTO retained VALUES ('grain/price', 9223372036854775807, 1, 1, x'', x'3432', 'farmer', NULL, NULL, 'farmer', 'field');
INSERT INTO delayed VALUES (30, 1700000030000, 9223372036854775807, 1, 0, 'grain/later', x'', x'6C', NULL, NULL);
