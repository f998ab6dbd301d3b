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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.patience import wait_until

DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
MISSING = [name for name in (*DAEMONS, "sbatch", "srun") if shutil.which(name, path=PATH) is None]
"""what of Slurm is not installed here; Debian has it in slurm-wlm and munge"""
MISSING_ACCOUNTS = [
    name for name in ("slurmdbd", "mariadbd", "mariadb-install-db") if shutil.which(name, path=PATH) is None
]
"""what of its accounting is not; Debian has it in slurmdbd and mariadb-server"""
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
ACCOUNTS = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={accounts_port}
AccountingStoragePass={folder}/munge.socket
AccountingStoreFlags=job_comment
JobAcctGatherType=jobacct_gather/none
"""
"""what CONFIG has besides where there is accounting"""
ACCOUNTS_DAEMON = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort={accounts_port}
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=accounts
"""


class Slurm:
    """A Slurm that is up.

    Args:
        config: its slurm.conf
    """

    def __init__(self, config: Path) -> None:
        self.environment = {"SLURM_CONF": str(config), "PATH": PATH}

    def ask(self, *words: str) -> str:
        """What a command of Slurm prints."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    def jobs(self) -> list[str]:
        """The numbers of all jobs that have not ended."""
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def state(self, job: str) -> str:
        """The state of a job, such as PENDING."""
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")


@contextmanager
def slurm(folder: Path, *, accounts: bool = False) -> Iterator[Slurm]:
    """Start a Slurm with two nodes, both on this machine, and end it with all its jobs.

    Args:
        folder: for all that it writes; its path is short, as a socket is in it
        accounts: with accounting, for which nothing of `MISSING_ACCOUNTS` may be missing
    """
    names = ("control_port", "alpha_port", "beta_port", "accounts_port", "storage_port")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    (folder / "state").mkdir()
    config = folder / "slurm.conf"
    host, user = socket.gethostname().partition(".")[0], getpass.getuser()
    first_job = random.randrange(1000, 60_000_000)
    values = {"folder": folder, "host": host, "user": user, "cores": CORES, "first_job": first_job, **ports}
    config.write_text((CONFIG + ACCOUNTS * accounts).format(**values))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    files = {"key-file": key.name, "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
    munged = [f"--{option}={folder / name}" for option, name in {**files, "seed-file": "munge.seed"}.items()]
    found, daemons = Slurm(config), []
    try:
        daemons.append(_start(found, folder, "munged", "--foreground", "--force", *munged))
        wait_until((folder / "munge.socket").exists, "munged does not listen")
        if accounts:
            _start_accounts(found, folder, values, daemons)
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


def _start_accounts(
    found: Slurm, folder: Path, values: Mapping[str, object], daemons: list[subprocess.Popen[bytes]]
) -> None:
    """Start accounting and its database, and tell it of this cluster."""
    config, storage = folder / "slurmdbd.conf", folder / "storage"
    config.write_text(ACCOUNTS_DAEMON.format(**values))
    config.chmod(0o600)
    install = ("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db")
    found.ask(*install, f"--user={values['user']}", f"--datadir={storage}")
    # Who connects needs no password: it listens on this machine alone, and its data is that of a test.
    words = ("--no-defaults", f"--datadir={storage}", f"--socket={folder / 'storage.socket'}", "--skip-grant-tables")
    place = ("--bind-address=127.0.0.1", f"--port={values['storage_port']}", f"--user={values['user']}")
    daemons.append(_start(found, folder, "mariadbd", *words, *place))
    wait_until((folder / "storage.socket").exists, "mariadbd does not listen")
    daemons.append(_start(found, folder, "slurmdbd", "-D"))
    wait_until(lambda: _adds_cluster(found), "slurmdbd does not answer")


def _adds_cluster(found: Slurm) -> bool:
    with suppress(subprocess.CalledProcessError):
        found.ask("sacctmgr", "--immediate", "add", "cluster", "test")
        return True
    return False


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
    """Run a command with a Slurm."""
    if MISSING:
        print(f"Slurm is not installed: there is no {', '.join(MISSING)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="slurm.", dir="/tmp") as folder, slurm(Path(folder)) as found:
        return subprocess.run(sys.argv[1:], env={**os.environ, **found.environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
