"""The title of the pictures of an artifact."""

from cstool.model.ir import Artifact


def picture_title(artifact: Artifact, mode: str) -> str:
    """Return the title of all pictures: the model, the system, the mode, and that it is a model."""
    systems = f"{artifact.num_csx} x {artifact.system.name}" if artifact.num_csx > 1 else artifact.system.name
    parameters = artifact.graph.parameter_count
    return f"{artifact.graph.name}, {parameters:,} parameters, on {systems}: {mode} (modelled)"
