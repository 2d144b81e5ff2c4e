"""The options of `llmdeploy estimate`: one for each key of a case."""

from typing import Annotated

import typer

Text = str | None
Whole = int | None
Real = float | None

Model = Annotated[
    Text,
    typer.Option(help="Hugging Face id, path of config.json, model folder, GGUF file or store id"),
]
Quantization = Annotated[
    Text, typer.Option(help="fp8, awq, gptq, int8, w4a16, nvfp4, …; default: the checkpoint's own")
]
EngineName = Annotated[
    Text,
    typer.Option(
        help="vllm, sglang, tensorrt-llm, lmdeploy, tgi, llama.cpp, mlc, mindie, exllama or"
        " embedded; default: vllm"
    ),
]
EngineVersion = Annotated[Text, typer.Option(help="like 0.11.0; default: the newest known rules")]
Gpu = Annotated[Text, typer.Option(help="catalog id or printed name, like rtx4090 or H100-SXM")]
GpuMemory = Annotated[
    Text,
    typer.Option("--gpu-memory", help="of one device, like 80GiB; default: the catalog's"),
]
GpuBandwidth = Annotated[
    Text, typer.Option(help="memory rate of one device, like 3.35TB/s; default: the catalog's")
]
GpuFlops = Annotated[
    Text, typer.Option(help="dense bf16 rate, like 989TFLOPS; default: the catalog's")
]
Gpus = Annotated[Whole, typer.Option(help="devices of all hosts; default: TP x PP x DP")]
Hosts = Annotated[Whole, typer.Option(help="hosts; default: as few as hold 8 devices each")]
Interconnect = Annotated[
    Text, typer.Option(help="like nvlink4, pcie4, ethernet-25g; default: the device's own")
]
TensorParallel = Annotated[Whole, typer.Option(help="default: from --gpus, or 1")]
PipelineParallel = Annotated[Whole, typer.Option(help="default: 1")]
DataParallel = Annotated[Whole, typer.Option(help="default: from --gpus, or 1")]
ExpertParallel = Annotated[
    bool | None,
    typer.Option("--expert-parallel/--no-expert-parallel", help="share experts over the devices"),
]
MemoryFraction = Annotated[
    Text, typer.Option(help="the engine's own, like 90%; default: that version's")
]
MaxModelLen = Annotated[Whole, typer.Option(help="tokens; default: the model's longest")]
KvCacheDtype = Annotated[Text, typer.Option(help="auto, bf16, fp8, int8, …; default: auto")]
Dtype = Annotated[Text, typer.Option(help="bf16, fp16 or fp32; default: the checkpoint's")]
MaxNumSeqs = Annotated[
    Whole, typer.Option(help="requests decoded together; default: that version's")
]
MaxNumBatchedTokens = Annotated[
    Whole, typer.Option(help="tokens of one step; default: that version's")
]
EnforceEager = Annotated[
    bool | None,
    typer.Option("--enforce-eager/--no-enforce-eager", help="no graphs; default: graphs"),
]
SpeculativeTokens = Annotated[
    Whole, typer.Option(help="drafted a step by the model's own MTP layers; default: not loaded")
]
InputTokens = Annotated[Real, typer.Option(help="mean prompt, in tokens")]
OutputTokens = Annotated[Real, typer.Option(help="mean answer, in tokens")]
Concurrency = Annotated[
    Real,
    typer.Option(
        help="requests at once; with --request-rate the smaller load; default: a saturated server"
    ),
]
RequestRate = Annotated[
    Text, typer.Option("--request-rate", help="arrivals, like 20/s or 100000/day")
]
Batch = Annotated[
    Text, typer.Option(help="file of one JSON case a line (- for stdin): one result a line out")
]
Explain = Annotated[bool, typer.Option("--explain", help="show each formula with its numbers")]
Store = Annotated[str, typer.Option(help="folder of the model store")]
