"""Contracts: what the events of a source must look like, and what happens to those that do not."""

from tidegate.contracts.contract import Contract, Field, load_contract

__all__ = ["Contract", "Field", "load_contract"]
