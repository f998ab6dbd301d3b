"""A Slurm of one's own on this machine, for tests: munged, slurmctld, and a slurmd for each node.

    python -m tests.slurm COMMAND...

runs a command with such a Slurm, and ends it.
"""

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.patience import wait_until

DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
MISSING = [name for name in (*DAEMONS, "sbatch", "srun") if shutil.which(name, path=PATH) is None]
"""what of Slurm is not installed here; Debian has it in slurm-wlm and munge"""
CORES = 2
CONFIG = """
ClusterName=test
# MPI names shared memory by the number of a job: what another Slurm of these tests left is not to be met.
FirstJobId={first_job}
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={control_port}
AuthType=auth/munge
# A job that is queued again waits until nobody can know it of old.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/pgid
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName=alpha NodeHostname={host} NodeAddr=127.0.0.1 Port={alpha_port} CPUs={cores} RealMemory=1000
NodeName=beta NodeHostname={host} NodeAddr=127.0.0.1 Port={beta_port} CPUs={cores} RealMemory=1000
PartitionName=main Nodes=alpha,beta Default=YES MaxTime=60 State=UP
"""


class Slurm:
    """A Slurm that is up.

    Args:
        config: its slurm.conf
    """

    def __init__(self, config: Path) -> None:
        self.environment = {"SLURM_CONF": str(config), "PATH": PATH}

    def ask(self, *words: str) -> str:
        environment = {**os.environ, **self.environment}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def jobs(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def state(self, job: str) -> str:
        """The state of a job, such as PENDING."""
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start a Slurm with two nodes, both on this machine, and end it with all its jobs.

    Args:
        folder: for all that it writes; its path is short, as a socket is in it
    """
    names = ("control_port", "alpha_port", "beta_port")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    (folder / "state").mkdir()
    config = folder / "slurm.conf"
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    first_job = random.randrange(1000, 60_000_000)
    values = {"folder": folder, "host": host, "user": user, "cores": CORES, "first_job": first_job, **ports}
    config.write_text(CONFIG.format(**values))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"key-file": key.name, "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
    munged = [f"--{option}={folder / name}" for option, name in {**files, "seed-file": "munge.seed"}.items()]
    found, daemons = Slurm(config), []
    try:
        daemons.append(_start(found, folder, "munged", "--foreground", "--force", *munged))
        wait_until((folder / "munge.socket").exists, "munged does not listen")
        daemons.append(_start(found, folder, "slurmctld", "-D"))
        daemons += [_start(found, folder, "slurmd", "-D", "-N", node) for node in ("alpha", "beta")]
        wait_until(lambda: _idle_nodes(found) == 2, "the nodes do not come up")
        yield found
        for job in found.jobs():
            found.ask("scancel", job)
        wait_until(lambda: not found.jobs(), "jobs do not end")
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _idle_nodes(found: Slurm) -> int:
    with suppress(subprocess.CalledProcessError):
        return found.ask("sinfo", "--noheader", "--Node", "--format=%T").split().count("idle")
    return 0


def _start(found: Slurm, folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    program = shutil.which(name, path=PATH)
    assert program is not None
    with (folder / f"{name}.said").open("ab") as said:
        return subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **found.environment},
            start_new_session=True,
        )


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> int:
    if MISSING:
        print(f"Slurm is not installed: there is no {', '.join(MISSING)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="slurm.", dir="/tmp") as folder, slurm(Path(folder)) as found:
        return subprocess.run(sys.argv[1:], env={**os.environ, **found.environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
