"""Jobs and programs that a page shows whole can be read."""

import ast
import re

from tests.docs.markdown import DOCS, PAGES, blocks
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.config.job_loader import load_job

EXAMPLES = DOCS.parent / "examples"
_FRAMEWORKS = {"own-script.md": 1, "frameworks.md": 3}


def jobs(text: str) -> list[str]:
    """Return the job files of a page: blocks of YAML with a name and something to run."""
    yaml = [code for language, code in blocks(text) if language == "yaml"]
    return [
        code
        for code in yaml
        if re.search("^name:", code, re.M) and re.search("^(train|command):", code, re.M)
    ]


def test_every_job_of_a_page_is_sound() -> None:
    for page in PAGES:
        for job in jobs(page.read_text(encoding="utf-8")):
            load_job(job, page.name)


def test_each_page_on_a_program_of_your_own_shows_whole_jobs() -> None:
    shown = {name: len(jobs((DOCS / name).read_text(encoding="utf-8"))) for name in _FRAMEWORKS}
    assert {name for name, number in _FRAMEWORKS.items() if shown[name] < number} == set()


def test_every_program_of_a_page_is_python() -> None:
    for page in PAGES:
        for language, code in blocks(page.read_text(encoding="utf-8")):
            if language == "python" and page.name != "README.md":
                ast.parse(code, page.name)


def test_no_example_and_no_advice_runs_what_a_checkpoint_holds() -> None:
    sources = [*PAGES, *EXAMPLES.rglob("*.py"), *(DOCS.parent / "launcher").rglob("*.py")]
    calls = [
        f"{path.name}: {call}"
        for path in sources
        for call in re.findall(r"torch\.load\([^)]*\)", path.read_text(encoding="utf-8"))
        if "weights_only=True" not in call
    ]
    assert calls == ["security.md: torch.load(weights_only=False)"], "which is the warning"


def test_every_model_of_examples_has_a_job_that_finds_it() -> None:
    jobs_of_models = sorted((EXAMPLES / "own_model").glob("*.yaml"))
    assert len(jobs_of_models) == 2
    for path in jobs_of_models:
        job = load_job(path.read_text(encoding="utf-8"), path.name, base_dir=str(path.parent))
        assert job.train is not None and job.train.model.is_own
        Bundler({}).check(job)


def test_every_program_of_examples_has_a_job_that_names_its_checkpoints() -> None:
    programs = sorted(EXAMPLES.glob("*/train.py"))
    assert len(programs) == 5
    for program in programs:
        ast.parse(program.read_text(encoding="utf-8"), program.name)
        job = load_job(program.with_name("job.yaml").read_text(encoding="utf-8"), program.parent.name)
        assert job.checkpoints.files and job.retry["lost"]
        assert program.parent.name in (DOCS / "own-checkpoints.md").read_text(encoding="utf-8")
