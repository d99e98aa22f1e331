# SPDX-License-Identifier: Apache-2.0
# Needs python3 (3.11 or later), g++, make, perl and git; everything else is installed in .venv.

BIN := .venv/bin
READY := .venv/ready
# Nothing is installed whose checksum is not in a lock file, and nothing is built for it.
INSTALL := $(BIN)/pip install -qq --disable-pip-version-check --require-hashes --only-binary :all:
# One process a core; idle ones take tests over from busy ones.
PYTEST := $(BIN)/pytest --numprocesses auto --dist worksteal
# What the last run said: of the quick tests, of all.
QUICK_RESULTS := build/quick-tests.xml
RESULTS := build/tests.xml
SHOWN := $(if $(DURATIONS),--durations 25)

# The tests run the simulators' own makefiles, which must not see this one's settings.
unexport MAKEFLAGS MAKEOVERRIDES
# The tests start hundreds of processes, which would compile all modules again each.
unexport PYTHONDONTWRITEBYTECODE

# A value that nobody knows stops make with one line. The presets are asked of the project itself.
ifeq ($(filter verilator icarus,$(or $(SIM),verilator)),)
$(error unknown SIM '$(SIM)' (known: verilator, icarus))
endif
ifeq ($(filter generic ecp5,$(or $(NETLIST),generic)),)
$(error unknown NETLIST '$(NETLIST)' (known: generic, ecp5))
endif
stop-with = $(if $1,$(error $1))
# What the command says of these options, which it looks at before all else.
check-options = $(call stop-with,$(shell $(BIN)/tpu $1 --help 2>&1 >/dev/null))
check-preset = $(if $(PRESET),$(call stop-with,$(shell \
	$(BIN)/tpu info --preset '$(PRESET)' 2>&1 >/dev/null)))

.PHONY: help setup lock demo demo-sentences demo-train test test-all test-budget testplan soak nightly sim xprop regress coverage mutate formal \
	formal-coverage arithmetic chain figures verilog bench bench-v1 bench-timeline bench-original bench-train whatif \
	bench-energy lint format docs site synth synth-check synth-baseline asic asic-energy bitstream deliver wheel api clean

help: ## This list
	@echo 'make demo runs a network on the simulated machine, make test the quick tests.'
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' Makefile | expand -t 18
	@echo 'PRESET is tiny, small, base, v1 or ROWSxCOLS. SIM is verilator or icarus.'

setup: $(READY) ## Make the environment, .venv, with the tpu command in it

$(READY): pyproject.toml requirements/environment.lock
	@echo 'Installing the environment in .venv: about a minute, once.'
	@python3 -m venv .venv
	@$(INSTALL) --requirement requirements/environment.lock
	@$(BIN)/pip install -qq --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch .venv/FUSESOC_IGNORE
	@touch $@

LOCK := uv pip compile --quiet pyproject.toml --universal --generate-hashes --no-annotate --no-header
LOCKED := $(addprefix requirements/,environment.lock site.lock synth.lock)

lock: ## Write the lock files again, with the versions they have where these fit: needs uv
	@$(LOCK) --extra test --extra lint --extra pages --extra serial --output-file requirements/environment.lock
	@$(LOCK) --extra synth --no-deps --constraint requirements/environment.lock \
		--output-file requirements/synth.lock
	@$(LOCK) --group site --fork-strategy fewest --constraint requirements/environment.lock \
		--output-file requirements/site.lock
	@sed -i '1i # SPDX-License-Identifier: Apache-2.0' $(LOCKED)
	@sed -i '2i # Exact versions, with checksums, of all that make installs. `make lock` writes it.' $(LOCKED)

demo: $(READY) ## Classify handwritten digits on the simulated machine
	@$(BIN)/tpu demo

# PyTorch's converter asks for older packages than the tests, so the script has an environment of its own. It says how to
# make it; `make` does not, as it installs only what has a checksum in a lock file.
demo-sentences: $(READY) ## Find the sentence nearest to yours by a transformer on the machine [SENTENCE=]
	@$(firstword $(wildcard build/sentences/bin/python) $(BIN)/python) examples/sentences.py \
		$(if $(SENTENCE),'$(SENTENCE)')

demo-train: $(READY) ## Train on the digits on the simulated machine, beside float32
	@$(BIN)/python -m systola.verif.training.curves --backend rtl --draw build/training.svg

test: $(READY) ## The quick tests, some of everything: minutes [UNIT=walker DURATIONS=1]
	@$(PYTEST) --quick --junitxml $(QUICK_RESULTS) $(SHOWN)

test-all: $(READY) ## All tests [REST=1: without those of make test, UNIT= DURATIONS=1]
	@$(PYTEST) $(if $(REST),--rest) --junitxml $(RESULTS) $(SHOWN)

test-budget: $(READY) ## Measure what the quick tests cost with nothing built, and store it
	@rm -rf build/budget
	@SYSTOLA_BUILD=build/budget $(PYTEST) --quick --junitxml $(QUICK_RESULTS) $(SHOWN)
	@$(BIN)/python -m systola.verif.plan.budget --write $(QUICK_RESULTS)
	@rm -rf build/budget

testplan: $(READY) ## Each promise, its tests, and what the last make test-all said of them
	@$(BIN)/python -m systola.verif.plan.testplan --results $(RESULTS)

soak: $(READY) ## Tests with fresh seeds, with a history [N=10 SEED= TESTS=verif/golden ALL=1 JOBS=]
	@$(BIN)/python -m systola.verif.soak $(if $(N),--seeds '$(N)') $(if $(SEED),--seed '$(SEED)') \
		$(if $(JOBS),--jobs '$(JOBS)') $(if $(ALL),--all) $(TESTS)

nightly: $(READY) ## Random programs of all kinds and tests, a fresh seed, with a history [N=200 SEED=]
	@$(BIN)/python -m systola.verif.nightly $(if $(N),--programs '$(N)') $(if $(SEED),--seed '$(SEED)')

# A netlist takes minutes to make and is slow to simulate: instructions and a network, in one
# process, since all wait for the netlist, and with all that they print as a sign of life. TEST may
# also name tests of units.
SIM_TESTS := $(if $(NETLIST),$(addprefix verif/system/test_,instructions.py map_instructions.py \
	same_cycles.py netlist.py) $(if $(TEST),verif/units),verif/units verif/boards \
	verif/integration verif/system)
SIM_PYTEST := $(if $(NETLIST),$(BIN)/pytest --capture no,$(PYTEST))

sim: $(READY) ## The cocotb regression [SIM= PRESET= SEED= TEST= WAVES=1 NETLIST=ecp5]
	$(check-preset)
	@$(SIM_PYTEST) $(SIM_TESTS)

formal: $(READY) ## Proofs of units, and the planted faults that they must find [PART=unit]
	@$(BIN)/python -m systola.verif.formal $(PART)

formal-coverage: $(READY) ## Branches that the proofs reach, registers they depend on [PART=unit JOBS=]
	@$(BIN)/python -m systola.verif.formal.reached $(if $(JOBS),--jobs '$(JOBS)') $(PART)

xprop: $(READY) ## Unknown values that get out of units after a reset [PART=unit]
	@$(BIN)/python -m systola.verif.xprop $(PART)

regress: $(READY) ## Random programs in parallel [N=200 JOBS= KIND=garbage PRESET= SEED= WAVES=1]
	@$(BIN)/python -m systola.verif.regress $(if $(N),--programs '$(N)') \
		$(if $(JOBS),--jobs '$(JOBS)') $(if $(KIND),--kind '$(KIND)') \
		$(if $(PRESET),--preset '$(PRESET)') $(if $(SEED),--seed '$(SEED)') \
		$(if $(FIRST),--first '$(FIRST)') $(if $(SCHEDULER),--scheduler '$(SCHEDULER)') \
		$(if $(WAVES),--waves) $(if $(COVERAGE),--coverage '$(COVERAGE)')

arithmetic: $(READY) ## The requantiser against its formula [N=100000000 SEED=]
	@$(BIN)/python -m systola.verif.arithmetic.requantiser $(if $(N),--cases '$(N)') \
		$(if $(SEED),--seed '$(SEED)')

chain: $(READY) ## The same programs on every simulator [N=4 SEED= PRESET=3x2 NETLIST='ecp5 generic']
	$(check-preset)
	@$(BIN)/python -m systola.verif.chain $(if $(N),--programs '$(N)') \
		$(if $(PRESET),--preset '$(PRESET)') $(if $(SEED),--seed '$(SEED)') \
		$(if $(NETLIST),--netlist $(NETLIST))

coverage: $(READY) ## What random programs of every kind cover, with a page [N=200 JOBS= SEED= MERGE=]
	@$(BIN)/python -m systola.verif.coverage $(if $(N),--programs '$(N)') \
		$(if $(JOBS),--jobs '$(JOBS)') $(if $(SEED),--seed '$(SEED)') $(if $(MERGE),--merge $(MERGE))

mutate: $(READY) ## Faults planted in the machine: are they found? [N=1000 POD=1 JOBS= SEED= PROGRAMS=]
	@$(BIN)/python -m systola.verif.mutation $(if $(POD),--pod) $(if $(N),--mutants '$(N)') \
		$(if $(JOBS),--jobs '$(JOBS)') $(if $(SEED),--seed '$(SEED)') \
		$(if $(PROGRAMS),--programs '$(PROGRAMS)')

figures: $(READY) ## Run the campaigns of docs/trust.md and store what they show: hours [CAMPAIGN= SEED=]
	@$(BIN)/python -m systola.verif.figures.measure $(CAMPAIGN) $(if $(SEED),--seed '$(SEED)')
	@$(BIN)/python -m systola.verif.figures.page --write docs

verilog: $(READY) ## Write the Verilog to build/tpu_PRESET.v [PRESET=base FABRIC=generic]
	$(check-preset)
	@mkdir -p build
	@$(BIN)/tpu verilog --preset '$(or $(PRESET),base)' --fabric '$(or $(FABRIC),generic)' \
		--output 'build/tpu_$(or $(PRESET),base).v'

SYNTH := synth $(if $(TARGET),--target '$(TARGET)') $(if $(PRESET),--preset '$(PRESET)') \
	$(if $(UNIT),--unit '$(UNIT)') $(if $(SEEDS),--seeds '$(SEEDS)')

synth: $(READY) ## Resources and clock on an FPGA [TARGET= PRESET= UNIT= SEEDS=]
	$(call check-options,$(SYNTH))
	@$(MAKE) --no-print-directory .venv/synth
	@$(BIN)/tpu $(SYNTH)

synth-check: .venv/synth ## Fail where a design is larger or slower than accepted: hours [DESIGN=]
	@$(BIN)/python -m systola.synth.baseline --check $(if $(DESIGN),--only '$(DESIGN)')

synth-baseline: .venv/synth ## Measure the designs of the baseline and accept them: hours [DESIGN=]
	@$(BIN)/python -m systola.synth.baseline --write $(if $(DESIGN),--only '$(DESIGN)')
	@$(BIN)/python -m systola.synth.page --write docs

asic-energy: $(READY) ## Energy of a multiply-add in the array's cells, by switching [PRESET=tiny N=200]
	@$(BIN)/python -m systola.synth.switching $(if $(PRESET),--preset '$(PRESET)') \
		$(if $(N),--vectors '$(N)')
	@$(BIN)/python -m systola.bench.energy_page --write docs

asic: $(READY) ## Area by unit, registers, slack in standard cells [PRESET=small UNIT= LIB= NS=]
	@$(BIN)/python -m systola.synth.asic $(if $(PRESET),--preset '$(PRESET)') \
		$(if $(UNIT),--unit '$(UNIT)') $(if $(LIB),--lib '$(LIB)') $(if $(NS),--ns '$(NS)')
	@$(BIN)/python -m systola.synth.asic_page --write docs

BITSTREAM := bitstream --board '$(or $(BOARD),ulx3s)' $(if $(PRESET),--preset '$(PRESET)')

bitstream: $(READY) ## The machine on a board [BOARD=ulx3s PRESET=]
	$(call check-options,$(BITSTREAM))
	@$(MAKE) --no-print-directory .venv/synth
	@$(BIN)/tpu $(BITSTREAM)

.venv/synth: $(READY) requirements/synth.lock
	@echo 'Installing Yosys and nextpnr in .venv: about a minute, once.'
	@$(INSTALL) --no-deps --requirement requirements/synth.lock
	@touch $@

deliver: $(READY) ## The machine for another design, in build/deliver_PRESET [PRESET=base FABRIC=]
	$(check-preset)
	@$(BIN)/tpu deliver --preset '$(or $(PRESET),base)' --fabric '$(or $(FABRIC),generic)' \
		--output 'build/deliver_$(or $(PRESET),base)'

bench: $(READY) ## Measure the tables of cycles in README.md and docs/results.md
	@$(BIN)/python -m systola.bench

bench-v1: $(READY) ## Measure the machine at the original's size: minutes [FRESH=1]
	@$(BIN)/python -m systola.bench.v1 $(if $(FRESH),--fresh)

bench-timeline: $(READY) ## What recording a timeline costs, and its file: a minute
	@$(BIN)/python -m systola.bench.recording

bench-original: $(READY) ## The original's six applications at full size on the RTL [APP=mlp1 AGAIN=1]
	@$(BIN)/python -m systola.bench.original $(APP) $(if $(AGAIN),--again)

bench-train: $(READY) ## Steps of training on the RTL, one of them at the original's size: minutes
	@$(BIN)/python -m systola.bench.training

bench-energy: $(READY) ## Counts of what networks do, for docs/energy.md and docs/original.md
	@$(BIN)/python -m systola.bench.energy

whatif: $(READY) ## The same on other machines, by the timing model [JOBS= SCHEDULER=]
	@$(BIN)/python -m systola.bench.original.whatif $(if $(JOBS),--jobs '$(JOBS)') \
		$(if $(SCHEDULER),--scheduler '$(SCHEDULER)')

# Modules that write pages in docs/, or parts of them.
PAGES := $(addprefix systola.,arch.reference compiler.reference synth.page synth.asic_page bench.picture \
	verif.training.page verif.formal.page verif.plan.testplan verif.figures.page \
	bench.energy_page bench.original.page verif.signoff.page hdl.control.step_page \
	hdl.activation.reservation_page)
# The longest ones first, as each core takes the next.
CHECKS := check-types check-budget check-verilog check-style check-english $(addprefix check-,$(PAGES))
.PHONY: $(CHECKS)

lint: $(READY) ## Style, format, types, plain English, generated pages, Verilator lint
	@$(MAKE) --no-print-directory --jobs "$$(nproc)" --output-sync --keep-going $(CHECKS)

check-types:
	@$(BIN)/pyright

check-budget:
	@$(BIN)/python -m systola.verif.plan.budget --check

check-verilog:
	@$(BIN)/python -m systola.synth.lint

check-style:
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet

check-english:
	@$(BIN)/python -m systola.verif.plan.plain_english

$(addprefix check-,$(PAGES)): check-%:
	@$(BIN)/python -m $* --check docs

format: $(READY) ## Format the Python code
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

docs: $(READY) ## Write the generated pages in docs/ again
	@$(foreach page,$(PAGES),$(BIN)/python -m $(page) --write docs &&) true

api: $(READY) ## Pages of the Python interface in build/api, made from its docstrings
	@$(BIN)/pdoc --output-directory build/api \
		systola.runtime.api systola.runtime.image_builder systola.runtime.compiled_model \
		systola.runtime.run_result systola.runtime.report systola.runtime.backend \
		systola.runtime.predictor systola.runtime.pod.strategy systola.runtime.pod.model \
		systola.runtime.pod.result systola.runtime.quantiser.quantize \
		systola.litert systola.onnxruntime systola.onnx_backend \
		systola.runtime.rtl systola.runtime.iss systola.arch.config systola.arch.isa \
		systola.arch.assembler systola.arch.registers
	@echo build/api/index.html

.venv/site: $(READY) requirements/site.lock
	@$(INSTALL) --requirement requirements/site.lock
	@touch $@

site: .venv/site ## The pages as a site in build/site, with all links checked
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs/site . build/site
	@echo build/site/index.html

wheel: $(READY) ## Build the wheel and the source distribution in dist/, and the types of Amaranth
	@rm -rf build/lib build/bdist.* build/stubs && mkdir -p build
	@$(BIN)/pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir dist .
	@$(BIN)/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')" >build/sdist.log
	@cp -rL typings build/stubs
	@$(BIN)/pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir dist build/stubs

clean: ## Remove everything that was made, except .venv
	@rm -rf build dist systola.egg-info .pytest_cache .ruff_cache
	@find . -name .venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
