"""Settings of copies and streams of `SdkRuntime`, by place or by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cstool.csl.sdk.client import SdkRuntimeError
from cstool.csl.sdk.platforms import MemcpyDataType, MemcpyOrder
from cstool.foundation.words import did_you_mean


@dataclass(frozen=True, kw_only=True)
class MemcpySettings:
    """Settings of a copy or a stream between the host and the PEs of a rectangle.

    Args:
        streaming: whether elements go as wavelets
        data_type: bits of an element on the device
        order: of the host's array
        nonblock: whether to return before it is done
    """

    streaming: bool = False
    data_type: MemcpyDataType = MemcpyDataType.MEMCPY_32BIT
    order: MemcpyOrder = MemcpyOrder.ROW_MAJOR
    nonblock: bool = False


def settings_of(name: str, more: Sequence[Any], given: Mapping[str, Any]) -> MemcpySettings:
    """The settings of a call, checked.

    Args:
        name: the method, in messages
        more: settings by place
        given: settings by name

    Raises:
        SdkRuntimeError: there is no such setting, or it has another type
    """
    known = {each.name: each.default for each in fields(MemcpySettings)}
    if len(more) > len(known):
        raise SdkRuntimeError(
            f"{name}: it takes 7 arguments and {len(known)} settings, got {len(more) - len(known)} more"
        )
    settings = {**dict(zip(known, more, strict=False)), **given}
    for key, value in settings.items():
        if key not in known:
            hint = did_you_mean(key, known) or f"there are {', '.join(known)}"
            raise SdkRuntimeError(f"{name}: it has no setting '{key}'", hint)
        kind = type(known[key])
        if not isinstance(value, (bool, np.bool_) if kind is bool else kind):
            expected = "True or False" if kind is bool else f"a {kind.__name__}"
            raise SdkRuntimeError(f"{name}: {key} must be {expected}, got {value!r}")
    return MemcpySettings(**settings)
