# Two commands on a fresh machine: `make study` runs the main job, `make test` checks a change.

PYTHON ?= python3
BIN = .venv/bin
INSTALL = $(BIN)/python -m pip --disable-pip-version-check install -q

# Threads that wait sleep instead of spinning: a busy machine is then not many times slower.
export OMP_WAIT_POLICY ?= PASSIVE

# What `make study` runs.
STUDY = $(BIN)/lastlayer run

.PHONY: study test types quick test-all test-images test-extras test-serve docs wheel-check fuzz kills gallery bench-avalanche clean

study: .venv/.ready
	$(STUDY)

# Lint, import contracts, types and all tests but the slow ones: minutes on two cores.
test: .venv/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	@$(MAKE) -j 2 types quick

PYTEST = $(BIN)/pytest -n auto --dist worksteal

types: .venv/.ready
	$(BIN)/mypy

quick: .venv/.ready
	$(PYTEST) -m "not slow"

# The slow ones: real data at full size, the wheel, kills, faults at any line, browsers, every head
# where `make test` tries one for many, and properties with all their examples.
test-all: .venv/.ready
	$(PYTEST) -m "slow"

# Damaged files of every kind and hostile arguments to every public name, in a folder of their own:
# so many tries, or as many as there is time for. `make test-all` makes a few of them.
FILES = 1000
CALLS = 10000
SECONDS = 600
fuzz: .venv/.ready
	$(BIN)/python -m tests.fuzz --files $(FILES) --calls $(CALLS) --seconds $(SECONDS)

# What needs torchvision, timm or Continuum. torchvision from PyPI works with PyTorch's large build
# only, several GB in all: so it has an environment of its own, and everything else does without.
test-images .venv-images/.dev: BIN = .venv-images/bin
test-images: .venv-images/.dev
	$(BIN)/pytest -n auto tests_images

# What needs sentence-transformers, datasets or Ray: in one environment of its own, with the same
# PyTorch. Ray's tests start clusters of several nodes: one after the other.
test-extras .venv-extras/.dev: BIN = .venv-extras/bin
test-extras: .venv-extras/.dev
	$(BIN)/pytest -n auto tests_extras --ignore-glob '*/test_ray*.py'
	$(BIN)/pytest -n 0 tests_extras/test_ray*.py

# The service: its protocol, hostile clients, tritonclient, a browser, and 200 kills.
test-serve .venv-serve/.dev: BIN = .venv-serve/bin
test-serve: .venv-serve/.dev
	PYTHONPATH=.:tests $(BIN)/pytest -n 2 --dist loadfile tests_serve

# The docs as a site that opens from disk, without a network: site/index.html. Links are checked.
docs .venv-docs/.ready: BIN = .venv-docs/bin
docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

# The wheel in an empty environment, in an empty folder: it answers a question about the data in it.
wheel-check: .venv/.ready
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt dist/*.whl
	mkdir .venv-wheel/empty
	cd .venv-wheel/empty && ../bin/lastlayer advise cifar10 --scenario cifar10 --heads mean,slda

# Studies of heads killed so often, those of networks, extractions and reports a fifth or a fourth as
# often, must end with the same bits: make test-all does it 20 times.
KILLS = 100
kills: .venv/.ready
	LASTLAYER_KILLS=$(KILLS) $(BIN)/pytest tests/study tests/replay tests/extraction tests/report \
	  -k killed_again_and_again

# The charts of README and docs, drawn again from the committed results.
GALLERY = summary \
    accuracy-cifar10-resnet20-cifar100 \
    accuracy-cifar100_lifelong-resnet20-cifar100 \
    masks \
    masks-normal \
    layers-and-masks-incremental \
    similarity-incremental \
    subsets-average \
    subsets-masking \
    norms-norm-cifar10-resnet20-cifar100 \
    norms-bias_change-cifar10-resnet20-cifar100 \
    weight-change-cifar100_mix-resnet20-cifar100-none \
    weight-change-cifar100_mix-resnet20-cifar100-single \
    interference-cifar10-resnet20-cifar100-linear-risk \
    interference-cifar10-resnet20-cifar100-weight_norm-risk \
    first-task-cifar100_lifelong-resnet20-cifar100 \
    repairs-cifar10-resnet20-cifar100
REPLAY_GALLERY = replay-balance-cifar10-images-cifar10-5-epochs-a-task-2000-remembered-of-a-class \
    replay-images-cifar10-images-cifar10-5-epochs-a-task-2000-remembered-of-a-class \
    replay-causes-cifar10-images-cifar10-5-epochs-a-task-2000-remembered-of-a-class \
    replay-drift-angle-0-01-cifar10-images-cifar10-5-epochs-a-task-2000-remembered-of-a-class \
    replay-drift-along-0-01-cifar10-images-cifar10-5-epochs-a-task-2000-remembered-of-a-class \
    replay-balance-cifar10-images-cifar10-20-epochs-a-task-2000-remembered-of-a-class-clipped-a-e1abb230 \
    replay-causes-cifar10-images-cifar10-20-epochs-a-task-2000-remembered-of-a-class-clipped-at-bf334eb5 \
    replay-balance-cifar10-images-cifar10-50-epochs-a-task-100-remembered-of-a-class-clipped-at-8a6c320b
gallery: .venv/.ready
	$(BIN)/lastlayer report results/paper
	$(BIN)/lastlayer report results/replay
	cp $(GALLERY:%=results/paper/figures/%.svg) docs/figures
	cp $(REPLAY_GALLERY:%=results/replay/figures/%.svg) docs/figures
	$(BIN)/python -m benchmarks.beyond_figure

# An option: Avalanche needs torchvision, and that PyTorch's large build, several GB in all.
bench-avalanche .venv-avalanche/.bench: BIN = .venv-avalanche/bin
bench-avalanche: .venv-avalanche/.bench
	$(BIN)/python -m benchmarks.avalanche

clean:
	rm -rf .venv .venv-images .venv-extras .venv-serve .venv-avalanche .venv-docs .venv-wheel site build dist src/*.egg-info

# Stamps: made again whenever what is to be installed has changed. The build uses the pinned
# setuptools of .venv, so that the package itself is built from pinned versions too.
# Everything but PyTorch is held to its hash; PyTorch has several builds of one version (SECURITY.md).
.venv/.ready: .venv/.made pyproject.toml constraints.txt locked.txt
	@echo "installing lastlayer and its checks into .venv (PyTorch is large: minutes the first time)"
	@$(INSTALL) --require-hashes --no-deps -r locked.txt
	@$(INSTALL) -c constraints.txt torch
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv-docs/.ready: .venv-docs/.made locked-docs.txt
	@echo "installing mkdocs-material into .venv-docs"
	@$(INSTALL) --require-hashes --no-deps -r locked-docs.txt
	@touch $@

.venv-images/.dev: .venv-images/.made pyproject.toml constraints.txt constraints-images.txt
	@echo "installing lastlayer with torchvision into .venv-images (several GB: minutes)"
	@$(INSTALL) -c constraints.txt setuptools
	@$(INSTALL) -c constraints.txt -c constraints-images.txt --no-build-isolation -e '.[images,dev]' continuum six
	@touch $@

.venv-extras/.dev: .venv-extras/.made pyproject.toml constraints.txt constraints-extras.txt
	@echo "installing lastlayer with sentence-transformers, datasets and Ray into .venv-extras (minutes)"
	@$(INSTALL) -c constraints.txt setuptools torch
	@$(INSTALL) -c constraints.txt -c constraints-extras.txt --no-build-isolation -e '.[text,ray,dev]' datasets
	@touch $@

TRITON = tritonclient geventhttpclient gevent greenlet zope-event zope-interface brotli certifi \
  python-rapidjson urllib3
.venv-serve/.dev: .venv-serve/.made pyproject.toml constraints.txt constraints-serve.txt
	@echo "installing lastlayer with its service and tritonclient into .venv-serve (minutes)"
	@$(INSTALL) -c constraints.txt setuptools torch
	@$(INSTALL) -c constraints.txt -c constraints-serve.txt --no-build-isolation -e '.[serve,dev]'
	@# Without its own dependencies: it wants an older ml-dtypes than onnx has here.
	@$(INSTALL) --no-deps -c constraints-serve.txt $(TRITON)
	@touch $@

.venv-avalanche/.bench: .venv-avalanche/.made pyproject.toml constraints.txt \
    benchmarks/constraints-avalanche.txt
	@echo "installing lastlayer and Avalanche into .venv-avalanche (several GB: minutes)"
	@$(INSTALL) -c constraints.txt setuptools
	@$(INSTALL) -c constraints.txt -c benchmarks/constraints-avalanche.txt --no-build-isolation avalanche-lib -e .
	@touch $@

.venv/.made .venv-images/.made .venv-extras/.made .venv-serve/.made .venv-avalanche/.made .venv-docs/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "lastlayer needs Python 3.11 or later; '$(PYTHON)' is:" \
	    "$$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(@D) || { \
	  echo "'$(PYTHON)' cannot make a virtual environment: its venv module is missing" \
	    "(on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@touch $@
