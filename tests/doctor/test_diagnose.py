"""Symptoms, facts and logs together: what proves, what excludes, what is left open."""

from llmdeploy.doctor import Log, Question, diagnose, named
from llmdeploy.doctor.diagnosis import Verdict
from llmdeploy.doctor.facts import judged, shift_s
from llmdeploy.doctor.report import table
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.observe.signatures import signature

from ..facts.hosts import facts as facts_of_a_host

YEAR = 2026


def bundle():
    return Bundle(llmdeploy="0.1.0", hosts=(facts_of_a_host(),))


def finding(check, status, subject="gpu-1", found="what is there"):
    return Finding(
        check=check, status=status, subject=subject, found=found, needed="more", fix="do"
    )


def verdicts(diagnosis):
    return {suspect.id: suspect.verdict for suspect in diagnosis.suspects}


def test_a_symptom_alone_lists_its_causes_open_with_the_command_of_each_check():
    found = diagnose(Question(asked=named("显存溢出"), year=YEAR))
    assert set(verdicts(found).values()) == {Verdict.OPEN}
    assert all(proof.run for suspect in found.suspects for proof in suspect.proofs)
    assert "nothing was looked at" in found.notes[0]


def test_a_failing_check_proves_a_cause_and_content_ones_exclude_another():
    checks = [
        finding("gpu.foreign.processes", Status.FAIL, found="python (pid 9) holds 20 GiB"),
        finding("gpu.memory.free", Status.PASS),
        finding("rt.stale.cluster", Status.PASS),
        finding("live.kv_idle", Status.PASS),
        finding("live.memory_growth", Status.PASS),
    ]
    found = diagnose(Question(asked=named("oom"), findings=tuple(checks), year=YEAR))
    assert found.suspects[0].id == "out_of_memory.taken_by_others"
    assert found.suspects[0].proofs[0].found == "gpu-1: python (pid 9) holds 20 GiB"
    assert verdicts(found) == {
        "out_of_memory.taken_by_others": Verdict.PROVEN,
        "out_of_memory.batch_too_large": Verdict.OPEN,
        "out_of_memory.kv_not_freed": Verdict.EXCLUDED,
    }


def test_what_the_hosts_do_not_have_is_no_cause():
    lost = ("gpu.bus.fallen_off", "gpu.xid.window", "gpu.smi.responsive", "gpu.visible.count")
    checks = (*(finding(name, Status.SKIP) for name in lost), finding("live.streams", Status.SKIP))
    found = verdicts(diagnose(Question(asked=named("无响应"), findings=checks, year=YEAR)))
    assert found["no_response.device_lost"] == Verdict.EXCLUDED
    assert found["no_response.buffered"] == Verdict.OPEN  # too few requests to tell


def test_the_worst_host_answers_for_a_check():
    checks = (finding("os.shm", Status.PASS), finding("os.shm", Status.FAIL, "gpu-2", "64 MiB"))
    log = Log(name="r0", text=signature("memory.shared").match)
    (suspect,) = diagnose(Question(logs=(log,), findings=checks, year=YEAR)).suspects
    assert suspect.proofs[0].found == "gpu-2: 64 MiB"
    assert suspect.verdict == Verdict.PROVEN


def test_a_generic_line_is_likely_until_a_check_proves_it():
    log = Log(name="r0", text=signature("host.port_taken").match)
    assert diagnose(Question(logs=(log,), year=YEAR)).suspects[0].verdict == Verdict.LIKELY
    fails = (finding("net.ports.free", Status.FAIL),)
    proven = diagnose(Question(logs=(log,), findings=fails, year=YEAR))
    assert proven.suspects[0].verdict == Verdict.PROVEN


def test_without_a_symptom_each_failing_check_is_told_with_its_symptoms():
    checks = (finding("os.shm", Status.WARN), finding("net.firewall", Status.FAIL))
    (suspect,) = diagnose(Question(findings=checks, year=YEAR)).suspects
    assert (suspect.id, suspect.fix) == ("net.firewall", "do")
    assert suspect.symptoms == ("comm_timeout", "no_response")


def test_a_line_of_the_log_proves_the_cause_of_a_symptom():
    log = Log(name="r0", text=f"ok\n{signature('device.quantization').match}")
    found = diagnose(Question(asked=named("算子未生效"), logs=(log,), year=YEAR))
    ids = [suspect.id for suspect in found.suspects]
    assert ids[:2] == ["device.quantization", "operator_inactive.device"]
    assert found.suspects[1].verdict == Verdict.PROVEN
    assert found.suspects[1].evidence[0].line_number == 2


def test_an_unknown_error_is_said_to_be_one_with_its_traceback():
    text = "ok\nTraceback (most recent call last):\n  File 'x'\nFrobError: the frob is off\nbye\n"
    found = diagnose(Question(logs=(Log(name="a.log", text=text),), year=YEAR))
    assert found.suspects == ()
    assert not found.decided
    assert found.unknown[0].first_line == 2
    assert found.unknown[0].lines[-1] == "FrobError: the frob is off"
    assert "a.log: no known failure; its last error, from line 2:" in table(found)


def test_a_log_without_any_error_is_said_to_be_well():
    found = diagnose(Question(logs=(Log(name="a.log", text="INFO ready\n"),), year=YEAR))
    assert found.decided
    assert "nothing here looks like a failure" in table(found)


def test_a_bundle_is_judged_by_what_it_says_of_itself():
    findings = judged(bundle())
    assert {finding.status for finding in findings} >= {Status.PASS}
    assert Status.FAIL not in {finding.status for finding in findings}


def test_the_clock_of_the_host_in_a_logs_name_is_taken():
    facts = bundle()
    host = facts.hosts[0].model_copy(update={"clock_offset_s": 42.0})
    changed = facts.model_copy(update={"hosts": (host,)})
    assert shift_s(changed, f"logs/{host.host}-rank0.log") == 42.0
    assert shift_s(changed, "elsewhere") == 0.0
