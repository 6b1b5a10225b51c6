"""Where to compute."""

from __future__ import annotations

import logging
import os

import torch

from airrformer.errors import UserError

log = logging.getLogger(__name__)

# On a CPU oneDNN keeps what it has prepared for each shape of a batch, 1,024 of them, a megabyte or two each. Batches
# of chains have hundreds of shapes: a training grew by gigabytes. Keeping a few costs no time. It is read when the
# first batch is computed.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")


_INSTRUCTIONS = {"bf16": ("avx512_bf16", "amx_bf16"), "fp16": ("avx512_fp16", "amx_fp16")}


def resolve_precision(precision: str, device: torch.device) -> str:
    """``auto`` is fp32. A CPU without instructions for the precision computes in fp32, and the log says so."""
    needed = _INSTRUCTIONS.get(precision)
    if device.type == "cpu" and needed:
        able = getattr(torch.cpu, "get_capabilities", dict)()  # an older torch cannot tell
        if able.get("architecture") == "x86_64" and not any(able.get(name) for name in needed):
            log.warning(
                "precision %s: this CPU has no instructions for it (%s) and would be several times slower than in "
                "fp32; fp32 is used", precision, " or ".join(needed),
            )  # fmt: skip
            return "fp32"
    return "fp32" if precision == "auto" else precision


def resolve_device(device: str) -> torch.device:
    """``auto`` is the first GPU, else the CPU. Raises ``UserError`` for a device that this machine lacks."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {device!r} cannot be used here ({reason}); use device: auto or cpu") from None
    return torch.device(device)
