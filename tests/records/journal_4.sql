BEGIN TRANSACTION;
CREATE TABLE asks (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL, source TEXT NOT NULL, started TEXT NOT NULL, wall_s REAL NOT NULL,
    model TEXT, tokens_in INTEGER, tokens_out INTEGER, usd REAL, failure TEXT, usd_most REAL
);
INSERT INTO "asks" VALUES(1,3,'llm:toy','2026-01-02T03:02:30Z',1.5,NULL,10,20,NULL,NULL,NULL);
CREATE TABLE attempts (
    number INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES attempts,
    script TEXT NOT NULL, title TEXT NOT NULL, hypothesis TEXT NOT NULL, source TEXT NOT NULL,
    repairs INTEGER, without TEXT NOT NULL,
    started TEXT NOT NULL,
    commit_sha TEXT,                     -- NULL until committed
    dry_run TEXT,                        -- NULL until it was made, and where none is
    status TEXT, reason TEXT, gain_bpb REAL, sure REAL,  -- NULL until judged
    settled INTEGER NOT NULL DEFAULT 0   -- branch, ledger and weights follow the decision
);
INSERT INTO "attempts" VALUES(0,NULL,'WIDTH = 64  # of the model
','baseline','why','you',NULL,'[]','2026-01-02T03:00:00Z','0000000000000000000000000000000000000000',NULL,'keep','baseline',NULL,NULL,1);
INSERT INTO "attempts" VALUES(1,0,'WIDTH = 65  # of the model
','WIDTH 64 → 65','why','search',NULL,'[]','2026-01-02T03:01:00Z','1111111111111111111111111111111111111111',NULL,'keep','provisional: an estimated 0.050000 below its parent, 80% sure; at dawn +0.010000 by 1 run without it, it stays',0.05,0.8,1);
INSERT INTO "attempts" VALUES(2,1,'WIDTH = 66  # of the model
','WIDTH 65 → 66','why','search',NULL,'[]','2026-01-02T03:02:00Z','2222222222222222222222222222222222222222',NULL,'discard','an estimated 0.010000 above its parent, 20% sure of a gain',-0.01,0.2,1);
INSERT INTO "attempts" VALUES(3,1,'WIDTH = 67  # of the model
','WIDTH 65 → 67','why','llm:toy',NULL,'[]','2026-01-02T03:03:00Z','3333333333333333333333333333333333333333','{"wall_s": 1.0, "failure": null, "overran": false}','crash','exit code 1: KeyError',NULL,NULL,1);
INSERT INTO "attempts" VALUES(4,1,'WIDTH = 68  # of the model
','WIDTH 65 → 68','why','search',NULL,'[]','2026-01-02T03:04:00Z','4444444444444444444444444444444444444444',NULL,'keep','an estimated 0.080000 below its parent, 99% sure',0.08,0.99,1);
INSERT INTO "attempts" VALUES(5,4,'WIDTH = 65  # of the model
','#4 without #1','why','dawn',NULL,'[1]','2026-01-02T03:05:00Z','5555555555555555555555555555555555555555',NULL,'discard','a question of dawn: is #4 as good without #1?',NULL,NULL,1);
INSERT INTO "attempts" VALUES(6,4,'WIDTH = 69  # of the model
','WIDTH 68 → 69','why','search',NULL,'[]','2026-01-02T03:06:00Z','6666666666666666666666666666666666666666',NULL,'discard','quarantine: 60% below the incumbent',NULL,NULL,0);
INSERT INTO "attempts" VALUES(7,4,'WIDTH = 70  # of the model
','WIDTH 68 → 70','why','search',NULL,'[]','2026-01-02T03:07:00Z','7777777777777777777777777777777777777777',NULL,NULL,NULL,NULL,NULL,0);
CREATE TABLE dawns (
    number INTEGER PRIMARY KEY, champion INTEGER NOT NULL REFERENCES attempts, fresh INTEGER NOT NULL,
    began TEXT NOT NULL,
    ended TEXT, findings TEXT            -- NULL until it has come to its end, and until something is known
);
INSERT INTO "dawns" VALUES(1,4,4,'2026-01-02T04:00:00Z','2026-01-02T05:00:00Z','{"champion": 4}');
CREATE TABLE night (fact TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO "night" VALUES('base','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb');
INSERT INTO "night" VALUES('branch','refs/heads/experiments/30s-t');
INSERT INTO "night" VALUES('budget_s',30.0);
INSERT INTO "night" VALUES('data','/data');
INSERT INTO "night" VALUES('device','a CPU');
INSERT INTO "night" VALUES('device_kind','cpu');
INSERT INTO "night" VALUES('pins','{}');
INSERT INTO "night" VALUES('protocol','pppppppppppp');
INSERT INTO "night" VALUES('script','train_mlx.py');
INSERT INTO "night" VALUES('seed',7);
INSERT INTO "night" VALUES('started','2026-01-02T03:04:05Z');
INSERT INTO "night" VALUES('tag','t');
INSERT INTO "night" VALUES('terms','{}');
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL REFERENCES attempts,
    seed INTEGER NOT NULL,
    boot TEXT NOT NULL,                  -- which start of the machine it belongs to
    ending TEXT,                         -- NULL while it runs
    exit_code INTEGER, wall_s REAL, summary TEXT, last_lines TEXT, peak_bytes INTEGER,
    weights_bytes INTEGER,               -- of the file; NULL: it left none of its own
    weights TEXT,                        -- what is in it, counted; NULL where that cannot be told
    val_bpb REAL, score_s REAL, failure TEXT,  -- score_s is NULL until scored
    overran INTEGER NOT NULL DEFAULT 0,        -- the scoring process, by the harness's clock
    audit TEXT,                                -- NULL until audited
    dawn INTEGER NOT NULL DEFAULT 0,           -- 0: the night's own; k: of the k-th dawn
    holdout TEXT                               -- NULL until scored there
);
INSERT INTO "runs" VALUES(1,0,7,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.5,0.5,NULL,0,NULL,0,NULL);
INSERT INTO "runs" VALUES(2,0,8,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.51,0.5,NULL,0,NULL,0,NULL);
INSERT INTO "runs" VALUES(3,1,7,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.4,0.5,NULL,0,'{"positions": 256, "wrong": 0, "worst_nats": 0.001, "mean_nats": 0.0, "wall_s": 1.0, "failure": null, "overran": false}',0,NULL);
INSERT INTO "runs" VALUES(4,2,7,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.45,0.5,NULL,0,NULL,0,NULL);
INSERT INTO "runs" VALUES(5,3,7,'boot','crashed',1,30.0,NULL,'KeyError',1073741824,48,'{"params": 10, "data_bytes": 40}',NULL,NULL,NULL,0,NULL,0,NULL);
INSERT INTO "runs" VALUES(6,4,7,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.3,0.5,NULL,0,NULL,0,NULL);
INSERT INTO "runs" VALUES(7,4,1007,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.31,0.5,NULL,0,NULL,1,'{"val_bpb": 1.6, "wall_s": 0.5, "failure": null, "audit": null, "overran": false}');
INSERT INTO "runs" VALUES(8,5,1007,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.32,0.5,NULL,0,NULL,1,NULL);
INSERT INTO "runs" VALUES(9,6,7,'boot','finished',0,30.0,'{"training_seconds": null, "total_seconds": null, "peak_vram_mb": null, "mfu_percent": null, "total_tokens_M": 1.5, "num_steps": 30, "num_params_M": null, "depth": null}','the end',1073741824,48,'{"params": 10, "data_bytes": 40}',1.35,0.5,NULL,0,NULL,0,NULL);
INSERT INTO "runs" VALUES(10,7,7,'boot',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,0,NULL);
COMMIT;
PRAGMA user_version = 4;
