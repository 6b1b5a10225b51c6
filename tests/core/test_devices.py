"""Where things are computed, and what that keeps in memory."""

import subprocess
import sys
from pathlib import Path

import pytest

GROWTH = """
import torch
from airrformer.core.config import ModelConfig
from airrformer.core.devices import resolve_device
from airrformer.core.transformer import Transformer

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

resolve_device("cpu")
torch.set_num_threads(1)
model = Transformer(ModelConfig(layers=1, width=96, heads=4, feed_forward=384)).train()
sizes = []
for length in [*range(100, 140), *range(20, 100)]:
    model.logits(model(torch.full((16, length), 5))).sum().backward()
    sizes.append(resident())
print(sizes[-1] - sizes[39])
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for the size of a process")
def test_memory_does_not_grow_with_the_number_of_shapes():
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 30  # MB; without a limit about a megabyte a shape
