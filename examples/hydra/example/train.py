"""Finds the minimum of (x - 3)²: a program of Hydra that vastrun can run."""

import hydra
from omegaconf import DictConfig

from vastrun import beat


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> float:
    """Descend, and return the last loss."""
    x, speed = 0.0, 0.0
    for step in range(1, config.steps + 1):
        speed = config.optim.momentum * speed - config.lr * 2 * (x - 3)
        x += speed
        beat(step, loss=(x - 3) ** 2)
    return (x - 3) ** 2


if __name__ == "__main__":
    main()
