"""Stands in for PopTorch: needs a partition, a folder for executables, and more shared memory than a container has."""
import os
import pathlib
import tempfile
import types

# A container has 64 MB by default.
SHARED_MEMORY = 80 << 20


class Error(Exception):
    pass


class Options:
    def deviceIterations(self, batches):
        assert batches > 0

    def randomSeed(self, seed):
        assert seed >= 0


class DataLoader:
    def __init__(self, options, data, batch_size, shuffle, drop_last, num_workers):
        assert isinstance(options, Options) and batch_size > 0 and num_workers > 0
        self.data = data

    def __iter__(self):
        with tempfile.TemporaryFile(dir="/dev/shm") as batch:
            os.posix_fallocate(batch.fileno(), 0, SHARED_MEMORY)
        images, labels = self.data
        assert len(images) == len(labels), (len(images), len(labels))
        yield images, labels


class Executor:
    """A model that is compiled at its first call, unless an earlier run has stored its executable."""

    def __init__(self, name, model):
        self.name, self.model, self.executable = name, model, None

    def __call__(self, *tensors):
        if self.executable is None:
            self.compile()
        return self.model(*tensors)

    def compile(self):
        if not os.environ.get("IPUOF_VIPU_API_PARTITION_ID"):
            raise Error("Failed to acquire 1 IPU(s)")
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
        # Options of the replicas are a part of the executable.
        name = "-".join([self.name, os.environ.get("POPDIST_NUM_TOTAL_REPLICAS", "1"), rank])
        self.executable = pathlib.Path(os.environ["POPTORCH_CACHE_DIR"], f"{name}.popef")
        if self.executable.exists():
            print(f"loaded the {self.name} executable", flush=True)
            return
        self.executable.parent.mkdir(parents=True, exist_ok=True)
        self.executable.touch()
        print(f"compiled the {self.name} executable", flush=True)

    def copyWeightsToHost(self):
        assert self.executable is not None

    def destroy(self):
        self.executable = None


def trainingModel(model, options, optimizer):
    return Executor("training", model)


def inferenceModel(model, options):
    return Executor("inference", model)


optim = types.SimpleNamespace(SGD=lambda parameters, lr: lr)
