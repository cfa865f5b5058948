"""What is assumed of the box on a machine: what runs there, what it can do, how it is reached."""

from __future__ import annotations

import math
from collections.abc import Mapping

from launcher.providers.vast.conformance.assumption import Assumption
from launcher.providers.vast.conformance.kinds import Within, Words
from launcher.providers.vast.conformance.looking import measured

_DENIED = ("401", "403", "404")

BOX: Mapping[str, Assumption] = {
    "onstart.sha256": Assumption(
        text="the onstart text in the box",
        assumed=Words(("as ordered",)),
        usual="as ordered",
        look=measured("onstart.sha256"),
        how="the SHA-256 of ~/onstart.sh there",
        rests="providers/onstart.py: the lease is in it",
    ),
    "onstart.shell": Assumption(
        text="the shell that runs it",
        assumed=Words(("bash",)),
        usual="bash",
        look=measured("onstart.shell"),
        how="what started its child that still sleeps",
        rests="nothing: its outer lines are for any shell",
    ),
    "box.container_id": Assumption(
        text="CONTAINER_ID for onstart",
        assumed=Words(("the machine's id",)),
        usual="the machine's id",
        look=measured("box.container_id"),
        how="the environment of the lease",
        rests="onstart/lease.sh: which machine it ends",
    ),
    "box.key": Assumption(
        text="CONTAINER_API_KEY for onstart",
        assumed=Words(("present",)),
        usual="present",
        look=measured("box.key"),
        how="the environment of the lease; the key is never printed",
        rests="onstart/lease.sh: the box can end itself",
    ),
    "box.session_key": Assumption(
        text="CONTAINER_API_KEY in an SSH session",
        assumed=Words(("absent",)),
        usual="absent",
        look=measured("box.session_key"),
        how="the environment of the probe",
        rests="docs/security.md: no program of the job is handed the key",
    ),
    "key.own_row": Assumption(
        text="the box's key reads its own row",
        assumed=Words(("200",)),
        usual="200",
        look=measured("key.own_row"),
        how="asked in the box, with its key",
        rests="onstart/lease.sh: proves that the key works",
    ),
    "key.list": Assumption(
        text="the box's key reads the list of machines",
        assumed=Words(_DENIED),
        usual="403",
        look=measured("key.list"),
        how="asked in the box, with its key",
        rests="docs/security.md: what a stranger's computer learns",
    ),
    "key.account": Assumption(
        text="the box's key reads the account",
        assumed=Words(_DENIED),
        usual="403",
        look=measured("key.account"),
        how="asked in the box, with its key",
        rests="docs/security.md: what a stranger's computer learns",
    ),
    "log.seconds": Assumption(
        text="seconds from running until the log names host keys",
        assumed=Within(0, 60, "s"),
        usual=0.0,
        look=measured("log.seconds"),
        how="the container's log, asked for again and again",
        rests="providers/identity.py, policy.ANSWER_S",
    ),
    "log.host_keys": Assumption(
        text="host keys in the log, to those in the box",
        assumed=Words(("the same",)),
        usual="the same",
        look=measured("log.host_keys"),
        how="fingerprints of both",
        rests="ssh/hosts.py: whom the launcher believes",
    ),
    "ssh.direct": Assumption(
        text="the direct address, with the attached key",
        assumed=Words(("opens",)),
        usual="opens",
        look=measured("ssh.direct"),
        how="a login at that address alone",
        rests="VastProvider.connect",
    ),
    "ssh.proxy": Assumption(
        text="the proxy's address, with the attached key",
        assumed=Words(("opens",)),
        usual="opens",
        look=measured("ssh.proxy"),
        how="a login at that address alone",
        rests="VastProvider.connect: where high ports are blocked",
    ),
    "box.gpus": Assumption(
        text="GPUs in the box, to its row",
        assumed=Within(1, math.inf, "times"),
        usual=1.0,
        look=measured("box.gpus"),
        how="nvidia-smi",
        rests="decisions/offer_check.py",
    ),
    "box.gpu_memory": Assumption(
        text="memory of a GPU in the box, to its offer",
        assumed=Within(0.9, 1.2, "times"),
        usual=1.0,
        look=measured("box.gpu_memory"),
        how="nvidia-smi",
        rests="decisions/offer_check.py",
    ),
    "box.memory": Assumption(
        text="memory in the box, to its row",
        assumed=Within(0.9, math.inf, "times"),
        usual=1.0,
        look=measured("box.memory"),
        how="/proc/meminfo and the container's limit",
        rests="rows: cpu_ram x gpu_frac is our share",
    ),
    "box.disk": Assumption(
        text="disk in the box, to its row",
        assumed=Within(0.9, math.inf, "times"),
        usual=1.0,
        look=measured("box.disk"),
        how="df",
        rests="decisions/offer_check.py",
    ),
    "box.cuda": Assumption(
        text="newest CUDA of the box's driver, less that of its row",
        assumed=Within(0, math.inf, "versions"),
        usual=0.0,
        look=measured("box.cuda"),
        how="nvidia-smi",
        rests="image/lock.py: which image runs there",
    ),
    "download.billed": Assumption(
        text="inet_down_billed in GB, to what was downloaded",
        assumed=Within(0.9, 1.5, "times"),
        usual=1.0,
        look=measured("download.billed"),
        how="a download in the box, then its row",
        rests="bills.traffic_usd",
    ),
    "download.seconds": Assumption(
        text="seconds until the row counts it",
        assumed=Within(0, 30, "s"),
        usual=0.0,
        look=measured("download.seconds"),
        how="its row, asked for again and again",
        rests="bills.traffic_usd: what is not yet counted at the end is not in the ledger",
    ),
}
