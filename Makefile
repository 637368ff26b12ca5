# The doors of the project; each sets up what it needs.
.PHONY: demo docs test test-all test-guest soak soak-live check bench generate wheel image setup clean

demo: ## the main job: reproduces IISWC 2015 from bundled models, ending with the path of a report
	@scripts/setup.sh run
	@.venv/bin/emmclab reproduce iiswc15

test: ## what guards correctness, in 13 minutes on two cores: Rust, Python, command line, browser
	@scripts/test.sh

test-all: ## every test: beside those of `make test` the long ones, builds of packages, and guest machines
	@scripts/test.sh all
	@scripts/test_guest.sh

test-guest: ## records guests with an SD card and a UFS over ssh, and drives the eMMC of an export, cuts the power of f2fs (QEMU, Debian's packages)
	@scripts/test_guest.sh

soak: ## random tests with new cases each time, seeds printed: make soak ROUNDS=20 TESTS="reference_model images"
	@scripts/setup.sh dev
	@scripts/soak.sh $(or $(ROUNDS),10) $(TESTS)

soak-live: ## files and xfstests on served devices, as root: make soak-live SECONDS=1200 XFSTESTS=/path
	@scripts/setup.sh run dev
	@XFSTESTS=$(XFSTESTS) scripts/soak_live.sh $(SECONDS)

docs: ## the documentation site, which opens from disk: build/docs/index.html
	@scripts/setup.sh run dev
	@.venv/bin/python scripts/generate_reference.py
	@.venv/bin/python -m sphinx -q -W --keep-going docs build/docs
	@echo build/docs/index.html

check: ## formatting, lints, types, imports
	@scripts/setup.sh dev
	@scripts/check.sh

bench: ## the speed table
	@scripts/setup.sh run dev
	@scripts/bench.sh

generate: ## write what follows from the core's structs, and the kept outputs of commands anew
	@scripts/setup.sh run dev
	@.venv/bin/python scripts/generate_types.py
	@.venv/bin/python scripts/command_outputs.py

wheel: ## build/wheels: a wheel for abi3 and a source archive, tried in a bare environment
	@scripts/setup.sh dev
	@scripts/wheel.sh $(WHEEL)

image: ## the container image `emmclab`, of that wheel
	@scripts/image.sh

setup: ## everything that the other doors need
	@scripts/setup.sh run dev

clean:
	rm -rf .venv build
	cargo clean
