"""From a model to an artifact: passes, placement, routing."""

from cstool.plan.compiler.cache import keep_artifact
from cstool.plan.compiler.compile import (
    compile_model,
    compile_or_load,
    compile_to_kernels,
    count_memoryx,
    load_compiled,
    make_program,
)
