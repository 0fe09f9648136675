"""Fixtures of quotas: the fakes of the data plane that instances use."""

from tests.component.instances.conftest import asked_to_reconcile, client_quotas, data_plane, observation

__all__ = ["asked_to_reconcile", "client_quotas", "data_plane", "observation"]
