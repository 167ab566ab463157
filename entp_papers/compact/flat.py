"""Adam over all parameters as one vector: what small models pay per tensor, they pay once."""

from collections.abc import Iterable

import torch
from torch import nn


class FlatAdam(torch.optim.Adam):
    """``torch.optim.Adam`` of parameters that are views of one vector from here on, as are their gradients.

    Steps are the same bit for bit, since Adam looks at every weight by itself, as long as a parameter has a gradient
    in every step or in none: without one it has zeros here. Parameters of one type, on one device; they must not be
    moved or replaced afterwards, nor may their gradients be set to None, as ``model.zero_grad()`` does: it is this
    optimizer's ``zero_grad`` that goes before a step, and ``step`` raises RuntimeError where another did. ``options``
    are Adam's; ValueError for a weight decay, which would move parameters that no loss does, and for groups.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], **options):
        parameters = list(parameters)
        if not all(isinstance(p, nn.Parameter) for p in parameters):
            raise ValueError("one vector holds parameters; groups of them cannot have rates of their own")
        if options.get("weight_decay"):
            raise ValueError("weight_decay: parameters without a gradient would decay")
        if len({(p.dtype, p.device) for p in parameters}) != 1:
            raise ValueError("one vector holds parameters of one type, on one device, and at least one")
        vector = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
        vector.grad = torch.zeros_like(vector)
        sizes = [p.numel() for p in parameters]
        views = zip(parameters, vector.detach().split(sizes), vector.grad.split(sizes), strict=True)
        for p, values, gradient in views:
            p.data, p.grad = values.view(p.shape), gradient.view(p.shape)
        self.views = [(p, p.grad) for p in parameters]
        super().__init__([vector], **options)

    def step(self, closure=None):
        """Adam's step. RuntimeError where a parameter's gradient is no longer a view of the vector's."""
        if any(p.grad is not view for p, view in self.views):
            raise RuntimeError("a gradient was replaced; use this optimizer's zero_grad, not the model's")
        return super().step(closure)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Zeros in place: the parameters' gradients are views."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.zero_()
