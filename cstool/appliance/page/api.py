"""The JSON that the page lives on: reads for all viewers, and with a token, cancel and label."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from cstool.appliance.page import rows
from cstool.appliance.page.answers import Refused, answer, body, encoded, json_answer
from cstool.appliance.page.log_curve import LogCurve, thinned
from cstool.appliance.page.log_files import STREAMS, may_read_log, open_log, tail
from cstool.appliance.page.timeline import Timeline, expected_spans, span_row
from cstool.appliance.page.viewer import Viewer, may_reach, may_read, viewer_of
from cstool.appliance.queue.backend import LOCAL
from cstool.appliance.queue.job import Job, stays
from cstool.appliance.queue.names import check_name
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.appliance import ApplianceStatus
    from cstool.appliance.queue.queue import Queue
    from cstool.appliance.queue.root import Root

MOST_EVENTS = 500
"""number of events of a job that the page lists"""
_MOST_NEW = 20_000
"""events that the timeline takes at a time; of older ones it would show nothing"""
_ASK_EVERY_S = 2.0
"""interval of asking a back end without a supervisor for the state of its jobs [s]"""
_CURVES = 32
"""jobs whose curves are kept, so that only new lines of the log are read"""


class Api:
    """Endpoints over one queue.

    The queue is used in the thread of the event loop alone; files are read, and changes made, in others.

    Args:
        root: of the appliance
        queue: of the appliance
        status: says how the appliance is
        token: that lets a viewer change something; None where no viewer may
    """

    def __init__(
        self, root: Root, queue: Queue, status: Callable[[Root], ApplianceStatus], token: bytes | None
    ) -> None:
        self.root, self.queue, self.status, self.token = root, queue, status, token
        self.timeline = Timeline()
        self._overview: tuple[tuple[int, ApplianceStatus, Viewer], bytes] | None = None
        self._are_elsewhere = False
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = -math.inf
        self._curves: OrderedDict[str, LogCurve] = OrderedDict()
        self._reading = threading.Lock()

    async def overview(self, request: Request) -> Response:
        """Answer with the appliance, the rows of the table, and the timeline."""
        viewer = self._viewer(request)
        # What is read after the version is at least as new as that.
        key = (self.queue.version(), self.status(self.root), viewer)
        if self._overview is None or self._overview[0] != key:
            self._overview = key, encoded(self._look(key[1], viewer))
        self._bring_up_to_date()
        return answer(request, self._overview[1])

    def _look(self, status: ApplianceStatus, viewer: Viewer) -> dict[str, Any]:
        jobs, _ = self.queue.newest(most_ended=rows.MOST_ENDED)
        active, ended = [job for job in jobs if not job.has_ended], [job for job in jobs if job.has_ended]
        self.timeline.add(self.queue.events(after=self.timeline.last, limit=_MOST_NEW))
        cpus = () if status.capacity is None else status.capacity.cpus
        self._are_elsewhere = any(job.backend != LOCAL for job in active)
        return {
            "appliance": {
                "supervisor": status.supervisor,
                "drained": status.drained,
                "backend": status.backend,
                "capacity": None if status.capacity is None else asdict(status.capacity),
                "used": asdict(status.used),
                "phases": status.phases,
            },
            "viewer": {"user": viewer.user, "may_change": viewer.has_token, "has_tokens": self.token is not None},
            "jobs": rows.job_rows(active, ended, tells_why=self._tells_why(viewer)),
            "spans": [span_row(span) for span in [*self.timeline.spans(), *expected_spans(active, cpus)]],
        }

    def _bring_up_to_date(self) -> None:
        """Have other back ends say now and then how their jobs are, beside the answers."""
        now = time.monotonic()
        if self._are_elsewhere and self._asking is None and now - self._asked_at > _ASK_EVERY_S:
            self._asked_at = now
            self._asking = asyncio.create_task(run_in_threadpool(self._ask_elsewhere))
            self._asking.add_done_callback(self._has_asked)

    def _ask_elsewhere(self) -> None:
        from cstool.appliance.queue.client import open_jobs

        # A scheduler that does not answer now may do so later; what is known is shown.
        with contextlib.suppress(CstoolError), open_jobs(self.root.folder) as jobs:
            jobs.jobs(active=True)

    def _has_asked(self, _: asyncio.Task[None]) -> None:
        self._asking = None

    async def job(self, request: Request) -> Response:
        """Answer with all about one job."""
        viewer = self._viewer(request)
        job = self._job(request)
        events = self.queue.events(job.name)
        tells_why = self._tells_why(viewer)
        folder = self._folder(job)
        can_read = await run_in_threadpool(may_read_log, folder, "out", viewer.user_id)
        return json_answer(
            request,
            {
                **rows.job_row(job, self.queue.position(job.name), tells_why=tells_why),
                "exit_code": job.exit_code,
                "attempt": job.attempt,
                "max_steps": job.max_steps,
                "max_restarts": job.max_restarts,
                "backend": job.backend,
                "backend_id": job.backend_id,
                "model_dir": str(job.model_dir) if can_read else "",
                "preempts": job.preempts,
                "needs": rows.needs_rows(job),
                "stays": [asdict(stay) for stay in stays(events)],
                "events": rows.event_rows(events[-MOST_EVENTS:], tells_why=tells_why),
                "may_read": can_read,
                "may_change": viewer.has_token and viewer.user_id in (0, job.user_id),
            },
        )

    async def log(self, request: Request) -> Response:
        """Answer with the end of a log."""
        viewer, job = self._viewer(request), self._job(request)
        stream = request.query_params.get("stream", "out")
        if stream not in STREAMS:
            raise Refused(400, f"stream: must be one of {' | '.join(STREAMS)}")
        return json_answer(request, await run_in_threadpool(self._tail, self._folder(job), stream, viewer))

    async def curve(self, request: Request) -> Response:
        """Answer with the loss curve, and the progress of the job."""
        viewer, job = self._viewer(request), self._job(request)
        return json_answer(request, await run_in_threadpool(self._curve, job.name, self._folder(job), viewer))

    async def cancel(self, request: Request) -> Response:
        """Cancel a job: {"at_once": false}."""
        self._changing_viewer(request)
        job, asked = self._job(request), await body(request)
        at_once = asked.get("at_once", False)
        if not isinstance(at_once, bool) or set(asked) - {"at_once"}:
            raise Refused(400, 'must be {"at_once": true} or {"at_once": false}')
        changed = await run_in_threadpool(self._change, lambda jobs: jobs.cancel(job.name, at_once=at_once))
        return json_answer(request, {"name": changed.name, "phase": changed.phase, "asked": changed.asked})

    async def label(self, request: Request) -> Response:
        """Set labels, or remove the ones with null: {"labels": {"key": "value"}}."""
        self._changing_viewer(request)
        job, asked = self._job(request), await body(request)
        changes = asked.get("labels")
        if (
            not isinstance(changes, dict)
            or not all(value is None or isinstance(value, str) for value in changes.values())
            or set(asked) != {"labels"}
        ):
            raise Refused(400, 'must be {"labels": {"key": "value"}}, or null for a label that is to go')
        changed = await run_in_threadpool(self._change, lambda jobs: jobs.label(job.name, changes))
        return json_answer(request, {"name": changed.name, "labels": dict(changed.labels)})

    def _viewer(self, request: Request) -> Viewer:
        """Return the viewer, or refuse: from elsewhere every viewer needs a token."""
        client = None if request.client is None else (request.client.host, request.client.port)
        server = request.scope.get("server")
        headers = {name.lower(): value for name, value in request.headers.items()}
        viewer = viewer_of(headers, client, None if server is None else (server[0], server[1]), self.token)
        if not viewer.is_here and not viewer.has_token:
            raise Refused(401, "the token is needed to look from elsewhere")
        return viewer

    def _changing_viewer(self, request: Request) -> Viewer:
        if self.token is None:
            raise Refused(403, "this page is to look at: it is served without --token_file")
        viewer = self._viewer(request)
        if not viewer.has_token:
            raise Refused(401, "the token is needed to change something")
        return viewer

    def _tells_why(self, viewer: Viewer) -> bool:
        """Say whether a viewer may know why jobs ended, maybe with a line of their logs: a reader of the queue may."""
        path = self.root.queue_file
        try:
            return may_reach(viewer.user_id, path.parent) and may_read(viewer.user_id, os.stat(path))
        except OSError:
            return False

    def _job(self, request: Request) -> Job:
        name = request.path_params["name"]
        try:
            check_name(name)
        except CstoolError:
            raise Refused(404, "there is no job of this name") from None
        try:
            return self.queue.job(name)
        except CstoolError as error:
            raise Refused(404, error.message) from None

    def _folder(self, job: Job) -> Path:
        return self.root.job(job.name).log("out").parent

    def _tail(self, folder: Path, stream: str, viewer: Viewer) -> dict[str, Any]:
        try:
            file = open_log(folder, stream, viewer.user_id)
        except PermissionError:
            raise Refused(403, "its log is not for you") from None
        if file is None:
            return {"text": "", "bytes": 0}
        with file:
            return {"text": tail(file), "bytes": file.seek(0, 2)}

    def _curve(self, name: str, folder: Path, viewer: Viewer) -> dict[str, Any]:
        try:
            current = open_log(folder, "out", viewer.user_id)
            previous = None if current is None else open_log(folder, "out.1", viewer.user_id)
        except PermissionError:
            raise Refused(403, "its log is not for you") from None
        try:
            with self._reading:
                curve = self._curves.setdefault(name, LogCurve())
                self._curves.move_to_end(name)
                if len(self._curves) > _CURVES:
                    self._curves.popitem(last=False)
                curve.update(current, previous)
                points, progress = thinned(curve.points()), curve.progress
        finally:
            for file in (current, previous):
                if file is not None:
                    file.close()
        return {
            "steps": [step for step, _ in points],
            "losses": [_finite(loss) for _, loss in points],
            "progress": None if progress is None else {**asdict(progress), "loss": _finite(progress.loss)},
        }

    def _change(self, change: Callable[[Any], Job]) -> Job:
        from cstool.appliance.queue.client import open_jobs

        with open_jobs(self.root.folder) as jobs:
            return change(jobs)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
