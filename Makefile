# Hayate's targets; `make help` lists them. Everything here works on a fresh clone, and may be run again at any time.

include host/versions.mk
# Which hosts are built, such as PHP="8.2 8.4": by default all whose headers are installed. Looked up when it is used, so
# after what `make setup` installs.
PHP ?= $(or $(INSTALLED_PHP),$(error no headers of PHP are installed: run make setup, or scripts/setup --php VERSION))
# The one that the tests run with.
HAYATE_PHP = $(lastword $(PHP))
LISTEN ?= 127.0.0.1:8080
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=

CARGO ?= scripts/cargo
# Debian's own Python: the one that sees the packages scripts/setup installs.
PYTHON ?= /usr/bin/python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
HAYATE := $(RELEASE)/hayate
CHECKED := $(TARGET)/checked
LAB := $(RELEASE)/hayate-lab

# What cargo made, with the hosts and boot files that belong beside it, in $(1).
define assemble
set -e; for php in $(PHP); do \
	$(MAKE) -C host PHP=$$php; \
	install -m 755 host/build/hayate-php$$php $(1)/hayate-php$$php; \
done
install -d $(1)/boot && install -m 644 php/boot/*.php $(1)/boot
endef

# Where source and crates lie on this machine is no part of a program: the same source makes the same bytes anywhere.
build: export RUSTFLAGS := --remap-path-prefix=$(CURDIR)=/usr/src/hayate --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/usr/src/cargo $(RUSTFLAGS)
build: ## Build hayate and a PHP host for each PHP that is here, all into target/release (the default; PHP=8.4: for that one)
	$(CARGO) build --release --locked
	$(call assemble,$(RELEASE))

# The server, the lab and the unit tests: built once, whatever the servers are tested on.
build-checked:
	$(CARGO) build --profile checked --workspace --all-targets --locked

checked: build-checked ## Build what the tests run, and the unit tests, into target/checked: the release's code with assertions, in half the time
	$(MAKE) checked-hosts

checked-hosts:
	$(call assemble,$(CHECKED))

run: setup build ## Install what is missing, build, and serve the demo on http://127.0.0.1:8080 in worker mode, rewound (MODE=classic: as php-fpm would)
	$(HAYATE) serve demo --listen $(LISTEN) --dev $(if $(filter classic,$(MODE)),,--worker public/worker.php)

setup: ## Install what building needs and is missing (apt, sudo)
	@scripts/setup

setup-test:
	@scripts/setup --test

ifndef SUITE
test: reachable ## Everything CI runs: lints, unit tests, the servers from outside, a part of that on Debian 13 (SUITE=trixie: all there, TESTS="tests/parity …": some)
	@[ -n '$(ALSO)$(filter-out tests,$(TESTS))' ] || { echo 'Debian 13 is left out, its root wants root'; [ "$$HAYATE_REQUIRE_ALL" != 1 ]; }
	@scripts/setup --lints
	@$(if $(ALSO),scripts/debian-root tools)
	$(MAKE) --jobs build-checked setup-test $(ALSO:%=root-%)
	$(MAKE) --jobs checked-hosts
	$(MAKE) --jobs --output-sync=line MADE=yes IN_TURN=yes lint-beside test-alone
else
# The server is built here and the host there: PHP is that of the suite, and a C library is newer than this one. So are programs for tests.
test: reachable setup-test
	$(if $(filter $(CHECKED),$(SERVER)),$(MAKE) build-checked)
	scripts/debian-root $(SUITE) $(MAKE) suite-test SUITE_BIN=$(SUITE_BIN) TESTS='$(TESTS)' SERVER=$(SERVER) \
		$(if $(filter command line,$(origin PHP)),PHP=$(PHP))
endif

# Lints take what tests leave of the processors. Before the crates' tests they would keep cargo from these.
lint-beside: $(if $(IN_TURN),test-rust)
	scripts/idle $(MAKE) lint check-docs

# MADE: nothing is put in the place of programs that other tests run at this time.
test-rust: $(if $(MADE),,checked)
	HAYATE_PHP=$(HAYATE_PHP) $(CARGO) test --profile checked --workspace --locked

test-host:
	$(MAKE) -C host PHP=$(HAYATE_PHP) test

# What the tests need besides is installed, and a root made, while the server is built: apt and dpkg keep one processor busy. The hosts are built
# when PHP is what it will be; lints come first, since beside a build they might bring another compiler. The root is kept where scripts/debian-root keeps it.
root-%:
	scripts/debian-root $* true

# Before what asks where it comes from: prerequisites are looked up as they are read.
TESTS ?= tests
# Beside all tests here a part of them on another Debian: what depends on PHP, the C library and the frameworks, which are newer there.
# Nothing when somebody has said which tests, or is not root.
ALSO ?= $(if $(and $(filter file,$(origin TESTS)),$(filter 0,$(shell id -u))),trixie)
ALSO_TESTS = tests/parity/test_parity.py $(addprefix tests/apps/test_,symfony.py laravel.py wordpress.py) tests/rewind/test_alone.py tests/rewind/test_engines.py
ALSO_JOBS ?= 3
# What was said to this make, such as PHP=8.2, is not for that one: make hands it on in MAKEFLAGS, and in the environment as well.
test-%:
	@echo 'on $*, printed when it ends: $(ALSO_TESTS)'
	@env -u MAKEFLAGS -u PHP scripts/debian-root $* $(MAKE) suite-test SUITE=$* SERVER=$(CHECKED) SUITE_BIN=$(TARGET)/$* TESTS='$(ALSO_TESTS)' TEST_JOBS=$(ALSO_JOBS) PART=yes \
		>$(TARGET)/$*.log 2>&1 && grep -q ' passed' $(TARGET)/$*.log && sed -n 's/.* passed.*/on $*: &/p' $(TARGET)/$*.log || { cat $(TARGET)/$*.log; exit 1; }

test-here:
	$(call pytest,$(abspath $(CHECKED))/hayate)

# IN_TURN: after everything else but lints.
test-alone: $(if $(IN_TURN),test-rust test-host test-here $(ALSO:%=test-%))
	$(call pytest-alone,$(abspath $(CHECKED))/hayate)

# Most tests wait for servers more than they compute: several files at a time. Those that measure time have the machine to themselves.
TEST_JOBS ?= 6
# Each process collects all tests, in a quarter of the time if they are compiled: so one does that first, or each would by itself.
# Whatever is wrong with them the others tell.
run-pytest = PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(TARGET))/pyc HAYATE_PHP=$(HAYATE_PHP) HAYATE_BIN=$(1) $(PYTHON) -m pytest $(TESTS) -q
define pytest
@$(run-pytest) --collect-only >/dev/null 2>&1 || true
$(run-pytest) -n $(TEST_JOBS) --dist loadfile -m 'not alone' || [ $$? = 5 ] # 5: there are none among these
endef
define pytest-alone
$(run-pytest) -m alone || [ $$? = 5 ]
endef
# What is tested on another Debian, and where it lies with the host that was built there. SERVER=DIRECTORY: what was built before.
SERVER ?= $(CHECKED)
SUITE_BIN ?= $(TARGET)/$(SUITE)

# Within the root.
define stage-suite
install -d $(SUITE_BIN)/boot
install $(SERVER)/hayate $(SERVER)/hayate-lab $(SUITE_BIN)
install -m 644 php/boot/*.php $(SUITE_BIN)/boot
$(MAKE) -C host PHP=$(HAYATE_PHP) BUILD=$(abspath $(SUITE_BIN))/host all
install $(SUITE_BIN)/host/hayate-php$(HAYATE_PHP) $(SUITE_BIN)
endef
# PART: what knows nothing of PHP, and what measures time, is left to a whole run.
suite-test:
	$(stage-suite)
	$(if $(PART),,$(MAKE) -C host PHP=$(HAYATE_PHP) BUILD=$(abspath $(SUITE_BIN))/host test)
	$(call pytest,$(abspath $(SUITE_BIN))/hayate)
	$(if $(PART),,$(call pytest-alone,$(abspath $(SUITE_BIN))/hayate))

# The tests of root run servers as www-data; /root is closed to it.
reachable:
	@[ "$$(id -u)" != 0 ] || setpriv --reuid=www-data --regid=www-data --clear-groups test -r $(CURDIR)/Makefile || \
		{ echo 'www-data, as whom tests run servers when they are run by root, cannot read $(CURDIR): clone it elsewhere, below /srv for instance' >&2; exit 1; }

# What fuzz/ feeds wants a nightly compiler to run, and is looked at here as any other code. --examples: the crates of others are then those of
# the step before, with the features that tests want.
FUZZED = ring http front load
lint: ## Formatting and lints, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile checked --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --profile checked --workspace --lib --examples --locked $(FUZZED:%=--features hayate-%/fuzzed) -- -D warnings
	clang-format --dry-run -Werror $(wildcard host/*.[ch] host/rewind/*.[ch] host/tests/*.[ch])
	find demo php lab host -name '*.php' -print0 | xargs -0 -n 1 php$(firstword $(PHP)) -l >/dev/null

# docs/configuration.md is made from the source: a change of a key must reach it.
check-docs: $(if $(MADE),,checked)
	$(CHECKED)/hayate generate configuration | diff -u docs/configuration.md - || \
		{ echo 'docs/configuration.md is out of date: run make docs and commit it' >&2; exit 1; }

FUZZ_SECONDS ?= 60
fuzz: ## Feed every parser with broken input, and the ring with a worker gone mad (FUZZ_SECONDS=60 for each; FUZZ_SEED repeats a run)
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p hayate-ring -p hayate-http -p hayate-certificates -p hayate-front -p hayate-pool -p hayate-load -p hayate fuzz \
		-- --nocapture --test-threads=1
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p hayate-load --test fuzz -- --nocapture
	HAYATE_FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --release --locked -p hayate-ring --test hostile -- --nocapture
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(MAKE) -C host/tests fuzz

# Wants cargo-fuzz and a nightly compiler; what it finds is in fuzz/artifacts, what it has learnt in fuzz/corpus.
fuzz-coverage: ## Follow the coverage of the parsers of HTTP, PROXY, rules, files that scripts send, workers' answers and the load generator, FUZZ_SECONDS for each
	for target in $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs))); do \
		cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 || exit 1; done

deny: ## Licences, sources and known faults of the crates (cargo-deny; the known faults only where RustSec's data base can be fetched)
	$(CARGO) deny --locked check licenses bans sources
	$(CARGO) deny --locked check advisories || echo 'deny: advisories were not all clear, or could not be fetched; see above' >&2

# Where cargo is; the lists of the hosts are made where the packages are (debian/rules), of what they were compiled with there.
sbom: ## What went into hayate and hayate-lab: their crates, and the C within them, with licences and checksums, as CycloneDX in target/sbom
	for program in hayate hayate-lab; do scripts/sbom crates $$program $(TARGET)/sbom/$$program.cdx.json || exit 1; done

# SOURCE: php8.2, or the path of an archive of php-src; OPTIONS: what else tests/conformance/run.py takes.
ifndef SUITE
conformance: setup-test build ## PHP's own tests, through php-cgi, php-fpm and Hayate in each mode (about an hour; SUITE=trixie: there; SOURCE=path of an archive)
	$(call run-conformance,$(HAYATE))
else
conformance: build
	scripts/debian-root $(SUITE) $(MAKE) suite-conformance SUITE=$(SUITE) SERVER=$(RELEASE) SUITE_BIN=$(SUITE_BIN) SOURCE='$(SOURCE)' OPTIONS='$(OPTIONS)'
endif
run-conformance = HAYATE_PHP=$(HAYATE_PHP) HAYATE_BIN=$(abspath $(1)) $(PYTHON) tests/conformance/run.py $(SOURCE:%=--source %) $(OPTIONS)

# Within the root.
suite-conformance:
	$(stage-suite)
	$(call run-conformance,$(SUITE_BIN)/hayate)

soak: setup-test build ## Everything at once against a running server for MINUTES=10, then the books (FRONTS=1: fronts are killed as well)
	HAYATE_PHP=$(HAYATE_PHP) HAYATE_BIN=$(abspath $(HAYATE)) $(PYTHON) tests/soak/soak.py --minutes $(or $(MINUTES),10) $(if $(FRONTS),--fronts)

torture: setup-test build ## Random PHP programs rewound as under php-fpm, for SECONDS=600 (SEED=N repeats a run)
	HAYATE_PHP=$(HAYATE_PHP) HAYATE_BIN=$(abspath $(HAYATE)) HAYATE_TORTURE_SECONDS=$(or $(SECONDS),600) HAYATE_TORTURE_SEED=$(or $(SEED),0) \
		$(PYTHON) -m pytest tests/torture -q -s

# Wants qemu-system-x86 and busybox-static, and for TESTS root and what is built.
soft-dirty: ## Rewinding on another kernel, emulated, for soft-dirty bits: KERNEL=linux-image-….deb of Debian 12 (TESTS="rewind/test_hot_pages.py …": tests on it)
	HAYATE_PHP=$(HAYATE_PHP) HAYATE_BIN=$(abspath $(HAYATE)) tests/rewind/kernel $(KERNEL) $(if $(filter command line,$(origin TESTS)),$(TESTS) -q)

bench: setup-test build ## Measure against nginx and php-fpm (about 10 minutes; wants a quiet machine; QUICK=1: a minute)
	HAYATE_BIN=$(abspath $(HAYATE)) $(LAB) reproduce bench --html $(TARGET)/bench.html --json $(TARGET)/bench.json \
		--markdown $(TARGET)/bench.md $(if $(filter-out 0,$(QUICK)),--quick)

# What stands between the two marks is the file.
figures: bench ## Measure as bench does, and put what comes out into README.md
	sed -i -e '/^<!-- figures: begin/,/^<!-- figures: end/{//!d}' -e '/^<!-- figures: begin/r $(TARGET)/bench.md' README.md

docs: build ## Make docs/configuration.md, and man pages and completions in target/docs
	mkdir -p $(TARGET)/docs
	$(HAYATE) generate configuration >docs/configuration.md
	$(HAYATE) generate man >$(TARGET)/docs/hayate.1
	$(HAYATE) generate man-configuration >$(TARGET)/docs/hayate.toml.5
	$(HAYATE) generate completions bash >$(TARGET)/docs/hayate.bash
	$(HAYATE) generate completions zsh >$(TARGET)/docs/_hayate
	$(HAYATE) generate completions fish >$(TARGET)/docs/hayate.fish
	$(LAB) generate man $(TARGET)/docs
	$(LAB) generate completions bash >$(TARGET)/docs/hayate-lab.bash
	$(LAB) generate completions zsh >$(TARGET)/docs/_hayate-lab
	$(LAB) generate completions fish >$(TARGET)/docs/hayate-lab.fish

# Installs what was built and builds nothing, so that root needs no compiler.
# What the guides tell to copy, or show.
EXAMPLES = $(wildcard deploy/kubernetes/*.yaml deploy/kubernetes/*.toml packaging/container/*) demo/public/worker.php \
	tests/apps/laravel/app/Worker.php tests/apps/laravel/public/worker.php tests/apps/symfony/public/worker.php
install: ## Install below PREFIX=/usr/local what make build has built; DESTDIR for packagers
	@test -x $(HAYATE) -a -x $(LAB) && ls $(RELEASE)/hayate-php* >/dev/null 2>&1 || { echo 'nothing is built yet: run make build first' >&2; exit 1; }
	install -D -m 755 $(HAYATE) $(DESTDIR)$(PREFIX)/bin/hayate
	install -D -m 755 $(LAB) $(DESTDIR)$(PREFIX)/bin/hayate-lab
	install -d $(DESTDIR)$(PREFIX)/lib/hayate && install -m 755 $(RELEASE)/hayate-php* $(DESTDIR)$(PREFIX)/lib/hayate
	install -d $(DESTDIR)$(PREFIX)/share/hayate/boot
	install -m 644 $(RELEASE)/boot/*.php $(DESTDIR)$(PREFIX)/share/hayate/boot
	install -D -m 644 php/stubs/hayate.php $(DESTDIR)$(PREFIX)/share/hayate/stubs/hayate.php
	cd lab && find . -type f -exec install -D -m 644 {} $(abspath $(DESTDIR)$(PREFIX))/share/hayate/lab/{} \;
	install -d $(DESTDIR)$(PREFIX)/share/doc/hayate/docs && install -m 644 README.md LICENSE $(DESTDIR)$(PREFIX)/share/doc/hayate
	install -m 644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc/hayate/docs
	set -e; for file in $(EXAMPLES); do install -D -m 644 $$file $(DESTDIR)$(PREFIX)/share/doc/hayate/examples/$$file; done
	# Links lead to where things lie now, or are none: tests stay with the source.
	sed -i 's|](\.\./lab/|](../../../hayate/lab/|g' $(DESTDIR)$(PREFIX)/share/doc/hayate/docs/*.md
	sed -i 's|\[\([^]]*\)\](tests/[^)]*)|\1|g' $(DESTDIR)$(PREFIX)/share/doc/hayate/README.md
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,lib/systemd/system share/man/man1 share/man/man5 \
		share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d)
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|; s|/etc/hayate/|$(SYSCONFDIR)/hayate/|' packaging/hayate.service \
		>$(DESTDIR)$(PREFIX)/lib/systemd/system/hayate.service
	$(HAYATE) generate man >$(DESTDIR)$(PREFIX)/share/man/man1/hayate.1
	$(HAYATE) generate man-configuration >$(DESTDIR)$(PREFIX)/share/man/man5/hayate.toml.5
	$(HAYATE) generate completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hayate
	$(HAYATE) generate completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hayate
	$(HAYATE) generate completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hayate.fish
	$(LAB) generate man $(DESTDIR)$(PREFIX)/share/man/man1
	$(LAB) generate completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hayate-lab
	$(LAB) generate completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hayate-lab
	$(LAB) generate completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hayate-lab.fish
	install -D -m 644 packaging/hayate.logrotate $(DESTDIR)$(SYSCONFDIR)/logrotate.d/hayate
	install -D -m 644 packaging/hayate.sysusers $(DESTDIR)$(SYSCONFDIR)/sysusers.d/hayate.conf
	install -D -m 644 packaging/hayate.tmpfiles $(DESTDIR)$(SYSCONFDIR)/tmpfiles.d/hayate.conf
	test -e $(DESTDIR)$(SYSCONFDIR)/hayate/hayate.toml || \
		install -D -m 640 packaging/hayate.toml $(DESTDIR)$(SYSCONFDIR)/hayate/hayate.toml

# Packages are of the Debian that they are made on: the host wants that one's PHP and C library. hayate and hayate-lab install on later ones as well.
# Those of another Debian are made in a root of it, of the server that was built here and a host that is built there.
ifndef SUITE
deb: setup-packages build sbom ## Debian packages of what was built, in target/deb (SUITE=trixie: for Debian 13 with PHP 8.4, in target/deb-trixie; needs root)
	$(MAKE) packages BUILT=$(RELEASE)
else
deb: setup build sbom
	scripts/debian-root $(SUITE) $(MAKE) suite-packages SUITE=$(SUITE) SERVER=$(RELEASE) SUITE_BIN=$(DEBS)/built DEBS=$(DEBS) \
		PACKAGE_VERSION=$(PACKAGE_VERSION) $(if $(filter command line,$(origin PHP)),PHP=$(PHP))
endif
# Each commit's is another one, so that apt takes a later build for an upgrade.
PACKAGE_VERSION ?= $(shell scripts/package-version)
DEBS ?= $(TARGET)/deb$(SUITE:%=-%)

setup-packages:
	@scripts/setup --packages $(if $(SUITE),--no-rust --php $(HAYATE_PHP))

# Within the root.
suite-packages: setup-packages
	$(stage-suite)
	$(MAKE) packages BUILT=$(SUITE_BIN)

# BUILT=target/debug: of another build.
packages:
	@ls $(TARGET)/sbom/hayate.cdx.json $(TARGET)/sbom/hayate-lab.cdx.json >/dev/null || { echo 'what went into the programs is not listed yet: run make sbom first' >&2; exit 1; }
	mkdir -p $(DEBS) && rm -f $(DEBS)/*.deb
	BUILT=$(BUILT) SBOM=$(abspath $(TARGET))/sbom DEBS=$(abspath $(DEBS)) PACKAGE_VERSION=$(PACKAGE_VERSION) debian/rules clean binary
	debian/rules clean
	scripts/sbom check $(DEBS)

# By the lintian of the Debian that they are for, each knowing what is right there. As root it says that this is not wanted, and goes on.
ifndef SUITE
lintian: ## What lintian says of the packages that make deb made (SUITE=trixie: of those)
	@scripts/setup --lintian --no-rust
	lintian --fail-on error,warning --tag-display-limit 0 $(filter-out $(wildcard $(DEBS)/*-dbgsym_*),$(wildcard $(DEBS)/*.deb))
else
lintian:
	scripts/debian-root $(SUITE) $(MAKE) lintian SUITE= DEBS=$(DEBS)
endif

IMAGES ?= production development
image: build ## Container images with PHP 8.4 on Debian 13, in target/image (needs root; IMAGES=production: that one)
	scripts/image $(RELEASE) $(IMAGES)

clean: ## Remove what was built
	rm -rf $(TARGET) host/build

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

.PHONY: build build-checked checked checked-hosts run setup setup-test reachable test lint-beside test-rust test-host test-alone suite-test lint check-docs fuzz fuzz-coverage deny sbom conformance soak torture soft-dirty bench figures docs install deb setup-packages suite-packages packages suite-conformance lintian image \
	clean help
