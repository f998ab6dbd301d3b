"""Stragglers: systems that do the same work do not take the same time for it, and all wait for the slowest."""


def slowest_of(systems: int, share: float) -> float:
    """Delay of the slowest of so many systems over the mean, relative to the mean.

    The work of a system in a step is many kernels one after the other, so its time is taken to be normal, and
    independent of the other systems. SwarmX broadcasts to all of them as fast as the slowest takes it, and adds up the
    gradients of all of them: the last arrival counts, be it delayed by compute, or on the links of the system. The
    largest of n is expected at the quantile (n - 3/8) / (n + 1/4); of one that is the mean, so one system never waits.

    Source: Blom, *Statistical Estimates and Transformed Beta-Variables* (1958), for the largest of n normal variables:
    4.5% above the integral that defines it for two of them, within half a percent from sixteen on. It grows as
    sqrt(2 ln n), slower than any power of n.

    Args:
        systems: that compute at the same time
        share: standard deviation of the time of one, over its mean

    Examples, of 16 systems whose times differ by 2% of their mean: quantile 15.625 / 16.25 = 0.9615 of the normal
    distribution is 1.769 standard deviations, so the slowest takes 3.5% longer. Twelve times as many systems add 2%:

    >>> [round(slowest_of(n, 0.02), 4) for n in (1, 2, 16, 192)]
    [0.0, 0.0118, 0.0354, 0.0544]
    """
    if systems == 1 or not share:
        return 0.0
    # Costs a hundredth of a second to import, which one system does not need.
    from statistics import NormalDist

    return share * NormalDist().inv_cdf((systems - 3 / 8) / (systems + 1 / 4))
