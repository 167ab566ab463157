"""Adam over one vector steps as Adam over many tensors does, bit for bit."""

import copy

import pytest
import torch
from torch import nn

from entp_lib.training.flat import FlatAdam
from entp_lib.training.weights import read_tensors, save_tensors


class Tied(nn.Module):
    """Odd sizes, a weight that is used twice, one that never is, and a number without dimensions."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.embedding, self.hidden = nn.Embedding(5, 7), nn.Linear(7, 7)
            self.scale, self.unused = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.ones(3))

    def forward(self, tokens):
        return self.scale * self.hidden(self.embedding(tokens)) @ self.embedding.weight.T


def steps(model, optimizer, first, last):
    for step in range(first, last):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + step % 3)
        tokens = torch.randint(5, (2, 4), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens[0]), tokens[1]).backward()
        optimizer.step()
    return model.state_dict()


def same(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_the_weights_are_those_of_adam_bit_for_bit():
    plain, flat = Tied(), Tied()
    wanted = steps(plain, torch.optim.Adam(plain.parameters(), lr=0.01), 0, 20)
    assert same(steps(flat, FlatAdam(flat.parameters(), lr=0.01), 0, 20), wanted)
    assert torch.equal(flat.unused, torch.ones(3)) and not same(Tied().state_dict(), wanted)


def test_weights_and_moments_go_through_a_file(tmp_path):
    model = Tied()
    optimizer = FlatAdam(model.parameters(), lr=0.01)
    save_tensors(tmp_path / "weights", steps(model, optimizer, 0, 5), {})
    read, _ = read_tensors(tmp_path / "weights", set())
    other = Tied()
    after = FlatAdam(other.parameters(), lr=0.01)
    other.load_state_dict(read)
    after.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # moments would be shared
    assert same(steps(other, after, 5, 9), steps(model, optimizer, 5, 9))


@pytest.mark.parametrize("parameters", [[], [torch.ones(2), torch.ones(2, dtype=torch.float64)]])
def test_parameters_that_no_vector_holds_are_refused(parameters):
    with pytest.raises(ValueError, match="one vector holds parameters of one type"):
        FlatAdam(map(nn.Parameter, parameters))
