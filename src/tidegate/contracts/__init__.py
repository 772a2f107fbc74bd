"""Contracts: what the events of a source must look like, and what happens to those that do not."""

from tidegate.contracts.contract import Contract, Field
from tidegate.contracts.loading import load_contract
from tidegate.contracts.registry import Registry

__all__ = ["Contract", "Field", "Registry", "load_contract"]
