"""Values of options: read with their units and held to their range; errors name option and fix."""

from collections.abc import Callable

import typer

from llmdeploy.errors import InputError


def with_unit(
    parse: Callable[[object], float], text: str, *, option: str, example: str, least: str = ""
) -> float:
    """What `parse` reads of the text, in its base unit; InputError below `least`."""
    fix = f"write it like {option} {example}"
    try:
        value = parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}", fix=fix) from error
    if least and value < parse(least):
        raise InputError(f"{option}: found {text}, needed {least} or more", fix=fix)
    return value


def at_least(least: int) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """Callback of an option that takes whole numbers from `least` on."""

    def checked(param: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and value < least:
            option = param.opts[0]
            raise InputError(
                f"{option}: found {value}, needed a whole number, {least} or more",
                fix=f"give {option} {least} or more, or leave it out",
            )
        return value

    return checked
