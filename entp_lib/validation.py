"""One-line errors, and strict construction of frozen dataclasses: unknown names are errors."""

import dataclasses
import difflib
import functools
import math
import numbers
import types
import typing
from collections.abc import Iterable
from typing import Any, Literal

Json = dict[str, Any]  # values of JSON types by name


@functools.cache
def fields_of(cls: Any) -> dict[str, tuple[Any, bool]]:
    """Return for each field of a dataclass its annotation, and whether it lacks a default.

    Cached, because Python resolves annotations at every call.
    """
    hints = typing.get_type_hints(cls)
    # without a default, default and default_factory are both MISSING
    return {
        field.name: (hints[field.name], field.default is field.default_factory)
        for field in dataclasses.fields(cls)
    }


class OneLine:
    """Mix-in for errors whose message is enough: a notebook shows it instead of a traceback."""

    def _render_traceback_(self) -> list[str]:  # called by IPython
        return [f"{type(self).__name__}: {self}"]


class ConfigError(OneLine, ValueError):
    """An invalid parameter; the message names it, its value and what is allowed."""


def require(condition: object, message: str) -> None:
    """Raise ``ConfigError(message)`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(message)


def positive(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is a whole number above 0."""
    require(
        isinstance(value, numbers.Integral) and int(value) >= 1,
        f"{name} = {value!r}: must be a whole number, at least 1",
    )


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise ConfigError unless ``value`` is one of ``allowed``, suggesting the nearest name."""
    allowed = list(allowed)
    if value not in allowed:
        near = difflib.get_close_matches(str(value), map(str, allowed), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{name} = {value!r}: must be one of {', '.join(map(str, allowed))}{hint}"
        )


def from_dict(cls: Any, values: Json, where: str = "") -> Any:
    """Build the frozen dataclass ``cls`` from a mapping, recursively; wrong names: ConfigError."""
    fields = fields_of(cls)
    built = {}
    for name, value in values.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"known: {', '.join(fields)}"
            )
            raise ConfigError(f"unknown parameter {where}{name!r}; {hint}")
        kind, _ = fields[name]
        if isinstance(value, dict) and dataclasses.is_dataclass(kind):
            value = from_dict(kind, value, f"{name}.")
        elif isinstance(value, list) and typing.get_origin(kind) is tuple:
            value = tuple(value)
        built[name] = value
    for name, (_, is_needed) in fields.items():
        if is_needed and name not in built:
            raise ConfigError(f"parameter {where}{name!r} is missing")
    return cls(**built)


def check_types(config: Any) -> None:
    """Raise ``ConfigError`` where a field of a dataclass does not hold its annotated type.

    An int passes as a float and is stored as one; a bool never passes as a number.
    """
    cls: Any = type(config)
    for name, (kind, _) in fields_of(cls).items():
        value = getattr(config, name)
        if type(value) is kind:
            continue
        if type(value) is int and kind in (float, float | None):
            object.__setattr__(config, name, float(value))
        elif not matches(value, kind):
            raise ConfigError(
                f"{name} = {value!r} ({type(value).__name__}): must be {describe(kind)}"
            )
        elif kind == tuple[float, float]:
            object.__setattr__(config, name, tuple(map(float, value)))


def check_intervals(config: Any, intervals: dict[str, str]) -> None:
    """Raise ``ConfigError`` for a number outside its field's interval, written as in "[0, 1)".

    None passes, and all numbers of a tuple must lie inside. NaN is in no interval; an interval that
    ends with "inf)" has no upper bound but excludes infinity.
    """
    for name, interval in intervals.items():
        value = getattr(config, name)
        low, high = map(float, interval[1:-1].split(","))
        if value is None:
            continue
        for x in value if isinstance(value, tuple) else (value,):
            is_above = x >= low if interval[0] == "[" else x > low
            is_below = x <= high if interval[-1] == "]" else x < high
            if not (is_above and is_below):
                wanted = f"in {interval}"
                if high == math.inf:
                    wanted = (
                        f"at least {low:g}" if interval[0] == "[" else f"above {low:g}"
                    )
                    wanted += " and finite" if type(x) is float else ""
                raise ConfigError(f"{name} = {value}: must be {wanted}")


def matches(value: Any, kind: Any) -> bool:
    """Tell whether ``value`` has the type ``kind``, for annotations that configurations use."""
    if kind is Any or type(value) is kind:
        return True
    if kind is int or kind is float:
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    origin = typing.get_origin(kind)
    args = typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(matches(value, arg) for arg in args)
    if origin is Literal:
        return value in args and type(args[args.index(value)]) is type(value)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[-1] is Ellipsis:
            args = args[:1] * len(value)
        return len(value) == len(args) and all(map(matches, value, args))
    if origin is dict:
        return isinstance(value, dict) and {*map(type, value)} <= {args[0]}
    return isinstance(value, kind)


def describe(kind: Any) -> str:
    """Put an annotation into words, for messages."""
    args = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, args))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(describe, args))
    words = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "True or False",
        list: "a list",
        type(None): "None",
    }
    return words.get(kind, str(kind).replace("typing.", ""))
