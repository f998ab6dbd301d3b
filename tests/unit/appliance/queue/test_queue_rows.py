"""Rows of the queue that somebody else wrote: each is one broken job, and no more."""

import contextlib
import sqlite3
import sys

import pytest

from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.queue_rows import BROKEN
from cstool.appliance.queue.supervisor import Supervisor
from cstool.cli import main
from tests.unit.appliance.queue.queues import add, refusal
from tests.unit.appliance.queue.test_queue_file import DAMAGED

NONSENSE = [
    "jobs SET name = '../../etc'",
    "jobs SET name = x'00ff'",
    "jobs SET user = x'1b5b324a'",
    "jobs SET needs = '{'",
    "jobs SET needs = '[]'",
    'jobs SET needs = \'{"cores": 1, "evil": 2}\'',
    "jobs SET needs = replace(needs, '2,', '1e999,')",
    "jobs SET needs = replace(needs, '2,', '-2,')",
    "jobs SET needs = replace(needs, '60.0', '\"x\"')",
    "jobs SET needs = replace(needs, '60.0', 'NaN')",
    "jobs SET needs = CAST(x'7bff' AS TEXT)",
    "jobs SET labels = CAST(x'7bff7d' AS TEXT)",
    "jobs SET name = CAST(x'ff' AS TEXT)",
    "jobs SET user = CAST(x'ff' AS TEXT)",
    "jobs SET labels = '7'",
    "jobs SET labels = '[]'",
    "jobs SET labels = '{'",
    "jobs SET labels = '{\"a\": 1}'",
    "jobs SET cpus = '{'",
    "jobs SET cpus = '[\"a\"]'",
    "jobs SET cpus = '[-1]'",
    "jobs SET submitted_at = 'now'",
    "jobs SET submitted_at = 9e999",
    "jobs SET submitted_at = 1e17",
    "jobs SET submitted_at = -1e9",
    "jobs SET started_at = 9e999, ended_at = -9e999",
    "jobs SET attempt = 1.5",
    "jobs SET attempt = -1",
    "jobs SET user_id = 'root'",
    "jobs SET max_steps = 'x', exit_code = x'00'",
    "jobs SET exit_code = 'x'",
    "jobs SET backend = 'none'",
    "jobs SET backend = 'slurm', backend_id = '1 --all'",
    "jobs SET model_dir = x'6100'",
    "jobs SET phase = 'NONE'",
    "jobs SET asked = 'x'",
]


@pytest.mark.parametrize("change", NONSENSE)
def test_a_row_that_somebody_wrote_is_one_broken_job(change, root, capsys, monkeypatch):
    """All others are as they were, for whoever asks and for the supervisor."""
    with Queue(root) as queue:
        first, second = add(queue), add(queue)
        queue.set_expected({second.name: (5.0, 9.0)}, {second.name: "waits"})
        with contextlib.closing(sqlite3.connect(root.queue_file, isolation_level=None)) as other:
            other.execute("PRAGMA ignore_check_constraints = ON")
            other.execute(f"UPDATE {change} WHERE number = 1")
        broken, sound = queue.jobs()
        is_told = (broken.phase, broken.reason) == ("FAILED", BROKEN)
        assert is_told or "user" in change or "model_dir" in change
        assert sound == queue.job(second.name)
        queue.set_expected({first.name: (1.0, 2.0), second.name: (6.0, 7.0)}, {})
        assert [job.name for job in queue.jobs(active=True, labels={"team": "a"})][-1] == second.name
        assert queue.newest(most_ended=5)[0][-1].name == second.name
        assert queue.history_s("key", 2) is None
        assert queue.ask(second.name, "cancel").phase == "CANCELLED"
        supervisor = Supervisor(root, queue, boot_id="boot")
        supervisor.turn()
        queue.put("capacity", {"cpus": [0], "memory_bytes": 2**33, "disk_bytes": 2**33, "systems": 1, "compiles": 1})
        supervisor.turn()
        queue.prune()
    for command in ("list -a", "list -a --json", "events --all"):
        monkeypatch.setattr(sys, "argv", ["cstool", "job", *command.split(), "--root", str(root.folder)])
        assert main() == 0
        shown = capsys.readouterr()
        assert (shown.err, second.name in shown.out) == ("", True)


def test_an_event_or_a_setting_that_somebody_wrote(root):
    """An event is left out; of the clock and of what is kept nobody depends on what they say."""
    with Queue(root) as queue:
        job = add(queue)
        with contextlib.closing(sqlite3.connect(root.queue_file, isolation_level=None)) as other:
            for columns in ("data = '['", "at = 9e999", "at = 'x'", "kind = x'00'", "text = x'ff'", "data = '7'"):
                add(queue)
                other.execute(f"UPDATE events SET {columns} WHERE number = (SELECT max(number) FROM events)")
            other.execute("INSERT OR REPLACE INTO settings VALUES ('keeps', '[5]'), ('clock', 'Infinity')")
        assert [event.number for event in queue.events()] == [1, 6]
        assert queue.prune() == []
        assert queue.ask(job.name, "cancel").ended_at < 2**33
        with contextlib.closing(sqlite3.connect(root.queue_file, isolation_level=None)) as other:
            other.execute("INSERT OR REPLACE INTO settings VALUES ('drained', '[')")
        said = refusal(lambda: queue.get("drained"))
    assert said == DAMAGED.format(root.queue_file, "setting drained makes no sense")
