#!/bin/sh
# Installs Debian packages on a bare Debian 12 machine; needs root, does nothing twice.
#   packaging/test-packages.sh [SET...]    without words: all that building and testing Joulepoint needs
set -eu

# What the programs are compiled with, and what a private Slurm needs to run.
compile="gcc libc6-dev make pkg-config libmunge-dev"
slurm="
    slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin
    munge mariadb-server iproute2 util-linux procps passwd python3
"
# What the programs of the demo need.
gromacs="gromacs gromacs-data"
lammps="lammps lammps-examples openmpi-bin libpmix2"
heat="openmpi-bin libopenmpi-dev libpmix2"
# What a CRIU is made with (packaging/criu.sh).
criu="
    libprotobuf-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libnl-3-dev libcap-dev libnet1-dev uuid-dev
    patch xz-utils
"
# Beside Open MPI, which keeps the names mpirun and mpicc: those of this one end in .mpich.
mpich="mpich libmpich-dev"
# What SCR is built with, where its sources are at hand.
scr="autoconf automake cmake g++ libtool zlib1g-dev"
all="
    $compile $slurm $gromacs $lammps $heat $mpich $criu $scr
    ca-certificates git
    libclang-14-dev libslurm-dev gfortran-12
    chromium chromium-driver
    mmdebstrap sqlite3 nftables libfaketime
    build-essential debhelper lintian rpm
"

[ $# -gt 0 ] || set -- all
packages=""
for set in "$@"; do
    case $set in
        compile) packages="$packages $compile" ;;
        slurm) packages="$packages $slurm" ;;
        gromacs) packages="$packages $gromacs" ;;
        lammps) packages="$packages $lammps" ;;
        heat) packages="$packages $heat" ;;
        gromacs-mpi) packages="$packages $gromacs $criu openmpi-bin libpmix2" ;;
        lammps-mpi) packages="$packages $lammps $criu" ;;
        all) packages="$packages $all" ;;
        *) echo "test-packages: there is no set $set" >&2; exit 2 ;;
    esac
done

missing=""
for package in $packages; do
    status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "test-packages: root must install:$missing" >&2
    exit 1
fi
echo "test-packages: installing$missing"

# Without this, Debian starts the daemons of each package; the tests start their own. A file of the machine's is kept.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of words
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "test-packages: apt-get failed; all of its output is in $log" >&2
    exit 1
fi
rm -f "$log"
