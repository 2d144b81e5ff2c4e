"""Documents load strictly, explain what is wrong, and dump to text that loads again."""

import pytest

from llmdeploy.document import dump, parse
from llmdeploy.errors import InputError
from llmdeploy.inventory import Inventory
from llmdeploy.service import Service

MINIMAL = "cluster: cluster.yaml\nmodel: {id: smol}\n"


def test_only_model_and_cluster_are_required() -> None:
    service = parse(MINIMAL, Service, place="service.yaml")
    assert service.name == "chat"
    assert service.release.steps == (0.05, 0.25, 0.5, 1.0)


def test_values_carry_their_units() -> None:
    text = MINIMAL + (
        "objectives: {ttft_p95: 250ms, error_ratio: 0.1%}\ngateway: {key_rate: 90/min}\n"
    )
    service = parse(text, Service, place="service.yaml")
    assert service.objectives.ttft_p95_s == 0.25
    assert service.objectives.error_ratio == 0.001
    assert service.gateway.key_rate_per_s == 1.5


def test_a_dumped_service_loads_to_the_same_service() -> None:
    text = MINIMAL + "engine: {drill: {slowdown: 2, error_ratio: 5%}, memory_ratio: 33.3%}\n"
    service = parse(text, Service, place="service.yaml")
    assert parse(dump(service), Service, place="dump") == service


def test_a_dumped_inventory_loads_to_the_same_inventory() -> None:
    inventory = parse("state_root: /srv/llm", Inventory, place="cluster.yaml")
    assert parse(dump(inventory), Inventory, place="dump") == inventory
    assert inventory.gateway_host.name == "local"


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        (
            "cluster: c\nmodel: {id: a, dtyp: x}",
            "service.yaml: model/dtyp: unknown key 'dtyp' with value \"x\"",
            "rename it to dtype",
        ),
        (
            MINIMAL + "frobnicate: 1",
            "service.yaml: frobnicate: unknown key 'frobnicate' with value 1",
            "remove it; known keys: cluster, engine, gateway, model, name, objectives, release, "
            "schema, workload",
        ),
        (
            MINIMAL + "objectives: {tpot_p95: 200}",
            "service.yaml: objectives/tpot_p95: found 200, needed a number with its unit, like 2s "
            "(units: ms, s, min, h, d)",
            "write objectives/tpot_p95 that way in service.yaml",
        ),
        (
            MINIMAL + "objectives: {error_ratio: 250%}",
            "service.yaml: objectives/error_ratio: found '250%', needed at most 100%",
            "write objectives/error_ratio that way in service.yaml",
        ),
        (
            MINIMAL + "workload: {requests_per_day: -5}",
            "service.yaml: workload/requests_per_day: found -5, needed greater than or equal to 1",
            "change workload/requests_per_day in service.yaml to 1 or more",
        ),
        (
            MINIMAL + "workload: {requests_per_day: 9000000000000}",
            "service.yaml: workload/requests_per_day: found 9000000000000,"
            " needed less than or equal to 1000000000000",
            "change workload/requests_per_day in service.yaml to 1000000000000 or less",
        ),
        (
            MINIMAL + "objectives: {utilisation_ratio: 0%}",
            "service.yaml: objectives/utilisation_ratio: found 0.0, needed greater than 0",
            "change objectives/utilisation_ratio in service.yaml to more than 0",
        ),
        (
            MINIMAL + "workload: {peak_factor: .inf}",
            "service.yaml: workload/peak_factor: found Infinity, needed less than or equal to 1000",
            "change workload/peak_factor in service.yaml to 1000 or less",
        ),
        (
            MINIMAL + "name: My Chat",
            'service.yaml: name: found "My Chat", needed text that matches'
            " '^[a-z][a-z0-9-]{0,30}$'",
            "change name in service.yaml",
        ),
        (
            MINIMAL + "engine: {device: tpu}",
            "service.yaml: engine/device: found \"tpu\", needed 'auto', 'cpu' or 'cuda'",
            "change engine/device in service.yaml",
        ),
        (
            "model: {id: a}",
            "service.yaml: cluster: is missing, needed a value",
            "add the key cluster to service.yaml",
        ),
        (
            MINIMAL + "release: {steps: [50%, 5%]}",
            "service.yaml: release: found steps 50%, 5%, needed rising shares that end at 100%",
            "write release that way in service.yaml",
        ),
        (
            "- a\n- b",
            "service.yaml: found list, needed a mapping of keys to values",
            "start service.yaml from a copy in examples/",
        ),
        (
            "# all of it is a comment",
            "service.yaml: found nothing, needed a mapping of keys to values",
            "start service.yaml from a copy in examples/",
        ),
        (
            MINIMAL + "engine: {request_timeout: 9" + "0" * 400 + "s}",
            "service.yaml: engine/request_timeout: found '9" + "0" * 39 + "', needed at most"
            " 1e+18 in the base unit",
            "write engine/request_timeout that way in service.yaml",
        ),
    ],
)
def test_a_wrong_document_names_the_path_both_values_and_the_fix(
    text: str, said: str, fix: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, Service, place="service.yaml")
    assert str(caught.value) == said
    assert caught.value.fix == fix
    assert caught.value.exit_code == 2


def test_unreadable_yaml_names_the_line() -> None:
    with pytest.raises(
        InputError, match=r"service\.yaml: cannot be read as YAML: .*line 2, column 16"
    ):
        parse("cluster: c\nmodel: {id: a b: c}", Service, place="service.yaml")


def test_a_date_that_does_not_exist_is_an_input_error():
    with pytest.raises(InputError, match=r"c\.yaml: found a date that does not exist \(day is"):
        parse("state_root: 2027-02-31", Inventory, place="c.yaml")


def test_an_alias_that_holds_itself_is_an_input_error():
    with pytest.raises(InputError, match=r"c\.yaml: found an alias that holds itself"):
        parse("hosts: &a [*a]", Inventory, place="c.yaml")


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("engine: {request_timeout: 0s}", "engine/request_timeout: found 0.0, needed greater than"),
        ("engine: {memory_ratio: 0%}", "engine/memory_ratio: found 0.0, needed greater than 0"),
        ("engine: {drain_timeout: 30d}", "found 2592000.0, needed less than or equal to 86400"),
        ("gateway: {key_rate: 9000000000/s}", "found 9000000000.0, needed less than or equal to"),
        ("gateway: {body_limit: 5GiB}", "gateway/body_limit: found 5368709120, needed less than"),
        ("gateway: {body_limit: 0B}", "gateway/body_limit: found 0, needed greater than or equal"),
        ("gateway: {max_queue: 99999999999}", "gateway/max_queue: found 99999999999, needed less"),
        ("gateway: {host: localhost}", "gateway/host: found 'localhost', needed an IP address to"),
        ("release: {step_timeout: 0s}", "release/step_timeout: found 0.0, needed greater than 0"),
    ],
)
def test_what_no_gateway_or_engine_could_take_is_refused_at_once(key, said):
    with pytest.raises(InputError) as caught:
        parse(MINIMAL + key, Service, place="service.yaml")
    assert said in str(caught.value)


def test_one_request_an_hour_survives_being_written_and_read():
    service = parse(MINIMAL + "gateway: {key_rate: 1/h}", Service, place="service.yaml")
    again = parse(dump(service), Service, place="dump")
    assert again.gateway.key_rate_per_s == pytest.approx(1 / 3600)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2027-01-01: x", "the key 2027-01-01, needed a word, or it in quotes at line 1, column 1"),
        ("? !!binary aGVsbG8=\n: x", "the key aGVsbG8=, needed a word"),
        ("a: !!bool maybe", "maybe, which is no bool that can be read at line 1, column 4"),
        ("a: !!timestamp soon", "soon, which is no timestamp that can be read at line 1, column 4"),
        (f"a: {'9' * 5000}", "9{200}, which is no int that can be read at line 1, column 4"),
    ],
)
def test_values_that_yaml_cannot_make_are_named_with_their_line(text, said):
    with pytest.raises(InputError, match=f"c.yaml: cannot be read as YAML: found {said}"):
        parse(text, Inventory, place="c.yaml")


def test_aliases_of_aliases_end_at_once():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    with pytest.raises(InputError, match=r"c\.yaml: found an alias that holds itself or too many"):
        parse("\n".join(lines), Inventory, place="c.yaml")


def test_more_nesting_than_can_be_read_is_an_input_error():
    with pytest.raises(InputError, match="more nesting than can be read"):
        parse(f"a: {'[' * 700}{']' * 700}", Inventory, place="c.yaml")


def test_a_key_that_stands_twice_is_named_with_its_line():
    with pytest.raises(InputError, match=r"c\.yaml: .*the key name twice at line 3, column 5"):
        parse("hosts:\n  - name: a\n    name: b\n", Inventory, place="c.yaml")
