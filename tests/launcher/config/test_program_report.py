"""How a program is started and continued, as `vastrun init` finds it."""

from __future__ import annotations

import pytest

from tests.launcher.config.programs import checkpoint, report
from vastrun.launcher.config.program_report import command_notes, file_lines

RESUME_LINE = 'os.environ.get("VASTRUN_RESUME")'


def test_required_options_of_a_module_that_is_a_program_of_click_are_its_own() -> None:
    module = '@click.command()\n@click.option("--source", required=True)\ndef {}(source): pass'
    assert report("import module1", module.format("convert")).required == ()
    assert report("import module1\nmodule1.convert()", module.format("convert")).required == ("--source",)


def test_options_of_a_module_that_is_a_program_too_are_its_own() -> None:
    found = report(
        'import module1\ndef options():\n  p.add_argument("--lr")\noptions()\nmodule1.export()',
        'def options():\n  p.add_argument("--device", default="cpu")\n'
        'def export():\n  torch.save(m, "last.pt")\nif __name__ == "__main__":\n  options()',
    )
    assert (found.gpu_option, checkpoint(found)) == ("", "last.pt")


RESUMES = {
    "an option": ('p.add_argument("--resume")', "{resume:--resume}"),
    "an option of another name": (
        'p.add_argument("--load-checkpoint", default=None)',
        "{resume:--load-checkpoint}",
    ),
    "the more likely of two options": (
        'p.add_argument("--ckpt_path")\np.add_argument("--resume-from")',
        "{resume:--resume-from}",
    ),
    "an option of typer": (
        'import typer\ndef main(resume_from: str = ""): pass\ntyper.run(main)',
        "{resume:--resume-from}",
    ),
    "a switch": ('p.add_argument("--resume", action="store_true")', "${VASTRUN_RESUME:+--resume}"),
    "a switch and the path beside it": (
        'p.add_argument("--resume", action="store_true")\np.add_argument("--path_to_resume", default="")',
        "${VASTRUN_RESUME:+--resume} {resume:--path_to_resume}",
    ),
    "a flag of click": (
        '@click.option("--resume", is_flag=True)\ndef f(resume): pass',
        "${VASTRUN_RESUME:+--resume}",
    ),
    "a variable of nanoGPT's": (
        "init_from = 'scratch'\nexec(open('configurator.py').read())\nif init_from == 'resume': load()",
        "${VASTRUN_RESUME:+--init_from=resume}",
    ),
    "Lightning's command line": ("import lightning\nLightningCLI(M)", "fit {resume:--ckpt_path}"),
    "a key of Hydra's": (
        'import hydra, lightning\ntrainer.fit(m, ckpt_path=cfg.get("ckpt_path"))',
        "${VASTRUN_RESUME:+ckpt_path=\"'$VASTRUN_RESUME'\"}",
    ),
    "a nested key of Hydra's": (
        "import hydra, lightning\ntrainer.fit(m, ckpt_path=cfg.train.resume_from)",
        "${VASTRUN_RESUME:+train.resume_from=\"'$VASTRUN_RESUME'\"}",
    ),
    "Hugging Face's options": (
        "HfArgumentParser((TrainingArguments,))",
        "--output_dir results {resume:--resume_from_checkpoint}",
    ),
    "an option that is none": ('p.add_argument("--load-data")\np.add_argument("--resume_step_size")', ""),
}


@pytest.mark.parametrize("case", RESUMES)
def test_the_command_continues_by(case: str) -> None:
    text, expected = RESUMES[case]
    assert report(f'torch.save(s, "last.pt")\n{text}').options == expected


LINES = {
    "plain torch": ('torch.save(s, "last.pt")', "torch.load(path, weights_only=True)"),
    "accelerate": ('accelerator.save_state("c")', "accelerator.load_state(path)"),
    "torch.distributed.checkpoint": ('dcp.save(s, checkpoint_id="c")', "dcp.load(state, checkpoint_id=path)"),
    "Hugging Face's Trainer": (
        'TrainingArguments("o")',
        f"trainer.train(resume_from_checkpoint={RESUME_LINE}",
    ),
    "Lightning": ("import lightning\nTrainer()", f"trainer.fit(model, ckpt_path={RESUME_LINE}"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_program_without_an_option_is_shown_the_line_to_add(case: str) -> None:
    text, expected = LINES[case]
    found = report(text)
    assert found.options == ""
    assert expected in "\n".join(file_lines(found))


@pytest.mark.parametrize(
    "text",
    [
        'torch.save(s, "last.pt")\nprint(os.environ["VASTRUN_RESUME"])',
        'torch.save(s, "last.pt")\nload(vastrun.integrations.resume_path())',
        "loop = AccelerateLoop(accelerator)",
        'P = "last.pt"\nif os.path.exists(P):\n  torch.load(P)\ntorch.save(s, P)',
        'P = Path("last.pt")\nif P.exists():\n  torch.load(P)\ntorch.save(s, P)',
    ],
)
def test_a_program_that_finds_its_checkpoint_by_itself_needs_no_line(text: str) -> None:
    found = report(text)
    assert found.resume is not None
    assert (found.resume.word, found.resume.line) == ("", "")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ('"--local_rank", type=int, required=True', "--local_rank $LOCAL_RANK"),
        ('"--local-rank", "--local_rank", default=-1', "--local-rank $LOCAL_RANK"),
        ('"--local_rank", action="store_true"', ""),
        ('"local_rank"', ""),
    ],
)
def test_an_old_program_is_given_the_number_of_its_rank(option: str, words: str) -> None:
    found = report(f"p.add_argument({option})")
    assert found.options == words
    assert ("Each rank gets its number" in "".join(command_notes(found))) is (words != "")
    assert found.required == (("local_rank",) if option == '"local_rank"' else ())


def test_options_that_the_program_requires_are_named() -> None:
    found = report(
        'p.add_argument("epochs")\np.add_argument("--data", required=True)\np.add_argument("--lr")'
    )
    assert found.required == ("epochs", "--data")
    assert report("class M:\n  model: str\nHfArgumentParser(M)").required == ("--model",)


@pytest.mark.parametrize("how", ["required=True", "default=None", "default=''"])
def test_a_folder_that_the_program_must_be_told_is_given_in_the_command(how: str) -> None:
    found = report(f'p.add_argument("--output-dir", {how})\nopen(f"{{a.output_dir}}/x.txt", "w")')
    assert (found.options, found.written.inside) == (
        "--output-dir results",
        ("results/x.txt", "results/**/*"),
    )


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ('p.add_argument("--accel", action="store_true")', "--accel"),
        ('p.add_argument("--use-cuda", action="store_true", default=False)', "--use-cuda"),
        ('@click.option("--gpu", is_flag=True)\ndef main(gpu): pass', "--gpu"),
        (
            "import typer\ndef main(cuda: bool = False): pass\ntyper.run(main)",
            "--cuda",
        ),
        ('p.add_argument("--device", default="cpu")', "--device cuda"),
        ('p.add_argument("--no-cuda", action="store_true")', ""),
        ('p.add_argument("--cuda", action="store_false")', ""),
        ('p.add_argument("--use_gpu", action="store_true", default=True)', ""),
        ('p.add_argument("--gpu", type=int)', ""),
        ('@click.option("--gpu", is_flag=True, default=True)\ndef main(gpu): pass', ""),
        ('p.add_argument("--device", default="cuda")', ""),
        ('p.add_argument("device", default="cpu")', ""),
    ],
)
def test_a_program_that_must_be_told_to_use_the_gpu_is_told(text: str, option: str) -> None:
    found = report(text)
    assert (found.gpu_option, found.options) == (option, option)
    assert any(f"Without {option} " in note for note in command_notes(found)) == bool(option)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("import torch\ntorch.multiprocessing.spawn(f, nprocs=2)", "train.py:2"),
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=2)", "train.py:2"),
        ("from torch.multiprocessing import spawn\nspawn(f)", "train.py:2"),
        ("import torch\nimport torch.multiprocessing\ntorch.multiprocessing.spawn(f)", "train.py:3"),
        ("import torch.multiprocessing as mp\nmp.set_start_method('spawn')", ""),
        ("world.spawn(f)", ""),
    ],
)
def test_a_program_that_starts_its_processes_itself_is_seen(text: str, place: str) -> None:
    assert report(text).spawn == place
