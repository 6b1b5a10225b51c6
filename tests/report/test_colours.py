"""Colours of both themes: enough contrast with the page, and apart from each other for colour-blind eyes too."""

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

# Machado, Oliveira & Fernandes 2009 (doi:10.1109/TVCG.2009.113), severity 1, on linear RGB.
EYES = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
SPLITS = ["random", "cluster", "group", "class", "parent", "given"]
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def themes() -> dict[str, dict[str, str]]:
    css = files("airrformer.report").joinpath("style.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, flags=re.S)
    return {name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for name, block in zip(("light", "dark"), blocks)}


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    t = TO_XYZ @ rgb.clip(0, 1) / [0.9505, 1, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    bright, dark = sorted((float(linear(c) @ TO_XYZ[1]) for c in (a, b)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_contrast_as_wcag_asks(theme):
    colours = themes()[theme]
    for name in ("ink", "soft", "link", "bad", "gap", "note"):
        assert contrast(colours[name], colours["page"]) >= 4.5, name
    for name in (*SPLITS, "heat", "frame", *(f"c{i}" for i in range(8))):
        assert contrast(colours[name], colours["page"]) >= 3, name


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_apart_for_every_eye(theme, eyes):
    colours = themes()[theme]
    for names in ([f"c{i}" for i in range(8)], SPLITS):
        seen = {name: lab(EYES[eyes] @ linear(colours[name])) for name in names}
        for a, b in combinations(names, 2):
            assert np.linalg.norm(seen[a] - seen[b]) > 20, (a, b)
