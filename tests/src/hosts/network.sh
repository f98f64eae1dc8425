# A network without a way out, and a place for the hosts' control groups.
mount -t tmpfs tmpfs /run
mkdir /run/cgroup
mount -t cgroup2 cgroup2 /run/cgroup
ip link set lo up
ip link add hosts type bridge
ip link set hosts up
