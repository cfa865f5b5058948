"""Hugging Face: a small causal language model with random weights, trained by the Trainer of transformers."""

import os
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from vastrun.integrations import STOPPED, leave, resume_path
from vastrun.integrations.transformers import TransformersCallback

STEPS, SAVE_EVERY = 40, 5
STEP_S = float(os.environ.get("STEP_S", "0"))  # makes the steps as slow as those of a larger model


class Sequences(Dataset):
    """Sequences of numbers that count upwards."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 16) % 50
        return {"input_ids": tokens, "labels": tokens}


class Report(TrainerCallback):
    """Prints the step at which the training starts, each step, and each that is saved."""

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print(f"starts after step {state.global_step}", flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(STEP_S)
        if state.is_world_process_zero:
            print(f"step {state.global_step}", flush=True)

    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print(f"saved step {state.global_step}", flush=True)


def main():
    set_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    supervised = TransformersCallback()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=os.environ["VASTRUN_OUTPUTS"],
            max_steps=STEPS,
            save_steps=SAVE_EVERY,
            save_total_limit=3,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            logging_steps=5,
            disable_tqdm=True,
            report_to="none",
            use_cpu=not torch.cuda.is_available(),
            seed=0,
        ),
        train_dataset=Sequences(),
        callbacks=[Report(), supervised],
    )
    trainer.train(resume_from_checkpoint=resume_path())
    if supervised.stopped:
        leave(STOPPED)
    trainer.save_model(f"{os.environ['VASTRUN_OUTPUTS']}/final")
    leave()


if __name__ == "__main__":
    main()
