#!/bin/bash
# Inside a chroot with its own PID, mount and network namespace: starts a two-node cluster with the plugin and
# tries it. Each section of the output begins with "== NAME". Everything dies with the namespace.
BASE=/try
mkdir -p $BASE/{state,log,run,spool,out}
chmod 755 $BASE
chmod 777 $BASE/out
cd $BASE/out || exit 1
useradd -m physicist 2>/dev/null

cat > $BASE/wrapper <<'SH'
#!/bin/bash
printf 'wrapped:' >> /try/out/wrapped
printf ' [%s]' "$@" >> /try/out/wrapped
echo " conf=$JOULEPOINT_CONF" >> /try/out/wrapped
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
SH
cat > $BASE/job <<'SH'
#!/bin/bash
echo "script args=[$*] prolog=$FROM_TASKPROLOG"
srun -n1 /bin/echo step
SH
printf '#!/bin/sh\necho export FROM_TASKPROLOG=yes\n' > $BASE/taskprolog
chmod 755 $BASE/wrapper $BASE/job $BASE/taskprolog

plugstack() { echo "optional $BASE/joulepoint.so $*" > $BASE/plugstack.conf; }
plugstack wrapper=$BASE/wrapper conf=/etc/j.toml

export SLURM_CONF=$BASE/slurm.conf
cat > $SLURM_CONF <<CONF
ClusterName=try
SlurmctldHost=$(hostname)(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$BASE/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$BASE/state
SlurmdSpoolDir=$BASE/spool/%n
SlurmctldPidFile=$BASE/run/slurmctld.pid
SlurmdPidFile=$BASE/run/slurmd.%n.pid
SlurmctldLogFile=$BASE/log/slurmctld.log
SlurmdLogFile=$BASE/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$BASE/taskprolog
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
PlugStackConfig=$BASE/plugstack.conf
NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=7001 CPUs=2
NodeName=n2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=7002 CPUs=2
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
CONF
echo CgroupPlugin=disabled > $BASE/cgroup.conf

dd if=/dev/urandom of=$BASE/munge.key bs=128 count=1 2>/dev/null
chmod 600 $BASE/munge.key
munged --force --key-file=$BASE/munge.key --socket=$BASE/munge.sock --pid-file=$BASE/munged.pid \
    --log-file=$BASE/log/munged.log --seed-file=$BASE/munge.seed 2>&1
slurmctld -i && slurmd -N n1 && slurmd -N n2

echo "== version"
slurmctld -V
echo "== idle"
for _ in $(seq 120); do
    idle=$(sinfo -h -t idle -o %D 2>/dev/null)
    [ "$idle" = 2 ] && break
    sleep 0.25
done
echo "$idle"
[ "$idle" = 2 ] || tail -5 $BASE/log/*.log

user() { setpriv --reuid physicist --regid physicist --init-groups env HOME=/home/physicist "$@" 2>&1; }
# One submission: what it said, what the wrapper noted, what the job wrote.
try() {
    echo "== $1"
    shift
    rm -f slurm-*.out
    : > wrapped
    chmod 666 wrapped
    user timeout 40 "$@"
    echo "rc=$?"
    cat wrapped slurm-*.out 2>/dev/null
}
echo "== help"
sbatch --help | grep -c -e --ft-energy
try refused-value sbatch -W --ft-energy=power $BASE/job
try refused-combination sbatch -W --ft-energy-keep=3 $BASE/job
try wrapped sbatch -W --ft-energy=time $BASE/job a 'b c'
try twin env FT_ENERGY=on FT_ENERGY_KEEP=4 sbatch -W --export=NONE $BASE/job x
try plain sbatch -W $BASE/job x
try forged env _SLURM_SPANK_OPTION_joulepoint_ft_energy=bad sbatch -W $BASE/job x
try direct srun --ft-energy -n2 /bin/echo direct
plugstack wraper=/x wrapper=$BASE/wrapper default=enrgy
try wrong-argument sbatch -W --ft-energy=time $BASE/job x
try wrong-argument-srun srun -n1 /bin/echo direct
plugstack wrapper=/nowhere default=on
try missing-wrapper sbatch -W $BASE/job x
echo "== nodes"
sinfo -h -o '%D %T'
