"""Where to compute."""

from __future__ import annotations

import torch

from airrformer.errors import UserError


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
