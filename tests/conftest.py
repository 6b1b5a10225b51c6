"""What holds for all tests."""

import os

# As the command line sets it: threads that wait sleep, so that a busy machine does not slow the tests down many times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# What is numbered in a test is numbered by it; tests/receptors/test_numbering.py has caches of its own.
os.environ["AIRRFORMER_CACHE"] = "off"
