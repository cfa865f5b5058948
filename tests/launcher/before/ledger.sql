PRAGMA user_version = 8;
BEGIN TRANSACTION;
CREATE TABLE drivers (
        run_id TEXT PRIMARY KEY REFERENCES runs (id),
        who TEXT NOT NULL,
        since REAL NOT NULL,
        until REAL NOT NULL
    );
CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL REFERENCES runs (id),
        at REAL NOT NULL,
        phase TEXT NOT NULL,
        text TEXT NOT NULL,
        usd REAL NOT NULL
    , told TEXT NOT NULL DEFAULT '');
INSERT INTO "events" VALUES(1,'light-eagle-7dd6',1.79547176032826447493e+09,'plan','this computer: 2 cores, 25 GB memory at $0.00/h; at most $0.00 and 0.2 h; 0.3 MB to ship',0.0,'');
INSERT INTO "events" VALUES(2,'light-eagle-7dd6',1.79547176036976599694e+09,'rent','machine light-eagle-7dd6.b0ff',0.0,'');
INSERT INTO "events" VALUES(3,'light-eagle-7dd6',1.79547176037272262572e+09,'boot','the lease is armed',0.0,'');
INSERT INTO "events" VALUES(4,'light-eagle-7dd6',1.79547176046830964093e+09,'ship','0.3 MB',0.0,'');
INSERT INTO "events" VALUES(5,'light-eagle-7dd6',1.7954717615743494034e+09,'train','20-check-comm',0.0,'');
INSERT INTO "events" VALUES(6,'light-eagle-7dd6',1.79547176259963488578e+09,'train','50-train',0.0,'');
INSERT INTO "events" VALUES(7,'light-eagle-7dd6',1.79547176260027956965e+09,'train','importing torch, starting the ranks',0.0,'');
INSERT INTO "events" VALUES(8,'light-eagle-7dd6',1.79547176568733501435e+09,'train','training: step 3',0.0,'');
INSERT INTO "events" VALUES(9,'light-eagle-7dd6',1.79547176776728820797e+09,'collect','26 files, 0.0 MB',0.0,'');
INSERT INTO "events" VALUES(10,'light-eagle-7dd6',1.79547176810015439983e+09,'destroy','machine destroyed (confirmed twice)',0.0,'');
CREATE TABLE identity (ledger TEXT NOT NULL);
INSERT INTO "identity" VALUES('16826a06');
CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        job TEXT NOT NULL,
        spec_json TEXT NOT NULL,
        provider TEXT NOT NULL,
        phase TEXT NOT NULL,
        out_dir TEXT NOT NULL,
        created_at REAL NOT NULL,
        phase_at REAL NOT NULL,
        parent TEXT,
        offer TEXT,
        instance_id TEXT,
        host TEXT NOT NULL,
        usd_per_hour REAL NOT NULL,
        rented_at REAL,
        released_at REAL,
        ended_at REAL,
        cause TEXT,
        detail TEXT NOT NULL,
        proofs TEXT NOT NULL,
        wish TEXT NOT NULL,
        destroy_tries INTEGER NOT NULL,
        step INTEGER NOT NULL,
        steps INTEGER NOT NULL
    , failed_in TEXT, meter TEXT NOT NULL DEFAULT '{}', boot_s REAL, steps_per_s REAL, image TEXT NOT NULL DEFAULT '', rentals TEXT NOT NULL DEFAULT '[]', account TEXT NOT NULL DEFAULT '', clock_ahead_s REAL, ledger TEXT NOT NULL DEFAULT '');
INSERT INTO "runs" VALUES('light-eagle-7dd6','before','{"name": "before", "resources": {"gpus": 0, "gpu_names": [], "gpu_memory_gb": 0.0, "memory_gb": 0.0, "disk_gb": 40.0, "cuda": 0.0, "reliability": 0.95, "regions": [], "interruptible": false, "down_mbps": 0.0, "down_url": null}, "limits": {"usd_per_hour": null, "usd": null, "hours": 0.2, "stall_s": 600.0, "start_s": 900.0, "collect_s": null}, "image": null, "image_unpinned": false, "code": {"path": "/home/ada/code", "exclude": []}, "env": {}, "secrets": [], "setup": [], "ranks": 2, "nodes": 1, "train": null, "command": ["python", "-u", "work.py"], "success": {"files": [], "log": "all is well", "steps": null, "exit_code": null}, "outputs": ["result.txt"], "retry": {}, "restarts": {"signal": 1}, "checkpoints": {"push": null, "start_from": null}, "notify": [], "nccl_debug": "WARN"}','local','ended','/home/ada/out',1.79547176023595190042e+09,1.79547176810057258601e+09,NULL,'{"id": "cpu", "host": "desk", "gpu_name": null, "gpus": 0, "gpu_memory_gb": 0.0, "disk_gb": 81.945776128, "usd_per_hour": 0.0, "description": "this computer: 2 cores, 25 GB memory", "expected_usd": 0.0, "loading_usd": 0.0, "extras": {"storage_usd_per_hour": 0.0, "down_usd_per_gb": 0.0, "up_usd_per_gb": 0.0}, "bid_usd_per_hour": null, "image": null, "image_whole": false, "cuda": 0.0}','light-eagle-7dd6.b0ff','desk',0.0,1.79547176033144807814e+09,1.795471767896907568e+09,1.79547176810057258601e+09,NULL,'','[{"name": "ranks", "holds": true, "text": "2 of 2 ranks exited 0"}, {"name": "exit", "holds": true, "text": "the exit code of the run is 0"}, {"name": "restarts", "holds": true, "text": "the ranks were restarted once, after: rank 0 was killed by SIGSEGV at step 3 (forward)"}, {"name": "success.log", "holds": true, "text": "rank 0 printed: all is well"}, {"name": "outputs", "holds": true, "text": "all outputs downloaded, checksums match"}]','none',0,5,0,NULL,'{"extras": {"storage_usd_per_hour": 0.0, "down_usd_per_gb": 0.0, "up_usd_per_gb": 0.0}, "began_at": 1795471760.331448, "idle_s": 0.0, "idle_at": null, "down_gb": 0.0, "up_gb": 0.0, "former_gpu_usd": 0.0, "former_storage_usd": 0.0, "former_gpu_s": 0.0, "former_rented_s": 0.0, "given_back_at": 1795471767.8969076, "absent_at": null}',NULL,NULL,'','[]','',NULL,'');
CREATE TABLE wishes (
        run_id TEXT PRIMARY KEY REFERENCES runs (id),
        wish TEXT NOT NULL
    );
CREATE INDEX runs_by_age ON runs (created_at);
CREATE INDEX events_by_run ON events (run_id, number);
COMMIT;
