"""Changing production code in this process, and back: whole attributes, or one line of a function's source."""

from __future__ import annotations
import __future__ as features

import inspect
import textwrap
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType, TracebackType
from typing import Any, Final

Owner = type[Any] | ModuleType

ANNOTATIONS: Final = features.annotations.compiler_flag
"""Edited source is compiled as the modules are that it comes from."""


class PatchError(Exception):
    """Production has changed under a mutant: what it wants to change is not there any more."""


class Patch:
    """Attributes of classes and modules that are replaced until the end of the `with`.

    Every method raises PatchError when the attribute does not exist where it is said to, when its parameters are others, or when
    the line to change is not there exactly once: a mutant whose target was renamed must not pass as one that nobody catches.
    """

    def __init__(self) -> None:
        self.changes: list[tuple[Owner, str, Any]] = []
        """(owner, name, original), in the order of the changes."""

    def __enter__(self) -> Patch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for owner, name, original in reversed(self.changes):
            setattr(owner, name, original)
        self.changes.clear()

    def set(self, owner: Owner, name: str, value: Any, *, also: Iterable[ModuleType] = ()) -> None:
        """Replace an attribute. `also`: modules that imported it by name."""
        original = _attribute(owner, name)
        if isinstance(original, FunctionType) and isinstance(value, FunctionType):
            wanted, found = list(inspect.signature(original).parameters), list(inspect.signature(value).parameters)
            if wanted != found:
                raise PatchError(f"{_name(owner)}.{name} has the parameters {wanted}, the mutant's are {found}")
        self._put(owner, name, value)
        for module in also:
            if _attribute(module, name) is not original:
                raise PatchError(f"{module.__name__}.{name} is not {_name(owner)}.{name}")
            self._put(module, name, value)

    def edit(self, owner: Owner, name: str, *changes: tuple[str, str], also: Iterable[ModuleType] = ()) -> None:
        """Replace text in the source of a function, method (of a class, too) or property: each (before, after), `before` found
        exactly once."""
        original = _attribute(owner, name)
        function = original.fget if isinstance(original, property) else getattr(original, "__func__", original)
        if not isinstance(function, FunctionType) or function.__closure__:
            raise PatchError(f"{_name(owner)}.{name} is no plain function: {original!r}")
        source = textwrap.dedent(inspect.getsource(function))
        for before, after in changes:
            if source.count(before) != 1:
                raise PatchError(f"{_name(owner)}.{name} has {before!r} {source.count(before)} times, not once")
            source = source.replace(before, after)
        found: dict[str, Any] = {}
        code = compile(source, f"<mutant of {_name(owner)}.{name}>", "exec", ANNOTATIONS, True)
        exec(code, function.__globals__, found)
        self.set(owner, name, found[name], also=also)

    def around(self, owner: Owner, name: str, wrapper: Callable[..., Any]) -> None:
        """Replace a function by one that calls `wrapper(original, …)` with the same arguments."""
        original = _attribute(owner, name)
        if not isinstance(original, FunctionType):
            raise PatchError(f"{_name(owner)}.{name} is no plain function: {original!r}")
        wanted, found = list(inspect.signature(original).parameters), list(inspect.signature(wrapper).parameters)[1:]
        if wanted != found:
            raise PatchError(f"{_name(owner)}.{name} has the parameters {wanted}, the mutant's are {found}")

        def wrapped(*args: Any, **named: Any) -> Any:
            return wrapper(original, *args, **named)

        self._put(owner, name, wrapped)

    def _put(self, owner: Owner, name: str, value: Any) -> None:
        self.changes.append((owner, name, _attribute(owner, name)))
        setattr(owner, name, value)


def _attribute(owner: Owner, name: str) -> Any:
    """Of the owner itself: what it merely inherits would be restored in the wrong place."""
    found = vars(owner)
    if name not in found:
        raise PatchError(f"{_name(owner)} has no {name} of its own: was it renamed or moved?")
    return found[name]


def _name(owner: Owner) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
