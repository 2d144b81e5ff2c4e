"""`llmdeploy environments`: which there are, and what it says when there are none."""

import pathlib

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app

CLUSTER = "environments: [{name: cuda, requirements: [a==1]}]\nhosts: [{environment: cuda}]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema: 1", "no host names an environment, needed one"),
        (CLUSTER, "no host names an environment rocm, found: cuda"),
    ],
)
def test_the_command_says_which_environments_there_are(
    tmp_path: pathlib.Path, text: str, said: str
) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    only = ["--only", "rocm"] if "cuda" in text else []
    ended = CliRunner().invoke(app, ["environments", "list", str(tmp_path / "cluster.yaml"), *only])
    assert ended.exit_code == 2
    assert said in ended.stderr
