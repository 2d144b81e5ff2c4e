"""The plan's own files and its table."""

from llmdeploy.document import parse
from llmdeploy.plan import Plan, files, make
from llmdeploy.plan.report import table

from .cases import INVENTORY, MODEL, bundle, service


def plan(**parts):
    return make(service(**parts), INVENTORY, bundle(), MODEL)


def test_a_plan_is_its_yaml_and_one_command_a_replica():
    made = plan()
    written = files(made)
    assert sorted(written) == ["launch/local/r0.txt", "plan.yaml"]
    assert parse(written["plan.yaml"], Plan, place="plan.yaml").id == made.id


def test_the_command_leaves_to_launch_what_only_launch_knows(check_golden):
    command = files(plan())["launch/local/r0.txt"]
    assert "--port {port}" in command
    assert "--cores {cores}" in command
    check_golden("plan/launch.txt", command)


def test_a_release_alone_on_the_device_is_told_its_cores():
    assert "--cores 0,1" in files(plan(release={"side_by_side": False}))["launch/local/r0.txt"]


def test_the_table_is_readable_in_a_hundred_columns(check_golden):
    text = table(plan())
    assert max(len(line) for line in text.splitlines()) <= 100
    check_golden("plan/table.txt", text)
