"""Errors of one line, and frozen dataclasses built strictly: an unknown name or a wrong type is an error."""

import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from typing import Any, Literal

# Of a class or an annotation: they are resolved anew at every call.
type_hints, origin_of, args_of = map(functools.cache, (typing.get_type_hints, typing.get_origin, typing.get_args))


class OneLine:
    """A mix-in for errors whose message says everything: a notebook shows it in place of a traceback."""

    def _render_traceback_(self) -> list[str]:  # what IPython asks an exception for
        return [f"{type(self).__name__}: {self}"]


class ConfigError(OneLine, ValueError):
    """A parameter that cannot be right; the message names it, its value and what would be right."""


def require(condition: bool, message: str) -> None:
    """Raise ``ConfigError(message)`` unless ``condition`` holds."""
    if not condition:
        raise ConfigError(message)


def printable(text: str) -> str:
    """A text as a terminal may be given it: control characters but line feeds and tabs as their escapes."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: repr(found[0])[1:-1], text)


def one_of(name: str, value: Any, allowed: typing.Iterable[Any]) -> None:
    """Raise unless ``value`` is one of ``allowed``, suggesting the nearest name."""
    allowed = list(allowed)
    if value not in allowed:
        near = difflib.get_close_matches(str(value), map(str, allowed), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(map(str, allowed))}{hint}")


def from_dict(cls, values: dict[str, Any], where: str = ""):
    """Build the frozen dataclass ``cls`` from a mapping, recursively; unknown or missing names raise."""
    fields, hints, built = {f.name: f for f in dataclasses.fields(cls)}, type_hints(cls), {}
    for name, value in values.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(fields)}"
            raise ConfigError(f"unknown parameter {where}{name!r}{hint}")
        kind = hints[name]
        if dataclasses.is_dataclass(kind) and isinstance(value, dict):
            built[name] = from_dict(kind, value, f"{name}.")
        else:
            built[name] = tuple(value) if typing.get_origin(kind) is tuple and isinstance(value, list) else value
    for name, f in fields.items():
        missing = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        require(name in built or not missing, f"parameter {where}{name!r} is missing")
    return cls(**built)


def check_types(config) -> None:
    """Raise ``ConfigError`` where a field of a dataclass does not hold its annotated type.

    An int passes as a float and is stored as one; a bool never passes as a number.
    """
    hints = type_hints(type(config))
    for field in dataclasses.fields(config):
        name, kind = field.name, hints[field.name]
        value = getattr(config, name)
        if type(value) is kind:
            continue
        if kind in (float, float | None) and type(value) is int:
            object.__setattr__(config, name, float(value))
        elif kind == tuple[float, float] and matches(value, kind):
            object.__setattr__(config, name, tuple(map(float, value)))
        elif not matches(value, kind):
            raise ConfigError(f"{name} = {value!r} ({type(value).__name__}): must be {describe(kind)}")


def check_intervals(config, intervals: dict[str, str]) -> None:
    """Raise ``ConfigError`` for a number, or one of a tuple, outside of its field's interval, as "[0, 1)"; None passes.

    NaN is in no interval; one that ends at "inf)" holds all finite numbers from its beginning on.
    """
    for name, interval in intervals.items():
        value, (low, high) = getattr(config, name), map(float, interval[1:-1].split(","))
        for x in () if value is None else value if isinstance(value, tuple) else (value,):
            above = x >= low if interval[0] == "[" else x > low
            if not (above and (x <= high if interval[-1] == "]" else x < high)):
                words = f"at least {low:g}" if interval[0] == "[" else f"above {low:g}"
                words += " and finite" if type(x) is float else ""
                raise ConfigError(f"{name} = {value}: must be {words if high == math.inf else f'in {interval}'}")


def check_plain(name: str, value: Any) -> None:
    """Raise ``ConfigError`` unless JSON can hold ``value``, as a record must: NumPy's and torch's numbers it cannot."""
    if isinstance(value, dict):
        for key, inner in value.items():
            require(type(key) is str, f"{name}: the name {key!r} ({type(key).__name__}) must be a text")
            check_plain(f"{name}[{key!r}]", inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            check_plain(f"{name}[{number}]", inner)
    else:
        plain = value is None or type(value) in (str, int, float, bool)
        kind = type(value).__name__
        require(plain, f"{name} = {value!r} ({kind}): must be a plain number, text, list or dictionary")
        require(type(value) is not float or math.isfinite(value), f"{name} = {value!r}: must be finite")


def matches(value: Any, kind: Any) -> bool:
    """Whether ``value`` has the type ``kind``, for the annotations that configurations use."""
    if kind is Any or type(value) is kind:
        return True
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    origin, args = origin_of(kind), args_of(kind)
    if origin in (typing.Union, types.UnionType):
        return type(value) in args or any([matches(value, a) for a in args])
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in args)
    if origin is tuple:
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis and isinstance(value, tuple) else args
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(matches, value, kinds))
    if origin is dict:
        return isinstance(value, dict) and {*map(type, value)} <= {args[0]}
    return isinstance(value, kind)


def describe(kind: Any) -> str:
    """An annotation in words, for messages."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in args)
    names = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", list: "a list"}
    return "None" if kind is type(None) else names.get(kind, str(kind).replace("typing.", ""))
