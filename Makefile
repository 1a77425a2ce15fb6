# The two commands: `make run` and `make test`. Everything else is for people who change gtm.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: run test test-all wheel-test dist tools tofu chart apiserver drills attacks coverage lint format docs client provider provider-docs provider-spec bench bench-tools vendor pictures fuzz lock clean help python matrix soak

help:            ## Show this list.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 18

run: $(VENV)/.runtime      ## Set up, then run the whole demo system on its embedded default.
	@$(BIN)/gtm serve --demo $(ARGS)

test: $(VENV)/.dev         ## Set up, then run the tests: whole systems, and a few examples of what is random.
	$(BIN)/python -m pytest -m "not drill" $(ARGS)

test-all: $(VENV)/.dev     ## Run every test, drills too, with all examples of what is random.
	TEST_EXAMPLES=all $(BIN)/python -m pytest $(ARGS)

soak: $(VENV)/.dev         ## Try a hundred times as many examples of what is random, and 10,000 worlds of the liar drill, for hours (ARGS: these tests only).
	TEST_EXAMPLES=soak $(BIN)/python -m pytest -q --timeout=0 -m "hypothesis or endurance" $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m tests.drills.liars 10000 --in-all)

wheel-test: $(VENV)/.dev   ## Build the distribution, install it alone into an empty environment, and run the demo there.
	$(BIN)/python -m tests.release.wheel

matrix: $(VENV)/.dev       ## Install both locks with other versions of pip and Python, and run the tests on each Python (ARGS="--python 3.12 --pip 23.0.1").
	$(BIN)/python -m tests.release.matrix $(or $(ARGS),--suite)

dist: $(VENV)/.dev         ## Build the sdist and the wheel into dist/ (docs/releasing.md).
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel -d dist

tools:           ## Install the Debian programs that some tests ask and start (root; without them those tests are skipped).
	@$(PYTHON) tests/tools.py

tofu: $(VENV)/.dev          ## Build OpenTofu, with which drills then run beside Terraform (needs Go and five minutes of a processor).
	$(BIN)/python -m tests.terraform.tofu

chart: $(VENV)/.dev         ## Hold the Helm chart with helm lint and kubeconform, which it builds (needs Go).
	$(BIN)/python -m tests.containers.chart

apiserver: $(VENV)/.dev     ## Build etcd and kube-apiserver, in which drills then create the Helm chart's objects (needs Go and eight minutes of a processor).
	$(BIN)/python -m tests.containers.apiserver

drills: $(VENV)/.dev       ## Run the tests that are too long for make test, every known attack on the two promises among them, and some examples of what is random.
	TEST_EXAMPLES=some $(BIN)/python -m pytest -q -m "drill or hypothesis or endurance" $(ARGS)

attacks: $(VENV)/.dev      ## Replay every known attack on the two promises, and print a table of what was seen (ARGS="A1 B3": these only).
	$(BIN)/python -m tests.drills.attack $(ARGS)

coverage: $(VENV)/.dev     ## Branch coverage of the core by its own tests; below 95% is a failure.
	$(BIN)/python -m pytest -q tests/core tests/feed tests/handoff/test_keys.py tests/handoff/test_own_keys.py --deselect tests/core/balance/test_liars.py::test_without_a_bound_others_notice --cov=gtm.core --cov-branch --cov-report=term-missing --cov-fail-under=95

lint: $(VENV)/.dev         ## Style, types, layers, migrations.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/check_migrations.py
	$(BIN)/python tests/check_lock.py
	$(BIN)/python tests/check_words.py

format: $(VENV)/.dev       ## Rewrite the sources in the project's style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs:            ## Write docs/dns-compliance.md anew, from the tests' markers.
	@$(PYTHON) -m tests.docs.compliance

client: $(VENV)/.dev       ## Write the types and calls of gtm.client anew, from the OpenAPI documents.
	$(BIN)/python -m tests.release.client_code

provider: $(VENV)/.dev      ## Build the Terraform provider for every platform into dist/provider, laid out to be installed without a registry (needs Go; ARGS="linux_amd64": that one only).
	$(BIN)/python -m tests.release.provider $(ARGS)

provider-spec: $(VENV)/.dev ## Write anew what the Terraform provider knows of the API.
	$(BIN)/python -m tests.release.terraform_spec

provider-docs: $(VENV)/.dev ## Write the Terraform provider's documentation anew (needs Go and Terraform).
	$(BIN)/python -m tests.release.provider_docs

bench: $(VENV)/.dev        ## Print the benchmarks, with Debian's load generators and other servers (ARGS="--seconds 2").
	-@$(PYTHON) tests/bench/bench_tools.py
	$(BIN)/python tests/bench/route_bench.py $(ARGS)
	$(BIN)/python tests/bench/dns_bench.py $(ARGS)

bench-tools:     ## Install the Debian programs that the benchmarks start (root; without them they leave out what needs them).
	@$(PYTHON) tests/bench/bench_tools.py

pictures: $(VENV)/.dev     ## Take the pictures of pages anew that docs/dashboard.md shows (needs Chromium).
	PICTURES=docs/dashboard $(BIN)/python -m pytest -q -n0 tests/browser/test_pictures.py

vendor:          ## Fetch what the dashboard loads that others wrote, from npm, checked (needs npm).
	@$(PYTHON) -m tests.release.vendor

fuzz: $(VENV)/.dev         ## Look for DNS packets that are answered wrongly, for ten minutes (installs atheris).
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check 'atheris>=2.3,<4'
	@mkdir -p build/fuzz
	$(BIN)/python -m tests.fuzz.fuzz_answer -max_total_time=600 -max_len=1400 -artifact_prefix=build/fuzz- \
	  $(ARGS) build/fuzz tests/fuzz/corpus

lock: $(VENV)/.dev         ## Resolve the dependencies anew (needs uv: `pip install uv`).
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --upgrade --custom-compile-command "make lock" --group build pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	  --upgrade --custom-compile-command "make lock" --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

clean:           ## Remove the virtual environment and every cache (data directories stay).
	rm -rf $(VENV) $(VENV)-install.log .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp per lock file: the second run finds it and starts at once.
$(VENV)/.runtime: requirements.lock pyproject.toml deploy/install.py | python
	@$(PYTHON) deploy/install.py $(VENV) requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml deploy/install.py | python
	@$(PYTHON) deploy/install.py $(VENV) requirements-dev.lock
	@touch $@ $(VENV)/.runtime

# Is it new enough, and, where it was named, the one that $(VENV) was made with?
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gtm needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
ifneq ($(origin PYTHON),file)
	@asked=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  if [ -e $(VENV)/bin/python ] && ! [ -e $(VENV)/lib/python$$asked ]; then \
	  echo "$(VENV) was made with another Python than $(PYTHON) ($$asked). Add VENV=$(VENV)-$$asked for a second one, or run make clean first." >&2; exit 1; fi
endif
