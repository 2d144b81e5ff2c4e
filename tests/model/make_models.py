"""Writes llmdeploy/catalog/models.jsonl from published configs: python -m tests.model.make_models.

Reads known_configs.yaml and further_configs.yaml beside it (what we wrote down from published
config.json files) and, where given, JSON files of configs: `{id: {"config": {...}, "config_of":
id}}`, or one config each named `org--name_config.json`. Only the shape and the id are written; ids
that none of these hold keep their line.
"""

import argparse
import json
import pathlib
import sys

import yaml

from llmdeploy.catalog.model_names import take_apart
from llmdeploy.catalog.models import MIXED_MAKERS
from llmdeploy.errors import LlmDeployError
from llmdeploy.model import ModelShape, from_config, in_mixed_precision, suited

HERE = pathlib.Path(__file__).parent
OURS = ("known_configs.yaml", "further_configs.yaml")
TARGET = HERE.parents[1] / "llmdeploy" / "catalog" / "models.jsonl"


def known_configs():
    """Ours: a config may name another as `like` and state only what differs."""
    made = {}
    for file in OURS:
        for name, config in yaml.safe_load((HERE / file).read_text()).items():
            base = config.pop("like", None)
            made[name] = {**(made[base] if base else {}), **config}
    return made


def published(path):
    """Configs of one file with the id each belongs to."""
    tree = json.loads(path.read_text())
    if isinstance(next(iter(tree.values()), None), dict) and "architectures" not in tree:
        return {
            name: (entry["config"], entry.get("config_of") or name)
            for name, entry in tree.items()
            if entry.get("config")
        }
    name = path.name.removesuffix("_config.json").removesuffix(".json").replace("--", "/", 1)
    return {name: (tree, name)}


def shape(name, config, config_of):
    """The shape; the format of another checkpoint is replaced by what the name tells."""
    config = dict(config)
    named = take_apart(name)
    if config_of.lower() != name.lower() or named.format is not None:
        own = take_apart(config_of)
        if "quantization_config" in config and (own.format is not None or named.format is not None):
            keeps = config_of.lower() == name.lower()
            if not keeps:
                config.pop("quantization_config")
    if "embedding" in name.lower():  # loaded without a head
        config["tie_word_embeddings"] = True
    return in_named_format(from_config(config, place=name), name)


def in_named_format(made, name):
    """The shape in the format that its name tells, where it has none of its own."""
    named = take_apart(name)
    if made.weight_format is None and named.format is not None:
        held = named.format
        if held.method == "nvfp4" and named.maker in MIXED_MAKERS:
            held = in_mixed_precision(made, held)
        made = made.model_copy(update={"weight_format": suited(made, held)})
    return made


def same_shape(lines, name, config):
    """The line of the shape that a config names as `same`, in the format that the name tells."""
    base = json.loads(lines[config["same"]])["shape"]
    made = ModelShape.model_validate_json(json.dumps(base))
    if "max_position_embeddings" in config:
        made = made.model_copy(update={"max_positions": config["max_position_embeddings"]})
    return line(name, in_named_format(made, name))


def line(name, made):
    """One line of the table of shapes."""
    tree = json.loads(made.model_dump_json(exclude_defaults=True, exclude_none=True))
    return json.dumps({"id": name, "shape": tree}, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    found = {}
    for path in parser.parse_args().files:
        found |= published(path)
    known = known_configs()
    ours = {name: (config, name) for name, config in known.items() if "same" not in config}
    found = {**ours, **{name: entry for name, entry in found.items() if name not in ours}}
    lines = {json.loads(text)["id"]: text for text in TARGET.read_text().splitlines()}
    for name, (config, config_of) in found.items():
        try:
            made = shape(name, config, config_of)
        except LlmDeployError as error:
            sys.stderr.write(f"left out {name}: {error}\n")
            continue
        lines[name] = line(name, made)
    for name, config in known.items():
        if "same" in config:
            lines[name] = same_shape(lines, name, config)
    TARGET.write_text("\n".join(lines.values()) + "\n")
    sys.stderr.write(f"{len(lines)} shapes, {TARGET.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
