-- A log as schema version 3 left it: run 1 is done, run 2 waits for its model.
CREATE TABLE append (
    pos INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    body BLOB NOT NULL,
    UNIQUE (run, first_seq)
) STRICT;
INSERT INTO "append" VALUES(1,1,1,1,CAST('[{"v":1,"at":1760000000000001,"turn":0,"kind":"submitted","data":{"task":"count the words","task_id":"t-1","batch":"0199aaaa-0000-7000-8000-000000000009","attempt":1,"model":"scripted","workspace":"/w","limits":{},"priority":0}}]' AS BLOB));
INSERT INTO "append" VALUES(2,2,1,1,CAST('[{"v":1,"at":1760000000000001,"turn":0,"kind":"submitted","data":{"task":"count the words","task_id":"t-2","batch":"0199aaaa-0000-7000-8000-000000000009","attempt":1,"model":"scripted","workspace":"/w","limits":{},"priority":0}}]' AS BLOB));
INSERT INTO "append" VALUES(3,1,2,2,CAST('[{"v":1,"at":1760000000000002,"turn":0,"kind":"run_start","data":{"model":"scripted","tools":[]}},{"v":1,"at":1760000000000002,"turn":1,"kind":"turn_start","data":{}}]' AS BLOB));
INSERT INTO "append" VALUES(5,1,4,3,CAST('[{"v":1,"at":1760000000000005,"turn":1,"kind":"message","data":{"text":"all counted: café","stop":"end_turn","usage":{"input":10,"output":5}}},{"v":1,"at":1760000000000005,"turn":1,"kind":"turn_end","data":{"calls":0}},{"v":1,"at":1760000000000005,"turn":1,"kind":"run_end","data":{"outcome":"done","text":"all counted: café","turns":1,"calls":0,"usage":{"input":10,"output":5},"queued_us":1,"duration_us":4,"active_us":3}}]' AS BLOB));
INSERT INTO "append" VALUES(8,2,2,2,CAST('[{"v":1,"at":1760000000000006,"turn":0,"kind":"run_start","data":{"model":"scripted","tools":[]}},{"v":1,"at":1760000000000006,"turn":1,"kind":"turn_start","data":{}}]' AS BLOB));
CREATE TABLE audit (
    idx INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    uid INTEGER,
    user TEXT,
    client TEXT,
    verb TEXT NOT NULL,
    target TEXT NOT NULL,
    changed INTEGER NOT NULL,
    detail TEXT
) STRICT;
CREATE TABLE batch (
    idx INTEGER PRIMARY KEY,
    batch BLOB NOT NULL UNIQUE CHECK (length(batch) = 16),
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    options TEXT NOT NULL
) STRICT;
INSERT INTO "batch" VALUES(1,X'0199AAAA000070008000000000000009','tasks.jsonl',1760000000000000,'{"retries":0,"keep_order":false}');
CREATE TABLE checkpoint (
    run BLOB NOT NULL UNIQUE CHECK (length(run) = 16),
    through INTEGER NOT NULL,
    state BLOB NOT NULL
) STRICT;
CREATE TABLE run (
    pos INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    batch BLOB CHECK (length(batch) = 16),
    task_id TEXT,
    attempt INTEGER,
    submitted_at INTEGER,
    ended_at INTEGER,
    end BLOB
, standing TEXT, detail TEXT, about TEXT, model TEXT, labels TEXT, priority INTEGER, predecessor BLOB CHECK (length(predecessor) = 16), submission_key TEXT, submission_digest TEXT, owner TEXT) STRICT;
INSERT INTO "run" VALUES(1,X'0199AAAA000070008000000000000001',X'0199AAAA000070008000000000000009','t-1',1,1760000000000001,1760000000000005,CAST('{"outcome":"done","text":"all counted: café","turns":1,"calls":0,"usage":{"input":10,"output":5},"queued_us":1,"duration_us":4,"active_us":3}' AS BLOB),'done',NULL,'count the words','scripted',NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "run" VALUES(2,X'0199AAAA000070008000000000000002',X'0199AAAA000070008000000000000009','t-2',1,1760000000000001,NULL,NULL,'open',NULL,'count the words','scripted',NULL,0,NULL,NULL,NULL,NULL);
CREATE TABLE setting (
    name TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL
) STRICT;
CREATE TABLE task (
    idx INTEGER PRIMARY KEY,
    batch BLOB NOT NULL CHECK (length(batch) = 16),
    task_id TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (batch, task_id)
) STRICT;
INSERT INTO "task" VALUES(1,X'0199AAAA000070008000000000000009','t-1','00ff');
INSERT INTO "task" VALUES(2,X'0199AAAA000070008000000000000009','t-2','00ff');
CREATE INDEX run_batch ON run (batch) WHERE batch IS NOT NULL;
CREATE INDEX run_task ON run (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX run_standing ON run (standing);
CREATE INDEX run_batch_standing ON run (batch, standing) WHERE batch IS NOT NULL;
CREATE INDEX run_detail ON run (detail) WHERE detail IS NOT NULL;
CREATE INDEX run_predecessor ON run (predecessor) WHERE predecessor IS NOT NULL;
CREATE INDEX run_submission ON run (submission_key) WHERE submission_key IS NOT NULL;
CREATE INDEX audit_target ON audit (target);
PRAGMA user_version = 3;
