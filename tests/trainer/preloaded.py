"""All that ranks import, loaded by importing this: in the server that tests fork them from."""

from __future__ import annotations

from vastrun.onstart.supervision.launch_agent import preload

preload(("torch._dynamo", "vastrun.trainer.train", "vastrun.trainer.loop"))
