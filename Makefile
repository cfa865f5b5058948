# One word each: quickstart, test, integration, slow, lint, check, pythons, lowest, newest, torch, versions, wheel, release-check, image, schemas, docs, format, bench, gpu, chaos, stress, frameworks, mlflow, fuzz, clean. All are safe to repeat and quick the second time.

VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
RUNS   ?= 40
SEED   ?= 0
PART   ?= 1/1
FUZZ   ?= 100000
# What a user forbids Python to write down, thousands of processes would compile again.
PYTEST  = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist worksteal \
	$(if $(ORDER),--random-order-seed=$(ORDER))
# A Python that is named is taken; else the one that is set up here, or the computer's.
GPU_PYTHON = $(if $(filter file default,$(origin PYTHON)),$(firstword $(wildcard $(BIN)/python) $(PYTHON)),$(PYTHON))
INSTALL := requirements/install.sh $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help quickstart test integration slow lint check pythons lowest newest torch versions wheel release-check image schemas proof docs format bench gpu chaos stress frameworks mlflow fuzz clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

quickstart: $(STAMPS)/trainer ## Set up, then train two ranks on this computer
	$(BIN)/vastrun launch configs/quickstart.yaml --provider local

test: $(STAMPS)/dev ## Set up, then pass the tests: all but the slow ones and those of integration
	$(PYTEST) -m 'not slow and not integration'

integration: $(STAMPS)/dev ## The tests with a real Docker, Slurm and Chromium; names what this computer lacks
	$(PYTEST) -m 'integration and not slow'

slow: $(STAMPS)/dev ## The tests that test leaves out, or the K-th of N parts of them: PART=K/N
	$(PYTEST) -m slow --part $(PART)

check: lint test integration slow ## All that a change must pass

lint: $(STAMPS)/dev ## Budget of lines, formatter, linter, types, import rules, shellcheck
	$(BIN)/python -m tests.budget
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin vastrun/launcher
	$(BIN)/lint-imports
	$(BIN)/shellcheck --severity=style onstart/*.sh onstart/steps.d/*.sh launcher/decisions/*.sh \
		launcher/providers/*.sh launcher/providers/docker/*.sh launcher/providers/slurm/scripts/*.sh examples/*/src/*/*.sh launcher/ssh/scripts/*.sh onstart/boot/*.sh requirements/*.sh tests/*.sh tests/docker/*.sh tests/emulators/*.sh .ci/run

pythons: $(STAMPS)/dev ## Try the launcher on every other Python of this computer that it supports, or with a PART of the tests
	@PART=$(PART) tests/pythons.sh

lowest: $(STAMPS)/dev ## Try the launcher with the lowest versions of its dependencies that pyproject.toml allows
	@tests/lowest.sh lowest

newest: $(STAMPS)/dev ## Try the launcher with the newest versions of its dependencies
	@tests/lowest.sh newest

torch: ## Try the trainer with another TORCH (the newest, or such as 2.11.0), without the launcher's packages and W&B
	@PYTHON=$(PYTHON) PART=$(PART) CHECKS="$(CHECKS)" WORKERS=$(WORKERS) MINUTES=$(MINUTES) tests/torch.sh $(TORCH)

versions: $(STAMPS)/trainer ## Try a program of one's own (`command:`) with other versions of torch and Python: PAIRS="2.4.1:3.10 none:3.10"
	@tests/versions.sh

wheel: $(STAMPS)/trainer ## Build the wheel; try it outside the checkout, without torch beside the launcher
	tests/wheel.sh

release-check: $(STAMPS)/release ## All of a release but the upload: wheel and sdist from a clean clone, checked, installed by pip, pipx and uv; TAG=v1.2.3
	@TAG=$(TAG) tests/release.sh

image: $(STAMPS)/dev ## Build the image for CPUs, push and lock it; first tests/docker/daemon.sh start and base.sh
	@tests/docker/image.sh

schemas: $(STAMPS)/dev ## Write the schemas of files and of --json to build/schemas, and the parts of pages that come from the code
	$(BIN)/python -m tests.schemas

proof: $(STAMPS)/trainer ## Compute the floors of docs/evaluation.md once more, and compare two digits of each
	$(BIN)/python -m benchmarks.equal_time --proof

docs: $(STAMPS)/docs ## Build the documentation in build/site, to be opened without a network; fails on a broken link
	@$(BIN)/python -m mkdocs build --quiet --strict
	@echo 'documentation: build/site/index.html'

format: $(STAMPS)/dev ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMPS)/dev ## Print the figures of docs/benchmarks.md that have a limit, or those of a batch of POINTS, PARALLEL at once, at SPEED
	$(BIN)/python -m benchmarks $(if $(POINTS),batch --points $(POINTS) --at-once $(or $(PARALLEL),50) \
		$(if $(SPEED),--speed $(SPEED)),$(FIGURES))

gpu: ## Measure and check what only GPUs can show, in MINUTES (10), or the named CHECKS; PYTHON is one whose torch has CUDA
	@$(GPU_PYTHON) -m tests.gpu --minutes $(or $(MINUTES),10) $(CHECKS)

chaos: $(STAMPS)/dev ## RUNS runs (40), or BATCHES, with troubles by SEED (0) on an emulated Vast; boxes are processes, of image DOCKER, or HOSTILE=1; programs work MINUTES; NODES=2: on boxes of this computer
	$(BIN)/python -m benchmarks chaos --seed $(SEED) $(if $(NODES),--nodes $(NODES) --runs $(RUNS) --parallel 4, \
		$(if $(BATCHES),--batches $(BATCHES) --parallel 3, \
		--runs $(RUNS) --parallel $(if $(HOSTILE),16,8) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(DOCKER),--docker $(DOCKER)) $(if $(HOSTILE),--hostile)))

stress: $(STAMPS)/dev ## Run TESTS (those that wait for something) TIMES (30) times beside LOAD (4) busy processes
	@TIMES=$(or $(TIMES),30) LOAD=$(or $(LOAD),4) tests/stress.sh $(or $(TESTS),tests/launcher/ssh \
		tests/onstart/supervision tests/trainer/telemetry tests/launcher/api tests/e2e)

frameworks: $(STAMPS)/frameworks ## Train neuraloperator's FNO, stop and continue the programs of examples/, then train each RUNS (10) times, with machines destroyed by SEED (0) on an emulated Vast
	$(VENV)-frameworks/bin/python -m pytest -q -n 0 -k neuraloperator tests/trainer/models/test_own_models.py
	$(VENV)-frameworks/bin/python -m pytest -q -n 0 --timeout 3000 tests/e2e/test_frameworks.py
	$(VENV)-frameworks/bin/python -m benchmarks chaos --frameworks --seed $(SEED) --parallel $(or $(PARALLEL),4) \
		--runs $(if $(filter file,$(origin RUNS)),10,$(RUNS)) $(if $(PROGRAMS),--programs $(PROGRAMS))

mlflow: $(STAMPS)/dev ## Try the MLflow tracker with a real server on SQLite, with the pinned client and the oldest one
	@PYTHON=$(PYTHON) tests/mlflow.sh

fuzz: $(STAMPS)/dev ## Try FUZZ (100000) lies of a box, all attacks of a market, 64 trainings of random options
	FUZZ=$(FUZZ) $(PYTEST) --timeout 0 tests/hostile/test_fuzz.py tests/hostile/test_lies.py \
		tests/e2e/test_vast_market.py tests/trainer/engine/test_random_options.py

clean: ## Remove what set-up made
	rm -rf $(VENV) $(VENV)-frameworks .venv-torch-* build/site build/torch-* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/trainer: pyproject.toml constraints.txt requirements/launcher.txt | $(BIN)/python
	@echo 'setting up $(VENV): the launcher and the trainer (once; torch is large)'
	@$(INSTALL) --require-hashes --requirement requirements/launcher.txt
	@$(INSTALL) --constraint constraints.txt --editable '.[trainer,export]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: pyproject.toml constraints.txt requirements/providers.txt tests/axe.txt | $(BIN)/python
	@echo 'setting up $(VENV): the launcher, the trainer and what checks them (once)'
	@$(INSTALL) --require-hashes --requirement requirements/providers.txt
	@$(INSTALL) --constraint constraints.txt --editable '.[trainer,export,dev]'
	@$(INSTALL) --no-deps --require-hashes --requirement tests/axe.txt
	@mkdir -p $(STAMPS) && touch $(STAMPS)/trainer $@

# The packages of $(VENV), and on top of them those of the frameworks that it lacks.
$(STAMPS)/frameworks: requirements/frameworks.txt $(STAMPS)/dev
	@echo 'setting up $(VENV)-frameworks: what the programs of examples/ need (once)'
	@requirements/frameworks.sh $(VENV) $(VENV)-frameworks
	@touch $@

$(STAMPS)/docs: pyproject.toml constraints.txt requirements/launcher.txt | $(BIN)/python
	@echo 'setting up $(VENV): the launcher, and what builds its documentation (once)'
	@$(INSTALL) --require-hashes --requirement requirements/launcher.txt
	@$(INSTALL) --constraint constraints.txt --editable '.[docs]'
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/release: pyproject.toml constraints.txt requirements/launcher.txt | $(BIN)/python
	@echo 'setting up $(VENV): the launcher, and what checks a release (once)'
	@$(INSTALL) --require-hashes --requirement requirements/launcher.txt
	@$(INSTALL) --constraint constraints.txt --editable '.[docs,release]'
	@mkdir -p $(STAMPS) && touch $@
