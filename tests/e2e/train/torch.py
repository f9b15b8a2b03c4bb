"""Stands in for PyTorch: the names that the program of examples/train uses, with tensors that are lists of numbers."""
import json
import math
import types

uint8 = "uint8"


class Number(float):
    def item(self):
        return float(self)


class Tensor(list):
    def reshape(self, *shape):
        size = math.prod(shape[1:])
        return Tensor(self[start : start + size] for start in range(0, len(self), size))

    def float(self):
        return self

    def long(self):
        return self

    def __truediv__(self, divisor):
        return self

    def argmax(self, dim):
        return Tensor(0 for _ in self)

    def __eq__(self, other):
        return Tensor(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def sum(self):
        return Number(sum(self))

    def mean(self):
        return Number(sum(self) / len(self))


def frombuffer(content, dtype, offset):
    assert dtype == uint8
    return Tensor(content[offset:])


def save(state, path):
    path.write_text(json.dumps(state))


def load(path):
    return json.loads(path.read_text())


class Module:
    def __call__(self, *tensors):
        return self.forward(*tensors)

    def parameters(self):
        return []

    def state_dict(self):
        return {"weights": 1}

    def load_state_dict(self, state):
        assert state == {"weights": 1}

    def eval(self):
        return self


class Layer(Module):
    def __init__(self, *arguments, **options):
        pass

    def forward(self, tensor):
        return tensor


class Loss(Module):
    def forward(self, scores, labels):
        assert len(scores) == len(labels)
        return Tensor([0.5])


layers = {name: Layer for name in ("Sequential", "Conv2d", "ReLU", "MaxPool2d", "Flatten", "Linear")}
nn = types.SimpleNamespace(Module=Module, CrossEntropyLoss=Loss, **layers)
utils = types.SimpleNamespace(
    data=types.SimpleNamespace(TensorDataset=lambda images, labels: (images, labels)),
)
