"""Stands in for PopDist: reads the variables of poprun, and connects the instances by MPI."""
import os
import sys
import types

from poptorch import Options


def number(name):
    return int(os.environ[f"POPDIST_{name}"])


def isPopdistEnvSet():
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ


def init():
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
    assert MPI.COMM_WORLD.size == getNumInstances(), MPI.COMM_WORLD.size


def getNumLocalReplicas():
    return number("NUM_LOCAL_REPLICAS")


def getNumInstances():
    return number("NUM_TOTAL_REPLICAS") // getNumLocalReplicas()


def getInstanceIndex():
    return number("REPLICA_INDEX_OFFSET") // getNumLocalReplicas()


# A module within this one, although it is only a file.
poptorch = types.ModuleType("popdist.poptorch")
poptorch.Options = Options
sys.modules[poptorch.__name__] = poptorch
