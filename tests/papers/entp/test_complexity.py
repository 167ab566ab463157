"""Counted costs against PyTorch's counter and against live tensors."""

import pytest
import torch
from mistakes import named

from entp_lib import costs as complexity
from entp_lib import kernels
from entp_lib.config import ModelConfig
from entp_lib.model import build_model
from entp_papers.entp.complexity import experiment as study
from entp_papers.entp.complexity import measurements as costs
from entp_papers.entp.complexity.training_steps import steps_study


def test_while_counting_no_kernel_hides_a_product():
    block = build_model(ModelConfig("entp", 1, 1, 2, 2, 2)).layers[0]
    x = torch.zeros(2)
    found = []

    def fails():
        found.append(kernels.usable(block, x))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        complexity.counted(fails)
    assert found == [False]
    assert kernels.usable(block, x)  # also after an error


def test_algorithm_1_as_printed_is_attention_until_it_overflows():
    q = torch.tensor([2.0], dtype=torch.float64)
    k = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    torch.testing.assert_close(costs.printed_attention(q, k, k), costs.streaming_attention(q, k, k))
    assert costs.printed_attention(1000 * q, k, k).isnan().all()
    assert costs.streaming_attention(1000 * q, k, k).item() == 1.0


# What is measured of costs.


def test_live_tensors_counts_what_is_alive_at_a_time():
    a = torch.zeros(100)
    b = torch.zeros(100)

    def one_after_the_other():
        for _ in range(5):
            a + b

    assert costs.peak_bytes(one_after_the_other) == 400
    assert costs.peak_bytes(lambda: [a + b for _ in range(5)]) == 2000
    views_and_in_place = costs.peak_bytes(lambda: (a.view(10, 10), a[:5], a.add_(b)))
    assert views_and_in_place == 0
    assert costs.peak_bytes(lambda: (a + b).view(10, 10)[:2]) == 400


def test_subjects_compute_what_they_are_named_for():
    """ENTP's last token is the encoder's."""
    subjects = costs.Subjects(ModelConfig("entp", 3, 2, 16, costs.VOCABULARY, 12))
    with torch.no_grad():
        for method in ("fast", "reference"):
            every = subjects.entp(9, method)()
            torch.testing.assert_close(every[8:], subjects.encoder_token(9)())
        assert subjects.decoder_pass(9)().shape == (1, 9, costs.VOCABULARY)
        assert subjects.decoder_token(9)().shape == (1, costs.VOCABULARY)


SHAPE = dict(zip(study.PARAMETERS, (2, 1, 8, [8], [4], 1, 1), strict=True))
STEPS = dict(
    n_layers=2,
    n_heads=1,
    width=8,
    tokens=16,
    rounds=1,
    arithmetic="AVX2",
    precision="fp32",
    lengths=[4],
)

test_mistakes_are_named = named(
    (lambda: costs.measure(**SHAPE | {"lengths": [1, 8]}), "lengths = "),
    (lambda: costs.measure(**SHAPE | {"rounds": 0}), "rounds = "),
    (lambda: steps_study(**STEPS | {"arithmetic": "SSE"}), "arithmetic"),
    (lambda: steps_study(**STEPS | {"precision": "fp8"}), "precision"),
    (lambda: steps_study(**STEPS | {"lengths": [0]}), "lengths"),
)
