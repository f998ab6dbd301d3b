"""The providers of matrix products that there are: a run chooses one and keeps it."""

from cstool.errors import ClusterError
from cstool.kernels.gemm import NUMPY, Gemm

PROVIDERS: tuple[Gemm, ...] = (NUMPY,)
"""that there are here, the one to choose first"""


def choose_gemm(kept: object = None) -> Gemm:
    """Choose the provider of a run.

    Args:
        kept: name of the one with which the run began; None where it begins now

    Raises:
        ClusterError: this machine lacks that provider
    """
    if not isinstance(kept, str):
        return PROVIDERS[0]
    found = next((provider for provider in PROVIDERS if provider.name == kept), None)
    if found is None:
        raise ClusterError(
            f"the run multiplies matrices with {kept}, which must be one of "
            f"{', '.join(provider.name for provider in PROVIDERS)} on this machine",
            "go on where it began, or load its weights alone: --load_checkpoint_states model",
        )
    return found
