#!/bin/sh
# Installs what building and testing Joulepoint needs on a bare Debian 12 machine; needs root, does nothing twice.
set -eu

packages="
    gcc libc6-dev make pkg-config ca-certificates git
    libclang-14-dev
    libmunge-dev libslurm-dev
    slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin
    munge mariadb-server
    openmpi-bin libopenmpi-dev libpmix2
    gromacs gromacs-data lammps lammps-examples
    chromium chromium-driver
    libprotobuf-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libnl-3-dev libcap-dev libnet1-dev uuid-dev
    patch xz-utils
    mmdebstrap sqlite3 util-linux procps passwd iproute2 nftables libfaketime
    build-essential debhelper lintian rpm python3
"

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
