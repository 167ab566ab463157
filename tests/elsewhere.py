"""A second device, made of this processor, for tests of what a GPU would refuse.

Its tensors keep their values here and say that they are on ``DEVICE``. Operations give what they
give here. They refuse tensors of both devices together, as a GPU does, and float64, as a Mac's GPU
does.
"""

import contextlib

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from entp_lib import arguments

DEVICE = "elsewhere"
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
HERE = torch.Generator
MAKERS = (torch.tensor, torch.as_tensor)  # they look at their numbers before any mode is asked


class Backend(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def device_count(self):
        return 0  # so that nothing outside of these tests takes it for a GPU


backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=Backend())
library = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
library.fallback(torch.library.fallthrough_kernel)  # autocast leaves all types as they are


def is_there(device):
    return device is not None and torch.device(device).type == DEVICE


class Elsewhere(Tensor):
    """A tensor on ``DEVICE``; ``here`` has its values."""

    @staticmethod
    def __new__(cls, here):
        made = Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=torch.device(DEVICE, 0),
        )
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Generator(torch.Generator):
    """A generator that, asked to be on ``DEVICE``, says so, and draws what one here draws."""

    device = torch.device(DEVICE, 0)

    def __new__(cls, device="cpu"):
        return super().__new__(cls) if is_there(device) else HERE(device)


def compute(func, args, kwargs):
    """Call an operation on the values here; its result is on ``DEVICE`` if its tensors are."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    there = [x for x in tensors if isinstance(x, Elsewhere)]
    if there and func not in COPIES:
        apart = [x.shape for x in tensors if x.dim() and not isinstance(x, Elsewhere)]
        assert not apart, f"{func}: tensors of another device, of shapes {apart}"
    device = kwargs.get("device")
    goes = is_there(device) if device is not None else bool(there)
    if func is torch.ops.aten.copy_.default:
        goes = isinstance(args[0], Elsewhere)
    called = kwargs | ({"device": "cpu"} if is_there(device) else {})
    args_here, kwargs_here = tree_map(
        lambda x: x.here if isinstance(x, Elsewhere) else x, (args, called)
    )
    result = func(*args_here, **kwargs_here)
    if not goes:
        return result
    result = tree_map(lambda x: Elsewhere(x) if isinstance(x, Tensor) else x, result)
    return return_and_correct_aliasing(func, args, kwargs, result) if there else result


class Operations(TorchDispatchMode):
    """Makes new tensors on ``DEVICE``."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = compute(func, args, kwargs or {})
        for made in tree_leaves(result):
            narrow = not isinstance(made, Elsewhere)
            assert narrow or made.dtype != torch.float64, f"{func}: no float64 here"
        return result


class Functions(TorchFunctionMode):
    """What reads or makes a tensor's numbers without an operation."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in MAKERS and is_there(kwargs.get("device")):
            return func(*args, **(kwargs | {"device": "cpu"})).to(DEVICE)
        if func is Tensor.new_tensor and is_there(args[0].device):
            return torch.tensor(args[1], dtype=args[0].dtype).to(DEVICE)
        if func is Tensor.tolist:
            return func(args[0].cpu())
        return func(*args, **kwargs)


@contextlib.contextmanager
def second_device(monkeypatch):
    """A block with the device ``DEVICE``."""
    with monkeypatch.context() as patch, Functions(), Operations():
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(arguments, "NARROW", (DEVICE,))
        yield
