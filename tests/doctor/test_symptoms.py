"""Every row of the troubleshooting tables is answered, and every answer can be checked."""

import pathlib

import pytest

from llmdeploy.doctor.live_checks import CHECKS as LIVE
from llmdeploy.doctor.symptoms import named, symptoms
from llmdeploy.errors import InputError
from llmdeploy.observe.signatures import catalogue

FACTS = pathlib.Path(__file__).parents[2] / "llmdeploy" / "facts"
SOURCE = "\n".join(path.read_text() for path in FACTS.rglob("*.py"))
ROWS = {
    # the table of the deployment on several machines with several cards
    "显存溢出": ("out_of_memory", ("batch_too_large", "kv_not_freed")),
    "GPU利用率低": ("low_utilisation", ("no_work", "communication", "small_batches")),
    "延迟波动大": ("latency_swings", ("lengths_differ", "queueing")),
    "通信超时": ("comm_timeout", ("network", "layout")),
    "算子未生效": ("operator_inactive", ("versions",)),
    # the table of the deployment on mixed devices
    "启动即失败": ("start_fails", ("versions",)),
    "显存不足报错": ("memory_short", ("model_too_large", "cache_reserve", "wrong_parallelism")),
    "服务无响应": ("no_response", ("not_listening", "blocked")),
    "推理结果异常": ("wrong_output", ("damaged_weights", "format")),
    "多卡吞吐不升反降": ("slower_with_more_cards", ("link", "fusion")),
    "运行中显存持续增长": ("memory_grows", ("not_released", "too_much_at_once")),
}
"""Row of the tables -> the symptom, and the causes that the row names."""
CAUSES = [cause for symptom in symptoms() for cause in symptom.causes]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_tables_is_a_symptom_with_its_causes(row):
    id, causes = ROWS[row]
    (symptom,) = named(row)
    assert symptom.id == id
    assert {f"{id}.{cause}" for cause in causes} <= {cause.id for cause in symptom.causes}


def test_there_is_no_symptom_beside_the_eleven_rows():
    assert [symptom.id for symptom in symptoms()] == [id for id, _ in ROWS.values()]


@pytest.mark.parametrize(
    ("words", "id"),
    [
        ("OOM", "out_of_memory"),
        ("CUDA out of memory under load", "out_of_memory"),
        ("low GPU utilization", "low_utilisation"),
        ("latency jitter at noon", "latency_swings"),
        ("nccl timeout", "comm_timeout"),
        ("operator fallback", "operator_inactive"),
        ("the engine fails to start", "start_fails"),
        ("model too large", "memory_short"),
        ("service not responding", "no_response"),
        ("the answers are garbage output", "wrong_output"),
        ("more GPUs slower", "slower_with_more_cards"),
        ("gpu memory leak", "memory_grows"),
        ("no_response", "no_response"),
    ],
)
def test_people_name_a_symptom_in_their_own_words(words, id):
    assert [symptom.id for symptom in named(words)] == [id]


def test_words_that_name_nothing_are_refused_with_all_that_is_known():
    with pytest.raises(InputError, match="no known symptom; known: out_of_memory") as error:
        named("blue screen")
    assert error.value.fix


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_a_cause_has_a_check_and_a_fix_and_names_what_exists(cause):
    assert cause.checks
    assert cause.proof
    assert cause.fix
    assert set(cause.signatures) <= {one.id for one in catalogue()}
    assert [check for check in cause.checks if not known(check)] == []


@pytest.mark.parametrize("signature", catalogue(), ids=lambda one: one.id)
def test_a_signature_belongs_to_symptoms_and_its_checks_exist(signature):
    assert signature.symptoms
    assert set(signature.symptoms) <= {symptom.id for symptom in symptoms()}
    assert [check for check in signature.checks if not known(check)] == []


def known(check):
    return check in LIVE or f'"{check}"' in SOURCE
