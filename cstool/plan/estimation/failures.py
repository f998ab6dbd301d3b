"""Effect of failures and checkpoints on the time of a job, in closed form.

Failures come at random, at the same rate all the time, also while a checkpoint is written and while the job starts
again: the time to the next one is exponential, with the mean M. For n systems, any of which stops the job, M is the
mean of one system over n. Work is done in spans of t with a checkpoint of d after each; a failure costs the work since
the last checkpoint, and a restart of r.

Source: Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
Systems 22 (2006), with the exact time of a span, which follows from the exponential distribution; for checkpoints short
beside M the best span is sqrt(2 d M), of Young, "A first order approximation to the optimum checkpoint interval",
Communications of the ACM 17 (1974).
"""

import math

MOST_EXPONENT = 600.0
"""larger ones are no number any more"""


def span_s(work_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    """Expected time of a span of work and the checkpoint after it, repeated until it succeeds [s].

    Each try fails with 1 - p, p = e^-((t + d) / M); a restart may fail as well. The sum over all tries comes to
    M e^(r / M) (e^((t + d) / M) - 1).

    Example: half of the spans fail where t + d is M ln 2. Without a restart such a span takes M.

    >>> round(span_s(90 * math.log(2), 10 * math.log(2), 0, 100), 9)
    100.0
    >>> span_s(50, 10, 5, math.inf)
    60

    Args:
        work_s: t
        checkpoint_s: d
        restart_s: r
        mtbf_s: M; infinite where nothing fails
    """
    if math.isinf(mtbf_s):
        return work_s + checkpoint_s
    exponent = (work_s + checkpoint_s) / mtbf_s
    if exponent + restart_s / mtbf_s > MOST_EXPONENT:
        return math.inf
    return mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent)


def job_s(work_s: float, interval_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    """Expected time of a job: of its full spans, and of the rest in the last one [s].

    >>> job_s(100, 40, 1, 0, math.inf)
    103.0

    Args:
        work_s: of the job, without checkpoints and failures
        interval_s: work between two checkpoints; there is one after the last work, too
        checkpoint_s, restart_s, mtbf_s: see `span_s`
    """
    spans = math.floor(work_s / interval_s + 1e-9)
    rest_s = work_s - spans * interval_s
    whole = spans * span_s(interval_s, checkpoint_s, restart_s, mtbf_s) if spans else 0.0
    return float(whole + (span_s(rest_s, checkpoint_s, restart_s, mtbf_s) if rest_s > 1e-6 * interval_s else 0.0))


def checkpoints(work_s: float, interval_s: float) -> int:
    """Number of checkpoints of a job, that after the last work among them.

    >>> checkpoints(100, 40), checkpoints(80, 40)
    (3, 2)
    """
    spans = math.floor(work_s / interval_s + 1e-9)
    return spans + (work_s - spans * interval_s > 1e-6 * interval_s)


def best_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Work between two checkpoints with which a long job ends soonest [s]; it does not depend on the restart.

    Where the time per work of `span_s` is least, e^((t + d) / M) (1 - t / M) = 1; found by bisection.

    Example: a checkpoint of a minute, a failure a week: Young's sqrt(2 d M) is 2.37 hours. The exact span is shorter,
    in the first order by two thirds of the checkpoint.

    >>> round(best_interval_s(60, 7 * 86_400)), round(math.sqrt(2 * 60 * 7 * 86_400))
    (8479, 8519)

    Args:
        checkpoint_s: more than zero
        mtbf_s: of all systems together
    """
    low, high = 0.0, mtbf_s
    for _ in range(200):
        middle = (low + high) / 2
        # In this form it is exact for small exponents, too.
        if (middle + checkpoint_s) / mtbf_s + math.log1p(-middle / mtbf_s) > 0:
            low = middle
        else:
            high = middle
    return low
