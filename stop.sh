#!/bin/bash
#SBATCH -n1 --exclusive --output=out
python3 - <<'P'
import time,signal
n=[0]; signal.signal(signal.SIGCONT,lambda *a: n.__setitem__(0,n[0]+1))
s=0
for i in range(120): s+=i; time.sleep(.25)
open("result","w").write(f"{s} conts>0 {n[0]>0}")
P
