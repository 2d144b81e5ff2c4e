"""Documents: YAML or JSON text to frozen, strict pydantic models, with errors one can act on."""

import difflib
import json
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from llmdeploy.errors import InputError

SHOWN = 200
"""Characters of a wrong value that its error repeats."""
MOST_REPEATED = 1000
"""How often aliases may repeat the values of a document, in the mean."""
_NO_KEYS = (":timestamp", ":binary")
"""Tags of what YAML takes as a key and JSON does not."""
_UNIT_SUFFIXES = (
    "_bytes_per_s",
    "_per_s",
    "_bytes",
    "_s",
)  # `error_ratio: 0.1%` reads well as it is

_BOUNDS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "{} or less"),
}
"""By pydantic's kind of error: where it says the bound, and the bound in words."""


def human_key(field: str) -> str:
    """The key a person writes for a field: the unit stands in the value, so its suffix goes."""
    for suffix in _UNIT_SUFFIXES:
        if field.endswith(suffix):
            return field.removesuffix(suffix)
    return field


class Document(BaseModel):
    """A file the product writes: field names carry the units, values are bare numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class HumanDocument(BaseModel):
    """A file people write: values carry the units (`ttft_p95: 2s` fills `ttft_p95_s`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=human_key)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # libyaml may be absent
    """YAML in which a key is a word and stands once, and a value is what its tag says."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, KeyError, AttributeError) as error:  # PyYAML's, for `!!bool maybe`
            kind = node.tag.rpartition(":")[2]
            if kind == "timestamp" and isinstance(error, ValueError):
                raise  # a date such as 2027-02-31
            found = str(node.value)[:SHOWN]
            raise _misread(f"found {found}, which is no {kind} that can be read", node) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise _misread(f"found the key {key.value} twice", key)
            if key.tag.endswith(_NO_KEYS):
                raise _misread(f"found the key {key.value}, needed a word, or it in quotes", key)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
        return super().construct_mapping(node, deep=deep)


D = TypeVar("D", bound=BaseModel)


def parse(text: str, kind: type[D], *, place: str) -> D:
    """The document in `text`; InputError with the key's path, both values and a fix."""
    tree = _tree(text, place=place)
    if not isinstance(tree, dict):
        found = "nothing" if tree is None else type(tree).__name__
        raise InputError(
            f"{place}: found {found}, needed a mapping of keys to values",
            fix=f"start {place} from a copy in examples/",
        )
    try:
        _check_size(tree)
        return kind.model_validate_json(json.dumps(tree, default=str))
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":  # it nests deeper than pydantic reads
            raise _too_deep(place) from error
        raise explained(error, kind, place=place) from error
    except (ValueError, RecursionError) as error:
        raise _too_deep(place) from error


def _tree(text: str, *, place: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        detail = f"{getattr(error, 'problem', None) or error}{line}"
        fix = f"mend the YAML of {place} at that line (look for tabs, missing spaces or quotes)"
        raise InputError(f"{place}: cannot be read as YAML: {detail}", fix=fix) from error
    except ValueError as error:  # a date such as 2027-02-31: YAML reads it, the calendar does not
        raise InputError(
            f"{place}: found a date that does not exist ({error}), needed one that does",
            fix=f"look for dates in {place}, written YEAR-MONTH-DAY",
        ) from error
    except RecursionError as error:
        raise _too_deep(place) from error


def _misread(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _too_deep(place: str) -> InputError:
    return InputError(
        f"{place}: found an alias that holds itself or too many others, or more nesting than can"
        " be read",
        fix=f"write the value out in {place} where it says *NAME",
    )


def _check_size(tree: Any) -> None:
    """ValueError where aliases make a small text a tree too large to write out."""
    sizes: dict[int, int] = {}
    written = 1

    def size(node: Any) -> int:
        nonlocal written
        if not isinstance(node, dict | list):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = 1  # so that one that holds itself ends here
            written += len(node)
            inside = node.values() if isinstance(node, dict) else node
            sizes[id(node)] = 1 + sum(map(size, inside))
        return sizes[id(node)]

    if size(tree) > MOST_REPEATED * written:
        raise ValueError("aliases of aliases")


def dump(document: BaseModel) -> str:
    """YAML of a document in field order; the same document gives the same bytes."""
    tree = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)


def explained(error: ValidationError, kind: type[BaseModel], *, place: str) -> InputError:
    """The first mistake with its key's path, what was found, what was needed, and the fix."""
    details = error.errors()
    first = details[0]
    path = "/".join(str(part) for part in first["loc"]) or "(top)"
    place_of = first["loc"]
    others = [d for d in details[1:] if d["loc"] != place_of[: len(d["loc"])]]  # not what holds it
    more = f" (and {len(others)} more)" if others else ""
    what, fix = _words(first, kind)
    return InputError(f"{place}: {path}: {what}{more}", fix=fix.format(place=place, path=path))


def _words(detail: ErrorDetails, kind: type[BaseModel]) -> tuple[str, str]:
    found = json.dumps(detail.get("input"), default=str, ensure_ascii=False)
    found = found if len(found) <= SHOWN else f"{found[:SHOWN]}…"
    if detail["type"] == "extra_forbidden":
        key = str(detail["loc"][-1])
        allowed = sorted(_keys_beside(detail["loc"], kind))
        near = difflib.get_close_matches(key, allowed, n=1)
        fix = f"rename it to {near[0]}" if near else f"remove it; known keys: {', '.join(allowed)}"
        return f"unknown key {key!r} with value {found}", fix
    if detail["type"] == "missing":
        return "is missing, needed a value", "add the key {path} to {place}"
    message = detail["msg"].removeprefix("Value error, ")
    if message.startswith("found "):
        return message, "write {path} that way in {place}"
    needed = message.removeprefix("Input should be ").removeprefix("Input ")
    needed = needed.replace("String should match pattern", "text that matches")
    return f"found {found}, needed {needed}", "change {path} in {place}" + _bound(detail)


def _bound(detail: ErrorDetails) -> str:
    """How far a number out of its range must go, as the end of the fix; empty for other errors."""
    name, words = _BOUNDS.get(detail["type"], ("", ""))
    bound = detail.get("ctx", {}).get(name)
    if not isinstance(bound, int | float):
        return ""
    return f" to {words.format(int(bound) if bound == int(bound) else bound)}"


def _keys_beside(location: tuple[int | str, ...], kind: type[BaseModel]) -> set[str]:
    current: Any = kind
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        fields = {f.alias or name: f for name, f in current.model_fields.items()}
        if part not in fields:  # a discriminator or union member, not a key
            continue
        current = _model_in(fields[part].annotation)
        if current is None:
            return set()
    return {f.alias or name for name, f in current.model_fields.items()}


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
