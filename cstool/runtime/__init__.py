"""The runtime: the appliance and the verb that runs it."""

from cstool.runtime.appliance import Appliance, TrainStep
from cstool.runtime.data_sets import check_data
from cstool.runtime.progress import Progress, Silent
from cstool.runtime.run import run
from cstool.runtime.run_lock import run_lock
from cstool.runtime.session import RunResult

__all__ = ["Appliance", "Progress", "RunResult", "Silent", "TrainStep", "check_data", "run", "run_lock"]
