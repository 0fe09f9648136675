"""What happens to a tenant that apps above have to follow. Sent inside the transaction that makes it so."""

from __future__ import annotations

from django.dispatch import Signal

# Both with `tenant`, locked and changed already, and `acting`.
tenant_suspended = Signal()
tenant_resumed = Signal()
