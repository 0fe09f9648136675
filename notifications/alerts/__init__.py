"""Alert rules, which notify tenants and operators when a figure of an instance or a cluster stays too high."""
