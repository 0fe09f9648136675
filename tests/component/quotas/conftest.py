"""The same stand-ins as for instances: quotas live in the data plane too."""

from tests.component.instances.conftest import asked_to_reconcile, client_quotas, data_plane, observation

__all__ = ["asked_to_reconcile", "client_quotas", "data_plane", "observation"]
