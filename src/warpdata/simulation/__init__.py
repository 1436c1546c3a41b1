"""Simulation of a training epoch on many machines: the real order and plan, with a model of store and network.

docs/concepts/simulation.md explains the model and its limits.
"""

from warpdata.simulation.cluster_model import ClusterModel, EpochSimulation, StoreModel, simulate

__all__ = ["ClusterModel", "EpochSimulation", "StoreModel", "simulate"]
