"""Pools of equal devices, out of a declared inventory or hosts' facts: what layouts are tried on.

A layout is tried once a pool, not once a host: 128 equal hosts cost no more than one.
"""

from llmdeploy.plan.pool.declared import declared
from llmdeploy.plan.pool.from_facts import from_facts
from llmdeploy.plan.pool.rates import Rates
from llmdeploy.plan.pool.values import Pool, PoolHost, groups_that_fit

__all__ = ["Pool", "PoolHost", "Rates", "declared", "from_facts", "groups_that_fit"]
