# boot.sh BASE DIR NAME ADDRESS: boots the Debian in BASE as a host; what it writes goes into DIR.
set -e
# A dead host's cable may still hang there.
ip link delete "to-$3" 2> /dev/null || true
ip netns add "$3"
ip link add "to-$3" up master hosts type veth peer name eth0 netns "$3"
ip -n "$3" link set lo up
ip -n "$3" address add "$4/24" dev eth0
ip -n "$3" link set eth0 up
mkdir -p "$2/upper/etc" "$2/work" "$2/root" "/run/cgroup/$5-$3"
echo "$3" > "$2/upper/etc/hostname"
echo 0 > "/run/cgroup/$5-$3/cgroup.procs"
exec nsenter --net="/run/netns/$3" unshare --mount --pid --uts --ipc --cgroup --fork --kill-child bash -c '
set -e
root=$2/root
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
# Each boot has an id of its own: by it systemd tells what an earlier one left in /var/tmp.
cat /proc/sys/kernel/random/uuid > "$root/run/boot_id"
mount --bind "$root/run/boot_id" "$root/proc/sys/kernel/random/boot_id"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
# The one folder that all hosts share.
mount --bind "$2/../home" "$root/home"
hostname "$3"
echo ready
exec chroot "$root" env -i container=joulepoint PATH=/usr/sbin:/usr/bin /lib/systemd/systemd > /dev/null
' boot "$@"
