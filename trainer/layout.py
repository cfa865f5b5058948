"""Where everything lies on a box, relative to its folder. The one list; docs/box.md explains it.

Standard library only: the launcher, the supervisor and the ranks all read it.
"""

LEASE_SCRIPT = "lease.sh"
LEASE_STATE = "lease.state"
LEASE_LOG = "lease.log"

INBOX_BUNDLE = "inbox/bundle.tar.gz"
INBOX_SECRETS = "inbox/secrets.env"
SHIPPED = "shipped"

JOB = "job.json"
ONSTART = "onstart"
PACKAGES = "pkg"
CODE_ARCHIVE = "code.tar.gz"
CODE = "code"
RESUME = "resume"
DATA = "data"

RUN_LOCK = "run.lock"
STEP = "step"
STOP = "stop"
COLLECTED = "collected"

RUN = "run"
EXIT = "run/exit"
STEPS = "run/steps.jsonl"
LOG = "run/run.log"
STATUS = "run/status.json"
OUTCOME = "run/outcome.json"
FINAL = "run/final.json"
METRICS = "run/metrics.jsonl"
WANDB = "run/wandb.json"
HEARTBEATS = "run/heartbeat"
RANKS = "run/ranks"
AGENT = "run/ranks/agent.json"
RAW_LOGS = "run/raw"
STACKS = "run/stacks"
FLIGHT_RECORDER = "run/flight-recorder"
CHECKPOINTS = "run/checkpoints"
OUTPUTS = "run/outputs"
MANIFEST = "run/manifest.json"
