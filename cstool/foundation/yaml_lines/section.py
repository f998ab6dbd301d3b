"""Shared by all sections of the schema: strictness, the vendor's keys without meaning here, kinds of numbers."""

import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

MAX_STEPS = 2**31 - 1


class Section(BaseModel):
    """A mapping of the file. A null value counts as a missing key."""

    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        populate_by_name=False,
        protected_namespaces=(),
    )

    without_effect: ClassVar[frozenset[str]] = frozenset()
    """the vendor's keys that can change nothing here: accepted, with a note"""
    supported: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """the vendor's keys that would change the result, with their supported values (false and null mean off)"""
    is_about: ClassVar[str] = ""
    """meaning of such a value, in words; where the key alone does not tell it"""
    other_names: ClassVar[Mapping[str, str]] = {}
    """another name of a key -> the key"""
    null_counts: ClassVar[frozenset[str]] = frozenset()
    """keys with a meaning for null"""

    @classmethod
    def field_keys(cls) -> list[str]:
        """Return the keys that fill a field, as written in the file."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def known_keys(cls) -> list[str]:
        """Return all keys that may be written, to find the nearest one to a misspelt key."""
        keys = (*cls.field_keys(), *cls.other_names, *sorted(cls.without_effect), *cls.supported)
        return list(dict.fromkeys(keys))

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data, defaults filled in, nulls left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rule_error(rule: str, hint: str | None = None) -> PydanticCustomError:
    """Return the error of a validator. `rule` follows the key: "must be a multiple of num_heads (12)"."""
    return PydanticCustomError("rule", "{rule}", {"rule": rule, "hint": hint})


def beside(other: str, agree: Callable[[Any, Any], bool], rule: str, hint: str | None = None) -> AfterValidator:
    """A rule for a field and another one, which stands before it in its section and is valid itself.

    Args:
        other: the other field
        agree: whether the value of the field, unless it is None, and the value of the other one go together
        rule: as for `rule_error`; {} becomes the value of the other one
        hint: likewise
    """

    def check(value: Any, info: ValidationInfo) -> Any:
        if value is not None and other in info.data and not agree(value, info.data[other]):
            raise rule_error(rule.format(info.data[other]), hint)
        return value

    return AfterValidator(check)


def filled(default: Callable[[dict[str, Any]], Any]) -> BeforeValidator:
    """A default for a field that is null: it follows from valid fields before it."""
    return BeforeValidator(lambda value, info: default(info.data) if value is None else value)


def not_beside(other: str, rest: str = "", hint: str = "keep one of the two") -> AfterValidator:
    """The rule that at most one of two fields is given, or true."""
    return beside(other, lambda value, there: not (value and there), f"cannot stand beside {other}{rest}", hint)


def lower(value: Any) -> Any:
    """A text in lower case, anything else as it is."""
    return value.lower() if isinstance(value, str) else value


def increasing(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return strictly increasing numbers, or raise the error of a validator."""
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        raise rule_error("must increase")
    return numbers


List = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""marks a tuple field that is a list in the file"""

Count = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Whole = Annotated[int, Field(ge=0, le=MAX_STEPS)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
