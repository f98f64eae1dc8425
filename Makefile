# `make demo` shows the main job, `make try` lets you try it, `make test` proves it: they install what is missing (as root).
# `make check` is for those who change code.
APP ?= gromacs
CARGO ?= cargo

.PHONY: all packages build demo try demo-lend check test chaos programs engines accuracy bench bench-scale bench-simulator fuzz properties deb rpm portable matrix reproducible release-check install clean

all: build

packages:
	@sh packaging/test-packages.sh

build:
	$(CARGO) build --release --workspace

# A real program loses a node on a private eight-node Slurm: make demo [APP=gromacs|lammps|heat|lammps-mpi|gromacs-mpi]
demo:
	@CARGO="$(CARGO)" sh packaging/demo.sh show $(APP)

# A shell of an ordinary user on a private four-node Slurm: make try, or echo 'sbatch ...' | make try
try:
	@CARGO="$(CARGO)" sh packaging/demo.sh try

# Format, lints and unit tests, without a cluster: minutes after a change.
check:
	sh packaging/check.sh

# A coupled program loses a node; those that would wait are lent to another user's jobs
demo-lend: packages build
	./target/release/xtask demo-lend

# All tests: fast ones first, the cluster suite once, other Slurm series last.
test: packages
	sh packaging/test.sh

# Real clusters on which everything breaks at random: make chaos [RUNS=20] [SEED=1], a minute and a half a history.
RUNS ?= 20
SEED ?= 1
chaos: packages build
	./target/release/xtask chaos --runs $(RUNS) --seed $(SEED)

# Third-party programs with one option each, whose node dies: make programs (ten minutes; the table is docs/testing/programs.md).
programs: packages build
	sh packaging/programs.sh
	./target/release/xtask programs

# Programs under the real DMTCP, SCR and VELOC, built from ../shared/sources, whose node dies: make engines (twenty minutes).
engines: packages
	$(CARGO) build --workspace --lib --bins --tests
	ALL_ENGINES=1 $(CARGO) test --workspace --exclude driver --exclude planner --exclude policy --test dmtcp --test scr --test veloc -- --test-threads=1 --nocapture

# Ten jobs, planned before and measured after: make accuracy (a quarter of an hour).
accuracy: packages build
	./target/release/xtask accuracy

# Costs side by side, beside their targets.
bench: packages build
	./target/release/xtask bench
	$(CARGO) bench -p mlog --bench transport

# Ten minutes of fuzzing for everything that reads what others wrote: make fuzz [SECONDS_EACH=600]
fuzz:
	sh fuzz/run.sh

# All properties on cases that no run of the tests has seen: make properties [ROUNDS=100]; what fails is printed with its input.
ROUNDS ?= 100
properties:
	CARGO="$(CARGO)" sh packaging/properties.sh $(ROUNDS)

# Debian packages, in target/deb.
deb:
	sh packaging/deb.sh

# rpm packages, in target/rpm, from the same build: for hosts with the glibc of this one or a newer.
rpm: deb
	sh packaging/rpm.sh

# rpm packages for hosts with glibc 2.28 or newer, such as RHEL 8 and 9, in target/rpm.
portable: packages
	sh packaging/portable.sh
	BUILT=$(CURDIR)/target/portable/release sh packaging/rpm.sh

# The packages on each series of Slurm, installed, used, upgraded and purged: docs/testing/matrix.md.
matrix: packages
	sh packaging/matrix.sh

# Two builds in two folders give the same packages.
reproducible: packages
	sh packaging/reproducible.sh

# All that must hold before a release.
release-check: packages
	sh packaging/release-check.sh

# A site of thousands of nodes on this machine: NODES, BUSY nodes with JOBS each, a QUEUE, a STORM of power losses; needs root.
bench-scale: build
	./target/release/xtask scale $(if $(NODES),--nodes $(NODES)) $(if $(BUSY),--busy $(BUSY)) $(if $(JOBS),--jobs-per-node $(JOBS)) $(if $(QUEUE),--queue $(QUEUE)) $(if $(STORM),--storm $(STORM))

# The simulator beside the same replay in plain Python.
bench-simulator:
	$(CARGO) run --release -p xtask -- bench-simulator

# For sites without packages, the files of all packages: make install [DESTDIR=] [PREFIX=/usr]
PREFIX ?= /usr
BUILT ?= $(or $(CARGO_TARGET_DIR),target)/release
install: build
	sh packaging/install.sh $(BUILT) "$(DESTDIR)" $(PREFIX)

clean:
	$(CARGO) clean
