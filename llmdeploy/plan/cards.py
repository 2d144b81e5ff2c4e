"""What an accelerator can do at most, by its name: memory bandwidth and dense 16-bit compute."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Data-sheet peaks of one device."""

    read_bytes_per_s: float
    matmul_flops_per_s: float


CARDS = (
    ("H200", Card(read_bytes_per_s=4800e9, matmul_flops_per_s=989e12)),
    ("H100 PCIe", Card(read_bytes_per_s=2000e9, matmul_flops_per_s=756e12)),
    ("H100", Card(read_bytes_per_s=3350e9, matmul_flops_per_s=989e12)),
    ("A100-SXM4-80", Card(read_bytes_per_s=2039e9, matmul_flops_per_s=312e12)),
    ("A100 80GB PCIe", Card(read_bytes_per_s=1935e9, matmul_flops_per_s=312e12)),
    ("A100", Card(read_bytes_per_s=1555e9, matmul_flops_per_s=312e12)),
    ("L40S", Card(read_bytes_per_s=864e9, matmul_flops_per_s=362e12)),
    ("L4", Card(read_bytes_per_s=300e9, matmul_flops_per_s=121e12)),
    ("A10", Card(read_bytes_per_s=600e9, matmul_flops_per_s=125e12)),
    ("RTX 5090", Card(read_bytes_per_s=1792e9, matmul_flops_per_s=209e12)),
    ("RTX 4090", Card(read_bytes_per_s=1008e9, matmul_flops_per_s=165e12)),
    ("RTX 3090", Card(read_bytes_per_s=936e9, matmul_flops_per_s=71e12)),
)
"""First match by words in the name that the driver gives. Source: NVIDIA's data sheets, dense."""


def card(name: str) -> Card | None:
    """The peaks of the card with that name, None for one that is not in the table."""
    return next((peaks for words, peaks in CARDS if words in name), None)
