"""Where a program writes, as `vastrun init` finds it: checkpoints, other files, and what only a run shows."""

from __future__ import annotations

import ast
import time

import pytest

from tests.launcher.config.programs import checkpoint, report
from vastrun.launcher.config.program_index import index_program
from vastrun.launcher.config.program_report import file_lines

CHECKPOINTS = {
    "an f-string with the step": ('torch.save(state, f"ckpt/step_{step}.pt")', "ckpt/step_*.pt"),
    "a path that is joined": ('torch.save(s, os.path.join("out", "last.pt"))', "out/last.pt"),
    "a path that is divided": (
        'torch.save(s, Path("out") / "runs" / f"epoch{e:03d}.pth")',
        "out/runs/epoch*.pth",
    ),
    "text that is added": ('torch.save(s, "a/" + "ckpt_" + str(n) + ".pt")', "a/ckpt_*.pt"),
    "a state in a variable": (
        'data = {"model": m.state_dict()}\ntorch.save(data, f"c/{n}.pt")',
        "c/*.pt",
    ),
    "str.format": ('torch.save(s, "ckpt/{}-{}.pt".format(name, step))', "ckpt/*-*.pt"),
    "the percent operator": ('torch.save(s, "ckpt/%05d.pt" % step)', "ckpt/*.pt"),
    "a constant of the module": ('OUT = "out"\ndef f():\n  torch.save(s, f"{OUT}/ckpt.pt")', "out/ckpt.pt"),
    "an option with a default": (
        'p.add_argument("--save-dir", default="saved")\ntorch.save(s, f"{args.save_dir}/step{n}.pt")',
        "saved/step*.pt",
    ),
    "an option of click": (
        '@click.option("--out", default="o")\ndef main(out):\n  torch.save(s, f"{out}/last.pt")',
        "o/last.pt",
    ),
    "a field of a dataclass": (
        'class C:\n  out: str = field(default="o")\ntorch.save(s, f"{cfg.out}/last.pt")',
        "o/last.pt",
    ),
    "an argument that a call passes": (
        'def save(path):\n  torch.save(s, path)\nsave("ckpt/last.pt")',
        "ckpt/last.pt",
    ),
    "the default of a parameter": (
        'def save(x, path="checkpoint.pt"):\n  torch.save(x, path)\nsave(1)',
        "checkpoint.pt",
    ),
    "an attribute": (
        "class T:\n  def __init__(self, p):\n    self.p = p\n  def s(self):\n    torch.save(0, self.p)\n"
        'T("snapshot.pt")',
        "snapshot.pt",
    ),
    "a parameter that later becomes another name": (
        'def save(path):\n  torch.save(s, path)\n  path = os.path.basename(path)\nsave(f"c/step{n}.pt")',
        "c/step*.pt",
    ),
    "a parameter that is made longer": (
        'def save(s, path):\n  path = os.path.join(path, "last.pt")\n  torch.save(s, path)\nsave(1, "ckpt")',
        "ckpt/last.pt",
    ),
    "a name that is used again": (
        'path = "a/last.pt"\ntorch.save(s, path)\npath = "notes.txt"\nopen(path, "w")',
        "a/last.pt",
    ),
    "Lightning by Hydra": (
        "import hydra, lightning\ntrainer = hydra.utils.instantiate(cfg.trainer)",
        "**/checkpoints/*.ckpt",
    ),
    "an open file": ('with open("ckpt/last.pt", "wb") as f:\n  torch.save(s, f)', "ckpt/last.pt"),
    "a folder that is renamed": (
        'new = Path("out", ".step_1")\n(new / "a").write_text(t)\nos.rename(new, Path("out", f"step_{n}"))',
        "out/step_*",
    ),
    "a file that is renamed": ('torch.save(s, "last.tmp")\nos.replace("last.tmp", "last.pt")', "last.pt"),
    "a file that is renamed to what only a run knows": (
        'torch.save(s, "last.pt")\nos.rename("last.pt", new)',
        "last.pt",
    ),
    "a function that passes everything on": (
        'def save_on_master(*args, **kw):\n  torch.save(*args, **kw)\nsave_on_master(s, f"c/step_{n}.pt")',
        "c/step_*.pt",
    ),
    "a loop over paths": (
        'paths = [out / "last.pt"]\nif n: paths.append(out / f"last{n}.pt")\n'
        'for path in paths:\n  torch.save(s, path)\nout = Path("c")',
        "c/last*.pt",
    ),
    "a loop over paths in the text": (
        'for p in ("c/last.pt", "c/best.pt"):\n  torch.save(s, p)',
        "c/last.pt",
    ),
    "a folder of a run, or of one to continue": (
        'folder = a.resume if a.resume else os.path.join("logs", name)\n'
        'p.add_argument("--resume", default="")\ntorch.save(s, os.path.join(folder, "c", "last.pt"))',
        "logs/*/c/last.pt",
    ),
    "a state beside what an evaluation found": (
        'torch.save(s, f"c/checkpoint{n}.pth")\ntorch.save(coco["bbox"].eval, f"c/eval/{name}")',
        "c/checkpoint*.pth",
    ),
    "what holds an optimizer": ('torch.save({"m": m, "optimizer": o}, "out/model.pt")', "out/model.pt"),
    "several that end alike": (
        'torch.save(s, f"c/step_{n}.pt")\ntorch.save(s, f"c/epoch_{n}.pt")',
        "c/*.pt",
    ),
    "several files in one folder": (
        'torch.save(m, f"c/{n}/model_state.pt")\ntorch.save(o, f"c/{n}/optim_state.pt")',
        "c/*",
    ),
    "a folder of one of two names": (
        "torch.save(s, f\"c/{'x' if y else 'z'}/step_{n}.pt\")",
        "c/*/step_*.pt",
    ),
    "the folder for outputs": (
        'torch.save(s, os.environ["VASTRUN_OUTPUTS"] + f"/step_{n}.pt")',
        "$VASTRUN_OUTPUTS/step_*.pt",
    ),
    "the folder for outputs, or another": (
        'd = os.environ.get("VASTRUN_OUTPUTS", "here")\ntorch.save(s, f"{d}/step_{n}.pt")',
        "$VASTRUN_OUTPUTS/step_*.pt",
    ),
    "accelerate": ('accelerator.save_state(f"c/step_{n}")', "c/step_*"),
    "vastrun's loop of accelerate": ("AccelerateLoop(accelerator)", "checkpoints/step_*"),
    "its own folder": ('AccelerateLoop(accelerator, folder="c")', "c/step_*"),
    "accelerate, which names them itself": (
        'a = Accelerator(project_dir="p")\na.save_state()',
        "p/checkpoints/checkpoint_*",
    ),
    "torch.distributed.checkpoint": ('dcp.save(s, checkpoint_id=f"c/{step}")', "c/*"),
    "its writer": ('dcp.save(s, storage_writer=FileSystemWriter("c/last"))', "c/last"),
    "Hugging Face's Trainer": ('TrainingArguments(output_dir="o")', "o/checkpoint-*"),
    "another arguments class of it": ('SFTConfig(output_dir="o")', "o/checkpoint-*"),
    "its options": ("HfArgumentParser((M, TrainingArguments))", "results/checkpoint-*"),
    "Lightning's callback": ('import lightning\nModelCheckpoint(dirpath="c")', "c/*.ckpt"),
    "Lightning's own folder": ("import lightning\nTrainer()", "lightning_logs/*/checkpoints/*.ckpt"),
    "Lightning's folder by its root": (
        'import lightning\nTrainer(default_root_dir="r")',
        "r/lightning_logs/*/checkpoints/*.ckpt",
    ),
    "Lightning without a logger": ("import lightning\nTrainer(logger=False)", "checkpoints/*.ckpt"),
    "Lightning with a logger": (
        'import lightning\nTrainer(logger=CSVLogger("l"))',
        "l/**/checkpoints/*.ckpt",
    ),
    "an option alone": ('p.add_argument("--checkpoint-dir", default="c")', "c/*"),
    "an option without a default": ('p.add_argument("--ckpt_dir")', "checkpoints/*"),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_the_checkpoints_are_found_of(case: str) -> None:
    text, expected = CHECKPOINTS[case]
    assert checkpoint(report(text)) == expected


INSIDE = {
    "weights alone": ('torch.save(model.state_dict(), "model.pt")', ["model.pt"]),
    "the best weights": ('torch.save(m, "c/last.pt")\nshutil.copy("c/last.pt", "best.pt")', ["best.pt"]),
    "a text file": ('open("o/log.txt", "w")\nopen("input.txt")\nopen("x", "rb")', ["o/log.txt"]),
    "a path that is opened": ('Path("o/log.txt").open("a")', ["o/log.txt"]),
    "a path that is written": ('(Path("o") / "a.json").write_text("")', ["o/a.json"]),
    "arrays": ('np.save("o/a", x)\nnp.savez("b.npz", x)', ["o/a.npy", "b.npz"]),
    "a table": ('frame.to_csv("t.csv")\nframe.to_csv()', ["t.csv"]),
    "a figure": ('plt.savefig(f"figures/{name}.png")', ["figures/*.png"]),
    "HDF5": ('h5py.File("a.h5", "w")\nh5py.File("b.h5", "r")', ["a.h5"]),
    "TensorBoard": ('SummaryWriter(log_dir="tb")', ["tb/**/*"]),
    "TensorBoard's own folder": ("SummaryWriter()", ["runs/**/*"]),
    "a model of Hugging Face": ('model.save_pretrained("o")', ["o/*"]),
    "the Trainer's other files": ('TrainingArguments(output_dir="o")', ["o/*.*"]),
    "three files next to checkpoints": (
        'open("o/a", "w")\nopen("o/b", "w")\nopen("o/c", "w")\ntorch.save(s, "o/last.pt")',
        ["o/a", "o/b", "o/c"],
    ),
    "an option alone": ('p.add_argument("--output-dir", default="o")', ["o/**/*"]),
    "an option for files that are found": (
        'p.add_argument("--out_dir", default="o")\nopen(f"{args.out_dir}/a.txt", "w")',
        ["o/a.txt", "o/**/*"],
    ),
    "a keyword": ('trainer.train(save_dir="./weights")', ["weights/**/*"]),
    "a data set that it prepares": (
        'def prepare(data):\n  torch.save(data, f"data/train{n}.pt")\n'
        'torch.save({"x": x, "y": y}, f"data/test{n}.pt")',
        ["data/train*.pt", "data/test*.pt"],
    ),
    "a temporary file": ('open("/tmp/x", "w")\nopen("/dev/null", "w")\nopen("s3://a/b", "w")', []),
    "a path in a folder above that it comes back from": ('open("a/../b/./c.txt", "w")', ["b/c.txt"]),
}


@pytest.mark.parametrize("case", INSIDE)
def test_the_files_are_found_of(case: str) -> None:
    text, expected = INSIDE[case]
    found = report(text)
    assert list(found.written.inside) == expected
    assert not found.written.unknown


@pytest.mark.parametrize("path", ["/data/model.pt", "~/model.pt", "../model.pt"])
def test_a_file_outside_of_the_code_folder_is_named_with_its_line(path: str) -> None:
    found = report(f'\nopen("{path}", "w")')
    assert found.written.inside == ()
    assert f"# Not downloaded: {path} (train.py:2). Write to $VASTRUN_OUTPUTS instead." in file_lines(found)


def test_a_path_that_only_a_run_knows_is_named_with_its_line() -> None:
    found = report("torch.save(model, sys.argv[1])")
    assert checkpoint(found) is None
    assert "#   torch.save in train.py:1" in list(file_lines(found))


def test_the_programs_own_modules_are_read_too() -> None:
    found = report(
        'from module1 import save\nsave("ckpt/last.pt")\nplot()',
        "from module2 import OUT\ndef save(path):\n  torch.save(s, path)\n"
        'def plot():\n  plt.savefig(f"{OUT}/a.png")',
        'OUT = "figures"',
    )
    assert checkpoint(found) == "ckpt/last.pt"
    assert found.written.inside == ("figures/a.png",)


def test_a_name_that_only_a_run_knows_is_no_pattern() -> None:
    found = report('torch.save(s, f"{folder}-{step}")')
    assert (checkpoint(found), [write.line for write in found.written.unknown]) == (None, [1])


HOSTILE = {
    "a value made of itself": 'x = x + x\ntorch.save(s, x + "a")\ny = z\nz = y\nopen(y, "w")',
    "functions that call each other": "def f(p):\n  g(p)\ndef g(p):\n  f(p)\n  torch.save(0, p)\nf(1)",
    "a long chain": "\n".join(f"a{n} = a{n + 1}" for n in range(2000)) + '\nopen(a0, "w")',
    "a long sum": f'open({" + ".join(["x"] * 500)}, "w")',
    "values that multiply": "\n".join(f'a = f"{{a}}{{a}}"; b{n} = a + a' for n in range(200))
    + "\ntorch.save(s, a)",
    "names that end the line": 'torch.save(s, "a\\nname: evil")\nopen("b\\x1b[2J: #", "w")',
    "a very long name": f'open("{"a" * 100_000}", "w")',
    "a flag that is no word": 'torch.save(0, "c.pt")\np.add_argument("--resume; rm -rf /")',
    "a key that is no word": 'import hydra, lightning\ninstantiate(c)\nfit(ckpt_path=c.get("a; rm -rf /"))',
    "odd arguments": "A(*x)\nopen(*x, mode='w')\ntorch.save()\nopen()\nos.replace()\np.add_argument()",
    "loops over one long list": "a = [" + "b, " * 5000 + "]\n" + "for c in a: open(c, 'w')\n" * 5000,
    "loops over lists of each other": "a = [b]\nb = [a]\nfor b in a:\n  for a in b: open(a, 'w')",
    "odd loops": "for a.b in c: pass\nfor d in f(): d.append(*e)\nfor g in g: open(g, 'w')",
    "odd values": 'open(3, "w")\nopen(None, "w")\nopen(..., "w")\nopen("", "w")\nopen(".", "w")',
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_program_made_to_confuse_is_read_in_bounded_time(case: str) -> None:
    began = time.process_time()
    found = report(HOSTILE[case])
    assert time.process_time() - began < 5
    lines = list(file_lines(found))
    assert all("\n" not in line and line.isprintable() for line in lines)
    assert all(len(line) < 10_000 for line in lines)
    assert ";" not in found.options


def test_of_a_very_large_program_the_first_part_is_read() -> None:
    index = index_program({"train.py": ast.parse("first()\n" * 50 + "last()\n")}, max_nodes=100)
    assert "first" in index.called
    assert "last" not in index.called
