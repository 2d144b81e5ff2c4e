"""Worker processes with the real model, as the pool starts them."""

import os
import shutil
import signal
from dataclasses import replace

import psutil
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from llmdeploy.engine.messages import Cancel, Generate, Sampling
from llmdeploy.engine.settings import parse
from llmdeploy.engine.worker import place

from .tiny_models import make_tiny, settings
from .worker_process import running_worker

pytestmark = pytest.mark.end_to_end

GREEDY = Sampling(temperature=0.0)
SUBJECTS = [
    "rivers", "copper", "the moon", "bread", "glass", "winter", "trains", "bees", "salt", "maps",
    "clocks", "rice", "bridges", "owls", "paper", "ships", "wool", "stars", "chess", "rain",
    "coal", "tea", "sand", "violins", "apples",
]  # fmt: skip
QUESTIONS = [f"Tell me a short fact about {subject}." for subject in SUBJECTS]
STORIES = [f"Write a list of words that go with {subject}, one a line." for subject in SUBJECTS]


def real(model_folder, **changes):
    base = settings(str(model_folder), kv_cache_tokens=16384, max_model_len=2048)
    return replace(base, **changes)


def encode(model_folder, question: str) -> tuple[int, ...]:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    message = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    return tuple(ids)


def test_greedy_fp32_answers_equal_generate_token_for_token_on_50_prompts(model_folder):
    prompts = [encode(model_folder, q) for q in QUESTIONS + STORIES]
    assert len(set(prompts)) == 50
    with running_worker(real(model_folder)) as worker:
        worker.until_ready()
        ids = [str(i) for i in range(50)]
        for id, prompt in zip(ids, prompts, strict=True):
            worker.send(Generate(id=id, prompt=prompt, max_tokens=24, sampling=GREEDY))
        worker.until_finished(*ids)
        answers = [worker.tokens(id) for id in ids]
    assert answers == generated(model_folder, prompts, max_tokens=24)


def generated(model_folder, prompts: list[tuple[int, ...]], *, max_tokens: int) -> list[list[int]]:
    """What `generate` answers, prompts of one length together, without what follows the end."""
    torch.set_num_threads(1)  # two threads that wait for each other are slower on a busy machine
    reference = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    answers = {}
    for length in {len(prompt) for prompt in prompts}:
        alike = [prompt for prompt in prompts if len(prompt) == length]
        inputs = torch.tensor(alike)
        out = reference.generate(
            inputs,
            attention_mask=torch.ones_like(inputs),
            max_new_tokens=max_tokens,
            do_sample=False,
        )
        for prompt, row in zip(alike, out[:, length:].tolist(), strict=True):
            answers[prompt] = row[: row.index(2)] if 2 in row else row
    return [answers[prompt] for prompt in prompts]


def test_the_same_seed_gives_the_same_text_alone_and_in_a_batch_of_8(model_folder):
    sampling = Sampling(temperature=0.8, top_p=0.95, seed=42)
    prompt = encode(model_folder, QUESTIONS[0])
    others = [encode(model_folder, question) for question in STORIES[:7]]
    with running_worker(real(model_folder)) as worker:
        worker.until_ready()
        worker.send(Generate(id="alone", prompt=prompt, max_tokens=32, sampling=sampling))
        worker.until_finished("alone")
        for i, other in enumerate(others):
            seeded = replace(sampling, seed=i)
            worker.send(Generate(id=str(i), prompt=other, max_tokens=32, sampling=seeded))
        worker.send(Generate(id="joined", prompt=prompt, max_tokens=32, sampling=sampling))
        worker.until_finished("joined", *[str(i) for i in range(7)])
        assert worker.tokens("joined") == worker.tokens("alone")


def test_the_phases_the_answer_the_cancel_and_the_end_of_a_bf16_worker(model_folder):
    prompt = encode(model_folder, "What is 2+2?")
    with running_worker(real(model_folder, dtype="bfloat16")) as worker:
        worker.until_ready()
        assert [r.phase for r in worker.reached] == ["comm_ready", "loaded", "kv_ready"]
        assert worker.reached[-1].kv_cache_tokens == 16384
        assert worker.reached[-1].weights_bytes == 269_030_016  # 134,515,008 parameters, bf16
        worker.send(Generate(id="a", prompt=prompt, max_tokens=24, sampling=GREEDY))
        worker.until_finished("a")
        text = AutoTokenizer.from_pretrained(model_folder).decode(worker.tokens("a"))
        assert "4" in text
        assert worker.outputs["a"][-1].finish == "stop"
        long = replace(GREEDY, ignore_eos=True)
        worker.send(Generate(id="b", prompt=prompt, max_tokens=1500, sampling=long))
        while "b" not in worker.outputs:
            worker.hear()
        worker.send(Cancel(id="b"))
        worker.until_finished("b")
        assert worker.until_idle().kv_used_tokens == 0
    assert worker.process.exitcode == 0


@pytest.mark.parametrize("quantization", ["int8", "nf4"])
def test_quantized_weights_load_smaller_and_answer(model_folder, quantization):
    chosen = real(model_folder, dtype="bfloat16", quantization=quantization, threads_per_worker=2)
    prompt = encode(model_folder, "What is 2+2?")
    with running_worker(chosen) as worker:
        worker.until_ready()
        assert worker.reached[-1].weights_bytes < 180e6
        worker.send(Generate(id="a", prompt=prompt, max_tokens=24, sampling=GREEDY))
        worker.until_finished("a")
        assert "4" in AutoTokenizer.from_pretrained(model_folder).decode(worker.tokens("a"))


def test_a_cache_that_does_not_fit_is_refused_before_loading(model_folder):
    with running_worker(real(model_folder, kv_cache_tokens=10**9)) as worker:
        failed = worker.until_failed()
        worker.process.join(20)
    assert "bytes are free" in failed.reason
    assert "--kv-cache-tokens" in failed.fix
    assert worker.reached == []
    assert worker.process.exitcode == 3


def test_a_truncated_shard_is_refused_with_its_name(model_folder, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(model_folder, copy)
    shard = copy / "model.safetensors"
    os.truncate(shard, shard.stat().st_size // 2)
    with running_worker(real(copy)) as worker:
        failed = worker.until_failed()
    assert str(shard) in failed.reason


def test_heads_that_do_not_divide_are_refused_before_loading(model_folder):
    with running_worker(real(model_folder, tensor_parallel=2)) as worker:
        failed = worker.until_failed()
    assert "9 attention heads do not divide by --tensor-parallel 2" in failed.reason
    assert failed.fix == "use --tensor-parallel 1"


def test_two_ranks_answer_as_one_does_and_end_together(tmp_path):
    model = make_tiny(tmp_path)
    prompts = {str(i): tuple(range(3, 8 + 9 * i)) for i in range(5)}

    def answers(ranks: int) -> dict[str, list[int]]:
        with running_worker(settings(model, tensor_parallel=ranks)) as worker:
            worker.until_ready()
            for id, prompt in prompts.items():
                sampling = Sampling(temperature=0.0 if int(id) % 2 else 0.7, seed=int(id))
                worker.send(Generate(id=id, prompt=prompt, max_tokens=16, sampling=sampling))
            worker.until_finished(*prompts)
            worker.until_idle()
            worker.send(Generate(id="later", prompt=(5, 6), max_tokens=4, sampling=GREEDY))
            worker.until_finished("later")
            children = psutil.Process(worker.process.pid).children(recursive=True)
        assert worker.process.exitcode == 0
        psutil.wait_procs(children, timeout=20)
        assert not any(child.is_running() for child in children)
        return {id: worker.tokens(id) for id in [*prompts, "later"]}

    assert answers(2) == answers(1)


def test_a_killed_rank_ends_the_worker(tmp_path):
    chosen = settings(make_tiny(tmp_path), tensor_parallel=2)
    with running_worker(chosen) as worker:
        worker.until_ready()
        rank = follower(worker.process.pid)
        rank.send_signal(signal.SIGKILL)
        worker.process.join(30)
        assert worker.process.exitcode == 1


def test_a_killed_worker_ends_its_ranks(tmp_path):
    chosen = settings(make_tiny(tmp_path), tensor_parallel=2)
    with running_worker(chosen) as worker:
        worker.until_ready()
        rank = follower(worker.process.pid)
        worker.process.kill()
        rank.wait(30)
        assert not rank.is_running()


def follower(pid: int) -> psutil.Process:
    """The rank that the worker started: its child that runs Python code of its own."""
    children = psutil.Process(pid).children()
    (rank,) = [c for c in children if any("spawn_main" in word for word in c.cmdline())]
    return rank


def test_a_missing_model_folder_is_refused_with_its_path(tmp_path):
    with running_worker(settings(str(tmp_path / "nothing"))) as worker:
        failed = worker.until_failed()
    assert str(tmp_path / "nothing") in failed.reason
    assert worker.process.exitcode in (None, 2)


def test_a_model_that_cannot_be_built_says_why(tmp_path):
    model = make_tiny(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"model_type": "llama"', '"model_type": "nope"'))
    with running_worker(settings(model)) as worker:
        failed = worker.until_failed()
        worker.process.join(30)
    assert "nope" in failed.reason
    assert worker.process.exitcode == 1


def test_one_thread_workers_get_one_core_each():
    argv = ["--model", "m", "--served-name", "m", "--port", "1", "--kv-cache-tokens", "1"]
    before = os.sched_getaffinity(0)
    cores = tuple(sorted(before))
    try:
        for worker in range(3):
            place(replace(parse(argv), data_parallel=3, cores=cores), worker=worker)
            assert os.sched_getaffinity(0) == {cores[worker % len(cores)]}
        place(replace(parse(argv), threads_per_worker=2), worker=0)
        assert os.environ["OMP_NUM_THREADS"] == "2"
    finally:
        os.sched_setaffinity(0, before)
        os.environ.pop("OMP_NUM_THREADS")
