"""Pure policy: policy state and an actor in, a decision or a scope filter out; rules; redaction."""

from tallystick.policy.permissions import MUTATIONS, OPERATIONS, ROLES, PolicyState, decide, rule_on

__all__ = ["MUTATIONS", "OPERATIONS", "ROLES", "PolicyState", "decide", "rule_on"]
