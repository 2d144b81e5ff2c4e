"""Reads one JSON request field by field; a bad value becomes a 400 with what was needed."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

from llmdeploy.errors import LlmDeployError


class ApiError(LlmDeployError):
    """An answer other than 200, in OpenAI's shape; the message ends with what to do."""

    def __init__(
        self,
        what: str,
        *,
        status: int,
        code: str,
        fix: str,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(what, fix=fix)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


def wrong(param: str, found: object, needed: str, *, code: str = "invalid_value") -> ApiError:
    """400: the value at `param` is not what is needed there."""
    return wrong_about(param, f"found {_short(found)}, needed {needed}", code=code)


def wrong_about(param: str, what: str, *, code: str = "invalid_value") -> ApiError:
    """400 about `param`, in words that name what was found and what is needed."""
    return ApiError(f"{param}: {what}", status=400, code=code, param=param, fix=f"change {param}")


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def json_object(body: bytes) -> dict[str, Any]:
    """The request's JSON object; 400 with the place where it is malformed."""
    try:
        found = json.loads(body)
        if b"\\u" in body:  # half of a surrogate pair is JSON, but no text
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ApiError(
            f"the body is not JSON: {error or 'nested too deeply'}",
            status=400,
            code="invalid_json",
            fix="send one JSON object with content-type application/json",
        ) from error
    if not isinstance(found, dict):
        raise wrong("body", found, "a JSON object", code="invalid_type")
    return found


def check_keys(body: Mapping[str, Any], *, known: frozenset[str]) -> None:
    """400 at the first key that is not known, with the nearest one that is."""
    for key in body:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ApiError(
                f"{_short(key)}: unknown parameter with value {_short(body[key])}",
                status=400,
                code="unknown_parameter",
                param=key[:100],
                fix=f"rename it to {near[0]}" if near else "leave it out",
            )


def number(body: Mapping[str, Any], name: str, default: float, *, low: float, high: float) -> float:
    """A number in low...high; the default where it is absent or null."""
    value = body.get(name)
    if value is None:
        return default
    if not _is_number(value) or not low <= value <= high:
        raise wrong(name, value, f"a number from {low:g} to {high:g}")
    return float(value)


def whole(
    body: Mapping[str, Any], name: str, *, low: int, high: int, default: int | None = None
) -> int | None:
    """A whole number in low...high; the default where it is absent or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        upper = f" to {high}" if high < 2**31 else ""
        raise wrong(name, value, f"a whole number from {low}{upper}")
    return value


def flag(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """true or false; the default where it is absent or null."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(name, value, "true or false", code="invalid_type")
    return value


def texts(body: Mapping[str, Any], name: str, *, most: int) -> tuple[str, ...]:
    """A string or a list of up to `most` non-empty strings; none where absent or null."""
    value = body.get(name)
    items = [] if value is None else [value] if isinstance(value, str) else value
    good = isinstance(items, list) and all(isinstance(item, str) and item for item in items)
    if not good or len(items) > most:
        raise wrong(name, value, f"a non-empty string or a list of up to {most} of them")
    return tuple(items)


def logit_bias(body: Mapping[str, Any], *, vocabulary: int) -> tuple[tuple[int, float], ...]:
    """Token ids with their bias in -100...100; none where absent or null."""
    value = body.get("logit_bias")
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise wrong("logit_bias", value, "an object of token ids and numbers", code="invalid_type")
    for key, bias in value.items():
        if not key.isdecimal() or len(key) > 9 or int(key) >= vocabulary:
            raise wrong("logit_bias", key, f"token ids from 0 to {vocabulary - 1}")
        if not _is_number(bias) or not -100 <= bias <= 100:
            raise wrong(f"logit_bias.{key}", bias, "a number from -100 to 100")
    return tuple((int(key), float(bias)) for key, bias in value.items())


def refuse(body: Mapping[str, Any], name: str, *, neutral: tuple[object, ...], why: str) -> None:
    """400 where `name` asks for something this engine does not do."""
    if body.get(name) not in (None, *neutral):
        raise ApiError(
            f"{name}: found {_short(body[name])}: {why}",
            status=400,
            code="unsupported_parameter",
            param=name,
            fix=f"leave out {name}",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
