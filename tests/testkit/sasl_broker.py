"""A broker whose instances ask who is there, but for those whose `vpc` says `plaintext`:
`EngineCluster(module=("tests.testkit.sasl_broker",))`.
"""

from __future__ import annotations

import sys

from brokers.engine import __main__ as engine

if __name__ == "__main__":
    engine.install_compiled_modules()
    from brokers.engine.assembly import tenant_sessions

    tenant_sessions.security_of = lambda document: document.vpc or "sasl_plaintext"
    sys.exit(engine.main())
