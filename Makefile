# Everything a newcomer runs. `make demo` first; `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A venv is tied to its path: in a folder that was moved or renamed it is made anew.
PLACE := $(shell printf %s "$(CURDIR)" | cksum | cut -d' ' -f1)
MADE := $(VENV)/.made-$(PLACE)
STAMP := $(VENV)/.installed-$(PLACE)
PACKAGES := $(VENV)/.packages-dev-$(PLACE)
DEV_STAMP := $(VENV)/.installed-dev-$(PLACE)
RUST := native/Cargo.toml native/Cargo.lock $(wildcard native/src/*.rs)
KERNEL := native/target/release/lib_native.so
OUT ?= out
# Five test processes, each with servers of its own, for many tests wait for these; a file's tests stay together, and the
# files with the longest waits come first. On two cores four leave a tenth of the time unused, and six save no more.
TESTS ?= --numprocesses 5 --dist loadfile --no-loadscope-reorder
# For every Python from 3.11.0 on, not only the one at hand: what is needed differs between them.
LOCKING := --quiet --universal --python-version 3.11.0 --generate-hashes --group build --custom-compile-command "make lock"

# Processes that are started by the hundred are not to compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo stream-demo unit test check kernel-test servers bench site wheel wheel-test lowest-test lock clean needs-python

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(STAMP) ## judge the bundled sample, and check the verdicts; nothing to start
	@mkdir -p $(OUT)
	$(BIN)/python -m worker file samples/pages.jsonl.zst --out $(OUT)/verdicts.jsonl --force
	$(BIN)/python -m worker verify $(OUT)/verdicts.jsonl --dead-letters $(OUT)/verdicts.jsonl.rejected.jsonl --input samples/pages.jsonl.zst

stream-demo: $(DEV_STAMP) servers ## the sample through a real Kafka and Redis, two worker processes
	deploy/local/servers with $(BIN)/python -m deploy.local.stream_demo samples/pages.jsonl.zst

unit: $(DEV_STAMP) ## the quick tests, which need no servers: half a minute
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow" tests/unit

test: ## all checks and tests, on a real Kafka and a real Redis
	@$(MAKE) --no-print-directory --jobs=2 $(DEV_STAMP) servers check
	$(BIN)/python -m pytest $(TESTS)

check: $(PACKAGES) ## lint and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

kernel-test: | $(MADE) ## the kernel's own tests, after a change in native/; they need cargo, and Python's library to link to
	PYO3_PYTHON='$(CURDIR)/$(BIN)/python' cargo test --quiet --manifest-path native/Cargo.toml

servers: ## install what Kafka and Redis need as local processes
	deploy/local/servers install

bench: $(DEV_STAMP) servers ## speed and memory beside peers and limits, in one run; BENCH='--only index' for a part
	$(BIN)/python -m benchmarks $(BENCH)

site: $(DEV_STAMP) ## the documents as a site: out/site/index.html
	$(BIN)/python -m deploy.docs.pictures
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --config-file deploy/docs/mkdocs.yml

wheel: $(DEV_STAMP) ## the source distribution, and the wheel made from it, into dist/
	rm -rf dist
	$(BIN)/python -m uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist

# An environment of the built wheel; what the tests need besides, and the tests, come behind it on the path.
WHEEL := $(OUT)/wheel
wheel-test lowest-test: wheel servers
	$(BIN)/python -m venv --clear --without-pip $(WHEEL)
	$(BIN)/python -m uv pip install --quiet --python $(WHEEL)/bin/python --no-deps dist/*.whl
	$(if $(filter lowest-test,$@),$(BIN)/python -m uv pip install --quiet --python $(WHEEL)/bin/python --resolution lowest-direct $(LEAST))
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'), '$(CURDIR)', sep='\n')" > $$(echo $(WHEEL)/lib/python3*/site-packages)/tests.pth
	PYTHONSAFEPATH=1 $(WHEEL)/bin/python -c "import simhash._native; print(simhash._native.__file__)" | grep $(WHEEL)
	PYTHONSAFEPATH=1 $(WHEEL)/bin/python -m pytest $(TESTS) --import-mode append

wheel-test: ## all tests, on the built wheel
lowest-test: ## the same, beside the least versions of other packages that pyproject.toml allows
LEAST := --requirement pyproject.toml --extra worker --extra fast --extra plots --extra lcs --extra selectolax \
	--extra trafilatura --extra remote --extra parquet

lock: $(DEV_STAMP) ## renew the locked dependencies from pyproject.toml
	$(BIN)/python -m uv pip compile $(LOCKING) --extra worker --output-file requirements.lock pyproject.toml
	$(BIN)/python -m uv pip compile $(LOCKING) --all-extras --output-file requirements-dev.lock pyproject.toml
	$(BIN)/python -m uv pip compile $(LOCKING) --extra spark --constraint requirements-dev.lock --output-file requirements-spark.lock pyproject.toml
	cargo update --manifest-path native/Cargo.toml --workspace

clean: ## remove what these targets made
	rm -rf $(VENV) $(OUT) .cache build *.egg-info simhash/_native*.so native/target

# A missing python3-venv shows only when it is used; name it before pip's traceback does.
needs-python:
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: apt-get install python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, this is $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "venv is missing: apt-get install python3-venv"; exit 1; }

$(MADE): | needs-python
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(STAMP): requirements.lock pyproject.toml setup.py Makefile | $(MADE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(PACKAGES): $(STAMP) requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	@touch $@

# As setuptools-rust will ask for it, which then finds it built: pip has enough to do meanwhile.
$(KERNEL): $(RUST) | $(MADE)
	-if command -v cargo >/dev/null; then PYO3_PYTHON='$(CURDIR)/$(BIN)/python' PYO3_BUILD_EXTENSION_MODULE=1 cargo rustc --quiet \
		--lib --manifest-path native/Cargo.toml --release --features pyo3/extension-module --crate-type cdylib; fi

# Installed a second time, with setuptools-rust at hand: where cargo is, the native kernel comes with it.
$(DEV_STAMP): $(PACKAGES) $(RUST) | $(KERNEL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
