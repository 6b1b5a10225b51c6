"""What the training of the networks that classify rests on."""

import torch

from airrformer.classify.training import picked


def test_the_gradient_of_picked_rows_is_the_same_on_every_run():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20, 30, 32, generator=generator, requires_grad=True)
    rows = torch.randint(20, (2000,), generator=generator)
    weights = torch.randn(2000, 30, 32, generator=generator)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # of one thread even values[rows] has one order
    try:
        runs = [torch.autograd.grad((picked(values, rows) * weights).sum(), values)[0] for _ in range(5)]
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(picked(values, rows), values[rows])
    assert all(torch.equal(runs[0], run) for run in runs)
    expected = torch.zeros(20, 30, 32, dtype=torch.float64)
    for row, weight in zip(rows.tolist(), weights.double()):
        expected[row] += weight
    torch.testing.assert_close(runs[0].double(), expected, atol=1e-4, rtol=1e-4)
