"""The hosts around a system: input workers deliver samples to it, and the coordinator keeps count of its steps.

    input workers -> activation servers -> CSX ingress
    coordinator: one step after the other

- An input worker reads samples, makes tensors of them, and sends them to an activation server, which holds them until
  the system takes them. Workers of a system take turns, so together they deliver that many times the samples of one.
- The coordinator starts every step, and takes its outputs: losses, counts. It does so beside the systems,
  one step after the other.
- Where updates wait for the norm of all gradients, they wait for the coordinator: it has the norm only after the last
  of them, and says then whether and how weights are updated. Nothing runs beside that. Weights that are updated on the
  wafer (pipelined) do not go through it.

All but the norm runs ahead of the systems or beside them: buffers hold more than a step. So it costs nothing until all
else waits for it, and then it is all that counts. That is why one batch is slowed down, and another one of the same
model, which computes for longer, is not.

Sources: the vendor's documentation of its runs (`num_workers_per_csx`, `max_act_per_csx`: workers stream to activation
servers, these hold and stream on, one for four workers; workers take turns; the user node receives outputs
asynchronously). Rates come from the system files, by release of the software.
"""

from dataclasses import dataclass

from cstool.model.system import Software
from cstool.plan.timing import resources as on


@dataclass(frozen=True)
class Feed:
    """Times of the hosts of one system.

    Args:
        workers_s: all its input workers, for a micro-batch [s]
        servers_s: all its activation servers, for a micro-batch [s]
        step_s: the coordinator, for a step [s]
    """

    workers_s: float
    servers_s: float
    step_s: float

    def busy_s(self, micro_batches: int = 1) -> dict[str, float]:
        """The work of each of them in a step of so many micro-batches [s]."""
        return {
            on.WORKERS: micro_batches * self.workers_s,
            on.SERVERS: micro_batches * self.servers_s,
            on.COORDINATOR: self.step_s,
        }


def feed_of(software: Software, tokens: int, size: int) -> Feed:
    """Times of the hosts of one system, with one release of the software.

    Args:
        software: the release, and its numbers of hosts
        tokens: of a micro-batch, all samples; 0 where samples are no sequences, whose workers keep up
        size: of a micro-batch, as it is sent [bytes]

    Example: 112 samples of 2,048 tokens are 229,376 tokens. One worker that delivers a million a second takes 0.23 s
    for them, two of them half as long; 4 bytes each over 12.5 GB/s take no time.

    >>> one = Software("2.0", 1, 1, server_bytes_per_s=12.5e9, worker_tokens_per_s=1e6, step_s=0.005, norm_s=0.1)
    >>> feed = feed_of(one, 112 * 2048, 4 * 112 * 2048)
    >>> f"{1e3 * feed.workers_s:.1f} ms, {1e6 * feed.servers_s:.1f} us, {1e3 * feed.step_s:.0f} ms"
    '229.4 ms, 73.4 us, 5 ms'
    >>> from dataclasses import replace
    >>> f"{1e3 * feed_of(replace(one, workers=2), 112 * 2048, 4 * 112 * 2048).workers_s:.1f} ms"
    '114.7 ms'
    """
    rate = software.worker_tokens_per_s
    return Feed(
        workers_s=tokens / (software.workers * rate) if rate else 0.0,
        servers_s=size / (software.servers * software.server_bytes_per_s),
        step_s=software.step_s,
    )
