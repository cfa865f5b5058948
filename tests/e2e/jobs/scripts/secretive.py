"""Has the user's secrets and not the machine's. With an argument: fails after that."""

import os
import sys
import time

secrets = [os.environ["WANDB_API_KEY"], os.environ["USER_TOKEN"]]
assert all(len(secret) == 40 for secret in secrets)
assert "CONTAINER_API_KEY" not in os.environ
assert "VAST_API_KEY" not in os.environ
print("the secrets are here", flush=True)
time.sleep(1)
if sys.argv[1:]:
    raise RuntimeError("something else went wrong")
