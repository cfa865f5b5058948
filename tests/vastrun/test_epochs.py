"""Epochs: each sample once, a new order each time, ranks that share nothing, a resume that is only a step."""

import numpy as np
import pytest
from torch.utils.data import DataLoader

from vastrun.epochs import batch_of, steps_per_epoch
from vastrun.sampler import EpochSampler


def epoch(number: int, *, total: int, batch: int, remainder: str) -> np.ndarray:
    steps = steps_per_epoch(batch=batch, total=total, remainder=remainder)
    chosen = range(number * steps, (number + 1) * steps)
    return np.concatenate(
        [batch_of(1, step, batch=batch, total=total, remainder=remainder) for step in chosen]
    )


def sampler(rank: int = 0, world_size: int = 2, **changes: object) -> EpochSampler:
    settings = {"batch": 4, "seed": 1, "remainder": "drop"} | changes
    return EpochSampler(22, rank=rank, world_size=world_size, **settings)  # type: ignore[arg-type]


def test_carried_samples_are_seen_once_an_epoch_and_an_epoch_has_its_own_order() -> None:
    order = np.concatenate([batch_of(1, step, batch=8, total=20) for step in range(5)])
    for seen in order.reshape(2, 20):
        assert sorted(seen) == list(range(20))
    assert not np.array_equal(*order.reshape(2, 20))


def test_a_dropped_remainder_is_seen_in_no_epoch_but_changes_with_it() -> None:
    left_out = []
    for number in range(8):
        seen = epoch(number, total=22, batch=4, remainder="drop")
        assert len(seen) == len(set(seen)) == 20
        left_out.append(frozenset(range(22)) - set(seen))
    assert len(set(left_out)) > 1


def test_a_padded_epoch_sees_all_and_begins_again_to_fill_its_last_batch() -> None:
    seen = epoch(0, total=22, batch=4, remainder="pad")
    assert sorted(seen[:22]) == list(range(22))
    np.testing.assert_array_equal(seen[22:], seen[:2])
    assert len(epoch(0, total=3, batch=8, remainder="pad")) == 8


def test_dropping_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 8 is larger than the 3 samples"):
        steps_per_epoch(batch=8, total=3, remainder="drop")


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize(("remainder", "length"), [("drop", 20), ("pad", 24)])
def test_the_ranks_of_a_sampler_share_each_global_batch(world_size: int, remainder: str, length: int) -> None:
    ranks = [list(sampler(rank, world_size, remainder=remainder)) for rank in range(world_size)]
    steps = [np.array(samples).reshape(-1, 4 // world_size) for samples in ranks]
    together = np.concatenate(steps, axis=1).ravel()
    np.testing.assert_array_equal(together, epoch(0, total=22, batch=4, remainder=remainder))
    assert len(together) == length


def test_a_sampler_goes_on_where_its_state_was_taken_on_any_number_of_ranks() -> None:
    before = sampler(world_size=1)
    whole = list(DataLoader(range(22), sampler=before, batch_size=4))  # type: ignore[arg-type]
    before.advance(2)

    after = [sampler(rank, world_size=2) for rank in (0, 1)]
    for one in after:
        one.load_state_dict(before.state_dict())
        one.set_epoch(one.epoch)
    assert [len(one) for one in after] == [6, 6]
    shares = [np.array(list(one)).reshape(3, 2) for one in after]
    np.testing.assert_array_equal(np.concatenate(shares, axis=1), np.stack(whole[2:]))


def test_epochs_follow_one_another_with_and_without_a_word_from_the_loop() -> None:
    silent, told = sampler(), sampler()
    for number in range(3):
        silent.set_epoch(number)
        told.set_epoch(number)
        assert (silent.epoch, told.epoch) == (number, number)
        assert list(silent) == list(told)
        told.advance(5)
    assert list(silent) != list(told)


def test_a_state_of_another_order_and_a_batch_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ValueError, match="the state belongs to the order"):
        sampler(seed=2).load_state_dict(sampler(seed=1).state_dict())
    with pytest.raises(ValueError, match="a batch of 4 cannot be shared evenly by 3 ranks"):
        sampler(world_size=3)
