"""Budget alerts, which notify a tenant when the costs of a month reach a percentage of its budget."""
